"""KILT: the paragraphs of one Wikipedia dump as passages, and the tasks whose evidence lies in
them.

Petroni et al., "KILT" (2021); DPR-PAQ, Table 2. A folder holds kilt_knowledgesource.json (one page
per line) and any of the tasks' files, such as nq-dev-kilt.jsonl, as published, plain or gzipped.
Page of the book: reference/data.

A passage is a paragraph, called `<page>#<place in the page's text>`; its document is the page, its
title the page's. The first entry of a page's text repeats the title and entries `Section::::` are
headings: neither is a passage. All paragraphs from the first to the last that a piece of evidence
names are relevant, with grade 1. With one task in the folder, splits are called train and dev; with
several, nq-train and so on.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from dr_lib.collections.beir import field_of, files_digest, licence_of, read_records
from dr_lib.collections.store import Judgement, Passage, Query, Source
from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest

PAGES = ("kilt_knowledgesource.json", "kilt_knowledgesource.json.gz")
TASK = re.compile(r"(.+)-(train|dev|test)(?:_id)?-kilt\.jsonl(?:\.gz)?")
HEADING, BULLET = "Section::::", "BULLET::::"
LONGEST_EVIDENCE = 10_000  # paragraphs; no page has more
FIX = "Use the files as published."


def folder_source(folder: Path, pages: Path) -> Source:
    """Describe a folder with the knowledge source `pages` and any number of tasks; nothing but
    digests is read yet.
    """
    files = {
        path: TASK.fullmatch(path.name)
        for path in sorted(folder.glob("*-kilt.jsonl*"))
        if path.is_file()
    }
    # those without answers do not match
    tasks = {(match[1], match[2]): path for path, match in files.items() if match}
    split = "{1}" if len({task for task, _ in tasks}) <= 1 else "{0}-{1}"
    return Source(
        name=folder.name,
        digest=json_digest([files_digest([pages, *tasks.values()]), file_digest(Path(__file__))]),
        passages=partial(_passages, pages),
        queries=partial(_queries, tasks.values()),
        judgements={
            split.format(*name): partial(_judgements, path) for name, path in tasks.items()
        },
        info={"source": "files of KILT", "licence": licence_of(folder)},
        published=True,
    )


def evidence(path: Path) -> dict[str, list[list[str]]]:
    """Sets of pages that are evidence for every question of a task's file, each of which would do:
    what KILT's own R-precision counts.

    Args:
        path: a file such as nq-dev-kilt.jsonl.

    Returns:
        Query id -> sets of page ids, in file order; an answer without evidence gives none.

    Raises:
        InputError: a broken line, with its number.
    """
    sets = {}
    for where, id_, record in _questions(path):
        named = (_named(output, where) for output in _outputs(record, where))
        sets[id_] = [list(dict.fromkeys(page for page, _ in spans)) for spans in named if spans]
    return sets


def _passages(path: Path) -> Iterator[tuple[str, Passage]]:
    for where, record in read_records(path):
        page, title, text = (
            record.get(name) for name in ("wikipedia_id", "wikipedia_title", "text")
        )
        if page is None or not isinstance(title, str) or not isinstance(text, list):
            raise InputError(
                "wikipedia_id, wikipedia_title or text (a list) is missing", where=where, fix=FIX
            )
        for position, paragraph in enumerate(text):
            body = str(paragraph).strip()
            if position and body and not body.startswith(HEADING):
                body = body.replace(BULLET, "").strip()
                yield where, Passage(f"{page}#{position}", title, body, str(page), position)


def _questions(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The lines of a task's file: the place that errors name, id of the query, and the object."""
    task = TASK.fullmatch(path.name)
    if task is None:
        raise InputError(
            "not the name of a KILT task",
            where=path,
            fix="Call it as published, such as nq-dev-kilt.jsonl.",
        )
    for where, record in read_records(path):
        if record.get("id") is None:
            raise InputError("field id is missing", where=where, fix=FIX)
        yield where, f"{task[1]}/{record['id']}", record


def _queries(paths: Iterable[Path]) -> Iterator[tuple[str, Query]]:
    for where, id_, record in chain.from_iterable(map(_questions, paths)):
        answers = (output.get("answer") for output in _outputs(record, where))
        known = dict.fromkeys(
            answer for answer in answers if isinstance(answer, str) and answer.strip()
        )
        yield where, Query(id_, field_of(record, "input", str, where), tuple(known))


def _judgements(path: Path) -> Iterator[tuple[str, Judgement]]:
    for where, id_, record in _questions(path):
        spans = chain.from_iterable(_named(output, where) for output in _outputs(record, where))
        named = dict.fromkeys(f"{page}#{place}" for page, places in spans for place in places)
        yield from ((where, Judgement(id_, passage, 1)) for passage in named)


def _outputs(record: dict[str, Any], where: str) -> list[dict[str, Any]]:
    outputs = record.get("output") or []
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise InputError("field output is not a list of objects", where=where, fix=FIX)
    return outputs


def _named(output: dict[str, Any], where: str) -> list[tuple[str, range]]:
    """Pages that one answer's evidence names, with the paragraphs there; in order, repeated."""
    spans = []
    for piece in field_of(output, "provenance", list, where, []):
        try:
            page, first = str(piece["wikipedia_id"]), piece.get("start_paragraph_id")
            last = first if piece.get("end_paragraph_id") is None else piece["end_paragraph_id"]
            places = range(0) if first is None else range(int(first), int(last) + 1)
            if len(places) > LONGEST_EVIDENCE or not page.isprintable():
                raise ValueError(f"a span of one page: {page!r}, {first} to {last}")
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise InputError(f"a piece of evidence lacks {error}", where=where, fix=FIX) from None
        spans.append((page, places))
    return spans
