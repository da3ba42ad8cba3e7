"""SQuAD 1.1 as passage retrieval: a question's paragraph is its relevant passage.

Rajpurkar et al., "SQuAD" (2016), from the official files or from `rajpurkar/squad` of the
`datasets` hub. Both give the collection that the book's records rest on: the same ids, order,
splits and texts, whose digest is `EXPECTED.digest`. Page of the book: reference/data.

Articles are sorted by part and title. A paragraph that stands twice is one passage, the first, with
the questions of both; its second place stays empty, so that positions are those of the source.
Questions of under three words go, and a question that stands twice on one paragraph is kept once.
Split by article: test = the official development set, dev = about a tenth of the official training
articles, train = the others.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain, groupby, starmap
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import datasets

from dr_lib.collections.plain import one_line
from dr_lib.collections.store import (
    SPLITS,
    Expected,
    Judgement,
    Passage,
    Query,
    Source,
    published_source,
)
from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest, read_json

FILES = {"train": "train-v1.1.json", "dev": "dev-v1.1.json"}
HUB = "rajpurkar/squad"
REVISION = "7b6d24c440a36b6815f21b70d25016731768db1f"
"""Commit of the hub's repository."""
HUB_SPLITS = {"train": "train", "dev": "validation"}
EXPECTED = Expected(
    digest="09079a5e8628dc9f02011c97c0dcefbd2e283d91b938d703ff28caa73ba642ff",
    passages=20958,
    queries={"train": 77230, "dev": 10184, "test": 10534},
)
"""The collection that the book's records rest on."""
DEV_SHARE = 0.1
SHORTEST_QUESTION = 3
LICENCE = "CC BY-SA 4.0 (paragraphs from Wikipedia)"
REPEATED_AT_ONCE = ("Geological_history_of_Earth", "Earth was initially molten")
"""Article and beginning of the one paragraph that stands twice in a row, which rows do not show."""


class Paragraph(NamedTuple):
    """A paragraph of the release, every text on one line.

    Args:
        part: official file, train or dev.
        article: the title as published, with underscores, some signs written like %27.
        context: the text.
        questions: text and accepted answers of each.
    """

    part: str
    article: str
    context: str
    questions: list[tuple[str, list[str]]]


def official_source(folder: Path) -> Source:
    """SQuAD from a folder with train-v1.1.json and dev-v1.1.json."""
    paths = {part: folder / name for part, name in FILES.items()}
    for path in paths.values():
        if not path.is_file():
            fix = "Put both official files of SQuAD 1.1 into the folder."
            raise InputError("no such file", where=path, fix=fix)
    digests = [file_digest(path) for path in paths.values()]
    place = "official files of SQuAD 1.1"
    return _source(digests, place, lambda: chain(*starmap(_from_json, paths.items())))


def hub_source(hub: str = HUB, revision: str = REVISION) -> Source:
    """SQuAD through `datasets`: downloaded at the first load, afterwards in its own cache."""

    def read() -> Iterable[Paragraph]:
        return chain(*(_from_hub(hub, revision, part) for part in FILES))

    return _source([hub, revision], f"datasets {hub}, revision {revision[:10]}", read)


def _source(digests: list[str], place: str, read: Callable[[], Iterable[Paragraph]]) -> Source:
    digest = json_digest([*digests, file_digest(Path(__file__))])
    info = {"source": place, "licence": LICENCE}
    return published_source("squad", digest, place, lambda: _build(read()), info, EXPECTED)


def split_of(part: str, title: str) -> str:
    """Split of an article: test for the official dev file, else by a hash of its title."""
    share = int(sha256(f"squad-dev|{title}".encode()).hexdigest()[:12], 16) / 16**12
    return "test" if part == "dev" else "dev" if share < DEV_SHARE else "train"


def _build(paragraphs: Iterable[Paragraph]) -> dict[str, list]:
    """Sort the articles, merge equal paragraphs, leave out short and repeated questions."""
    articles: dict[tuple[str, str], list[Paragraph]] = defaultdict(list)
    for paragraph in paragraphs:
        title = one_line(unquote(paragraph.article).replace("_", " "))
        articles[paragraph.part, title].append(paragraph)
    built: dict[str, list] = {name: [] for name in ("passages", "queries", *SPLITS)}
    passages: dict[str, Passage] = {}
    asked: set[tuple[str, str]] = set()
    for part, title in sorted(articles):
        doc = f"{part}/{title}"
        for position, paragraph in enumerate(articles[part, title]):
            passage = Passage(
                f"{doc.replace(' ', '_')}#{position}", title, paragraph.context, doc, position
            )
            passage = passages.setdefault(passage.text, passage)
            split = split_of(*passage.doc.split("/", 1))  # of its first article: no text is in two
            for question, answers in paragraph.questions:
                if _is_question(question) and (passage.id, question) not in asked:
                    asked.add((passage.id, question))
                    id_ = f"squad{len(built['queries'])}"
                    accepted = tuple(dict.fromkeys(filter(None, answers)))
                    built["queries"].append(Query(id_, question, accepted))
                    built[split].append(Judgement(id_, passage.id, 1))
    built["passages"] = list(passages.values())
    return built


def _is_question(text: str) -> bool:
    return len(text.split()) >= SHORTEST_QUESTION and bool(re.search("[A-Za-z]", text))


def _from_json(part: str, path: Path) -> Iterator[Paragraph]:
    """Paragraphs of an official file; a missing or wrong field is named by its place."""
    place = "data"
    try:
        for a, article in enumerate(read_json(path)["data"]):
            place, title = f"data[{a}]", one_line(article["title"])
            for p, paragraph in enumerate(article["paragraphs"]):
                place, questions = f"data[{a}].paragraphs[{p}]", []
                context = one_line(paragraph["context"])
                for q, asked in enumerate(paragraph["qas"]):
                    place = f"data[{a}].paragraphs[{p}].qas[{q}]"
                    answers = [one_line(answer["text"]) for answer in asked["answers"]]
                    questions.append((one_line(asked["question"]), answers))
                yield Paragraph(part, title, context, questions)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        problem = f"a field is missing or of another type ({error})"
        fix = "Take the official file of SQuAD 1.1 again."
        raise InputError(problem, where=f"{path} {place}", fix=fix) from None


def _from_hub(hub: str, revision: str, part: str) -> Iterator[Paragraph]:
    split = HUB_SPLITS[part]
    try:
        rows = datasets.load_dataset(hub, revision=revision, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        problem = f"the data could not be had ({type(error).__name__}: {str(error)[:160]})"
        fix = (
            "Connect to the network once; or put train-v1.1.json and dev-v1.1.json into the folder"
            " squad under DR_DATA."
        )
        raise InputError(problem, where=f"collection squad ({hub}, {split})", fix=fix) from error
    yield from _from_rows(part, rows)


def _from_rows(part: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Paragraph]:
    """Paragraphs of rows that have a question each, those of one paragraph in a row."""
    for (title, context), asked in groupby(rows, key=lambda row: (row["title"], row["context"])):
        text, questions = one_line(context), []
        for row in asked:
            questions.append((one_line(row["question"]), [*map(one_line, row["answers"]["text"])]))
        yield Paragraph(part, one_line(title), text, questions)
        if title == REPEATED_AT_ONCE[0] and text.startswith(REPEATED_AT_ONCE[1]):
            yield Paragraph(part, one_line(title), text, [])
