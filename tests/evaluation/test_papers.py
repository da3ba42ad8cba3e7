"""The papers' files: complete, consistent with themselves, and refused with file, claim and field when broken."""

from pathlib import Path

import pytest
import yaml

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.evaluation import load_paper, load_papers
from dr_lib.evaluation.papers import PAPERS, number

COUNTS = {
    "simlm": (14, 1, 25, 18),
    "cdmae": (6, 3, 22, 17),
    "dpr_paq": (6, 1, 27, 25),
    "master": (9, 1, 24, 21),
    "pair": (5, 1, 19, 16),
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
    assert sum(len(paper.claims) for paper in papers.values()) == 117


def test_every_claim_agrees_with_the_papers_own_numbers(papers):
    for paper in papers.values():
        for claim in paper.claims:
            for better, worse in claim.pairs:
                table = paper.table(claim.table)
                high, low = (number(table.cell(name, claim.metric)) for name in (better, worse))
                assert (low > high) if claim.lower_is_better else (high > low), (claim.id, better, worse)


def test_rows_are_named_as_the_files_readers_expect(papers):
    assert papers["simlm"].table("table8").labels() == [
        "15% / 15%", "15% / 30%", "30% / 30%", "30% / 50%", "40% / 60%", "30% / 100%",
    ]  # fmt: skip
    assert papers["pair"].table("table5").labels() == ["0.9 / 0.1", "0.8 / 0.2", "0.7 / 0.3", "0.6 / 0.4"]
    names = papers["dpr_paq"].table("table1").labels()
    assert "RocketQA" in names and "DPR-PAQ / BERT-base" in names
    assert papers["simlm"].table("table6").labels()[-1] == "Cross-encoder re-ranker"


def test_column_gives_each_row_by_its_name_and_refuses_an_unknown_column(papers):
    table = papers["simlm"].table("table12")
    assert list(table.column("MRR@10")) == table.labels()
    assert table.column("MRR@10")["frozen generator"] == table.cell("frozen generator", "MRR@10") == 38.0
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
    lower = {claim.id for paper in papers.values() for claim in paper.claims if claim.lower_is_better}
    assert lower == {"cdmae-masking-cost", "dprpaq-edit-distance"}


def test_claims_of_a_table_are_found(papers):
    assert [claim.id for claim in papers["simlm"].claims_of("table8")] == [
        "simlm-replace-rate-robust", "simlm-decoder-100-hurts",
    ]  # fmt: skip
    with pytest.raises(InputError, match="Known: table1"):
        papers["simlm"].table("table99")


def broken(tmp_path: Path, change) -> Path:
    content = yaml.safe_load((places.project_root() / "book" / "papers" / "simlm.yaml").read_text())
    change(content)
    (tmp_path / "simlm.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


def claim_of(content: dict, claim_id: str) -> dict:
    return next(claim for claim in content["claims"] if claim["id"] == claim_id)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: claim_of(c, "simlm-nq")["compare"].update(metric="R@21"), ["simlm-nq", "compare.metric", "R@21"]),
        (lambda c: claim_of(c, "simlm-nq")["compare"]["pairs"].append(["SimLM", "Nobody"]),
         ["simlm-nq", "'Nobody' names 0 rows"]),
        (lambda c: claim_of(c, "simlm-nq").update(source="Table 77"), ["simlm-nq", "source", "table77"]),
        (lambda c: claim_of(c, "simlm-nq").update(source="Section 3"), ["simlm-nq", "source", "names no table"]),
        (lambda c: claim_of(c, "simlm-nq")["compare"].update(pairs=[["SimLM"]]), ["simlm-nq", "compare.pairs"]),
        (lambda c: claim_of(c, "simlm-nq")["compare"].update(pairs=[]), ["simlm-nq", "compare.pairs"]),
        (lambda c: claim_of(c, "simlm-nq").pop("statement"), ["simlm-nq", "statement", "required"]),
        (lambda c: claim_of(c, "simlm-nq").update(note="x"), ["simlm-nq", "note", "unknown key"]),
        (lambda c: claim_of(c, "simlm-nq").update(id="simlm-nq-r100"), ["claims", "simlm-nq-r100", "used twice"]),
        (lambda c: claim_of(c, "simlm-nq").pop("answered_by"), ["simlm-nq", "answered_by or unanswerable"]),
        (lambda c: claim_of(c, "simlm-nq").update(unanswerable="x"), ["simlm-nq", "answered_by or unanswerable"]),
        (lambda c: claim_of(c, "simlm-nq-r100")["answered_by"]["rows"].update(Nobody="x"),
         ["simlm-nq-r100", "'Nobody' is no row"]),
        (lambda c: claim_of(c, "simlm-nq")["answered_by"].pop("measure"), ["simlm-nq", "answered_by.measure"]),
        (lambda c: claim_of(c, "simlm-nq")["answered_by"].pop("lacks"), ["simlm-nq", "says what it lacks"]),
        (lambda c: claim_of(c, "simlm-nq")["answered_by"]["stage"].pop("PAIR"), ["simlm-nq", "other rows than rows"]),
        (lambda c: claim_of(c, "simlm-nq")["answered_by"].update(pairs=[["PAIR", "SimLM"]]),
         ["simlm-nq", "answered_by", "does not follow"]),
        (lambda c: c["tables"][3].pop("page"), ["table4.page", "required"]),
        (lambda c: c["tables"][3]["rows"][0].pop(), ["table4", "row 1 has 2 cells for 3 columns"]),
        (lambda c: c["tables"][3]["rows"].append(["SimLM", 1, 2]), ["simlm-nq", "'SimLM' names"]),
        (lambda c: c.update(key="other"), ["simlm.yaml", "other"]),
        (lambda c: c.pop("year"), ["simlm.yaml", "year"]),
    ],
)  # fmt: skip
def test_broken_file_is_refused_with_file_claim_and_field(tmp_path, change, words):
    with pytest.raises(InputError) as caught:
        load_paper("simlm", broken(tmp_path, change))
    for word in ["simlm.yaml", *words]:
        assert word in str(caught.value)


def test_file_that_is_not_yaml_is_refused_with_its_line(tmp_path):
    (tmp_path / "simlm.yaml").write_text("key: simlm\ntables: [\n")
    with pytest.raises(InputError, match="line 3"):
        load_paper("simlm", tmp_path)
    (tmp_path / "simlm.yaml").write_text("just words")
    with pytest.raises(InputError, match="not a mapping"):
        load_paper("simlm", tmp_path)


def test_unknown_paper_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=", ".join(PAPERS)):
        load_paper("colbert", tmp_path)
