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
from functools import cache, partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import unquote

import datasets

from dr_lib.collections.plain import one_line
from dr_lib.collections.store import SPLITS, Expected, Judgement, Passage, Query, Rows, Source
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


class Row(NamedTuple):
    """A question of the release and its paragraph, every text on one line.

    Args:
        article: the title as published, with underscores, some signs written like %27.
        context: text of the paragraph.
        question: text of the question.
        answers: accepted ones.
    """

    article: str
    context: str
    question: str
    answers: tuple[str, ...]

    @classmethod
    def of(cls, article: str, context: str, question: str, answers: Iterable[str]) -> Self:
        """A row of texts as they were published."""
        return cls(*map(one_line, (article, context, question)), tuple(map(one_line, answers)))


def official_source(folder: Path) -> Source:
    """SQuAD from a folder with train-v1.1.json and dev-v1.1.json."""
    paths = {part: folder / name for part, name in FILES.items()}
    for path in paths.values():
        if not path.is_file():
            fix = "Put both official files of SQuAD 1.1 into the folder."
            raise InputError("no such file", where=path, fix=fix)
    digests = [file_digest(path) for path in paths.values()]
    files = {part: partial(_from_json, path) for part, path in paths.items()}
    return _source(digests, "official files of SQuAD 1.1", files)


def hub_source(hub: str = HUB, revision: str = REVISION) -> Source:
    """SQuAD through `datasets`: downloaded at the first load, afterwards in its own cache."""
    splits = {part: partial(_from_hub, hub, revision, name) for part, name in HUB_SPLITS.items()}
    return _source([hub, revision], f"datasets {hub}, revision {revision[:10]}", splits)


def _source(
    digests: list[str], place: str, parts: Mapping[str, Callable[[], Iterable[Row]]]
) -> Source:
    """The source that is built as a whole when any of it is first read."""
    built = cache(partial(_build, parts))

    def rows(name: str) -> Rows:
        return lambda: (
            (f"{place}, {name} row {number}", row)
            for number, row in enumerate(built()[name], start=1)
        )

    return Source(
        name="squad",
        digest=json_digest([*digests, file_digest(Path(__file__))]),
        passages=rows("passages"),
        queries=rows("queries"),
        judgements={split: rows(split) for split in SPLITS},
        info={"source": place, "licence": LICENCE},
        published=True,
        expected=EXPECTED,
    )


def split_of(part: str, title: str) -> str:
    """Split of an article: test for the official dev file, else by a hash of its title."""
    share = int(sha256(f"squad-dev|{title}".encode()).hexdigest()[:12], 16) / 16**12
    return "test" if part == "dev" else "dev" if share < DEV_SHARE else "train"


def _build(parts: Mapping[str, Callable[[], Iterable[Row]]]) -> dict[str, list]:
    """Sort the articles, merge equal paragraphs, leave out short and repeated questions."""
    articles: dict[tuple[str, str], list[tuple[str, list[Row]]]] = defaultdict(list)
    for part, read in parts.items():
        for (article, context), asked in groupby(read(), key=lambda row: row[:2]):
            paragraphs = articles[part, one_line(unquote(article).replace("_", " "))]
            paragraphs.append((context, [*asked]))
            if article == REPEATED_AT_ONCE[0] and context.startswith(REPEATED_AT_ONCE[1]):
                paragraphs.append((context, []))
    built: dict[str, list] = {name: [] for name in ("passages", "queries", *SPLITS)}
    passages: dict[str, Passage] = {}
    known: set[tuple[str, str]] = set()
    for part, title in sorted(articles):
        doc = f"{part}/{title}"
        for position, (context, asked) in enumerate(articles[part, title]):
            passage = Passage(f"{doc.replace(' ', '_')}#{position}", title, context, doc, position)
            passage = passages.setdefault(context, passage)
            split = split_of(*passage.doc.split("/", 1))  # of its first article: no text is in two
            for row in asked:
                if _is_question(row.question) and (passage.id, row.question) not in known:
                    known.add((passage.id, row.question))
                    id_ = f"squad{len(built['queries'])}"
                    accepted = tuple(dict.fromkeys(filter(None, row.answers)))
                    built["queries"].append(Query(id_, row.question, accepted))
                    built[split].append(Judgement(id_, passage.id, 1))
    built["passages"] = list(passages.values())
    return built


def _is_question(text: str) -> bool:
    return len(text.split()) >= SHORTEST_QUESTION and bool(re.search("[A-Za-z]", text))


def _from_json(path: Path) -> Iterator[Row]:
    """Rows of an official file; a missing or wrong field is named by its place."""
    place = "data"
    try:
        for a, article in enumerate(read_json(path)["data"]):
            place = f"data[{a}]"
            for p, paragraph in enumerate(article["paragraphs"]):
                place = f"data[{a}].paragraphs[{p}]"
                for q, asked in enumerate(paragraph["qas"]):
                    place = f"data[{a}].paragraphs[{p}].qas[{q}]"
                    answers = [answer["text"] for answer in asked["answers"]]
                    yield Row.of(article["title"], paragraph["context"], asked["question"], answers)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        problem = f"a field is missing or of another type ({error})"
        fix = "Take the official file of SQuAD 1.1 again."
        raise InputError(problem, where=f"{path} {place}", fix=fix) from None


def _from_hub(hub: str, revision: str, split: str) -> Iterator[Row]:
    try:
        rows = datasets.load_dataset(hub, revision=revision, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        problem = f"the data could not be had ({type(error).__name__}: {str(error)[:160]})"
        fix = (
            "Connect to the network once; or put train-v1.1.json and dev-v1.1.json into the folder"
            " squad under DR_DATA."
        )
        raise InputError(problem, where=f"collection squad ({hub}, {split})", fix=fix) from error
    for row in rows:
        yield Row.of(row["title"], row["context"], row["question"], row["answers"]["text"])
