"""Generated pages: claims counted and escaped under their paper, what the first page shows."""

import generated_pages
from generated_pages import claims_page, counts_table, methods_figure

from dr_lib.evaluation import load_papers

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
    assert f'<td>all</td><td class="number">{len(entries())}</td><td class="number">1</td>' in html


def test_every_claim_stands_under_its_paper_escaped_and_with_what_it_rests_on():
    page = claims_page(entries())
    assert page.startswith("# All claims\n") and page.index("## SimLM") < page.index("## DPR-PAQ") < page.index("## PAIR")
    assert page.count("a &lt; b") == len(entries()) and "unseen" not in page
    assert "squad, laptop scale, 2 seeds" in page and "told" in page
    assert page.count(">held</span>") == 1 and ">not run</span>" not in page


def test_first_page_gets_a_sentence_where_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(generated_pages, "recorded", lambda study: {})
    assert "Nothing is recorded yet" in methods_figure().data


def test_first_page_shows_gains_over_no_pre_training_and_leaves_out_bm25(monkeypatch, record):
    runs = {"none": [0.2, 0.3], "simlm": [0.4, 0.5], "BM25": [0.9, 0.9]}
    monkeypatch.setattr(generated_pages, "recorded", lambda study: {name: [record(name, own)] for name, own in runs.items()})
    html = methods_figure().data
    assert "minus no pre-training" in html and "SimLM 20.0" in html and "BM25" not in html
    assert "directly reaches 25.0 %" in html and "1 seed" in html
