"""SQuAD 1.1 as passage retrieval: a question's paragraph is its relevant passage.

Rajpurkar et al., "SQuAD" (2016). Read from the official files or from `rajpurkar/squad` of the
`datasets` hub. Split by article: test = the official development set, dev = about a tenth of the
official training articles, train = the others. Page of the book: reference/data.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import chain, starmap
from pathlib import Path

import datasets

from dr_lib.collections.store import SPLITS, Judgement, Passage, Query, Source, published_source
from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest, read_json

FILES = {"train": "train-v1.1.json", "dev": "dev-v1.1.json"}
HUB = "rajpurkar/squad"
DEV_SHARE = 0.1
SHORTEST_QUESTION = 3
LICENCE = "CC BY-SA 4.0 (paragraphs from Wikipedia)"


# Part (official file: train or dev), article, paragraph, id, text and answers of a question.
Question = tuple[str, str, str, str, str, tuple[str, ...]]


def official_source(folder: Path) -> Source:
    """SQuAD from a folder with train-v1.1.json and dev-v1.1.json."""
    paths = {part: folder / name for part, name in FILES.items()}
    for path in paths.values():
        if not path.is_file():
            raise InputError(
                "no such file",
                where=path,
                fix="Put both official files of SQuAD 1.1 into the folder.",
            )
    digests = [file_digest(path) for path in paths.values()]
    return _source(
        digests, "official files of SQuAD 1.1", lambda: chain(*starmap(_from_json, paths.items()))
    )


def hub_source(hub: str = HUB) -> Source:
    """SQuAD through `datasets`: downloaded at the first load, afterwards in the library's own
    cache.
    """
    return _source([hub], f"datasets {hub}", lambda: _from_hub(hub))


def _source(digests: list[str], place: str, read: Callable[[], Iterable[Question]]) -> Source:
    digest = json_digest([*digests, file_digest(Path(__file__))])
    return published_source(
        "squad", digest, place, lambda: _build(read()), {"source": place, "licence": LICENCE}
    )


def split_of(part: str, article: str) -> str:
    """Split of an article: test for the official dev file; else dev or train by a hash of its
    title.
    """
    share = int.from_bytes(sha256(article.encode()).digest()[:4], "big") / 2**32
    return "test" if part == "dev" else "dev" if share < DEV_SHARE else "train"


def _build(questions: Iterable[Question]) -> dict[str, list]:
    """Merge equal paragraphs; drop questions under three words and repetitions on one paragraph."""
    built: dict[str, list] = {name: [] for name in ("passages", "queries", *SPLITS)}
    passages: dict[str, Passage] = {}
    sizes: dict[str, int] = {}
    known: set[tuple[str, str]] = set()
    for part, article, paragraph, id_, text, answers in questions:
        if paragraph not in passages:
            doc = f"{part}/{article.replace(' ', '_')}"
            position = sizes[doc] = sizes.get(doc, -1) + 1
            passages[paragraph] = Passage(
                f"{doc}#{position}", article.replace("_", " "), paragraph, doc, position
            )
        passage = passages[paragraph]
        if len(text.split()) >= SHORTEST_QUESTION and (passage.id, text) not in known:
            known.add((passage.id, text))
            built["queries"].append(Query(id_, text, tuple(dict.fromkeys(answers))))
            # of the paragraph's first article, where several have it
            split = split_of(*passage.doc.split("/", 1))
            built[split].append(Judgement(id_, passage.id, 1))
    built["passages"] = list(passages.values())
    return built


def _from_json(part: str, path: Path) -> Iterator[Question]:
    """Questions of an official file; a missing or wrong field is named by its place in the tree."""
    place = "data"
    try:
        for a, article in enumerate(read_json(path)["data"]):
            place, title = f"data[{a}]", _one_line(article["title"])
            for p, paragraph in enumerate(article["paragraphs"]):
                place, context = f"data[{a}].paragraphs[{p}]", _one_line(paragraph["context"])
                for q, one in enumerate(paragraph["qas"]):
                    place = f"data[{a}].paragraphs[{p}].qas[{q}]"
                    answers = tuple(_one_line(answer["text"]) for answer in one["answers"])
                    yield (
                        part,
                        title,
                        context,
                        _one_line(one["id"]),
                        _one_line(one["question"]),
                        answers,
                    )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        problem = f"a field is missing or of another type ({error})"
        raise InputError(
            problem, where=f"{path} {place}", fix="Take the official file of SQuAD 1.1 again."
        ) from None


def _from_hub(hub: str) -> Iterator[Question]:
    for part, name in (("train", "train"), ("dev", "validation")):
        try:
            rows = datasets.load_dataset(hub, split=name)
        except (OSError, ValueError, RuntimeError) as error:
            problem = f"the data could not be had ({type(error).__name__}: {str(error)[:160]})"
            fix = (
                "Connect to the network once; or put train-v1.1.json and dev-v1.1.json into the"
                " folder squad under DR_DATA."
            )
            raise InputError(problem, where=f"collection squad ({hub}, {name})", fix=fix) from error
        for row in rows:
            answers = tuple(map(_one_line, row["answers"]["text"]))
            context, text = _one_line(row["context"]), _one_line(row["question"])
            yield part, row["title"], context, row["id"], text, answers


def _one_line(text: str) -> str:
    return " ".join(text.split())
