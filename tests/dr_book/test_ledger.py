"""The ledger over records, and the command line that shows it."""

import json
from itertools import chain

import numpy as np
import pytest

from dr_book import comparison, measured
from dr_book.commands import main
from dr_book.ledger import (
    answer,
    counts,
    direction_only,
    evidence,
    ledger,
    over_claims,
    pairs,
    printed,
)
from dr_book.papers import PAPERS, load_papers
from dr_lib import lab, places
from dr_lib.evaluation import Scores
from dr_lib.files import json_digest
from dr_lib.lab import Record

LEVELS = {
    "15% / 15%": 0.2,
    "15% / 30%": 0.2,
    "30% / 30%": 0.5,
    "30% / 50%": 0.5,
    "40% / 60%": 0.5,
    "30% / 100%": 0.1,
}


def made(
    study,
    label,
    level,
    *,
    measure="MRR@10",
    on="squad",
    stage="retriever1",
    seed=0,
    scale="laptop",
    **values,
) -> Record:
    """A record of 200 queries around a level."""
    common = {"base": "embedded", "objective": {"name": "mlm"}}
    recipe = common | {"seed": seed, "label": label, "final": stage, "on": on}
    noise = np.random.default_rng([seed, len(label)]).normal(0, 0.02, 200)
    columns = {measure: level + noise} | values
    scores = Scores(
        [f"q{number}" for number in range(200)],
        {name: np.float32(one) for name, one in columns.items()},
    )
    return Record(
        study=study,
        label=label,
        scale=scale,
        seed=seed,
        recipe=recipe,
        recipe_digest=json_digest(recipe),
        keys={"evaluation": json_digest(recipe)},
        data={"collection": {"name": on, "digest": on}},
        scores=scores.to_dict(),
        means={name: scores.mean(name) for name in scores.values},
        training={},
        seconds={},
        versions={},
        machine={},
        commit={"id": None, "changed": None},
        created="2026-01-01T00:00:00+00:00",
    )


def claim_of(claim_id: str):
    return next(
        claim for paper in load_papers().values() for claim in paper.claims if claim.id == claim_id
    )


@pytest.fixture
def book(tmp_path, monkeypatch):
    """An empty book."""
    monkeypatch.setattr(places, "records_root", lambda: tmp_path / "book")
    return tmp_path / "book"


@pytest.fixture
def judged(book):
    """Judge a claim by the given records only."""

    def judge(claim_id: str, *records: Record):
        for record in records:
            record.save(book / record.scale)
        return answer(claim_of(claim_id))[0]

    return judge


@pytest.fixture
def recorded(book):
    """Records of SimLM's Table 8, in which the fully replaced decoder input is clearly worst."""
    for label, level in LEVELS.items():
        made("simlm/table08", label, level).save(book / "laptop")
    return book


def run_pairs(found):
    """The pairs of a verdict that were run."""
    return [pair for pair in found.pairs if pair.difference is not None]


def test_second_retrievers_are_not_judged_by_first_ones(judged):
    """The column "Retriever2 MRR@10" has the labels of "Retriever1 MRR@10"."""
    for study in ("master/table06", "master/table06-second"):
        first = [
            made(study, label, 0.5)
            for label in ("MASTER", "w/o CPR", "w/o RPR", "w/o POR", "+Shared-Dec", "SimLM")
        ]
        assert judged("master-ablation-r2", *first).verdict == "not run"
    second = [
        made("master/table06-second", label, 0.5, stage="retriever2")
        for label in ("MASTER", "w/o CPR")
    ]
    assert len(run_pairs(judged("master-ablation-r2", *second))) == 1


def test_answers_of_natural_questions_are_not_judged_by_passages_of_squad(judged):
    """The column "NQ R@20" asks for accuracy by answers."""
    labels = {"DPR-PAQ": 0.6, "DPR (ours)": 0.5}
    recall = [
        made("dpr_paq/table01", label, level, measure="R@20", stage="retriever2")
        for label, level in labels.items()
    ]
    assert judged("dprpaq-paq-helps-nq", *recall).missing[0] == "accuracy@20"
    accuracy = [
        made("dpr_paq/table01", label, 0.5, measure="accuracy@20", stage="retriever2")
        for label in labels
    ]
    assert len(run_pairs(judged("dprpaq-paq-helps-nq", *accuracy))) == 1


def test_dialogue_sets_are_judged_each_by_itself(judged):
    levels = {"topical-chat": (0.6, 0.5), "sgd": (0.4, 0.5)}
    records = [
        made(
            "dpr_paq/table03-tuned",
            label,
            level,
            measure="R@1",
            on=name,
            stage="pretrained",
            seed=seed,
        )
        for seed in (0, 1)
        for name, own in levels.items()
        for label, level in zip(("Reddit, then dialogues", "dialogues"), own, strict=True)
    ]
    found = [judged(f"dprpaq-reddit-helps-{name}", *records) for name in ("convai2", "dstc7")]
    assert [run_pairs(one)[0].state for one in found] == ["supported", "contradicted"]


def test_trec_19_is_judged_by_its_queries_alone(judged):
    """MASTER writes "TREC-19", which no pattern for DL found."""
    here, there = (
        [
            made("evaluation/graded", label, level, measure="nDCG@10", on=on, seed=seed)
            for label, level in (("MASTER", 0.6), ("SimLM", 0.4))
            for seed in (0, 1, 2)
        ]
        for on in ("squad", "trecdl-mini")
    )
    assert judged("master-trec19", *here).verdict == "not run"
    assert run_pairs(judged("master-trec19", *there))[0].state == "supported"
    assert judged("master-trec20").verdict == "not testable here"


def test_an_average_over_collections_is_judged_once_all_have_records_also_old_ones(judged):
    """Old recipes do not say that a first retriever is the end."""
    *most, last = (
        [
            made("evaluation/zero-shot", label, level, measure="nDCG@10", on=on, stage=None)
            for label, level in (("CDMAE", 0.6), ("SimLM", 0.4))
        ]
        for on in claim_of("cdmae-beir-average").answered_by.collections
    )
    assert judged("cdmae-beir-average", *chain.from_iterable(most)).verdict == "not run"
    assert len(run_pairs(judged("cdmae-beir-average", *last))) == 1


def test_a_papers_difference_is_positive_where_less_is_better_and_less_was_taken():
    table = load_papers()["cdmae"].table("table6")
    assert printed(claim_of("cdmae-masking-cost"), table, "MAE", "CDMAE") == 0.7  # ms less


def test_runs_of_one_day_are_one_look():
    times = ("2026-01-01T00:00", "2026-01-01T09:00", "2026-01-02T00:00")
    records = [made("s", "a", 0.5).model_copy(update={"created": time}) for time in times]
    assert evidence(records)["looks"] == 2


def test_only_an_order_is_supported_in_its_direction_alone():
    pair = {"state": "supported", "low": 0.4, "high": 1.0, "paper": 3.0}
    relations = ("over", "level with", "within")
    assert [direction_only(pair | {"relation": one}) for one in relations] == [True, False, False]


@pytest.mark.parametrize("key", PAPERS)
def test_records_as_they_are_named_answer_every_claim(key):
    """All claims that can be answered, those of DPR-PAQ's Tables 1 and 3 with the labels of their
    notebooks among them.
    """
    for claim in (claim for claim in load_papers()[key].claims if claim.answered_by):
        named = claim.answered_by
        names = {*named.measure.values()} if isinstance(named.measure, dict) else {named.measure}
        names |= (
            {check.measure for check in claim.checks} - {None}
            if isinstance(named.measure, str)
            else set()
        )
        columns = {name: np.full(200, 0.5) for name in names}
        records = [
            made(
                named.study,
                label,
                0.5,
                measure=min(names),
                on=place,
                stage=named.stage_of(row),
                **columns,
            )
            for row, label in named.rows.items()
            for place in named.collections
        ]
        if named.measure in ("Matthews", "accuracy", "Pearson"):
            continue  # measures of a whole set, which are taken from predictions
        found, used = answer(claim, records)
        complete = claim.id != "simlm-nq" or found.pairs
        untestable = found.verdict == "not testable here"
        assert {record.label for record in used} == {*named.rows.values()}, claim.id
        assert untestable or (run_pairs(found) and complete), claim.id


def test_a_changed_record_changes_verdict_prose_and_figure(book):
    def told(level: float) -> list[str]:
        runs = [made("simlm/table07", "MLM", level, seed=seed) for seed in (0, 1, 2)]
        runs += [made("simlm/table07", "BERT-base", 0.4, seed=seed) for seed in (0, 1, 2)]
        for record in runs:
            record.save(book / "laptop")
        compare = comparison.Comparison("simlm/table07", {}, "MRR@10")
        pair = ("MLM", "BERT-base")
        claim = claim_of("simlm-target-corpus-mlm-helps")
        parts = (
            compare.verdicts([claim]),
            compare.differences([pair], "x"),
            compare.figure([*pair], "x"),
        )
        return [answer(claim)[0].verdict, *(part.data for part in parts)]

    before, after = told(0.5), told(0.3)
    assert (before[0], after[0]) == ("held", "contradicted")
    assert (
        ">direction held, here 10.1, paper 3.0</span>" in before[1]
        and ">contradicted</span>" in after[1]
    )
    assert (
        "masked LM against BERT-base" in before[2]
        and ">+10.1 <" in before[2]
        and ">\N{MINUS SIGN}9.9 <" in after[2]
    )
    assert "masked LM 50." in before[3] and "masked LM 30." in after[3]


def test_one_record_more_or_less_changes_a_verdict(book):
    claim = claim_of("simlm-target-corpus-mlm-helps")
    runs = [made("simlm/table07", "MLM", 0.5, seed=seed) for seed in (0, 1, 2)]
    runs += [made("simlm/table07", "BERT-base", 0.4, seed=seed) for seed in (0, 1, 2)]
    paths = [record.save(book / "laptop") for record in runs]
    assert answer(claim)[0].verdict == "held"
    paths[1].unlink()
    found = answer(claim)[0]
    assert found.verdict == "open"
    assert "the plan gives a row 3 seeds, one has 2" in found.note
    assert found.pairs[0].waits > 0 and found.waits == found.to_dict()["waits"] > 0
    runs[1].save(book / "laptop")
    assert answer(claim)[0].verdict == "held"
    made("simlm/table07", "MLM", 0.1, seed=3).save(book / "laptop")
    assert answer(claim)[0].verdict == "open"


def told_by_recipe(study, label, level, **more):
    """A record of a run that is identified by its recipe."""
    record = made(study, label, level, **more)
    recipe = {"base": "embedded", "objective": {"name": "mlm", "params": {}}, "seed": record.seed}
    recipe |= {"evaluation": {"kind": "search"}, "final": "retriever1"}
    keys = {"evaluation": json_digest([study, label, record.seed]), "run": "r"}
    return record.model_copy(
        update={"recipe": recipe, "recipe_digest": json_digest(recipe), "keys": keys}
    )


def test_all_runs_of_a_configuration_count_whichever_study_made_them(book):
    here = told_by_recipe("simlm/table07", "MLM", 0.5)
    again = here.model_copy(update={"study": "elsewhere", "label": "the same run"})
    other = told_by_recipe("elsewhere", "another seed", 0.6, seed=1)
    for record in (here, again, other):
        record.save(book / "laptop")
    (runs,) = measured.recorded("simlm/table07").values()
    assert [run.seed for run in runs] == [0, 1]
    mean = 50 * (here.means["MRR@10"] + other.means["MRR@10"])
    assert measured.value(runs, "MRR@10").estimate.value == pytest.approx(mean)
    (theirs,) = {
        measured.value(own, "MRR@10").estimate.value
        for own in measured.recorded("elsewhere").values()
    }
    assert theirs == pytest.approx(mean)


def test_compiled_or_not_a_training_is_of_one_configuration():
    def of(**changes):
        recipe = lab.recipe_at("gpu", changes).portable()
        record = told_by_recipe("simlm/table07", "MLM", 0.5)
        return measured.configuration(record.model_copy(update={"recipe": recipe}))

    plain = of(pretraining={"compile": False})
    assert of(pretraining={"compile": "auto"}) == of(finetuning={"compile": True}) == plain
    assert of(pretraining={"steps": 7}) != plain
    refused = of(pretraining={"compile": False}, collection={"allow_duplicates": False})
    assert refused == plain, "the digest of the data tells them apart"


def test_a_task_of_the_base_model_is_one_configuration_whichever_table_it_was_made_for():
    tables = (
        measured.recorded_by_collection(name)["glue-mrpc"]["BERT"]
        for name in ("simlm/table01", "master/table07")
    )
    ours, theirs = ({(run.study, run.seed, run.epoch) for run in runs} for runs in tables)
    assert ours == theirs and len(ours) == 3


def test_a_claim_is_judged_by_the_records_of_its_table(recorded):
    entries = {entry["claim"]: entry for entry in ledger()}
    hurts = entries["simlm-decoder-100-hurts"]
    assert (hurts["protocol"], hurts["stage"], hurts["measure"], hurts["study"]) == (
        "stand-in",
        "retriever1",
        "MRR@10",
        "simlm/table08",
    )
    assert len(hurts["records"]) == 6 and hurts["page"] == "notebooks/simlm/table08_replace_rates"
    assert (hurts["verdict"], hurts["scale"], hurts["collection"], hurts["seeds"]) == (
        "open",
        "laptop",
        "squad",
        [0],
    )
    assert hurts["pairs"][0]["paper"] == pytest.approx(38.0 - 36.6)
    assert entries["simlm-generator-variants-equal"]["verdict"] == "not run"


def test_pairs_of_all_claims_are_counted_and_listed(recorded):
    entries = ledger()
    assert sum(counts(entries).values()) == len(pairs(entries))
    assert all({"claim", "protocol", "state"} <= pair.keys() for pair in pairs(entries))


def test_the_family_of_claims_has_the_open_ones(recorded):
    """Benjamini and Hochberg by hand: p times judged claims over rank, from the largest down."""
    (simlm,) = [entry for entry in ledger() if entry["claim"] == "simlm-decoder-100-hurts"]
    assert simlm["verdict"] == "open" and simlm["p"] == simlm["p_over_claims"] == 1.0
    shown = [0.001, 0.02, 0.049, 1.0, 1.0]  # a decided claim has p below 0.05, whatever its rank
    corrected = over_claims([{"p": p} for p in shown] + [{"p": None}])
    by_hand = [0.001 * 5 / 1, 0.02 * 5 / 2, 0.049 * 5 / 3, 1.0, 1.0]
    assert [entry["p_over_claims"] for entry in corrected[:5]] == pytest.approx(by_hand)
    assert corrected[5] == {"p": None}
    alone = over_claims([{"p": p} for p in shown[:3]])
    assert all(entry["p_over_claims"] < 0.05 for entry in alone), "without them none can fall"


def test_without_records_nothing_has_run(book):
    assert {entry["verdict"] for entry in ledger()} == {"not run", "not testable here"}


def test_another_scale_is_not_mixed_in(recorded):
    assert {entry["verdict"] for entry in ledger("gpu")} == {"not run", "not testable here"}
    (recorded / "laptop").rename(recorded / "smoke")
    # smoke runs decide nothing
    assert {entry["verdict"] for entry in ledger()} == {"not run", "not testable here"}


def test_records_on_the_collection_that_most_were_made_on_are_taken_for_a_page(recorded):
    one, *rest = lab.load_records(recorded / "laptop")
    other = one.model_copy(
        update={"label": "elsewhere", "data": {"collection": {"name": "x", "digest": "c1"}}}
    )
    other.save(recorded / "laptop")
    assert [run for own in measured.recorded("simlm/table08").values() for run in own] == [
        one,
        *rest,
    ]


def test_of_a_collection_that_changed_the_newest_state_counts(recorded):
    claim = claim_of("simlm-decoder-100-hurts")
    old = lab.load_records(recorded / "laptop")
    new = {
        "data": {"collection": {"name": "squad", "digest": "c1"}},
        "created": "2026-02-01T00:00:00+00:00",
    }
    again = [
        record.model_copy(update=new)
        for record in old
        if record.label in ("30% / 50%", "30% / 100%")
    ]
    assert len(run_pairs(answer(claim, old + again)[0])) == 1


def test_the_command_prints_the_ledger_as_json(recorded, capsys):
    assert main(["ledger", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = {"claim", "verdict", "pairs", "protocol"}
    of_pair = {"state", "testable", "difference", "low", "high", "p", "seeds"}
    assert all(names <= entry.keys() for entry in found)
    assert all(of_pair <= pair.keys() for entry in found for pair in entry["pairs"])
    assert main(["ledger"]) == 0
    shown = capsys.readouterr().out
    waiting = "open: waits for seeds  simlm-decoder-100-hurts (Table 8) on squad, laptop scale"
    assert f"{waiting}, stand-in" in shown and " waits for seeds, 0 contradicted" in shown
    assert "pairs: " in shown and "claims: " in shown


def test_a_mistake_ends_in_one_line_and_a_status(book, capsys, tmp_path):
    assert main(["verify", str(tmp_path / "missing.json")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert main(["publish", "simlm/table99", "--scale", "smoke"]) == 1
    assert main(["publish", "simlm/table08", "--scale", "../else"]) == 1
    assert main(["publish", "simlm/table08"]) == 1
    assert "simlm/table08: no scale given." in capsys.readouterr().err
    assert main(["publish", str(tmp_path / "missing.jsonl.xz")]) == 1
    assert main(["publish", "your_corpus/mine", "--scale", "laptop"]) == 1
