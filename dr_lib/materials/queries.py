"""Queries for a collection that has none: generated questions that lead back to one passage, split and stored as a folder.

A question stays if it was written once only and BM25 finds its passage again. Splits that people have judged are kept:
with a test split of one's own, only training queries are written, about passages that nobody has judged. No passage and
no question is in two splits; they are drawn by document, so that neighbours of a training passage are no generated test
passages. Page: practice/own-corpus.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dr_lib.collections import GENERATED, Collection, Judgement, Query, write_folder
from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.materials.questions import ByWords, consistent
from dr_lib.materials.texts import Texts
from dr_lib.retrieval import Bm25
from dr_lib.stages import stage
from dr_lib.training import text_hash

GENERATED_SHARES = {"train": 0.75, "dev": 0.05, "test": 0.2}
"""Parts of the documents by split; of those that are not judged already."""
FEWEST_DOCUMENTS = 50
"""Documents with questions below which splits are drawn by passage."""
WORD = re.compile(r"\w+")


@stage()
def question_collection(
    folder: Path,
    questions: Path,
    index: Path,
    collection: Collection,
    *,
    judged: Sequence[str],
    top_k: int,
    seed: int,
    written_by: str,
) -> None:
    """A folder in BEIR layout, named `generated_name(collection)`, and `counts.json`: what was left after each step.

    Training takes all questions that pass, the other splits one per passage: several would not be independent.

    Args:
        folder: where to write.
        questions: the `Texts`.
        index: of BM25 over the collection.
        collection: whose passages they were made from.
        judged: splits that people have judged, to be kept.
        top_k: BM25 must find the passage among so many; a small number would keep what BM25 is best at.
        seed: of the splits.
        written_by: what the README says of the writer.
    """
    texts, documents = Texts.open(questions), collection.documents()[0]
    judgements = {  # what people have judged stays as it is
        split: [Judgement(query, *one) for query, own in collection.qrels(split).items() for one in own.items()] for split in judged
    }
    wanted = {one.query for own in judgements.values() for one in own}
    queries = [Query(row["id"], row["text"], tuple(row["answers"])) for row in collection.queries() if row["id"] in wanted]
    strings, sources = texts.strings["text"][:], texts.owners()
    once = asked_once([*strings, *(query.text for query in queries)])[: len(strings)]  # nor is it one that people ask
    retriever = ByWords(Bm25.open(index / "index"), texts.strings)
    kept = np.flatnonzero(once & consistent(retriever, sources, documents, top_k=top_k))
    held = [rows for split in judged for rows in collection.relevant_rows(split)]
    held = np.unique(np.concatenate([np.zeros(0, np.int64), *held]))
    shares = {split: share for split, share in GENERATED_SHARES.items() if split not in judged}
    drawn = draw_splits(documents, sources[kept], shares, held=held, seed=seed)
    chosen = {}
    for number, split in enumerate(shares):
        rows = kept[drawn[sources[kept]] == number]
        chosen[split] = rows if split == "train" else rows[first_of_each(sources[rows])]
    ids = collection.passages["id"][:]
    written = {int(row): f"asked-{row}" for rows in chosen.values() for row in rows}
    queries += [Query(name, strings[row]) for row, name in written.items()]
    for split, rows in chosen.items():
        judgements[split] = [Judgement(written[int(row)], ids[int(sources[row])], 1) for row in rows]
    about = readme(collection, judged, written_by)
    write_folder(folder / generated_name(collection), collection.passages, queries, judgements, about)
    counts = read_json(questions / "counts.json")
    passages = collection.passages.select(sources[list(written)])["text"]
    counts = {
        "passages": counts["passages"],
        "written": counts["drawn"],
        "distinct": counts["kept"],
        "asked_once": int(once.sum()),
        "found_again": len(kept),
        "queries": {split: len(rows) for split, rows in chosen.items()},
        "shared_words": shared_words([strings[row] for row in written], passages),
    }
    write_json(folder / "counts.json", counts)


def generated_name(collection: Collection) -> str:
    """What a collection with generated questions is called."""
    return f"{collection.name}-questions"


def readme(collection: Collection, judged: Sequence[str], written_by: str) -> str:
    """What the folder says of itself."""
    by_people = f"Judged by people: {', '.join(judged)}." if judged else "No query was judged by people."
    return (
        f"# {collection.name}, with generated questions\n\n- Source: the passages of {collection.name} (digest"
        f" {collection.digest[:16]}).\n- {GENERATED}: written by {written_by}. {by_people}\n"
        f"- Licence: {collection.licence}\n"
    )


def asked_once(texts: Sequence[str]) -> np.ndarray:
    """Which questions were written once only, `[questions]` bool; case does not count.

    A question that fits two passages does not distinguish them, and might end up in two splits.

    Example:
        >>> asked_once(["Who?", "why?", "who?"]).tolist()
        [False, True, False]
    """
    hashes = np.fromiter((text_hash(text.casefold()) for text in texts), np.int64, len(texts))
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return counts[inverse] == 1


def draw_splits(
    documents: np.ndarray, asked: np.ndarray, shares: Mapping[str, float], *, held: np.ndarray, seed: int
) -> np.ndarray:
    """Draw the split of every passage.

    By document, so that neighbours of a training passage are no test passages; a collection of few documents is split
    by passage instead.

    Args:
        documents: `[passages]` int64, the document of each.
        asked: rows of passages that have a question, in any order, repeated or not.
        shares: split -> its part of the documents that have a question, scaled to sum to 1; the first gets the rest.
        held: rows of passages that are judged already and left out; the rest of their documents is not, since people often
            judge a passage of nearly every document.
        seed: of the draw.

    Returns:
        `[passages]` int64, the split by its place in `shares`; -1 where there is no question or the passage is held.

    Raises:
        InputError: too few passages with a question for so many splits.

    Example:
        >>> draw_splits(np.arange(4), np.array([0, 1, 3]), {"train": 2, "test": 1}, held=np.array([]), seed=0).tolist()
        [0, 1, -1, 0]
    """
    # A document in one split alone: neighbours of a training passage would make the test easier than it looks.
    few = len(np.unique(documents[asked])) < FEWEST_DOCUMENTS
    units = np.arange(len(documents)) if few else documents
    rows = np.setdiff1d(asked, held)
    drawn = np.unique(units[rows])
    if len(drawn) < len(shares):
        fix = "Write more questions a passage, use a weaker filter, or train the question generator longer."
        raise InputError(f"{len(drawn)} passages with questions make no {len(shares)} splits", where="ask", fix=fix)
    sizes = [max(1, int(share / sum(shares.values()) * len(drawn))) for share in shares.values()]
    sizes[0] = len(drawn) - sum(sizes[1:])
    of_unit = np.full(int(units.max()) + 1, -1)
    of_unit[np.random.default_rng([seed, 7]).permutation(drawn)] = np.repeat(np.arange(len(shares)), sizes)
    found = np.full(len(documents), -1)
    found[rows] = of_unit[units[rows]]
    return found


def first_of_each(sources: np.ndarray) -> np.ndarray:
    """The first question of each passage, `[questions]` bool; `sources` is ascending.

    Example:
        >>> first_of_each(np.array([2, 2, 5])).tolist()
        [True, False, True]
    """
    return np.diff(sources, prepend=-1) > 0


def shared_words(questions: Sequence[str], passages: Sequence[str]) -> float:
    """Mean share of a question's distinct words that its passage has too; case does not count.

    Example:
        >>> shared_words(["Why do tides rise?"], ["Tides rise twice a day."])
        0.5
    """
    shares = []
    for question, passage in zip(questions, passages, strict=True):
        words = set(WORD.findall(question.casefold()))
        shares.append(len(words & set(WORD.findall(passage.casefold()))) / max(1, len(words)))
    return float(np.mean(shares)) if shares else 0.0
