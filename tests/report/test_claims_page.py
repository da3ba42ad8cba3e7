"""The page of all claims: counts, links to the pages of the studies, and what the first page shows."""

from dr_lib.evaluation import load_papers
from dr_lib.report import claims_page
from dr_lib.report.claims_page import FOUND, claims_tables, counts_table, page_of, write_found

ENTRY = {"statement": "a < b", "source": "Table 8", "scale": None, "collection": None, "seeds": [], "note": "unseen"}


def entries():
    """One entry a claim, in the form of the ledger, the first one held."""
    made = [
        ENTRY | {"paper": key, "claim": claim.id, "state": "not run"}
        for key, paper in load_papers().items()
        for claim in paper.claims
    ]
    made[0] |= {"state": "held", "scale": "laptop", "collection": "squad", "seeds": [0, 1], "note": "told"}
    return made


def test_counts_add_up_over_papers():
    html = counts_table(entries(), "reference/claims.html").data
    assert '<a href="reference/claims.html#dpr-paq">DPR-PAQ</a>' in html
    assert html.count("<tr>") == 2 + len(load_papers())
    assert '<td>all</td><td class="number">117</td><td class="number">1</td>' in html


def test_every_claim_stands_under_its_paper_escaped_and_with_what_it_rests_on():
    parts = claims_tables(entries())
    assert [part for part in parts if isinstance(part, str)][2] == "## DPR-PAQ"
    tables = "".join(part.data for part in parts if not isinstance(part, str))
    assert tables.count("a &lt; b") == 117 and "unseen" not in tables
    assert "squad, laptop scale, 2 seeds" in tables and "told" in tables
    assert tables.count(">held</span>") == 1 and ">not run</span>" not in tables


def test_study_leads_to_the_notebook_that_runs_it():
    assert page_of("simlm/table08") == "notebooks/simlm/table08_replace_rates"
    assert page_of("dpr_paq/table01") == "notebooks/dpr_paq/table01_qa"
    assert page_of("simlm/table03") is None and page_of(None) is None


def test_first_page_gets_a_sentence_where_nothing_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(claims_page, "recorded", lambda study: {})
    written = write_found(tmp_path, entries())
    assert [path.relative_to(tmp_path).as_posix() for path in written] == list(FOUND)
    assert "Nothing is recorded yet" in (tmp_path / FOUND[1]).read_text()
