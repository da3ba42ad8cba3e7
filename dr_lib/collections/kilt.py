"""KILT: the paragraphs of one Wikipedia dump as passages, and the tasks whose evidence lies in them.

Petroni et al., "KILT" (2021); DPR-PAQ, Table 2. A folder holds kilt_knowledgesource.json (one page a line) and any of
the tasks' files, such as nq-dev-kilt.jsonl, as published, plain or gzipped. Book: reference/data.

A passage is a paragraph, called `<page>#<place in the page's text>`; its document is the page, its title the page's.
The first entry of a page's text repeats the title and entries `Section::::` are headings: neither is a passage. All
paragraphs from the first to the last that a piece of evidence names are relevant, with grade 1. With one task in the
folder, splits are called train and dev; with several, nq-train and so on.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

from dr_lib.collections.beir import files_digest, licence_of, read_records
from dr_lib.collections.source import Judgement, Passage, Query, Rows, Source
from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest

PAGES = ("kilt_knowledgesource.json", "kilt_knowledgesource.json.gz")
TASK = re.compile(r"(.+)-(train|dev|test)(?:_id)?-kilt\.jsonl(?:\.gz)?")
HEADING, BULLET = "Section::::", "BULLET::::"
FIX = "Use the files as published."


def is_folder(folder: Path) -> bool:
    """Tell whether a folder holds KILT's knowledge source."""
    return _pages(folder) is not None


def folder_source(folder: Path) -> Source:
    """Describe a folder with the knowledge source and any number of tasks; nothing but digests is read yet.

    Raises:
        InputError: no knowledge source in it.
    """
    pages, tasks = _pages(folder), task_files(folder)
    if pages is None:
        raise InputError("no knowledge source", where=folder, fix=f"Put {PAGES[0]} into the folder.")
    split = "{1}" if len({task for task, _ in tasks}) <= 1 else "{0}-{1}"
    return Source(
        name=folder.name,
        key=json_digest([files_digest([pages, *tasks.values()]), file_digest(Path(__file__))]),
        passages=Rows(str(pages), lambda: enumerate(_passages(pages), start=1), "paragraph"),
        queries=Rows(str(folder), lambda: enumerate(_queries(tasks), start=1), "question"),
        judgements={
            split.format(*name): Rows(str(path), partial(_numbered_judgements, path, name[0]), "piece of evidence")
            for name, path in tasks.items()
        },
        info={"source": "files of KILT", "licence": licence_of(folder)},
        published=True,
        allow_duplicates=True,
    )


def task_files(folder: Path) -> dict[tuple[str, str], Path]:
    """The tasks' files by task and split; test files come without answers and are left out where they say so."""
    found = {path: TASK.fullmatch(path.name) for path in sorted(folder.glob("*-kilt.jsonl*"))}
    return {(match[1], match[2]): path for path, match in found.items() if match}


def evidence(path: Path, of: Literal["pages", "passages"] = "pages") -> dict[str, list[list[str]]]:
    """Sets of evidence of every question of a task's file, each of which would do; for `evaluation.r_precision`.

    Args:
        path: a file such as nq-dev-kilt.jsonl.
        of: "pages" (KILT's own measure) or "passages" (DPR-PAQ, Table 2).

    Returns:
        Query id -> sets of page or passage ids, in file order; an answer without evidence gives none.

    Raises:
        InputError: a broken line, with its number.
    """
    task = _task(path)
    found: dict[str, list[list[str]]] = {}
    for _, (record, where) in read_records(path, lambda record, where: (record, where)):
        sets = [_named(output, of, where) for output in _outputs(record, where)]
        found[_query_id(task, record, where)] = [list(dict.fromkeys(own)) for own in sets if own]
    return found


def _pages(folder: Path) -> Path | None:
    return next((folder / name for name in PAGES if (folder / name).is_file()), None)


def _task(path: Path) -> str:
    match = TASK.fullmatch(path.name)
    if match is None:
        raise InputError("no name of a KILT task", where=path, fix="Call it as published, such as nq-dev-kilt.jsonl.")
    return match[1]


def _passages(path: Path) -> Iterator[Passage]:
    for _, (record, where) in read_records(path, lambda record, where: (record, where)):
        page, title, text = (record.get(name) for name in ("wikipedia_id", "wikipedia_title", "text"))
        if page is None or not isinstance(title, str) or not isinstance(text, list):
            raise InputError("wikipedia_id, wikipedia_title or text (a list) is missing", where=where, fix=FIX)
        for position, paragraph in enumerate(text):
            body = str(paragraph).strip()
            if position and body and not body.startswith(HEADING):
                shown = body.replace(BULLET, "").strip()
                yield Passage(f"{page}#{position}", title, shown, str(page), position)


def _queries(tasks: dict[tuple[str, str], Path]) -> Iterator[Query]:
    for (task, _), path in tasks.items():
        for _, (record, where) in read_records(path, lambda record, where: (record, where)):
            answers = (output.get("answer") for output in _outputs(record, where))
            known = dict.fromkeys(answer for answer in answers if isinstance(answer, str) and answer.strip())
            if not isinstance(record.get("input"), str):
                raise InputError("field input is missing or no text", where=where, fix=FIX)
            yield Query(_query_id(task, record, where), record["input"], tuple(known))


def _numbered_judgements(path: Path, task: str) -> Iterator[tuple[int, Judgement]]:
    for number, (record, where) in read_records(path, lambda record, where: (record, where)):
        named = [passage for output in _outputs(record, where) for passage in _named(output, "passages", where)]
        for passage in dict.fromkeys(named):
            yield number, Judgement(_query_id(task, record, where), passage, 1)


def _query_id(task: str, record: dict[str, Any], where: str) -> str:
    if record.get("id") is None:
        raise InputError("field id is missing", where=where, fix=FIX)
    return f"{task}/{record['id']}"


def _outputs(record: dict[str, Any], where: str) -> list[dict[str, Any]]:
    outputs = record.get("output") or []
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise InputError("field output is no list of objects", where=where, fix=FIX)
    return outputs


def _named(output: dict[str, Any], of: str, where: str) -> list[str]:
    """Pages or passages that one answer's evidence names, in order, with repetitions."""
    names = []
    for piece in output.get("provenance") or []:
        try:
            page = piece["wikipedia_id"]
            first = piece.get("start_paragraph_id")
            last = piece.get("end_paragraph_id")
            spans = [] if first is None else range(int(first), int(first if last is None else last) + 1)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"a piece of evidence lacks {error}", where=where, fix=FIX) from None
        names += [str(page)] if of == "pages" else [f"{page}#{place}" for place in spans]
    return names
