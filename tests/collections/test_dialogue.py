"""Files of dialogues, written small by hand, and what is read from them."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_lib import evaluation
from dr_lib.errors import InputError
from dr_lib.evaluation import CandidateSet, Exchange, dialogue_file, load_candidates
from dr_lib.places import data_root


def read_exchanges(folder: Path, split: str = "dev") -> Iterator[Exchange]:
    return evaluation.read_exchanges(dialogue_file(folder, split))


@pytest.mark.parametrize("packed", [True, False])
def test_pairs_are_read_plain_and_packed(tmp_path, packed):
    lines = (
        json.dumps({"context": ["a", "b"], "response": "c", "candidates": ["x", "c"], "sub": "s"})
        + "\n"
    )
    (tmp_path / "pairs").mkdir()
    place = tmp_path / "pairs" / ("dev.jsonl.gz" if packed else "dev.jsonl")
    place.write_bytes(gzip.compress(lines.encode()) if packed else lines.encode())
    assert list(read_exchanges(tmp_path)) == [Exchange(("a", "b"), "c", ("x", "c"))]


def test_equal_candidates_of_different_contexts_are_one_text():
    made = CandidateSet.of(
        "two",
        [Exchange(("a",), "yes", ("yes", "no")), Exchange(("b", "c"), "no", ("no", "why", "no"))],
    )
    assert made.texts == ["yes", "no", "why"] and made.contexts == ["a", "b c"]
    assert made.candidates.tolist() == [[0, 1, -1], [1, 2, 1]] and made.correct.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"context": ["a"], "response": "b", "candidates": "b"}\n',
            "field candidates is text, not a list",
        ),
        (
            '{"context": [1], "response": "b"}\n',
            "line 1: context and candidates are lists of texts",
        ),
        ('{"context": "a", "response": "b"}\n', "line 1: field context is text, not a list"),
        ('{"response": "b"}\n', "line 1: field context is missing"),
        ('{"context": ' + "[" * 100_000, "line 1: not a JSON object"),
    ],
)
def test_broken_lines_are_refused_with_the_place(tmp_path, text, message):
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "dev.jsonl").write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_exchanges(tmp_path))


def test_missing_response_split_or_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="not among the candidates"):
        CandidateSet.of("x", [Exchange(("a",), "b", ("c",))])
    with pytest.raises(InputError, match="no dialogue in it"):
        CandidateSet.of("x", [])
    with pytest.raises(InputError, match="Looked for pairs/test"):
        read_exchanges(tmp_path, "test")
    with pytest.raises(InputError, match="there is no folder"):
        read_exchanges(tmp_path / "gone")


@pytest.mark.parametrize(
    ("name", "size"), [("ubuntu-irc", 1790), ("topical-chat", 4535), ("sgd", 2049)]
)
def test_real_dialogues_have_twenty_candidates(name, size):
    root = data_root()
    if not root or not (root / name).is_dir():
        pytest.skip(f"needs the folder {name} under DR_DATA")
    made = load_candidates(name, "test")
    assert made.candidates.shape == (size, 20) and made.candidates.min() >= 0
    assert (made.candidates == made.correct[:, None]).sum() == size
    assert len(load_candidates(name, "test", limit=10)) == 10
