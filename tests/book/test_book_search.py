"""The book's own search: what is read of a page, how passages are ranked, and that readers' queries
lead to the right page, in node over the built book.
"""

import json
import shutil
import subprocess
from pathlib import Path

import book_search
import pytest
from check_pages import ROOT

HTML = ROOT / "_build" / "html"
ENGINE = ROOT / "book" / "extra" / book_search.FOLDER
PAGE = """<html><body><nav>elsewhere</nav><article>
<section id="masks"><h1>Masks<a class="headerlink" href="#masks">#</a></h1>
<p>A mask hides   words.</p><pre>code()</pre>
<section id="rates"><h2>Rates</h2><ul><li><p>Thirty of a hundred.</p></li><li>Or all.</li></ul>
<table><tr><td>the rate</td><td class="number">0.3</td></tr></table></section>
<dl><dt id="mask.hide">hide(batch)</dt><dd><p>Hides them.</p></dd>
<dt id="term-mask-rate">mask rate</dt><dd><p>The share that is hidden.</p></dd></dl>
</section></article></body></html>"""
FOUND = {
    "PMI masking": "ideas/masking.html",
    "how many seeds": "notebooks/methods/how_many_seeds.html",
    "cite this": "practice/cite.html",
    "install": "practice/install.html",
    "run on my GPU": "practice/gpu.html",
    "anisotropy": "notebooks/methods/geometry.html",
    "replace rates": "notebooks/simlm/table08_replace_rates.html",
}
"""A reader's query -> pages, one of which must be among the first three."""

ASKED = {
    "why does the auto-encoder win here": [
        "notebooks/simlm/table07_objectives",
        "notebooks/methods/what_the_bottleneck_buys",
        "ideas/bottleneck",
    ],
    "how long should I pre-train": ["notebooks/simlm/fig3_steps", "notebooks/master/fig3_steps"],
    "my loss looks too high": ["notebooks/methods/reference_curves"],
    "why does counting words beat the neural network": ["notebooks/evaluation/bm25"],
    "do I have to buy a graphics card": ["practice/gpu", "practice/install"],
    "can I tell whether two systems really differ": [
        "ideas/statistics",
        "notebooks/lessons/7_significance",
    ],
    "use this on my own documents": ["notebooks/your_corpus", "quickstart", "practice/own-corpus"],
    "invent a new training method": ["practice/adding-an-objective"],
    "does it work in Chinese": ["practice/languages"],
    "the program ran out of memory": ["practice/troubleshooting", "practice/gpu"],
    "what to teach in a session of ninety minutes": ["teaching/routes", "teaching/lecturers-notes"],
    "which wrong passages should a model learn from": [
        "ideas/negatives",
        "notebooks/lessons/4_negatives",
    ],
    "training with few labelled questions": ["notebooks/master/fig3_few_shot"],
    "can a small student learn from a bigger model": [
        "ideas/distillation",
        "notebooks/lessons/5_distillation",
    ],
    "how fast is search among a million documents": [
        "practice/from-thousands-to-a-billion",
        "reference/speed",
    ],
    "difference between RetroMAE and SimLM": ["ideas/bottleneck"],
    "common mistakes when measuring a search engine": [
        "notebooks/evaluation/traps",
        "notebooks/teaching/bugs_in_evaluation",
    ],
    "what does the temperature do": ["ideas/temperature-explorer", "ideas/dual-encoders"],
    "can I use a model from Hugging Face": [
        "practice/real-models",
        "notebooks/methods/from_real_model",
    ],
    "which method should I pick": ["ideas/choosing-a-method"],
}
"""Twenty questions in a reader's own words, written before any was tried -> pages that answer them.
"""
BOTH = """
const index = book.index(await searchPage.json("book-texts"));
const { pieces } = await searchPage.json("start"), cut = searchPage.tokenizer(pieces);
const [shared, weights, vectors] = await Promise.all(["base-words", "model-simlm", "book-vectors"]
  .map(async (name) => searchPage.tensors(await searchPage.unpacked(name))));
const model = searchPage.encoder(weights, shared);
const firsts = (scores, lowest) => book.pages(index, scores, lowest)
  .slice(0, 3).map(({ page }) => index.pages[page][0]);
return QUERIES.map((query) => {
  const words = book.byWords(index, query);
  const products = searchPage.products(model.encode(cut(query, model.longest)), vectors);
  const meaning = book.byMeaning(index, products);
  return [firsts(words, 0), firsts(meaning), firsts(book.together(words, meaning))];
});"""


def test_a_page_is_read_in_sections_and_without_code_and_numbers(tmp_path):
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "masks.html").write_text(PAGE)
    (tmp_path / "search.html").write_text(PAGE)
    pages, passages = book_search.read(tmp_path)
    assert pages == [("ideas/masks.html", "Masks", "idea")]
    assert passages == [
        (0, "", "masks", "A mask hides words."),
        (0, "Rates", "rates", "Thirty of a hundred. Or all. the rate"),
        (0, "mask.hide", "mask.hide", "Hides them."),
        (0, "mask rate", "term-mask-rate", "The share that is hidden."),
    ]


def test_passages_end_with_a_paragraph_and_no_word_is_lost():
    paragraphs = [f"w{i} " * 40 for i in range(7)]
    parts = [*book_search.chunks(paragraphs)]
    assert "".join(parts).split() == "".join(paragraphs).split()
    assert [len(part.split()) for part in parts] == [120, 120, 40]
    assert [*book_search.chunks([])] == [""]


def node(code: str) -> object:
    if not shutil.which("node"):
        pytest.skip("needs node (Debian: apt install nodejs)")
    scripts = {name: str(ENGINE / f"{name}.js") for name in ("bert", "search", "book")}
    program = (
        f"globalThis.bert = require({json.dumps(scripts['bert'])});"
        f"globalThis.searchPage = require({json.dumps(scripts['search'])});"
        f"const book = require({json.dumps(scripts['book'])});"
        f"(async () => {{ {code} }})().then((found) => console.log(JSON.stringify(found)));"
    )
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_titles_headings_and_phrases_count_more_than_text():
    pages = [
        ["a.html", "Seeds", "idea"],
        ["b.html", "Masks", "idea"],
        ["c.html", "Code", "library"],
    ]
    passages = [
        [0, "How many seeds", "x", "two trainings"],
        [1, "", "", "many seeds are drawn here, seeds and seeds"],
        [2, "", "", "how many seeds it takes, seeds and seeds"],
        [1, "", "", "nothing of it"],
    ]
    words = {"stop": ["it", "of"], "stems": {"seeds": "seed"}, "k1": 1.5, "b": 0.75}
    data = json.dumps({"pages": pages, "passages": passages, "words": words})
    found = node(
        f"const index = book.index({data}); const scores = book.byWords(index, 'How many SEEDS');"
        "return [[...scores], book.pages(index, scores, 0)];"
    )
    scores, hits = found
    assert hits[0]["page"] == 0 and scores[3] == 0
    assert hits[0]["rows"] == [0]


def test_words_that_only_ask_are_no_words_of_a_question_unless_there_are_no_others():
    code = "return ['How do I use my own files?', 'how many', 'PMI masking'].map(book.sought);"
    assert node(code) == ["files corpus", "how many", "pmi masking"]


def test_scores_are_put_together_in_standard_deviations():
    index = '{ pages: [["a", "A", "idea"], ["b", "B", "library"]], passages: [[0], [1], [0]] }'
    code = (
        f"const meaning = book.byMeaning({index}, [1, 1, 4]);"
        "return [meaning, book.together([0, 3, 0], meaning), book.standard([2, 2])];"
    )
    meaning, both, flat = node(code)
    low, high = -1 / 2**0.5, 2**0.5
    assert meaning == pytest.approx([low, low - 1, high])
    assert both == pytest.approx([2 * low, low - 1 + high, low + high]) and flat == [0, 0]


def test_a_question_is_strange_where_most_of_its_words_are_nowhere_in_the_book():
    pages, passages = [["a.html", "Seeds", "idea"]], [[0, "Noise", "", "trainings differ"]]
    words = {"stop": ["the"], "stems": {}, "k1": 0.9, "b": 0.4}
    told = json.dumps({"pages": pages, "passages": passages, "words": words})
    asked = ["qwxz frobnicate", "seeds and noise frobnicate", "noise qwxz", "the", "c++"]
    code = f"const index = book.index({told});"
    code += f"return {json.dumps(asked)}.map((query) => book.strange(index, query));"
    assert node(code) == [True, False, False, False, False]


built = pytest.mark.skipif(
    not all((HTML / book_search.FOLDER / f"{name}.js").is_file() for name in book_search.PARTS),
    reason="needs the built pages (make book)",
)


@pytest.mark.site
@built
def test_both_together_answer_more_questions_than_either():
    needed = ("book-texts", "start", "base-words", "model-simlm", "book-vectors")
    parts = "".join(
        f"require({json.dumps(str(HTML / book_search.FOLDER / f'{name}.js'))});" for name in needed
    )
    queries = json.dumps([*ASKED, *FOUND])
    firsts = node(parts + BOTH.replace("QUERIES", queries))
    hits = [
        [any(page.removesuffix(".html") in right for page in pages) for pages in systems]
        for right, systems in zip(ASKED.values(), firsts, strict=False)
    ]
    words, meaning, both = map(sum, zip(*hits, strict=True))
    assert both >= 13 and both >= words >= meaning, (words, meaning, both)
    typed = dict(zip(FOUND, [systems[2] for systems in firsts[len(ASKED) :]], strict=True))
    assert {query: pages for query, pages in typed.items() if FOUND[query] not in pages} == {}


@pytest.mark.site
@built
def test_what_readers_type_leads_to_the_right_page():
    part = json.dumps(str(HTML / book_search.FOLDER / "book-texts.js"))
    queries = json.dumps([*FOUND])
    firsts = node(
        f"require({part}); const index = book.index(await searchPage.json('book-texts'));"
        f"return {queries}.map((query) => book.pages(index, book.byWords(index, query), 0)"
        ".slice(0, 3).map(({ page }) => index.pages[page][0]));"
    )
    found = dict(zip(FOUND, firsts, strict=True))
    assert {query: pages for query, pages in found.items() if FOUND[query] not in pages} == {}


def test_nothing_is_written_where_nothing_has_changed(tmp_path, monkeypatch):
    built = tmp_path / "html"
    folder = built / book_search.FOLDER
    folder.mkdir(parents=True)
    (built / "masks.html").write_text(PAGE)
    (folder / "model-simlm.js").write_text("weights")
    calls = []

    def encoded(to: Path, *rest: object) -> None:
        calls.append(rest)
        for name in book_search.PARTS:
            (to / f"{name}.js").write_text("part")

    monkeypatch.setattr("search_page.encoded_parts", encoded)
    book_search.write(built)
    book_search.write(built)
    assert len(calls) == 1
    (built / "masks.html").write_text(PAGE.replace("hides", "covers"))
    book_search.write(built)
    (folder / "model-simlm.js").write_text("other weights")
    book_search.write(built)
    assert len(calls) == 3
