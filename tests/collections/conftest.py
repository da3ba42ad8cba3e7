"""Small collections on disk, whole or with one defect."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PASSAGES = [
    {"_id": "p1", "title": "Flow", "text": "Air flows over the wing.", "doc": "d1", "position": 0},
    {
        "_id": "p2",
        "title": "Flow",
        "text": "The boundary layer is thin.",
        "doc": "d1",
        "position": 1,
    },
    {
        "_id": "p3",
        "title": "",
        "text": "Heat passes through the plate.",
        "doc": "d2",
        "position": 0,
    },
    {"_id": "p4", "text": "A jet is hot and loud."},
]
QUERIES = [
    {"_id": "q1", "text": "what is thin", "answers": ["the boundary layer", "it"]},
    {"_id": "q2", "text": "what is hot"},
    {"_id": "q3", "text": "nobody judged this"},
    {"_id": "q4", "text": "what flows", "answers": ["air"]},
]
QRELS = {"test": ["q2\tp4\t2", "q1\tp2\t1", "q1\tp1\t0"], "train": ["q4\tp1\t1"]}
HEADER = "query-id\tcorpus-id\tscore"


def as_lines(rows: list[Any]) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


@pytest.fixture
def beir_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write a folder in BEIR layout; each part can be replaced (a str is written verbatim) or left
    out with None.
    """

    def write(
        name: str = "tiny",
        corpus: Any = PASSAGES,
        queries: Any = QUERIES,
        qrels: Any = QRELS,
        packed: bool = False,
    ) -> Path:
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        texts = {"corpus.jsonl": corpus, "queries.jsonl": queries}
        texts |= {
            f"qrels/{split}.tsv": "\n".join([HEADER, *rows]) + "\n"
            for split, rows in (qrels or {}).items()
        }
        for path, content in texts.items():
            if content is None:
                continue
            data = (content if isinstance(content, str) else as_lines(content)).encode(
                "utf-8", "surrogatepass"
            )
            if packed:
                (folder / f"{path}.gz").write_bytes(gzip.compress(data))
            else:
                (folder / path).write_bytes(data)
        return folder

    return write


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of parsed collections for this test alone."""
    return tmp_path / "cache"
