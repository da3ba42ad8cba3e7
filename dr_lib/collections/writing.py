"""Write a collection as a folder in BEIR layout: what `load` reads, and what any other tool reads. Book:
practice/own-corpus.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import datasets

from dr_lib.collections.beir import HEADER
from dr_lib.collections.source import Judgement, Query
from dr_lib.files import write_text

AT_ONCE = 1000


def write_folder(
    folder: Path,
    passages: datasets.Dataset,
    queries: Iterable[Query],
    judgements: Mapping[str, Iterable[Judgement]],
    readme: str,
) -> None:
    """Write `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` and `README.md`.

    Args:
        folder: made if it is missing; files of these names are replaced.
        passages: columns id, title, text, doc, position.
        queries: of all splits, each once.
        judgements: by split.
        readme: text of the README; a line with "Licence:" is what `load` will say of the licence.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "corpus.jsonl", _passage_objects(passages))
    _write_lines(folder / "queries.jsonl", (_query_object(query) for query in queries))
    for split, rows in judgements.items():
        lines = ["\t".join(HEADER), *(f"{row.query}\t{row.passage}\t{row.grade}" for row in rows)]
        write_text(folder / "qrels" / f"{split}.tsv", "\n".join(lines) + "\n")
    write_text(folder / "README.md", readme)


def _passage_objects(passages: datasets.Dataset) -> Iterable[dict[str, Any]]:
    for batch in passages.iter(AT_ONCE):
        columns = (batch[name] for name in ("id", "title", "text", "doc", "position"))
        for id_, title, text, doc, position in zip(*columns, strict=True):
            yield {"_id": id_, "title": title, "text": text, "doc": doc, "position": position}


def _query_object(query: Query) -> dict[str, Any]:
    return {"_id": query.id, "text": query.text} | ({"answers": list(query.answers)} if query.answers else {})


def _write_lines(path: Path, objects: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)
