"""Every claim and table of the papers: all names in `book/papers` exist, or are planned."""

import re
from pathlib import Path

import pytest

from dr_book.papers import load_papers
from dr_book.verdicts import comparisons
from dr_lib import objectives, places
from dr_lib.evaluation.nlu import MEASURES as OF_A_SET
from dr_lib.files import read_json
from dr_lib.lab import load_records, recorded_folder

ROOT = places.project_root()
# Pages still to be written, studies whose records they will make, and rows still to be added. A
# claim of the papers may name one of these until it exists; then its line is removed.
PLANNED = {
    "pages": {"notebooks/dpr_paq/table01_bases": ["dpr_paq/table01-bases"]},
    "rows": {"dpr_paq/table03-tuned": ["Reddit, then dialogues, 4 x 256"]},
}
COMING = {study for studies in PLANNED["pages"].values() for study in studies}
METHODS = ("none", "Condenser", "coCondenser", "RetroMAE", "SimLM", "CDMAE", "MASTER")
COMPUTED = {  # labels that a notebook makes from numbers, by study
    "cdmae/figure04": {"1 hard, batch 64", "15 hard, batch 8"},
    "dpr_paq/figure02": {"3,000 pairs"},
    "master/figure03": {
        f"{name}, {share}%" for name in ("MASTER", "SimLM") for share in (5, 10, 20, 50)
    },
    "simlm/figure03": {
        f"{name}, {number:,} steps" for name in ("SimLM", "MLM") for number in (2000, 12000, 16000)
    },
    "master/table08": {
        f"{rates}{end}"
        for rates in ("30% / 50%", "15% / 50%", "50% / 50%", "30% / 30%", "30% / 70%")
        for end in ("", ", retriever 2")
    },
    "methods/equal-budgets": {"BM25", *objectives.names()},
    "methods/open-domain": {f"{name}, retriever 2" for name in METHODS},
    "methods/stages": {
        f"{name}, {end}" for name in METHODS for end in ("retriever 1", "retriever 2", "distilled")
    },
    "pair/alpha": {"0", "0.1", "0.3", "0.5", "0.7", "1"},
    "pair/table05": {"0.9 / 0.1", "0.8 / 0.2", "0.7 / 0.3", "0.6 / 0.4"},
    "dpr_paq/table04": {"BFS, no fine-tuning", "ICT, no fine-tuning", "PAQ, no fine-tuning"},
    "pair/table05-labels": {"0.9 / 0.1", "0.8 / 0.2", "0.7 / 0.3", "0.6 / 0.4"},
    "pair/table05-negatives": {"0.9 / 0.1", "0.8 / 0.2", "0.7 / 0.3", "0.6 / 0.4"},
}
RANKED = re.compile(r"(MRR|R|nDCG|Success|accuracy)@\d+|R@1")


@pytest.fixture(scope="module")
def claims():
    return [claim for paper in load_papers().values() for claim in paper.claims]


@pytest.fixture(scope="module")
def notebooks():
    """Study -> sources of the notebook that makes it."""
    sources = {}
    for path in sorted((ROOT / "notebooks").glob("*/*.ipynb")):
        source = "\n".join(
            "".join(cell["source"])
            for cell in read_json(path)["cells"]
            if cell["cell_type"] == "code"
        )
        studies = {*re.findall(r'"([a-z_]+/[a-z0-9-]+)"', source)}
        studies |= {"evaluation/zero-shot"} if path.stem == "zero_shot" else set()
        for study in studies:  # several pages may show one study
            sources[study] = f"{sources.get(study, '')}\n{source}"
    return sources


@pytest.fixture(scope="module")
def records():
    """Study -> label -> the collections and measures of its records."""
    known: dict[str, dict[str, set]] = {}
    for record in load_records(recorded_folder("laptop")):
        of_label = known.setdefault(record.study, {}).setdefault(record.label, set())
        of_label |= {record.data["collection"]["name"], *record.means}
    return known


def test_every_claim_is_answered_or_says_why_not(claims):
    assert len(claims) == 118
    assert sum(claim.unanswerable is not None for claim in claims) == 12
    for claim in claims:
        assert claim.unanswerable or (
            claim.answered_by.why.endswith(".") and not claim.answered_by.lacks.endswith("..")
        ), claim.id


def test_no_reason_of_an_answer_says_what_is_still_to_do(claims):
    """It would be outdated once that is done; which rows are missing follows from the records."""
    words = re.compile(
        r"\bstill\b|to be (run|made|measured)|\bneeds?\b|not yet|recorded", re.IGNORECASE
    )
    assert not [
        (claim.id, claim.answered_by.why)
        for claim in claims
        if claim.answered_by and words.search(claim.answered_by.why)
    ]


def test_every_study_and_label_that_a_claim_names_can_be_made(claims, notebooks, records):
    missing = []
    for claim in (
        claim for claim in claims if claim.answered_by and claim.answered_by.study not in COMING
    ):
        study = claim.answered_by.study
        labels = {
            *records.get(study, ()),
            *COMPUTED.get(study, ()),
            *PLANNED["rows"].get(study, ()),
        }
        source = notebooks.get(study, "")
        missing += [(claim.id, study)] if not source and study not in PLANNED["rows"] else []
        names = {*claim.answered_by.rows.values()} - labels
        missing += [(claim.id, label) for label in sorted(names) if f'"{label}"' not in source]
    assert not missing


def test_no_row_of_a_claim_is_left_out_that_is_recorded_under_its_own_name(claims, records):
    """It would be reported as not run, and the best row be chosen without it."""
    left_out = []
    for claim in (claim for claim in claims if claim.answered_by):
        named, carrying = claim.answered_by, claim.answered_by.pairs or claim.pairs
        rows = {
            row for rows in (*carrying, *(check.rows for check in claim.checks)) for row in rows
        } - named.rows.keys()
        known = {
            label
            for label, own in records.get(named.study, {}).items()
            if own & {*named.collections}
        }
        left_out += [(claim.id, row) for row in sorted(rows & known)]
    assert not left_out


def test_every_measure_and_collection_that_a_claim_names_is_known(claims, records):
    for claim in (claim for claim in claims if claim.answered_by):
        named, known = claim.answered_by, records.get(claim.answered_by.study, {})
        measures = [named.measure] if isinstance(named.measure, str) else [*named.measure.values()]
        for measure in measures:
            recorded = any(measure in own for own in known.values())
            assert (
                recorded
                or RANKED.fullmatch(measure)
                or measure in OF_A_SET
                or claim.id in OTHER_MEASURES
            ), (claim.id, measure)
        collections = {name for own in known.values() for name in own}
        for name in named.collections:
            assert not known or name in collections or named.study in PLANNED["rows"], (
                claim.id,
                name,
            )
            assert name in COLLECTIONS, (claim.id, name)


COLLECTIONS = {
    "squad",
    "wikipedia-nq",
    "trecdl-mini",
    "liveqa-med",
    "scifact",
    "cranfield",
    "medline",
    "cacm",
    "npl",
}
COLLECTIONS |= {
    "topical-chat",
    "sgd",
    "ubuntu-irc",
    "glue-cola",
    "glue-mrpc",
    "glue-stsb",
    "msmarco-passage",
    "made tokens",
}
OTHER_MEASURES = {  # sizes, times, statistics and label quality
    "simlm-index-smaller",
    "cdmae-random-masking-wasteful",
    "cdmae-importance-masks-informative",
    "cdmae-masking-cost",
    "cdmae-masking-no-gpu",
    "dprpaq-edit-distance",
    "pair-similarity-flip",
    "pair-threshold-quality",
    "pair-threshold-quality-neg",
}


def test_a_claim_about_chosen_queries_is_not_judged_by_others(claims):
    about = [claim for claim in claims if claim.id.endswith("-cases")]
    pairs = [check for claim in about for check in comparisons(claim)]
    assert (len(about), len(pairs)) == (3, 6)
    assert all("that the paper chose" in pair.because and not pair.testable for pair in pairs)


def test_every_table_and_figure_has_a_page():
    tables = [(key, table) for key, paper in load_papers().items() for table in paper.tables]
    assert len(tables) == 47
    assert not [
        (key, table.id) for key, table in tables if not (ROOT / f"{table.page}.ipynb").is_file()
    ]


def test_every_claim_has_a_page():
    pages = {
        claim.id: claim.page or paper.table(claim.table).page
        for paper in load_papers().values()
        for claim in paper.claims
    }
    assert [name for name, page in pages.items() if not (ROOT / f"{page}.ipynb").is_file()] == []


def test_the_page_of_every_table_and_figure_is_in_the_book_and_its_opener_leads_there():
    chapters = (ROOT / "_toc.yml").read_text(encoding="utf-8").split()
    for key, paper in load_papers().items():
        opener = (ROOT / "book" / "papers" / f"{key}.md").read_text(encoding="utf-8")
        for page in sorted({table.page for table in paper.tables}):
            assert page in chapters, (key, page)
            assert f"<../{page}>`" in opener or f"{{doc}}`../{page}`" in opener, (key, page)


def test_a_page_that_is_written_is_planned_no_longer():
    assert [page for page in PLANNED["pages"] if Path(ROOT / f"{page}.ipynb").is_file()] == []


def test_masked_terms_lead_with_records_and_say_what_the_build_computed():
    cells = read_json(ROOT / "notebooks" / "cdmae" / "fig2_fig3_masked_terms.ipynb")["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (first,) = (source for source in code if "leading=True" in source)
    assert "measured.recorded(study)" in first and "tables.provenance(names)" in first
    drawn = [one for one in code if re.search(r"figures\.\w+\(", one) and one is not first]
    assert len(drawn) == 3 and all("source=built" in source for source in drawn)


def test_no_page_gives_a_verdict_of_a_smoke_run():
    """The badge of a verdict comes from records or larger runs; a plan's only from records."""
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        for cell in read_json(path)["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and "tables.badge(" in source:
                assert "smoke" in source or "= plan.verdicts(" in source, path.name
