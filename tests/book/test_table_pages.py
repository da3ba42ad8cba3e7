"""The page of a table begins with its result: claims, leading figure, folded code; and its tables
can be exported.
"""

import json
import re
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace

import pytest
from browser import needs_chromium, opened, visit
from check_pages import ROOT
from generated_pages import cite_page
from paper_grid import card
from pybtex.database import parse_string
from table_pages import TO_NOTEBOOK, arrange, claims_html, links_html, notes_html

from dr_book.comparison import NOT_YET, notice
from dr_book.papers import load_papers
from dr_book.statistics import Interval
from dr_book.tables import interval_cell, table
from dr_lib.files import read_yaml
from dr_lib.lab import load_records

SCRIPT, STYLE = (ROOT / "book" / "_static" / name for name in ("pages.js", "book.css"))
ENTRY = {
    "paper": "simlm",
    "source": "Table 7",
    "statement": "a < b",
    "verdict": "open",
    "protocol": "stand-in",
    "counts": {"supported": 1, "contradicted": 0, "open": 2},
    "pairs": [{"seeds": [1, 1], "state": state} for state in ("supported", "open", "open")],
}
ENTRY |= {"scale": "laptop", "collection": "squad"}


def markdown(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(text: str, *tags: str, html: str = "") -> dict:
    output = {"output_type": "display_data", "data": {"text/html": html}, "metadata": {}}
    return {
        "cell_type": "code",
        "metadata": {"tags": [*tags]},
        "source": text,
        "outputs": [output] if html else [],
    }


def notebook() -> dict:
    figure = '<div class="dr-figure dr-leading"><img></div><div class="dr-figure"><img></div>'
    cells = [
        markdown("# Table\n\n**What is asked?**\n\nWhat is seen.\n\n| a |\n|---|"),
        code("scale = 1", "parameters"),
        code("# Parameters\nscale = 2", "injected-parameters"),
        markdown("## One step by hand"),
        code("step()"),
        markdown("## Result"),
        code("compare.figure()", html=figure),
    ]
    return {"cells": cells}


def test_the_result_comes_first_question_figure_what_is_seen_verdict():
    offer = '<details class="dr-predict"></details>'
    cells = arrange(notebook(), "notebooks/simlm/x", [ENTRY], "<p>links</p>", offer)["cells"]
    top = cells[0]["source"]
    order = [
        "# Table",
        "**What is asked?**",
        "dr-predict",
        "dr-leading",
        "What is seen.",
        "a &lt; b",
    ]
    order += ["Judged on SQuAD", "links", "| a |"]
    assert [top.index(part) for part in order] == sorted(top.index(part) for part in order)
    figures = [output["data"]["text/html"] for cell in cells for output in cell.get("outputs", [])]
    assert figures == ['<div class="dr-figure"><img></div>']


def test_words_that_lead_to_what_follows_stay_with_it():
    own = notebook()
    own["cells"][0] = markdown("# Table\n\n**What is asked?**\n\nRun it:\n\n```\nrun\n```")
    top = arrange(own, "notebooks/simlm/x", [], "<p>links</p>")["cells"][0]["source"]
    assert top.endswith("<p>links</p>\n\nRun it:\n\n```\nrun\n```")


def test_a_figure_that_names_its_source_needs_no_second_line():
    sourced = notebook()
    figure = '<div class="dr-figure dr-leading"><p class="dr-source">SQuAD</p></div>'
    sourced["cells"][-1] = code("figure", html=figure)
    top = arrange(sourced, "notebooks/simlm/x", [ENTRY])["cells"][0]["source"]
    assert "dr-source" in top and "dr-claims" in top and "Judged on" not in top


def test_code_is_folded_and_parameters_are_one_cell():
    cells = arrange(notebook(), "notebooks/simlm/x", [])["cells"]
    folded = {
        cell["source"]: "hide-input" in cell["metadata"]["tags"]
        for cell in cells
        if cell["cell_type"] == "code"
    }
    assert folded == {
        "scale = 1\n\n# This copy was executed with:\nscale = 2": True,
        "step()": True,
        "compare.figure()": True,
    }
    lesson = arrange(notebook(), "notebooks/lessons/1_x", [], "<p>links</p>")["cells"]
    assert (
        "hide-input" not in lesson[-1]["metadata"]["tags"]
        and "dr-leading" not in lesson[0]["source"]
    )
    assert lesson[0]["source"].endswith("\n\n<p>links</p>")
    traps = arrange(notebook(), "notebooks/evaluation/traps", [], "<p>links</p>")["cells"]
    assert "dr-leading" in traps[0]["source"] and traps[0]["source"].endswith("<p>links</p>")
    # a lesson is the same at every scale: papermill's parameters are not shown
    assert "scale = 1" in [cell["source"] for cell in lesson] and "scale = 2" not in str(lesson)


def test_of_the_parameters_of_a_copy_those_are_shown_that_differ():
    smoke = read_yaml(ROOT / "notebooks" / "scales" / "smoke.yaml")
    given = "\n".join(f"{name} = {value!r}" for name, value in smoke.items())
    own = notebook()
    own["cells"][1] = code('scale = "laptop"\nseeds = [0]  # a row\nrecipe = {}', "parameters")
    own["cells"][2] = code(f"# Parameters\n{given}\nsteps = [8]", "injected-parameters")
    cells = arrange(own, "notebooks/simlm/x", [])["cells"]
    (shown,) = [cell["source"] for cell in cells if "laptop" in cell["source"]]
    assert shown.partition("executed with:\n")[2].splitlines() == [
        "scale = 'smoke'",
        "collection = 'primer'",
        "minutes = None",
        "# and the recipe of notebooks/scales/smoke.yaml",
        "steps = [8]",
    ]
    other = given.replace("'steps': 4", "'steps': 5")
    own = notebook()
    own["cells"][2] = code(f"# Parameters\n{other}", "injected-parameters")
    assert "'steps': 5" in str(arrange(own, "notebooks/simlm/x", []))
    own = notebook()
    own["cells"][2] = code("# Parameters\nscale = 1", "injected-parameters")
    assert "executed with these." in str(arrange(own, "notebooks/simlm/x", []))


def test_the_method_at_work_stands_behind_the_verdicts():
    own = notebook()
    own["cells"][4]["outputs"] = code("", html="step")["outputs"]
    own["cells"].insert(5, code("sweep()", "remove-output"))
    own["cells"] += [markdown("## Verdicts"), code("judge()", html="v"), markdown("## More")]
    sources = [cell["source"] for cell in arrange(own, "notebooks/simlm/x", [])["cells"][2:]]
    order = ["## Result", "compare.figure()", "## Verdicts", "judge()", "## One step by hand"]
    assert [source.rpartition("\n")[2] for source in sources[-7:]] == [*order, "step()", "## More"]


def test_what_a_step_defines_and_what_it_shows_move_together():
    own = notebook()
    own["cells"].insert(5, code("show()", html="step"))  # the cell above it shows nothing
    own["cells"] += [markdown("## Verdicts"), code("judge()", html="v"), markdown("## More")]
    last = [cell["source"] for cell in arrange(own, "notebooks/simlm/x", [])["cells"]][-3:]
    assert last[0] == "## One step by hand" and last[1].split() == ["step()", "show()"]


def test_loss_curves_are_folded_and_other_figures_are_not():
    own = notebook()
    curve = '<div class="dr-figure">curve</div>'
    own["cells"] += [
        markdown("## Is the loss normal?\n\nIt falls."),
        code("loss", html=curve),
        code("loss of the other", html=curve),
        markdown("## Next"),
        code("next", html=curve),
    ]
    loss, *_, last = arrange(own, "notebooks/simlm/x", [])["cells"][-4:]
    shown = loss["outputs"][0]["data"]["text/html"]
    assert shown.count("<summary>The curves</summary>") == 1 and shown.count("curve</div>") == 2
    assert last["outputs"][0]["data"]["text/html"] == curve


def test_words_above_a_heading_stay_with_their_section():
    own = notebook()
    text = "So it is.\n\n## What follows\n\nMuch.\n\n## What to try next\n\nMore."
    own["cells"].append(markdown(text))
    cells = [cell["source"] for cell in arrange(own, "notebooks/methods/x", [])["cells"]]
    follows, by_hand = cells.index("## What follows\n\nMuch.\n"), cells.index("## One step by hand")
    assert cells.index("So it is.\n") < follows < by_hand
    assert by_hand < cells.index("## What to try next\n\nMore.")


def test_advice_stands_above_the_leading_figure():
    own = notebook()
    own["cells"].append(code("advice", html='<div class="dr-advice"><p>Use BM25.</p></div>'))
    top = arrange(own, "notebooks/your_corpus", [])["cells"][0]["source"]
    assert top.index("What is asked?") < top.index("Use BM25.") < top.index("dr-leading")


def test_folded_code_that_shows_nothing_joins_the_code_below_it():
    own = notebook()
    warning = {"output_type": "stream", "name": "stderr", "text": "warned"}
    quiet = code("b", "remove-stderr") | {"outputs": [warning]}
    own["cells"] += [
        markdown("## More"),
        code("a", "remove-output", html="<p>a</p>"),
        quiet,
        code("c", html="<p>c</p>"),
        code("d"),
    ]
    cells = arrange(own, "notebooks/simlm/x", [])["cells"]
    joined, last = cells[-4:-2]  # followed by the step by hand
    assert (joined["source"], last["source"]) == ("a\n\n\nb\n\n\nc", "d")
    assert joined["outputs"][0]["data"]["text/html"] == "<p>c</p>"
    assert "hide-input" in joined["metadata"]["tags"]


def test_a_section_without_content_is_left_out():
    own = notebook()
    own["cells"] += [
        markdown("## Costs\n\nIn the table."),
        code("costs", html=NOT_YET.data),
        markdown("## More"),
        code("a", html="a"),
    ]
    cells = arrange(own, "notebooks/simlm/x", [])["cells"]
    assert NOT_YET.data not in str(cells) and "## Costs" not in str(cells)
    assert {"## More", "a"} <= {cell["source"] for cell in cells}


def test_what_was_not_measured_at_all_stands_folded_at_the_end():
    own = notebook()
    missing = notice("study", {}, ["a", "b"], "The rows.").data
    part = notice("study", {"a": [SimpleNamespace(scale="laptop")]}, ["a", "b"], "The rows.").data
    own["cells"] += [markdown("## Costs"), code("costs", html=missing)]
    own["cells"] += [markdown("## More\n\nWords."), code("more", html=missing)]
    own["cells"] += [markdown("## Some\n\nSeen."), code("some", html=f"<table></table>{part}")]
    own["cells"] += [markdown("## Next")]
    cells = arrange(own, "notebooks/simlm/x", [])["cells"]
    assert "## Costs" not in str(cells) and "Words." not in str(cells) and "Seen." in str(cells)
    assert cells[-1]["source"].count("2 of 2 rows") == 2 == str(cells).count("2 of 2 rows")
    assert [cell["source"] for cell in cells if "1 of 2 rows" in str(cell)] == ["some"]


def test_a_heading_with_words_and_a_run_of_this_build_stays():
    own = notebook()
    folded = '<details class="dr-folded"></details>'
    own["cells"][-2:] = [
        markdown("## Result\n\nWhat is compared."),
        code("table()", html=NOT_YET.data + folded),
    ]
    assert "What is compared." in str(arrange(own, "notebooks/simlm/x", [])["cells"])


def test_claims_have_their_badges_and_say_what_judged_them():
    nothing = {"supported": 0, "contradicted": 0, "open": 0}
    unrun = ENTRY | {"verdict": "not run", "scale": None, "counts": nothing, "pairs": []}
    two_seeds = [pair | {"seeds": [1, 2]} for pair in ENTRY["pairs"]]
    html = claims_html([ENTRY, unrun, ENTRY, ENTRY | {"pairs": two_seeds}])
    assert (
        html.count(">open</span>") == 3
        and html.count(">stand-in</span>") == 3
        and html.count("1 pair for, 2 open") == 3
    )
    assert "<summary>1 more</summary>" in html
    assert "Judged on SQuAD, laptop scale, 1 to 2 seeds." in html
    assert "<small>" not in html and claims_html([]) == ""
    of_two = claims_html([ENTRY, ENTRY | {"paper": "dpr_paq"}])
    assert (
        "<small>(SimLM, Table 7)</small>" in of_two
        and "<small>(DPR-PAQ, Table 7)</small>" in of_two
    )


def test_links_lead_into_a_repository_only_where_there_is_one():
    page = "notebooks/simlm/x"
    alone = links_html(page, "X", None)
    assert not re.search(r"https?:", alone) and "Colab" not in alone
    assert 'href="../../_sources/notebooks/simlm/x.ipynb" download' in alone
    html = links_html(page, "X", None, "https://github.com/some/where/")
    assert re.findall(r'href="(https:[^"]*)"', html) == [
        "https://github.com/some/where/blob/main/notebooks/simlm/x.ipynb",
        "https://colab.research.google.com/github/some/where/blob/main/notebooks/simlm/x.ipynb",
        "https://mybinder.org/v2/gh/some/where/main?labpath=notebooks/simlm/x.ipynb",
    ]
    # the notebooks need the project: Colab gets the line that installs it, a book without a
    # repository says nothing of it
    assert "!git clone https://github.com/some/where book" in html


@pytest.mark.parametrize(
    ("paper", "repository"), [(None, ""), ("simlm", ""), ("pair", "https://github.com/some/where/")]
)
def test_bibtex_of_a_page_is_that_of_the_page_and_then_of_its_paper(paper, repository):
    page = "notebooks/simlm/table07_objectives"
    html = links_html(page, "Rates of 50 % & more", paper, repository)
    data, file = re.search(r'base64,(\S+)" download="([\w.-]+)"', html).groups()
    entries = parse_string(b64decode(data).decode(), "bibtex").entries
    assert file == "simlm-table07_objectives.bib"
    assert [*entries] == ["denseretrievalbook-table07_objectives", *([paper] if paper else [])]
    fields = entries["denseretrievalbook-table07_objectives"].fields
    assert fields["title"] == r"{Rates of 50 \% \& more}"
    assert fields["booktitle"] == "{The Dense Retrieval Book}"
    assert re.fullmatch(rf"Version [\d.]+, page {page}", fields["note"])
    assert fields.get("url") == (
        f"https://github.com/some/where/blob/main/{page}.ipynb" if repository else None
    )


def test_the_page_on_citing_cites_a_figure_that_is_there_with_records_that_are_there():
    words = cite_page()
    example = re.search(r'page (\S+), figure "(.*?)", records ([\w/-]+)', words)
    page, heading, study = example.groups()
    cells = json.loads((ROOT / f"{page}.ipynb").read_text())["cells"]
    assert any(f"## {heading}\n" in "".join(cell["source"]) for cell in cells)
    assert load_records(ROOT / "book" / "records" / "laptop", study)
    for block in re.findall(r"```bibtex\n(.*?)```", words, re.S):
        assert parse_string(block, "bibtex").entries


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_a_table_is_taken_along_as_csv_and_latex(tmp_path: Path):
    table = (
        '<div class="dr-table"><table><caption>50 % &amp; more</caption><tr><th>a, b</th><th'
        ' class="number">MRR</th></tr><tr><td>x_1</td><td class="number"><b>1.5</b>'
        " <span>[\u22121.0, 2.0]</span></td></tr><tr><td>say"
        ' "y"</td><td>&ndash;</td></tr></table></div><pre></pre>'
    )
    show = "const one = document.querySelector('table');"
    show += "document.querySelector('pre').textContent = takeAlong.csv(one) + takeAlong.latex(one)"
    (tmp_path / "page.html").write_text(
        f"<meta charset=utf-8><script>{SCRIPT.read_text()}</script>{table}<script>{show}</script>"
    )
    page = visit(tmp_path / "page.html", tmp_path / "profile", "--dump-dom").stdout
    shown = (
        re.search(r"<pre>(.*?)</pre>", page, re.DOTALL)[1].replace("&amp;", "&").replace("\r", "")
    )
    assert shown.startswith(
        '"a, b",MRR,"MRR, low","MRR, high"\nx_1,1.5,-1.0,2.0\n"say ""y""",,,\n\\begin{table}'
    )
    assert (
        "\\caption{50 \\% \\& more}" in shown
        and "  x\\_1 & 1.5 {\\small [-1.0, 2.0]} \\\\\n" in shown
    )
    assert page.count('aria-label="Save this table as') == 2


def page_with(body: str, styles: str = "") -> str:
    """A page with the script of every page, and with the book's styles or the given ones."""
    head = f"<style>{styles or STYLE.read_text()}</style><script>{SCRIPT.read_text()}</script>"
    return f"<!DOCTYPE html><meta charset=utf-8>{head}{body}"


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_a_wide_table_uses_the_margin_where_there_is_one(tmp_path: Path):
    styles = "div.dr-table { width: 300px; overflow-x: auto } td { white-space: nowrap }"
    tables = "".join(
        f'<div class="dr-table"><table><tr><td>{cell}</td></tr></table></div>'
        for cell in ("short", "long " * 100, '<span class="verdict">held</span>')
    )
    beside = '<div class="bd-sidebar-secondary"></div>'
    (tmp_path / "page.html").write_text(page_with(tables + beside, styles))
    (tmp_path / "bare.html").write_text(page_with(tables, styles))
    wide = (
        "[...document.querySelectorAll('.dr-table')].map((one) =>"
        " one.classList.contains('full-width'))"
    )
    with opened(tmp_path / "profile", 1300) as browser:
        browser.visit(tmp_path / "page.html")
        assert browser.run(wide) == [False, True, True]
        browser.resize(1100)
        browser.wait(f"!{wide}.some(Boolean)")
        browser.resize(1300)
        browser.wait(f"{wide}.some(Boolean)")
        browser.visit(tmp_path / "bare.html")
        assert not any(browser.run(wide)) and browser.complaints == []


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_on_a_phone_the_rows_of_a_table_of_sentences_are_blocks_with_the_names_of_their_columns(
    tmp_path: Path,
):
    sentence = "a sentence that nobody compares with the one below it"
    heads = "<thead><tr><th>name</th><th>why</th><th>so?</th></tr></thead>"
    bodies = (
        f"<td>{sentence}</td><td>b</td>",
        "<td>short</td><td>b</td>",
        f'<td>{sentence}</td><td><span class="verdict">held</span></td>',
    )
    tables = "".join(
        f'<table class="table">{heads}<tbody><tr><td>a</td>{body}</tr></tbody></table>'
        for body in bodies
    )
    (tmp_path / "page.html").write_text(page_with(f'<div class="bd-article">{tables}</div>'))
    shown = (
        "[...document.querySelectorAll('tr td:last-child')].map((one) =>"
        " getComputedStyle(one).display)"
    )
    with opened(tmp_path / "profile", 390) as browser:
        browser.visit(tmp_path / "page.html")
        assert browser.run(shown) == ["block", "table-cell", "table-cell"]
        assert browser.run(
            "[...document.querySelectorAll('td')].map((one) => one.dataset.column ?? '')"
        )[:4] == ["", "why:", "so?", ""]
        browser.resize(1200)
        assert browser.run(shown) == ["table-cell"] * 3


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_on_a_phone_numbers_stand_below_their_heads_in_two_lines_where_one_is_too_narrow(
    tmp_path: Path,
):
    """Such tables used to scroll, as did those with more words than numbers."""
    value, said = interval_cell(Interval(0.836, 0.832, 0.839), digits=3), "a note that is long"
    numbers = [["PAIR", *[value] * 3, said, *[value] * 2]] * 4
    words = [["PAIR", 1, *["7c1193d55b"] * 5, 2, 3]] * 4
    shown = [
        table(["system", *"abc", "said", *"de"], numbers, caption="x"),
        table(["system", *"abcdefgh"], words, caption="x"),
    ]
    styles = STYLE.read_text() + "* { box-sizing: border-box; }"  # so does the theme
    tables = "".join(made.data for made in shown)
    body = f'<article class="bd-article">{tables}</article>'
    (tmp_path / "page.html").write_text(page_with(body, styles))
    right = "((one) => Math.round(one.getBoundingClientRect().right))"
    top = "((one) => Math.round(one.getBoundingClientRect().top))"
    with opened(tmp_path / "profile", 390) as browser:
        browser.visit(tmp_path / "page.html")
        forms = "[...document.querySelectorAll('table')].map((one) => one.classList[1])"
        assert browser.run(forms) == ["stacked", "prose"]
        frames = "[...document.querySelectorAll('.dr-table')]"
        assert browser.run(f"{frames}.every((one) => one.scrollWidth <= one.clientWidth + 1)")
        cells = "[...document.querySelector('table').rows[{}].cells].filter((_, i) => i && i !== 4)"
        heads, row = (cells.format(number) for number in (0, 1))
        assert browser.run(f"{heads}.map{right}") == browser.run(f"{row}.map{right}")
        for line in (heads, row):
            tops = browser.run(f"{line}.map{top}")
            assert len(set(tops[3:])) == 1 and max(tops[:3]) < tops[3]
            assert browser.run(f"{line}.map((one) => one.classList.contains('second'))") == [
                *[False] * 3,
                *[True] * 2,
            ]
        # a column of words comes last
        last = browser.run(f"[document.querySelector('td.across')].map{top}")[0]
        assert last > max(browser.run(f"{row}.map{top}"))


def test_a_link_of_an_output_to_a_notebook_leads_to_its_page():
    links = (
        '<a href="../simlm/table07.ipynb">a</a><a'
        ' href="../../_sources/notebooks/simlm/table07.ipynb">b</a>'
    )
    assert json.loads(TO_NOTEBOOK.sub(r"\1.html", json.dumps(links))) == links.replace(
        "07.ipynb", "07.html", 1
    )


def test_what_a_table_lost_in_transcription_is_in_view_and_its_notes_are_folded():
    told = notes_html("notebooks/simlm/table08_replace_rates")
    column = "\N{LEFT DOUBLE QUOTATION MARK}encoder replace rate"
    text = "its values are inferred from the paper\N{RIGHT SINGLE QUOTATION MARK}s text."
    assert f"SimLM, Table 8: the text that we have of the paper lacks the column {column}" in told
    assert text in told.partition("<details")[0]
    assert told.count("<details") == 1 and "inferred from: (a)" in told
    assert notes_html("notebooks/lessons/1_vectors") == ""


def test_every_note_on_a_table_reaches_a_page():
    tables = [table for paper in load_papers().values() for table in paper.tables if table.notes]
    assert len(tables) > 30
    assert all("<details" in notes_html(table.page) for table in tables)


@pytest.mark.xdist_group("chromium")
@needs_chromium
def test_one_switch_shows_the_code_of_a_page(tmp_path: Path):
    cell = (
        '<details class="hide above-input"><summary>Show code</summary><pre>a = 1</pre></details>'
    )
    body = f'<div class="bd-article"><p class="dr-files">Download</p>{cell}{cell}<p>b</p></div>'
    (tmp_path / "page.html").write_text(page_with(body))
    shown = "[...document.querySelectorAll('pre')].filter((one) => one.checkVisibility()).length"
    with opened(tmp_path / "profile") as browser:
        browser.visit(tmp_path / "page.html")
        assert browser.run(shown) == 0 and browser.run("document.querySelectorAll('button').length")
        browser.press("Tab")
        browser.press("Enter")
        assert browser.run(shown) == 2
        browser.press("Enter")
        assert browser.run(shown) == 0


@pytest.mark.parametrize(
    ("size", "tall"), [("270 250", False), ("272 296", True), ("270 500", True)]
)
def test_the_card_of_a_tall_figure_is_two_rows_high(tmp_path, size, tall):
    """In one row its letters were six pixels high."""
    figure = f'<div class="dr-figure dr-leading"><svg viewBox="0 0 {size}"></svg></div>'
    cells = [markdown("# PAIR, Figure 4: where"), code("", html=figure)]
    (tmp_path / "fig4.ipynb").write_text(json.dumps({"cells": cells}))
    shown = card(tmp_path, "fig4", [], "../")
    assert ('class="dr-card-link tall"' in shown) == tall and f'viewBox="0 0 {size}"' in shown
