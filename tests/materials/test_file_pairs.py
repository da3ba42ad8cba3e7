"""Published pairs on disk: what the stores and examples hold against reading the file by hand."""

import gzip
import json

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.materials.file_pairs import draw, pair_stream, store_pairs
from dr_lib.pairs.files import read_pairs
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples

ROWS = [
    ("New York is", ["masked words"], ["dense vectors", "hard negatives"]),
    ("a retriever", ["dense vectors", "masked words"], []),
    ("new york is ", ["hard negatives"], ["masked words", "the bottleneck"]),
    ("", ["masked words"], []),
    ("a generator", [" "], ["the bottleneck"]),
    ("the decoder", ["an encoder"], ["the bottleneck", "an encoder"]),
]


@pytest.fixture
def path(tmp_path):
    def as_contexts(texts: list[str]) -> list[dict[str, str]]:
        return [{"title": "vector" if len(text) % 2 else "", "text": text} for text in texts]

    rows = [
        {"question": question, "positive_ctxs": as_contexts(good), "hard_negative_ctxs": as_contexts(bad)}
        for question, good, bad in ROWS
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


def stored(path, tokenizer, folder, **rest) -> tuple[dict[str, int], list[str], list[str], Examples]:
    """Counts, the words of each query and passage, and the examples."""
    folder.mkdir()
    counts = store_pairs(pair_stream(path, folder), folder, tokenizer, progress=False, **rest)
    words = []
    for name in ("queries", "passages"):
        store = TokenStore.open(folder / name)
        batch = store.batch(np.arange(len(store)), max_length=40)
        words.append([tokenizer.decode(row, skip_special_tokens=True).replace(" ##", "") for row in batch.input_ids])
    return counts, *words, Examples.open(folder / "examples")


def test_equal_questions_are_one_query_with_all_their_positives(path, tiny_tokenizer, tmp_path):
    counts, queries, passages, examples = stored(path, tiny_tokenizer, tmp_path / "out", depth=2)
    assert queries == ["new york is", "a retriever", "the decoder"]
    asked = {
        queries[row]: (
            {passages[p].removeprefix("vector ") for p in examples.positives_of(np.array([place]))[0]},
            {passages[p].removeprefix("vector ") for p in examples.negatives[place] if p >= 0},
        )
        for place, row in enumerate(examples.query_rows)
    }
    assert asked == {
        "new york is": ({"masked words", "hard negatives"}, {"dense vectors", "the bottleneck"}),
        "a retriever": ({"dense vectors"}, set()),
        "the decoder": ({"an encoder"}, {"the bottleneck"}),
    }
    assert counts == {"rows": 6, "left_out": 2, "queries": 3, "passages": 5, "pairs": 4}
    assert len(set(passages)) == 5 and examples.passages == 5


def test_all_positives_of_a_row_can_be_kept(path, tiny_tokenizer, tmp_path):
    counts, _, _, examples = stored(path, tiny_tokenizer, tmp_path / "out", positives="all")
    assert counts["pairs"] == 5 and examples.counts().tolist() == [2, 2, 1]


def test_a_file_without_a_usable_row_is_refused(tmp_path, tiny_tokenizer):
    (tmp_path / "empty.tsv").write_text("\tpassage\n")
    with pytest.raises(InputError, match="no row with a question"):
        store_pairs(pair_stream(tmp_path / "empty.tsv", tmp_path), tmp_path, tiny_tokenizer, progress=False)


@pytest.mark.parametrize("layout", ["lines", "lines.gz", "array"])
def test_a_drawn_part_is_the_same_in_every_layout(path, tmp_path, layout):
    rows = [row for _, row in read_pairs(path)]
    other = {"lines": path, "lines.gz": tmp_path / "rows.jsonl.gz", "array": tmp_path / "rows.json"}[layout]
    if layout == "lines.gz":
        other.write_bytes(gzip.compress(path.read_bytes()))
    elif layout == "array":
        other.write_text(json.dumps([json.loads(line) for line in path.read_text().splitlines()], indent=2))
    stream = pair_stream(other, tmp_path / "index", limit=3, seed=4)
    drawn = draw(len(rows), 3, seed=4)
    assert list(stream()) == [rows[row] for row in drawn]
    assert list(stream()) == list(stream())
    assert [*pair_stream(other, tmp_path / "index", limit=99)()] == rows
