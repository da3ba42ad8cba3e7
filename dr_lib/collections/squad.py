"""SQuAD 1.1 as passage retrieval: a question's paragraph is its relevant passage.

Rajpurkar et al., "SQuAD" (2016). Read from the official files or from `rajpurkar/squad` of the `datasets` hub. Split by
article: test = the official development set, dev = about a tenth of the official training articles, train = the others.
Book: reference/data.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import datasets

from dr_lib.collections.source import Judgement, Passage, Query, Rows, Source
from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest, read_json

FILES = {"train": "train-v1.1.json", "dev": "dev-v1.1.json"}
HUB = "rajpurkar/squad"
DEV_SHARE = 0.1
SHORTEST_QUESTION = 3
LICENCE = "CC BY-SA 4.0 (paragraphs from Wikipedia)"


class Question(NamedTuple):
    """One question of the official release; `part` is its official file, train or dev."""

    part: str
    article: str
    paragraph: str
    id: str
    text: str
    answers: tuple[str, ...]


def is_official_folder(folder: Path) -> bool:
    """Tell whether a folder holds the official JSON files."""
    return any((folder / name).is_file() for name in FILES.values())


def official_source(folder: Path) -> Source:
    """SQuAD from a folder with train-v1.1.json and dev-v1.1.json."""
    paths = {part: folder / name for part, name in FILES.items()}
    for path in paths.values():
        if not path.is_file():
            raise InputError("no such file", where=path, fix="Put both official files of SQuAD 1.1 into the folder.")
    key = json_digest([file_digest(path) for path in paths.values()])
    return _source(
        key, "official files of SQuAD 1.1", lambda: (q for part, path in paths.items() for q in _from_json(part, path))
    )


def hub_source(hub: str = HUB) -> Source:
    """SQuAD through `datasets`: downloaded at the first load, afterwards in the library's own cache."""
    return _source(json_digest(hub), f"datasets {hub}", lambda: _from_hub(hub))


def _source(key: str, place: str, read: Any) -> Source:
    built = cache(lambda: _build(read()))
    return Source(
        name="squad",
        key=json_digest([key, file_digest(Path(__file__))]),
        passages=Rows(place, lambda: enumerate(built()[0], start=1), "paragraph"),
        queries=Rows(place, lambda: enumerate(built()[1], start=1), "question"),
        judgements={
            split: Rows(place, lambda split=split: enumerate(built()[2][split], start=1), "question")
            for split in ("train", "dev", "test")
        },
        info={"source": place, "licence": LICENCE},
        published=True,
    )


def split_of(part: str, article: str) -> str:
    """Split of an article: test for the official dev file; else dev or train by a hash of its title."""
    share = int.from_bytes(sha256(article.encode()).digest()[:4], "big") / 2**32
    return "test" if part == "dev" else "dev" if share < DEV_SHARE else "train"


def _build(questions: Iterable[Question]) -> tuple[list[Passage], list[Query], dict[str, list[Judgement]]]:
    """Merge equal paragraphs; drop questions under three words and repetitions on one paragraph."""
    passages: dict[str, Passage] = {}
    sizes: dict[str, int] = {}
    asked: set[tuple[str, str]] = set()
    queries: list[Query] = []
    judgements: dict[str, list[Judgement]] = {"train": [], "dev": [], "test": []}
    for question in questions:
        paragraph, text = (" ".join(value.split()) for value in (question.paragraph, question.text))
        if paragraph not in passages:
            title = question.article.replace("_", " ")
            doc = f"{question.part}/{question.article.replace(' ', '_')}"
            position = sizes.get(doc, 0)
            sizes[doc] = position + 1
            passages[paragraph] = Passage(f"{doc}#{position}", title, paragraph, doc, position)
        passage = passages[paragraph]
        if len(text.split()) < SHORTEST_QUESTION or (passage.id, text) in asked:
            continue
        asked.add((passage.id, text))
        answers = dict.fromkeys(" ".join(answer.split()) for answer in question.answers)
        queries.append(Query(question.id, text, tuple(answers)))
        part, _, article = passage.doc.partition("/")
        judgements[split_of(part, article)].append(Judgement(question.id, passage.id, 1))
    return list(passages.values()), queries, judgements


def _from_json(part: str, path: Path) -> Iterator[Question]:
    """Questions of an official file; a missing or wrong field is named by its place in the tree."""
    content = read_json(path)
    for a, article in enumerate(_get(content, "data", list, path, "")):
        place = f"data[{a}]"
        title = _get(article, "title", str, path, place)
        for p, paragraph in enumerate(_get(article, "paragraphs", list, path, place)):
            place = f"data[{a}].paragraphs[{p}]"
            context = _get(paragraph, "context", str, path, place)
            for q, asked in enumerate(_get(paragraph, "qas", list, path, place)):
                spot = f"{place}.qas[{q}]"
                found = _get(asked, "answers", list, path, spot)
                answers = tuple(_get(answer, "text", str, path, f"{spot}.answers") for answer in found)
                id_, text = _get(asked, "id", str, path, spot), _get(asked, "question", str, path, spot)
                yield Question(part, title, context, id_, text, answers)


def _get(record: Any, name: str, kind: type, path: Path, place: str) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        problem = f"field {name} is missing or no {'list' if kind is list else 'text'}"
        raise InputError(problem, where=f"{path} {place}".strip(), fix="Take the official file of SQuAD 1.1 again.")
    return value


def _from_hub(hub: str) -> Iterator[Question]:
    for part, name in (("train", "train"), ("dev", "validation")):
        try:
            rows = datasets.load_dataset(hub, split=name)
        except (OSError, ValueError, RuntimeError) as error:
            problem = f"the data could not be had ({type(error).__name__}: {str(error)[:160]})"
            fix = (
                "Connect to the network once; or put train-v1.1.json and dev-v1.1.json, or the collection in BEIR "
                "layout, into a folder named squad under DR_DATA."
            )
            raise InputError(problem, where=f"collection squad ({hub}, {name})", fix=fix) from error
        for row in rows:
            yield Question(
                part, row["title"], row["context"], row["id"], row["question"], tuple(row["answers"]["text"])
            )
