"""The papers' files: complete, and consistent with themselves."""

from collections import Counter
from collections.abc import Iterator

import pytest

from dr_book.papers import PAPERS, Claim, Paper, load_paper, load_papers, number
from dr_lib import lab, objectives, places
from dr_lib.errors import InputError
from dr_lib.files import read_yaml

COUNTS = {
    "simlm": (14, 1, 26, 17),  # one says that a gap means nothing, which is not an order
    "cdmae": (6, 3, 22, 15),  # of two the gain counts, and no pair: on one set against the others
    "dpr_paq": (6, 1, 27, 23),  # one says that little is gained
    "master": (9, 1, 24, 21),
    "pair": (5, 1, 19, 16),
}

FIRST = {  # claims that a system is the first of a whole column
    *("simlm-main-mrr", "simlm-main-r1k", "simlm-nq", "simlm-nq-r100"),
    *(
        "cdmae-main-mrr",
        "cdmae-main-r1k",
        "cdmae-trec19",
        "cdmae-stage-bm25",
        "cdmae-stage-distilled",
        "cdmae-beir-average",
    ),
    *(
        "master-main-mrr",
        "master-trec19",
        "master-trec20",
        "master-nq",
        "master-nq-r100",
        "master-beir-average",
    ),
    *(
        "pair-main-mrr",
        "pair-main-r50",
        "pair-main-r1000",
        "pair-main-nq-r5",
        "pair-main-nq-r20",
        "pair-main-nq-r100",
    ),
    "dprpaq-best-dialogue",
}


@pytest.fixture(scope="module")
def papers():
    return load_papers()


def test_all_tables_figures_and_claims_are_there(papers):
    for key, paper in papers.items():
        tables = sum(table.id.startswith("table") for table in paper.tables)
        compared = sum(claim.compare is not None for claim in paper.claims)
        found = (tables, len(paper.tables) - tables, len(paper.claims), compared)
        assert found == COUNTS[key], key
    assert sum(len(paper.claims) for paper in papers.values()) == 118


def test_every_claim_agrees_with_the_papers_own_numbers(papers):
    for paper in papers.values():
        for claim in paper.claims:
            for better, worse in claim.pairs:
                table = paper.table(claim.table)
                high, low = (number(table.cell(name, claim.metric)) for name in (better, worse))
                assert (low > high) if claim.lower_is_better else (high > low), (
                    claim.id,
                    better,
                    worse,
                )


def test_the_first_of_a_column_is_compared_with_all_the_others(papers):
    found = {
        claim.id: (paper, claim)
        for paper in papers.values()
        for claim in paper.claims
        if claim.id in FIRST
    }
    assert found.keys() == FIRST
    for paper, claim in found.values():
        column = paper.table(claim.table).column(claim.metric)
        values = {row: number(cell) for row, cell in column.items() if number(cell) is not None}
        best = max(values, key=values.get)
        pairs = claim.answered_by.pairs or claim.pairs
        assert {worse for better, worse in pairs if better == best} == values.keys() - {best}, (
            claim.id
        )


def test_rows_are_named_as_the_files_readers_expect(papers):
    assert papers["simlm"].table("table8").labels() == [
        "15% / 15%", "15% / 30%", "30% / 30%", "30% / 50%", "40% / 60%", "30% / 100%",
    ]  # fmt: skip
    assert papers["pair"].table("table5").labels() == [
        "0.9 / 0.1",
        "0.8 / 0.2",
        "0.7 / 0.3",
        "0.6 / 0.4",
    ]
    names = papers["dpr_paq"].table("table1").labels()
    assert "RocketQA" in names and "DPR-PAQ / BERT-base" in names
    assert papers["simlm"].table("table6").labels()[-1] == "Cross-encoder re-ranker"


def test_column_gives_each_row_by_its_name_and_refuses_an_unknown_column(papers):
    table = papers["simlm"].table("table12")
    assert list(table.column("MRR@10")) == table.labels()
    assert (
        table.column("MRR@10")["frozen generator"]
        == table.cell("frozen generator", "MRR@10")
        == 38.0
    )
    with pytest.raises(InputError, match="0 columns are named 'MRR'"):
        table.column("MRR")


def test_the_papers_own_numbers_lie_within_the_ranges_that_they_state(papers):
    columns = {
        "simlm-replace-rate-robust": ["MRR@10"],
        "simlm-generator-variants-equal": ["MRR@10", "R@1k"],
        "master-mask-rate-r1": ["Retriever1 MRR@10"],
        "master-mask-rate-r2": ["Retriever2 MRR@10"],
    }
    by_id = {claim.id: (paper, claim) for paper in papers.values() for claim in paper.claims}
    for claim_id, names in columns.items():
        paper, claim = by_id[claim_id]
        for check, column in zip(claim.checks, names, strict=True):
            values = [paper.table(claim.table).cell(label, column) for label in check.rows]
            assert max(values) - min(values) == pytest.approx(check.width)


def test_every_claim_says_what_our_runs_must_show(papers):
    claims = [claim for paper in papers.values() for claim in paper.claims]
    assert all(claim.compare or claim.checks for claim in claims)
    assert sum(not claim.trained for claim in claims) == 5


def test_times_and_distances_are_better_when_lower(papers):
    lower = {
        claim.id for paper in papers.values() for claim in paper.claims if claim.lower_is_better
    }
    assert lower == {"cdmae-masking-cost", "dprpaq-edit-distance"}


def test_claims_of_a_table_are_found(papers):
    assert [claim.id for claim in papers["simlm"].claims_of("table8")] == [
        "simlm-replace-rate-robust", "simlm-decoder-100-hurts",
    ]  # fmt: skip
    with pytest.raises(InputError, match="Known: table1"):
        papers["simlm"].table("table99")


def test_no_file_contradicts_itself(papers):
    for key, paper in papers.items():
        assert paper.key == key and list(problems(paper)) == []
    assert repeated([claim.id for paper in papers.values() for claim in paper.claims]) == []


PASSAGES, QUERIES = 8_841_823, 502_939  # of MS MARCO, the queries those of training


@pytest.fixture(scope="module")
def scale():
    return lab.recipe_at("paper")


def test_the_scale_of_the_papers_has_simlms_tables_11_and_13(papers, scale):
    """Cell by cell, in the tables' own units: a batch of passages, epochs, warm-up in steps."""
    one, simlm = scale.with_(objective="simlm"), papers["simlm"]
    pre = simlm.table("table11").column("MS-MARCO")
    assert (pre["learning rate"], pre["text length"]) == (
        one.pretraining.learning_rate,
        one.passage_length,
    )
    assert int(pre["train steps"].replace("k", "000")) == one.pretraining.steps
    assert pre["warmup steps"] == one.pretraining.warmup_steps
    rates = [f"{one.objective.params[f'{side}_rate']:.0%}" for side in ("encoder", "decoder")]
    assert [pre["encoder replace rate"], pre["decoder replace rate"]] == rates
    places = {
        "Retriever 1-2": one.finetuning,
        "Re-ranker": one.auxiliary.cross_encoder,
        "Retriever_distill": one.distillation,
    }
    for column, training in places.items():
        told = simlm.table("table13").column(column)
        size = training.batch_queries * training.accumulation
        assert size == told["batch size"]
        assert training.learning_rate == told["learning rate"]
        assert training.negatives == told["# of negatives"]
        assert training.warmup_steps == pytest.approx(told["warmup steps"], abs=1)
        assert training.steps == pytest.approx(told["epoch"] * QUERIES / size, abs=1)
        assert getattr(training, "temperature", None) == told["tau"]
        assert getattr(training, "contrastive_weight", None) == told["alpha"]
        length = told["passage length"]
        assert getattr(training, "length", one.passage_length) == length
    depths = {one.negatives.depth, one.mining.depth, one.reranking.depth}
    told = simlm.table("table13")
    assert depths == {
        told.cell("negatives depth", "Retriever 1-2"),
        told.cell("rerank depth", "Re-ranker"),
    }
    assert one.query_length == told.cell("query length", "Retriever 1-2")


def test_what_the_other_papers_set_otherwise_is_what_they_say(papers, scale):
    """Each value of `recipe` from `hyperparameters`, which repeat the paper; none is the scale's
    own, and together they are a recipe.
    """
    cdmae, dpr_paq, master, pair = (papers[key].hyperparameters for key in PAPERS[1:])
    given = {
        key: {path: value for path, value in papers[key].recipe.items() if path != "objective"}
        for key in PAPERS
    }
    tuned = {"normalise": False, "temperature": 1.0, "blocks": "query_passage"}

    def compared(*stages):
        return {f"{stage}__{key}": value for stage in stages for key, value in tuned.items()}

    pre, stages = cdmae["pretraining"], cdmae["finetuning"]["stages"]
    assert given["cdmae"] == compared("finetuning", "distillation") | {
        "pretraining__steps": pre["epochs"] * PASSAGES // pre["batch_size"],
        "pretraining__stop_at": pre["checkpoint_step"],
        "pretraining__warmup": pre["warmup_ratio"],
        "pretraining__weight_decay": pre["weight_decay"],
        "negatives__depth": stages["bm25_negatives"]["depth_K1"],
        "finetuning__negatives": stages["bm25_negatives"]["group_size"] - 1,
        "distillation__batch_queries": stages["reranker_distilled"]["batch_size"],
        "distillation__negatives": stages["reranker_distilled"]["group_size"] - 1,
    }
    pre = dpr_paq["pretraining"]
    batch = pre["batch_size"]["bert_base"] * int(pre["hardware"].split()[0])
    assert given["dpr_paq"] == compared("finetuning") | {
        "objective__separate": True,
        "objective__batch_pairs": batch,
        "pretraining__steps": pre["epochs_max"] * 65_000_000 // batch,
        "pretraining__accumulation": 1,
        "pretraining__learning_rate": pre["learning_rate"]["bert_base"],
        "finetuning__negatives": 1,
        "finetuning__shared": False,
    }
    steps = master["pretraining"]["train_steps"]
    warmup = papers["simlm"].hyperparameters["pretraining"]["warmup_steps"] / steps
    assert given["master"] == {
        "objective__complement": "paper",
        "objective__weighting": "tfidf",
        "objective__complement_weight": 0.0,
        "objective__half_weight": 0.0,
        "pretraining__steps": steps,
        "pretraining__warmup": pytest.approx(warmup, abs=1e-5),
    }
    pre, tuning = pair["pretraining"], pair["finetuning"]
    batch, negatives = 512 * 8, int(tuning["positives_to_hard_negatives"].split(":")[1])
    assert pre["batch_size"]["msmarco"] == tuning["batch_size"]["msmarco"] == "512 x 8"
    assert given["pair"] == compared("finetuning") | {
        "objective__candidates": "paper",
        "objective__batch_pairs": batch,
        "objective__negatives": negatives,
        "pretraining__steps": pre["epochs_max"] * 1_800_000 // batch,
        "pretraining__accumulation": 1,
        "pretraining__learning_rate": pre["learning_rate"],
        "pretraining__warmup": pre["warmup_rate"],
        "finetuning__steps": round(tuning["epochs_max"] * QUERIES / batch),
        "finetuning__learning_rate": tuning["learning_rate"],
        "finetuning__warmup": tuning["warmup_rate"],
        "finetuning__batch_queries": batch,
        "finetuning__negatives": negatives,
        "finetuning__pseudo_labels": True,
    }
    for key, paper in papers.items():
        assert paper.recipe.get("objective", key) == key.replace("dpr_paq", "paq")
        plain = scale.with_(**{"objective": paper.recipe.get("objective", "simlm")})
        assert all(plain.with_(**{path: value}) != plain for path, value in given[key].items())
        assert plain.with_(**paper.recipe).objective.name == plain.objective.name


def test_rates_and_weights_that_methods_have_by_default_are_the_papers(papers):
    """Values that no scale file repeats."""
    simlm, cdmae, master, pair = (
        papers[key].hyperparameters["pretraining"] for key in ("simlm", "cdmae", "master", "pair")
    )
    told = simlm["replacement"]
    ours = objectives.parameters("simlm")
    assert (ours.encoder_rate, ours.decoder_rate) == (told["encoder_rate"], told["decoder_rate"])
    assert (ours.decoder_layers, ours.decoder_init) == (simlm["decoder"]["layers"], "copy_last")
    assert ours.generator == "frozen" and simlm["generator"]["frozen"]
    told, ours = cdmae["decoder_masking"], objectives.parameters("cdmae")
    assert (ours.window, ours.noise) == (told["window_L"], told["sigma"])
    rates = cdmae["mask_ratio"]
    assert (ours.encoder_rate, ours.decoder_rate) == (rates["encoder"], rates["decoder"])
    assert (ours.decoder_layers, ours.decoder_init) == (cdmae["decoder"]["layers"], "random")
    assert ours.projection and ours.mask_policy == "80_10_10"
    ours = objectives.parameters("master")
    assert len(ours.tasks) == master["decoders"]["count"]
    assert ours.decoder_layers == master["decoders"]["layers_each"]
    assert ours.encoder_rate == master["encoder"]["mask_rate"]
    assert ours.decoder_rate == master["decoders"]["mask_rate"]
    assert objectives.parameters("pair").alpha == pair["alpha"]["value"]
    labels = lab.Recipe().auxiliary.pseudo_labels
    assert {"s_pos": labels.s_pos, "s_neg": labels.s_neg} == pair["thresholds"]


def problems(paper: Paper) -> Iterator[str]:
    """Contradictions within a paper's file."""
    for kind, parts in (("tables", paper.tables), ("claims", paper.claims)):
        yield from (
            f"{kind}: id {name!r} is used twice" for name in repeated([part.id for part in parts])
        )
    for table in paper.tables:
        for row, cells in enumerate(table.rows, 1):
            if len(cells) != len(table.columns):
                yield (
                    f"{table.id}: row {row} has {len(cells)} cells for {len(table.columns)} columns"
                    " (null stands for a dash)"
                )
    for claim in paper.claims:
        yield from (
            f"{claim.id}, {problem}"
            for problem in (*of_answer(claim), *of_checks(claim), *of_comparison(claim, paper))
        )


def of_comparison(claim: Claim, paper: Paper) -> Iterator[str]:
    """A claim names a table of the file, and rows and a column that this table has."""
    tables = {table.id: table for table in paper.tables}
    if claim.table is not None and claim.table not in tables:
        yield f"source: there is no {claim.table}"
    elif claim.compare and claim.table is None:
        yield "source: names no table that the rows could come from"
    elif claim.compare:
        labels, columns = tables[claim.table].labels(), tables[claim.table].columns
        if claim.metric not in columns:
            yield (
                f"compare.metric: no column {claim.metric!r} in {claim.table}, which has"
                f" {', '.join(columns)}"
            )
        for name in (name for pair in claim.pairs for name in pair if labels.count(name) != 1):
            yield (
                f"compare.pairs: {name!r} names {labels.count(name)} rows of {claim.table}, which"
                f" has {', '.join(labels)}"
            )


def of_checks(claim: Claim) -> Iterator[str]:
    """A claim says what our runs must show, and a comparison has two rows."""
    if not (claim.compare or claim.checks):
        yield "checks: neither compare nor checks says what our runs must show"
    if any(check.kind != "within" and len(check.rows) < 2 for check in claim.checks):
        yield "checks: a comparison needs two rows"


def of_answer(claim: Claim) -> Iterator[str]:
    """The rows of an answer are the claim's, and the pairs that carry the claim follow from its
    own.
    """
    answer = claim.answered_by
    if (answer is None) == (claim.unanswerable is None):
        yield "answered_by: needs either answered_by or unanswerable"
    if answer is None:
        return
    if answer.protocol != "same" and not answer.lacks:
        yield "answered_by: who has other data than the paper says what it lacks"
    if any(
        isinstance(each, dict) and each.keys() != answer.rows.keys()
        for each in (answer.stage, answer.measure)
    ):
        yield "answered_by: stage or measure names other rows than rows"
    rows = {row for pair in claim.pairs for row in pair} | {
        row for check in claim.checks for row in check.rows
    }
    follow = {*claim.pairs}
    for _ in rows:
        follow |= {(first, last) for first, one in follow for other, last in follow if one == other}
    yield from (
        f"answered_by.rows: {row!r} is no row of the claim"
        for row in answer.rows
        if row not in rows
    )
    pairs = (pair for pair in answer.pairs or () if pair not in follow)
    yield from (
        f"answered_by.pairs: {pair} does not follow from the claim's pairs" for pair in pairs
    )


def repeated(ids: list[str]) -> list[str]:
    return sorted(name for name, times in Counter(ids).items() if times > 1)


@pytest.fixture
def content() -> dict:
    """SimLM's file, to be broken."""
    return read_yaml(places.project_root() / "book" / "papers" / "simlm.yaml")


def claim_of(content: dict, claim_id: str) -> dict:
    return next(claim for claim in content["claims"] if claim["id"] == claim_id)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: claim_of(c, "simlm-nq")["compare"].update(metric="R@21"),
         ["simlm-nq", "compare.metric", "R@21"]),
        (lambda c: claim_of(c, "simlm-nq")["compare"]["pairs"].append(["SimLM", "Nobody"]),
         ["simlm-nq", "'Nobody' names 0 rows"]),
        (lambda c: claim_of(c, "simlm-nq").update(source="Table 77"),
         ["simlm-nq", "source", "table77"]),
        (lambda c: claim_of(c, "simlm-nq").update(source="Section 3"),
         ["simlm-nq", "source", "names no table"]),
        (lambda c: claim_of(c, "simlm-nq").update(compare=None),
         ["simlm-nq", "neither compare nor checks"]),
        (lambda c: claim_of(c, "simlm-nq").update(checks=[{"kind": "best", "rows": ["SimLM"]}]),
         ["simlm-nq", "two rows"]),
        (lambda c: claim_of(c, "simlm-nq").update(id="simlm-nq-r100"),
         ["claims", "simlm-nq-r100", "used twice"]),
        (lambda c: claim_of(c, "simlm-nq").pop("answered_by"),
         ["simlm-nq", "answered_by or unanswerable"]),
        (lambda c: claim_of(c, "simlm-nq").update(unanswerable="x"),
         ["simlm-nq", "answered_by or unanswerable"]),
        (lambda c: claim_of(c, "simlm-nq-r100")["answered_by"]["rows"].update(Nobody="x"),
         ["simlm-nq-r100", "'Nobody' is no row"]),
        (lambda c: claim_of(c, "simlm-nq")["answered_by"].pop("lacks"),
         ["simlm-nq", "says what it lacks"]),
        (lambda c: claim_of(c, "simlm-nq")["answered_by"]["stage"].pop("PAIR"),
         ["simlm-nq", "other rows than rows"]),
        (lambda c: claim_of(c, "simlm-nq")["answered_by"].update(pairs=[["PAIR", "SimLM"]]),
         ["simlm-nq", "answered_by", "does not follow"]),
        (lambda c: c["tables"][3]["rows"][0].pop(), ["table4", "row 1 has 2 cells for 3 columns"]),
        (lambda c: c["tables"][3]["rows"].append(["SimLM", 1, 2]), ["simlm-nq", "'SimLM' names"]),
    ],
)  # fmt: skip
def test_contradictions_are_noticed(content, change, words):
    change(content)
    noticed = "\n".join(problems(Paper(**content)))
    for word in words:
        assert word in noticed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: claim_of(c, "simlm-nq")["compare"].update(pairs=[["SimLM"]]),
         ["claims.compare.pairs"]),
        (lambda c: claim_of(c, "simlm-nq")["compare"].update(pairs=[]), ["claims.compare.pairs"]),
        (lambda c: claim_of(c, "simlm-nq").pop("statement"), ["claims.statement", "required"]),
        (lambda c: claim_of(c, "simlm-nq").update(note="x"), ["claims.note", "unknown key"]),
        (lambda c: claim_of(c, "simlm-nq")["answered_by"].pop("measure"),
         ["claims.answered_by.measure"]),
        (lambda c: c["tables"][3].pop("page"), ["tables.page", "required"]),
        (lambda c: c.pop("year"), ["year", "required"]),
    ],
)  # fmt: skip
def test_unknown_and_missing_fields_are_refused(content, change, words):
    change(content)
    with pytest.raises(InputError) as caught:
        Paper(**content)
    for word in words:
        assert word in str(caught.value)


def test_unknown_paper_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=", ".join(PAPERS)):
        load_paper("colbert")
