"""The masks explorer: its data are small and escaped, and its script draws by the library's rules
(if node is installed).
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import masks_explorer
import numpy as np
import pytest
import torch
from masks_explorer import FOLDER, Sources, write_explorer

from dr_book.tables import stop_words
from dr_lib import masking
from dr_lib.materials import count_ngrams, keyword_weights, write_importances
from dr_lib.tokens import TokenStore, TokenValues, load_tokenizer

SCRIPT = Path(__file__).resolve().parents[2] / "book" / FOLDER / "explorer.js"
SENTENCE = (
    "the builtins of the class are read from a file <b> when the user asks for it and the state of"
    " the model is set"
)
ENDS = (
    "to true at the end of the run",
    "to a new value in the same way",
    "for the first time on this page",
)
TEXTS = [f"{SENTENCE} {end} and {SENTENCE} {end}" for end in ENDS]
TYPED = [
    "New York is in New-York; naïve ÜBER-cats can't!",
    "<script>alert('x')</script>",
    "東京 tower & 12.5€",
    "supercalifragilisticexpialidocious " * 2,
    "",
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Sources:
    place, tokenizer = tmp_path_factory.mktemp("explorer"), load_tokenizer("embedded")
    rows = datasets.Dataset.from_dict({"title": ["a title"] * len(TEXTS), "text": TEXTS})
    store = TokenStore.build(rows, tokenizer, place / "store")
    counts = count_ngrams(store, place / "counts")
    values = write_importances(counts, store, place / "importances")
    minseg = write_importances(counts, store, place / "minseg", pmi="minseg")
    keyword_weights.body(place, place)
    weights = TokenValues(place / "values", store)
    return Sources(tokenizer, store, counts, values, minseg, weights)


@pytest.fixture(scope="module")
def first(sources) -> int:
    """Row of the passage shown first."""
    return int(masks_explorer.typical_first(sources, masks_explorer.chosen_rows(sources))[0])


@pytest.fixture(scope="module")
def written(sources, tmp_path_factory) -> dict[str, str]:
    return {
        path.name: path.read_text()
        for path in write_explorer(tmp_path_factory.mktemp("book"), sources)
    }


@pytest.fixture(scope="module")
def data(written) -> dict[str, Any]:
    return json.loads(re.fullmatch(r"window\.masksExplorerData = (.*);\n", written["data.js"])[1])


@pytest.fixture(scope="module")
def run(tmp_path_factory, written) -> Callable[[str], Any]:
    """Run JavaScript that returns a value, with `masks`, `tables` and `words` (of the first
    passage) defined.
    """
    if not shutil.which("node"):
        pytest.skip("needs node")
    place = tmp_path_factory.mktemp("node")
    (place / "data.js").write_text(
        written["data.js"].replace("window.masksExplorerData", "module.exports")
    )

    def run(code: str) -> Any:
        start = (
            f"const masks = require({json.dumps(str(SCRIPT))}); const tables ="
            " masks.tables(require('./data.js'));"
        )
        program = (
            f"{start} const {{ words }} = tables.passages[0]; console.log(JSON.stringify((() => {{"
            f" {code} }})()));"
        )
        done = subprocess.run(
            ["node", "-e", program], cwd=place, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    return run


def flat(mask: list[list[bool]]) -> np.ndarray:
    """The script's mask, which has a list per word, as one list of pieces."""
    return np.array([hidden for word in mask for hidden in word])


def test_data_hold_words_with_their_pieces_counts_and_importances(data, sources, first):
    words = data["passages"][0]["words"]
    assert "".join("".join(pieces) for pieces, *_ in words) == TEXTS[first].replace(" ", "")
    counts = {"".join(pieces): count for pieces, count, *_ in words}
    assert (counts["builtins"], counts["model"]) == (6, 6)
    batch, _ = masks_explorer.batch_of(sources, first)
    least = sources.minseg.batch(np.array([first]), **masks_explorer.WHOLE)
    for place, values in ((2, batch.values), (3, least)):
        assert [word[place] for word in words] == pytest.approx(
            values[batch.word_start].tolist(), abs=0.01
        )
    assert data["total"] == sources.counts.totals[0]
    by_name = dict(zip(data["words"], data["wordCounts"], strict=True))
    by_name |= dict(zip(data["pieces"], data["pieceCounts"], strict=True))
    assert {name: by_name[name] for name in counts} == counts


def test_data_are_small(written, monkeypatch, sources):
    # The pieces of the tokenizer are all there; data that grow with the collection are bounded.
    most_a_word = 24 * masks_explorer.MOST_WORDS
    assert len(written["data.js"]) + most_a_word < 300_000
    monkeypatch.setattr(masks_explorer, "MOST_WORDS", 1)
    assert len(masks_explorer.common_words(sources)) == 1


def test_markup_in_a_passage_is_text(written):
    picture = written["example.inc"]
    assert "&lt;" in picture and "<b>" not in picture
    assert set(re.findall(r"</?(\w+)", picture)) == {"div", "dl", "dt", "dd", "code", "span"}
    script = SCRIPT.read_text()
    assert not re.search(
        r"innerHTML|insertAdjacentHTML|document\.write|eval\(|https?:|fetch\(", script
    )


def test_every_mask_of_the_library_is_in_the_picture(written):
    masks = {name for name, one in vars(masking).items() if callable(one) and name.islower()} - {
        "hide",
        "extra_rate",
        "first_pieces",  # where words begin, which masks ask
        "nested",  # whole_word and superset of it, drawn in one go
    }
    assert set(re.findall(r"<dt><code>(\w+)", written["example.inc"])) == masks


def test_the_page_begins_with_a_typical_passage(sources, first):
    rows = masks_explorer.chosen_rows(sources)
    ordered = masks_explorer.typical_first(sources, rows)
    assert ordered[0] == first and sorted(ordered) == sorted(rows)


@pytest.mark.parametrize("text", TYPED)
def test_the_script_cuts_text_as_the_tokenizer_does(run, sources, text):
    found = run(f"return masks.cut({json.dumps(text)}, tables).map((word) => word.pieces);")
    pieces = [
        piece if i == 0 or piece == "[UNK]" else f"##{piece}"
        for word in found
        for i, piece in enumerate(word)
    ]
    assert pieces == sources.tokenizer.tokenize(text)


@pytest.mark.parametrize("rate", [0, 0.05, 0.15, 0.5, 0.85, 1])
def test_whole_words_fill_the_budget_as_the_library_does(run, sources, rate, first):
    code = (
        f"return [1, 2, 3].map((seed) => masks.draw('wholeWord', words, {{ rate: {rate}, seed }},"
        " 1).decoder);"
    )
    pieces = len(sources.tokenizer.tokenize(TEXTS[first]))
    budget = max(1, round(rate * pieces)) if rate else 0
    for mask in run(code):
        assert {len(set(word)) for word in mask} == {1}
        hidden = sum(map(sum, mask))
        visible = [len(word) for word in mask if not word[0]]
        assert hidden <= budget and all(size > budget - hidden for size in visible)


def test_single_tokens_meet_the_rate_exactly_and_draws_differ(run, sources, first):
    code = (
        "return [1, 2, 1].map((seed) => masks.draw('uniform', words, { rate: 0.15, seed },"
        " 1).decoder);"
    )
    one, other, again = run(code)
    assert (
        sum(map(sum, one))
        == sum(map(sum, other))
        == round(0.15 * len(sources.tokenizer.tokenize(TEXTS[first])))
    )
    assert one == again != other


@pytest.mark.parametrize("kind", ["importance", "minseg"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_without_noise_importance_hides_what_the_library_hides(
    run, sources, data, rate, kind, first
):
    code = f"return masks.draw('{kind}', words, {{ rate: {rate}, noise: 0, seed: 1 }}, 1).decoder;"
    batch, _ = masks_explorer.batch_of(sources, first)
    # The page's values are rounded; so must be those of the library, or words could change places.
    told = (
        batch.values
        if kind == "importance"
        else sources.minseg.batch(np.array([first]), **masks_explorer.WHOLE)
    )
    values = torch.from_numpy(np.round(told.numpy().astype(float), 2))
    mask = masking.importance(batch, values, rate, torch.Generator(), noise=0.0)[0][
        ~batch.special[0]
    ]
    assert flat(run(code)).tolist() == mask.tolist()


def test_noise_changes_what_importance_hides(run):
    code = (
        "return [1, 2].map((seed) => masks.draw('importance', words, { rate: 0.5, noise: 6, seed },"
        " 1).decoder);"
    )
    first, second = run(code)
    assert first != second


def test_keywords_are_drawn_in_proportion_to_their_weight(run):
    code = """
      const four = [1, 2, 4, 8].map((count) => ({ pieces: ["x"], count }));
      const random = masks.generator(7), drawn = [0, 0, 0, 0];
      for (let i = 0; i < 20000; i += 1)
        masks.keyword(four, 0.25, random).forEach((word, j) => { drawn[j] += word[0]; });
      return drawn;
    """
    np.testing.assert_allclose(np.array(run(code)) / 20000, np.array([8, 4, 2, 1]) / 15, atol=0.015)


def test_a_superset_holds_the_encoders_mask_and_a_complement_none_of_it(run):
    code = """
      const options = { rate: 0.5, encoderRate: 0.3, seed: 5 };
      return ["superset", "complementary"].map((name) => masks.draw(name, words, options, 1));
    """
    superset, complementary = run(code)
    encoder, decoder = flat(superset["encoder"]), flat(superset["decoder"])
    assert (decoder >= encoder).all() and (decoder != encoder).any()
    assert (flat(complementary["encoder"]) != flat(complementary["decoder"])).all()


def test_rows_differ_and_never_see_themselves(run):
    code = (
        "return words.map((_, row) => masks.draw('perRow', words, { rate: 0.5, row, seed: 3 },"
        " 1).decoder);"
    )
    rows = run(code)
    assert all(mask[row][0] for row, mask in enumerate(rows))
    assert len({json.dumps(mask) for mask in rows}) > len(rows) / 2


def test_the_summary_counts_stop_words(run, data):
    found = run(
        "return masks.summary(words, words.map((word) => word.pieces.map(() => true)),"
        " tables.stop);"
    )
    names = ["".join(pieces) for pieces, *_ in data["passages"][0]["words"]]
    assert found["words"] == len(names) and found["pieces"] == found["allPieces"]
    plain = [name in stop_words() or not any(map(str.isalnum, name)) for name in names]
    assert found["plain"] == sum(plain)
