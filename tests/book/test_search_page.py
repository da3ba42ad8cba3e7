"""Search in the page: the script computes the same as the library (in node), and a browser answers
from disk.
"""

import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import search_page
import torch
from browser import needs_chromium, opened
from safetensors.numpy import load, save
from search_page import (
    FOLDER,
    WEIGHTS,
    Retriever,
    by_kind,
    examples,
    from_axes,
    on_axes,
    quantised,
    spelled,
    unpack,
    write_search,
    write_weights,
)

from dr_book.tables import QUESTION_KINDS
from dr_lib import collections
from dr_lib.collections import judged_rows
from dr_lib.lab import Cache
from dr_lib.models import DenseEncoder
from dr_lib.retrieval import Bm25
from dr_lib.tokens import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "book" / FOLDER / "search.js"
SENTENCES = re.findall(
    r"[A-Z][\w ,'-]{30,150}\.",
    " ".join(path.read_text() for path in sorted(ROOT.glob("book/ideas/*.md"))),
)
TYPED = [
    "New York is in New-York; naïve ÜBER-cats can't! pay 12.5€ or $3^2",
    "<script>alert('x')</script> __init__ and snake_case.names()",
    "東京 tower, ΟΔΥΣΣΕΥΣ; İstanbul \u200b\t soft\u00adhyphen",
    "supercalifragilisticexpialidocious " * 20,
    "the of and",
]
QUERIES = [*TYPED, *SENTENCES[-45:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A collection in BEIR layout: sentences of the book, each with its beginning as question."""
    place = tmp_path_factory.mktemp("sentences")
    lines = [
        {"_id": f"p{i}", "title": text.split()[0], "text": text}
        for i, text in enumerate(dict.fromkeys(SENTENCES[:150]))
    ]
    lines += [{"_id": f"n{i}", "title": "", "text": text} for i, text in enumerate(TYPED[:3])]
    queries = [
        {"_id": f"q{i}", "text": f"{line['text'][:40]}?"} for i, line in enumerate(lines[:50])
    ]
    qrels = [f"q{i}\tp{i}\t1" for i in range(50)]
    (place / "qrels").mkdir()
    (place / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (place / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (place / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *qrels]))
    return place


@pytest.fixture(scope="module")
def retrievers(tmp_path_factory) -> dict[str, Retriever]:
    """The base model in place of a trained one."""
    weights = tmp_path_factory.mktemp("retrievers") / WEIGHTS
    write_weights(DenseEncoder.from_pretrained("embedded"), weights)
    return {"none": Retriever(weights, 12.5)}


@pytest.fixture(scope="module")
def written(folder, retrievers, tmp_path_factory) -> Path:
    """The folder of the page's parts, its script among them."""
    place = tmp_path_factory.mktemp("book")
    write_search(
        place,
        str(folder),
        retrievers,
        Cache(tmp_path_factory.mktemp("stages"), announce=lambda line: None),
    )
    for path in SCRIPT.parent.iterdir():
        shutil.copy(path, place / FOLDER)
    return place / FOLDER


@pytest.fixture(scope="module")
def run(written) -> Callable[[str], Any]:
    """Run JavaScript that returns a value, with `searchPage`, its parts and the 50 `queries`
    defined.
    """
    if not shutil.which("node"):
        pytest.skip("needs node (Debian: apt install nodejs)")
    start = (
        "globalThis.bert = require('./bert.js'); globalThis.searchPage = require('./search.js');"
        f" const queries = {json.dumps(QUERIES)};"
    )
    start += "const tensors = async (name) => searchPage.tensors(await searchPage.unpacked(name));"
    start += (
        "const encoder = async (key) => searchPage.encoder(await tensors(`model-${key}`), await"
        " tensors('base-words'));"
    )
    load = (
        "for (const file of require('fs').readdirSync('.')) if (/-|start|texts/.test(file))"
        " require(`./${file}`);"
    )

    def run(code: str) -> Any:
        program = (
            f"{start} {load} (async () => {{ {code} }})().then((found) =>"
            " console.log(JSON.stringify(found)));"
        )
        done = subprocess.run(
            ["node", "-e", program], cwd=written, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def key(retrievers) -> str:
    """The last retriever of the page."""
    return [*retrievers][-1]


def test_the_script_cuts_questions_as_the_tokenizer_does(run):
    code = (
        "const cut = searchPage.tokenizer((await searchPage.json('start')).pieces); return"
        " queries.map((one) => cut(one, 32));"
    )
    expected = load_tokenizer("embedded")(QUERIES, truncation=True, max_length=32)["input_ids"]
    assert len(QUERIES) == 50
    assert run(code) == expected


def test_the_script_computes_the_librarys_vectors_and_products(run, retrievers, written, key):
    code = f"""
      const cut = searchPage.tokenizer((await searchPage.json("start")).pieces);
      const model = await encoder("{key}");
      const passages = await tensors("vectors-{key}");
      const vectors = queries.map((one) => model.encode(cut(one, model.longest)));
      return {{ vectors: vectors.map((one) => [...one]), scores: vectors.map((one) =>
        [...searchPage.products(one, passages)]) }};
    """
    found = run(code)
    model = unpack(retrievers[key].weights)
    expected = model.encode(QUERIES, queries=True)
    np.testing.assert_allclose(found["vectors"], expected, atol=1e-4)
    texts = json.loads(_part(written / "texts.js"))
    passages = model.encode(texts["texts"], texts["titles"])
    # 127 steps to the largest number of a vector; the rest is the rounding of encode's bfloat16,
    # where it has some.
    np.testing.assert_allclose(found["scores"], expected @ passages.T, atol=0.02)


def _part(file: Path) -> bytes:
    """The data in the script of a part."""
    text = file.read_bytes().decode()
    return gzip.decompress(
        _unspelled(re.fullmatch(r'searchPage\.part\("[\w-]+", "([^"\\\n\r\0]*)"\);\n', text)[1])
    )


def _unspelled(letters: str) -> bytes:
    bits = "".join(format(ord(letter) & 127, "07b") for letter in letters)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))


def test_the_script_computes_the_librarys_bm25(run, folder):
    code = """
      const { words, judged } = await searchPage.json("start"), { titles, texts }
        = await searchPage.json("texts");
      const index = new searchPage.bm25(searchPage.stemmer(words), words);
      texts.forEach((text, row) => index.add(`${titles[row]} ${text}`));
      return judged.texts.map((one) => [...index.scores(one)]);
    """
    found, collection = np.array(run(code)), collections.load(str(folder), allow_duplicates=True)
    queries, passages = collection.queries("test")["text"][:], len(collection.passages)
    owners, rows = np.repeat(np.arange(50), passages), np.tile(np.arange(passages), 50)
    expected = Bm25.build(collection.passages).pair_scores(queries, owners, rows)
    np.testing.assert_allclose(found.reshape(-1), expected, atol=1e-4)
    assert (found > 0).any(1).all()


def test_words_of_another_language_are_seen_to_be_in_no_passage(run):
    code = """
      const stem = searchPage.stemmer({ stop: ["the", "why"], stems: {} });
      const index = new searchPage.bm25(stem, {});
      index.add("the moon pulls the sea");
      return ["Why the moon", "moon moon tide", "Pourquoi la marée monte", "the"].map((query) =>
        searchPage.unknown(index, query));
    """
    assert run(code) == [0, 0.5, 1, 0]


def test_ranks_of_the_page_are_those_of_the_script(run, written, key):
    code = f"""
      const {{ judged, systems, pieces }} = await searchPage.json("start"),
        cut = searchPage.tokenizer(pieces);
      const model = await encoder("{key}");
      const passages = await tensors("vectors-{key}");
      const number = systems.findIndex((one) => one.key === "{key}");
      return judged.texts.map((text, i) => {{
        const scores = searchPage.products(model.encode(cut(text, model.longest)), passages);
        const best = searchPage.best(scores, scores.length);
        const byOrder = 1 + best.findIndex((row) => judged.relevant[i].includes(row));
        const byRank = Math.min(...judged.relevant[i].map((row) => searchPage.rank(scores, row)));
        return [judged.ranks[i][number], byOrder, byRank];
      }});
    """
    ranks = np.array(run(code))
    assert len(ranks) == 50 and (ranks[:, 1] == ranks[:, 2]).all()
    # passages whose scores differ in the last bits may change places
    assert (ranks[:, 0] == ranks[:, 1]).mean() > 0.95


def test_weights_in_8_bits_keep_the_vectors(tmp_path):
    model = DenseEncoder.from_pretrained("embedded", passage_length=48)
    write_weights(model, tmp_path / WEIGHTS)
    assert (tmp_path / WEIGHTS).stat().st_size < 1.6e6
    small = unpack(tmp_path / WEIGHTS)
    assert small.settings == model.settings and small.encoder.config.max_position_embeddings == 48
    cosines = (model.encode(QUERIES) * small.encode(QUERIES)).sum(1)
    assert cosines.min() > 0.995
    rows = load(gzip.decompress((tmp_path / WEIGHTS).read_bytes()))
    assert {
        str(one.dtype) for name, one in rows.items() if name.endswith("weight") and one.ndim == 2
    } == {"int8"}


def test_words_that_moved_are_kept_to_half_a_step(tmp_path):
    model, (_, factors) = (
        DenseEncoder.from_pretrained("embedded", passage_length=48),
        search_page.base_words(),
    )
    words = model.encoder.state_dict()[search_page.WORDS]
    words += 0.05 * torch.randn(words.shape, generator=torch.Generator().manual_seed(0))
    write_weights(model, tmp_path / WEIGHTS)
    moved = unpack(tmp_path / WEIGHTS).encoder.state_dict()[search_page.WORDS]
    assert ((moved - words).abs().numpy() <= factors[:, None] * 0.5001).all()


def test_vectors_on_their_axes_are_kept_to_half_a_step():
    vectors = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32) * np.arange(
        1, 9, dtype=np.float32
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    stored = load(save(on_axes(vectors)))
    assert stored["step"] == np.float32(1 / 127)
    np.testing.assert_allclose(stored["axes"] @ stored["axes"].T, np.eye(8), atol=1e-6)
    assert np.linalg.norm(from_axes(stored) - vectors, axis=1).max() <= 0.5001 / 127 * 8**0.5
    # of vectors that are not normalised, the largest number takes all steps
    long = on_axes(9 * vectors)
    assert np.abs(long["components"].astype(int)).max() == 127
    np.testing.assert_allclose(from_axes(long), 9 * vectors, atol=9 / 127 * 8**0.5)


@pytest.mark.parametrize("length", [*range(9), 1000])
def test_spelled_bytes_need_no_escape_and_come_back(length):
    content = np.random.default_rng(length).integers(0, 256, length, np.uint8).tobytes()
    assert not set(spelled(content)) & set('\0\n\r"\\')
    assert _unspelled(spelled(content)) == content


def test_eight_bits_round_to_the_nearest_step():
    rows = np.random.default_rng(0).normal(size=(20, 30))
    numbers, factors = quantised(rows)
    assert (np.abs(numbers * factors[:, None] - rows) <= factors[:, None] * 0.5001).all()
    assert (np.abs(numbers).max(1) == 127).all()


def test_a_retriever_in_eight_bits_is_small(retrievers):
    assert retrievers["none"].weights.stat().st_size <= 1.6e6


@pytest.mark.slow
def test_a_retriever_is_trained_on_what_is_searched_and_else_on_primer(monkeypatch, tmp_path):
    steps = {"pretraining": {"steps": 2}, "finetuning": {"steps": 2, "batch_queries": 4}}
    monkeypatch.setattr(search_page, "TRAINING", search_page.TRAINING | steps)
    corpus = '{"_id": "p", "title": "", "text": "A passage nobody asks for."}\n'
    (tmp_path / "corpus.jsonl").write_text(corpus)
    cache = Cache(tmp_path / "cache", announce=lambda line: None)
    searched = search_page.trained("none", "primer", cache)
    unasked = search_page.trained("none", str(tmp_path), cache)
    assert searched.weights == unasked.weights and unpack(searched.weights)
    assert 0 <= searched.measured <= 100 and unasked.measured is None


def test_questions_of_primer_are_told_by_kind_and_those_without_a_shared_word_are_offered():
    ids = [f"p{number:03d}-{kind}" for number in range(20) for kind in QUESTION_KINDS]
    rows = by_kind(ids)
    assert rows["words"][:2] == [0, 3] and rows["paraphrase"][0] == 1
    assert len(examples(ids)) == search_page.EXAMPLES
    assert {*examples(ids)} <= {*rows["meaning"]}
    assert by_kind(["q1", "p001-meaning"]) == {} and len({*examples(["q1", "q2"])}) == 2


def test_ranks_count_from_one_and_flips_are_wide(folder):
    components = np.array([[127, 0, 127], [0, 127, 0]], np.int8)
    passages = {
        "components": components,
        "axes": np.eye(2, dtype=np.float32),
        "step": np.array([1 / 127], np.float32),
    }
    queries = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
    relevant = [np.array([2]), np.array([1]), np.array([], int)]
    assert search_page.dense_ranks(queries, passages, relevant).tolist() == [2, 1, 0]
    systems = [
        search_page.System(name, name, np.array(ranks))
        for name, ranks in (("a", [1, 9, 2, 1]), ("b", [1, 1, 3, 0]))
    ]
    assert search_page.flips(systems) == [3, 1]


def test_nothing_typed_or_found_becomes_markup():
    for path in SCRIPT.parent.glob("*.js"):
        assert not re.search(
            r"innerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\("
            r"|https?://(?!www\.w3\.org/2000/svg)",
            path.read_text(),
        ), path


def test_questions_of_the_collection_know_their_passages(written, folder):
    start = json.loads(_part(written / "start.js"))
    collection = collections.load(str(folder), allow_duplicates=True)
    queries = collection.queries("test")
    expected = judged_rows(collection.qrels("test"), queries["id"][:], collection.passages["id"])
    assert start["judged"]["texts"] == queries["text"][:]
    assert start["judged"]["relevant"] == [rows.tolist() for rows in expected]


@needs_chromium
def test_a_browser_answers_from_disk(written, tmp_path):
    place = '<div id="search-here" data-parts="./" hidden></div><div id="search-offered"></div>'
    names = ("bert", "search", "elements", "page")
    scripts = "".join(f'<script src="{name}.js"></script>' for name in names)
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Search</title>'
    page = f"{head}{place}{scripts}"
    (written / "page.html").write_text(page)
    question = json.loads(_part(written / "start.js"))["judged"]["texts"][3]
    with opened(tmp_path) as browser:
        browser.visit(written / "page.html")
        browser.wait("document.querySelector('#search-offered button')")
        browser.run("document.querySelector('#search-query').focus()")
        browser.type(question)
        browser.press("Enter")
        browser.wait("document.querySelectorAll('.results li').length")
        said = browser.run("document.querySelector('[role=status]').textContent")
        lists = browser.run(
            "[...document.querySelectorAll('.results section')].map((one) =>"
            " one.querySelectorAll('li').length)"
        )
        marks = browser.run(
            "[...document.querySelectorAll('.results mark')].map((one) =>"
            " one.textContent.toLowerCase())"
        )
        assert "A judged question" in said and "BM25 1" in said
        assert lists[0] > 0 and set(lists[1:]) == {3}
        assert "judged relevant" in browser.run("document.querySelector('.results').textContent")
        assert set(marks) & set(question.lower().rstrip("?").split())
        assert browser.complaints == []
