"""Queries for a collection that has none: a writer asks about every passage, and what leads back is
kept.

The book's own generator, a public one (doc2query), or one that first learns on another collection's
queries writes; a question stays if it was written once only and BM25 finds its passage again
(`materials.questions.consistent`). Splits that people have judged are kept: with a test split of
one's own, only training queries are written, about passages that nobody has judged. No passage and
no question is in two splits; they are drawn by document, so that neighbours of a training passage
are no generated test passages. Page of the book: practice/own-corpus.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import concatenate_datasets

from dr_lib.collections import GENERATED, Collection, Judgement, Query, rows_of, write_folder
from dr_lib.errors import InputError, check_texts
from dr_lib.files import read_json, write_json
from dr_lib.lab import trainings
from dr_lib.lab.inputs import Inputs, open_writer
from dr_lib.lab.recipe import Recipe, open_collection, open_sample
from dr_lib.materials import Texts
from dr_lib.materials.questions import ByWords, consistent
from dr_lib.retrieval import Bm25
from dr_lib.stages import Cache, Stage, TimeIsUpError, stage
from dr_lib.training import text_hash
from dr_lib.words import words_of

FEWEST_PASSAGES, SEED = 10, 0
FOUND_AMONG = 100
"""BM25 must find a question's passage among so many: a small number would favour the questions that
BM25 answers best.
"""


@dataclass(frozen=True)
class GeneratedQueries:
    """A collection with generated questions.

    Attributes:
        recipe: the given recipe on the new collection; it measures "test" if its own split is
            unknown.
        folder: the collection in BEIR layout; copy it to keep, correct or extend it.
        counts: the questions left after each step, and `shared_words`, the mean share of a
            question's words in its passage.
    """

    recipe: Recipe
    folder: Path
    counts: dict[str, Any]

    def and_also(self, further: "GeneratedQueries") -> "GeneratedQueries":
        """These and what was written later, counted together."""
        counts = Counter(self.counts | {"queries": 0}) + Counter(further.counts | {"queries": 0})
        sizes = [sum(one.counts["queries"].values()) for one in (self, further)]
        shared = [one.counts["shared_words"] for one in (self, further)]
        together = {
            "queries": further.counts["queries"] | self.counts["queries"],
            "shared_words": float(np.average(shared, weights=sizes)),
        }
        return replace(further, counts=counts | together)


def generate_queries(
    recipe: Recipe,
    *,
    learn_from: str | None = None,
    use_judgements: bool = True,
    per_passage: int = 3,
    cache: Cache | None = None,
    parts: Sequence[Sequence[int]] = (),
    splits: Sequence[str] | None = None,
) -> GeneratedQueries:
    """Generate the queries that a recipe's collection lacks.

    Args:
        recipe: the collection and its sizes, the base model, and in `auxiliary.questions` how a
            generator is trained, or which ready one is used (a doc2query model).
        learn_from: the collection whose training queries a generator first learns to write, unless
            the recipe names a ready one. None: without such a name the one that comes with the book
            writes.
        use_judgements: keep the queries of the splits that the collection has, and write the
            others; False writes all.
        per_passage: questions written about a passage. Training takes all that pass, dev and test
            one per passage, since several would not be independent of each other.
        cache: where the stages are kept.
        parts: rows of the passages to ask about, in parts that are written one after the other:
            when the time of the cache is up, those that are written will do. None: all passages.
        splits: what is written, of those that are missing; None: all.

    Raises:
        TimeIsUpError: nothing is written yet.
        InputError: too few passages that are not judged, `learn_from` has no training queries, or
            too few questions passed.
    """
    collection, cache = open_sample(recipe.collection), cache or Cache()
    judged = list(collection.splits) if use_judgements else []
    held = relevant_ids(collection, judged)
    same = np.arange(len(collection)) if collection.same_text is None else collection.same_text
    # passages of one text are asked about once
    free = len(np.setdiff1d(same, same[rows_of(list(held), collection.passages["id"])]))
    if free < FEWEST_PASSAGES:
        copies = f" ({len(collection)}, but copies)" * (len({*same}) < len(same))
        problem = (
            f"{free} passage{'s' * (free != 1)}{copies} to write questions about, too few to train"
            " and to test"
        )
        told = f" ({len(held)} have questions to test on, and are kept for that)" if held else ""
        fix = f"Give text for {FEWEST_PASSAGES} or more passages."
        if (most := recipe.collection.passages) == len(collection):
            fix = (
                f"Take a larger scale: at this one {most} passages are looked at, the judged ones"
                " first."
            )
        raise InputError(problem + told, where=collection.name, fix=fix)
    about, drawn = [collection.part(rows) for rows in parts], {"per_passage": per_passage}
    questions, written_by = question_stages(
        recipe, about or [collection], learn_from=learn_from, **drawn
    )
    if parts:
        written = 0
        for stage in questions:
            try:
                cache.get(stage)
                written += 1
            except TimeIsUpError:
                if not written:
                    raise
                break
        about, questions, cache = about[:written], questions[:written], cache.within(None)
    made = question_collection(
        questions,
        Inputs(recipe).bm25_index(),
        collection,
        about,
        name=generated_name(collection),
        judged=judged,
        splits=splits,
        top_k=FOUND_AMONG,
        seed=SEED,
        written_by=written_by,
    )
    place, split = cache.get(made), recipe.evaluation.split
    folder = place / generated_name(collection)
    known = {*GENERATED_SHARES, *judged}
    changed = recipe.with_(
        collection=str(folder), evaluation__split=split if split in known else "test"
    )
    counts = read_json(place / "counts.json")
    return GeneratedQueries(changed, folder, counts)


def question_stages(
    recipe: Recipe, about: Sequence[Collection], *, learn_from: str | None, per_passage: int
) -> tuple[list[Stage], str]:
    """The questions about each part of a collection, not written yet, and who writes them; all else
    as of `generate_queries`.
    """
    if ready := recipe.auxiliary.questions.model or ("embedded" if learn_from is None else None):
        writer = open_writer(ready)
        written_by = f"the question generator {writer.name}"
    else:
        open_collection(learn_from).qrels("train")  # complains in the collection's own words
        elsewhere = Inputs(recipe.with_(collection=learn_from))
        writer = trainings.question_generator(elsewhere, SEED)
        written_by = f"a model trained on the queries of {open_collection(learn_from).name}"
    inputs, drawn = Inputs(recipe), {"per_passage": per_passage, "top_k": 10, "seed": SEED}
    return [trainings.questions_by(inputs, writer, part, **drawn) for part in about], written_by


def relevant_ids(collection: Collection, splits: Sequence[str]) -> set[str]:
    """Passages that are relevant to a query of some splits."""
    return {
        passage
        for split in splits
        for grades in collection.qrels(split).values()
        for passage, grade in grades.items()
        if grade > 0
    }


# From questions to a collection -------------------------------------------------------------------

GENERATED_SHARES = {"train": 0.75, "dev": 0.05, "test": 0.2}
"""Parts of the documents by split; of those that are not judged already."""
FEWEST_DOCUMENTS = 50
"""Documents with questions below which splits are drawn by passage."""
FEWEST_TESTED, MOST_TESTED, TESTED_AT_ONCE = 50, 1_000, 125
"""Passages that are asked about for testing, where these questions are written first, and in one
part.
"""


@stage(reads=("judged",))
def question_collection(
    folder: Path,
    questions: Sequence[Path],
    index: Path,
    collection: Collection,
    asked_about: Sequence[Collection] = (),
    *,
    name: str,
    judged: Sequence[str],
    splits: Sequence[str] | None = None,
    top_k: int,
    seed: int,
    written_by: str,
) -> None:
    """A folder in BEIR layout and `counts.json`: what was left after each step.

    Training takes all questions that pass, the other splits one per passage: several would not be
    independent.

    Args:
        folder: where to write.
        questions: the `Texts`, one a part of the passages.
        index: of BM25 over the collection.
        collection: whose passages they were made from.
        asked_about: the parts, in the same order (`Collection.part`); none: all passages.
        name: of the new folder, see `generated_name`.
        judged: splits that people have judged, to be kept.
        splits: what is written; None: whatever is not judged.
        top_k: BM25 must find the passage among so many; a small number would keep what BM25 is best
            at.
        seed: of the splits.
        written_by: what the README says of the writer.
    """
    texts = [Texts.open(part) for part in questions]
    all_texts = concatenate_datasets([part.strings for part in texts])
    strings, ids = all_texts["text"][:], collection.passages["id"][:]
    rows_of_part = [rows_of(part.passages["id"], ids) for part in asked_about or [collection]]
    owners = [part.owners() for part in texts]
    sources = np.concatenate(
        [rows[owner] for rows, owner in zip(rows_of_part, owners, strict=True)]
    )
    queries, judgements = _judged_by_people(collection, judged)
    # nor is it one that people ask
    once = asked_once([*strings, *(query.text for query in queries)])[: len(strings)]
    retriever, documents = ByWords(Bm25.open(index / "index"), all_texts), collection.documents()[0]
    same = collection.same_text
    leads_back = consistent(retriever, sources, documents, top_k=top_k, same=same)
    passing = np.flatnonzero(once & leads_back)
    if same is not None:  # no text in two splits: the first passage with it is asked about
        passing = passing[same[sources[passing]] == sources[passing]]
    chosen = _choose(passing, sources, collection, judged, splits or [*GENERATED_SHARES], seed=seed)
    # behind those that were written before
    earlier = [int(row.id[6:]) for row in queries if re.fullmatch(r"asked-\d+", row.id)]
    begin = max(earlier, default=-1) + 1
    written = {int(row): f"asked-{begin + row}" for rows in chosen.values() for row in rows}
    queries += [Query(asked, strings[row]) for row, asked in written.items()]
    for split, rows in chosen.items():
        judgements[split] = [
            Judgement(written[int(row)], ids[int(sources[row])], 1) for row in rows
        ]
    about = readme(collection, judged, written_by)
    write_folder(folder / name, collection.passages, queries, judgements, about)
    counts = sum((Counter(read_json(part / "counts.json")) for part in questions), Counter())
    passages = collection.passages.select(sources[list(written)])["text"]
    counts = {
        "passages": counts["passages"],
        "written": counts["drawn"],
        "distinct": counts["kept"],
        "asked_once": int(once.sum()),
        "found_again": len(passing),
        "queries": {split: len(rows) for split, rows in chosen.items()},
        "shared_words": shared_words([strings[row] for row in written], passages),
    }
    write_json(folder / "counts.json", counts)


def _judged_by_people(
    collection: Collection, splits: Sequence[str]
) -> tuple[list[Query], dict[str, list[Judgement]]]:
    """The queries and judgements of some splits, as they are."""
    judgements = {
        split: [
            Judgement(query, id_, grade)
            for query, grades in collection.qrels(split).items()
            for id_, grade in grades.items()
        ]
        for split in splits
    }
    wanted = {judgement.query for part in judgements.values() for judgement in part}
    queries = [
        Query(row["id"], row["text"], tuple(row["answers"]))
        for row in collection.queries()
        if row["id"] in wanted
    ]
    return queries, judgements


def _choose(
    passing: np.ndarray,
    sources: np.ndarray,
    collection: Collection,
    judged: Sequence[str],
    splits: Sequence[str],
    *,
    seed: int,
) -> dict[str, np.ndarray]:
    """The questions of each split that is not judged: in train all of a passage, elsewhere the
    first.

    Args:
        passing: numbers of the questions that may be taken, ascending.
        sources: `[questions]` row of the passage that each was made from.
        collection: the passages.
        judged: splits that people have judged, whose passages are left out.
        splits: what is wanted.
        seed: of the draw.
    """
    held = [rows for split in judged for rows in collection.relevant_rows(split)]
    held = np.unique(np.concatenate([np.zeros(0, np.int64), *held]))
    if (same := collection.same_text) is not None:
        held = np.flatnonzero(np.isin(same, same[held]))
    shares = {split: GENERATED_SHARES[split] for split in splits if split not in judged}
    documents = collection.documents()[0]
    drawn = draw_splits(documents, sources[passing], shares, held=held, seed=seed)
    chosen = {}
    for number, split in enumerate(shares):
        rows = passing[drawn[sources[passing]] == number]
        chosen[split] = rows if split == "train" else rows[first_of_each(sources[rows])]
    return chosen


def generated_name(collection: Collection) -> str:
    """What a collection with generated questions is called."""
    return f"{collection.name.removesuffix('-questions')}-questions"


def tested_first(
    collection: Collection, held: Sequence[str] = ()
) -> tuple[list[np.ndarray], np.ndarray]:
    """Passages to be asked about for testing, in parts that can be written one after the other, and
    those for training.

    By document, as `draw_splits`: what is drawn depends on the passages alone, so that it is known
    before anything is written.

    Args:
        collection: whose passages they are.
        held: ids of passages that are judged already.

    Returns:
        Parts of rows, and rows; of passages of equal text the first alone.
    """
    documents, same = collection.documents()[0], collection.same_text
    free = np.setdiff1d(np.arange(len(collection)), rows_of(held, collection.passages["id"]))
    if same is not None:
        free = free[same[free] == free]
    few = len(np.unique(documents[free])) < FEWEST_DOCUMENTS
    units = free if few else documents[free]
    distinct, numbers = np.unique(units, return_inverse=True)
    ranks = np.random.default_rng([SEED, 11]).permutation(len(distinct))[numbers]
    order = np.argsort(ranks, kind="stable")
    wanted = max(FEWEST_TESTED, round(GENERATED_SHARES["test"] * len(free)))
    wanted = min(wanted, MOST_TESTED, len(free) // 2)
    tested = order[:wanted]
    rest = np.sort(free[~np.isin(ranks, ranks[tested])])
    return np.split(free[tested], range(TESTED_AT_ONCE, wanted, TESTED_AT_ONCE)), rest


def readme(collection: Collection, judged: Sequence[str], written_by: str) -> str:
    """What the folder says of itself."""
    by_people = (
        f"Judged by people: {', '.join(judged)}." if judged else "No query was judged by people."
    )
    # what a collection says that has some already holds for the others too
    generated = collection.info.get("questions") or f"written by {written_by}. {by_people}"
    return (
        f"# {collection.name}, with generated questions\n\n- Source: the passages of"
        f" {collection.name} (digest {collection.passages_digest[:16]}).\n- {GENERATED}:"
        f" {generated}\n- Licence: {collection.licence}\n"
    )


def asked_once(texts: Sequence[str]) -> np.ndarray:
    """Which questions were written once only, `[questions]` bool; case does not count.

    A question that fits two passages does not distinguish them, and might end up in two splits.

    Example:
        >>> asked_once(["Who?", "why?", "who?"]).tolist()
        [False, True, False]
    """
    check_texts(texts=texts)
    hashes = np.fromiter((text_hash(text.casefold()) for text in texts), np.int64, len(texts))
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return counts[inverse] == 1


def draw_splits(
    documents: np.ndarray,
    asked: np.ndarray,
    shares: Mapping[str, float],
    *,
    held: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Draw the split of every passage.

    By document, so that neighbours of a training passage are no test passages; a collection of few
    documents is split by passage instead.

    Args:
        documents: `[passages]` int64, the document of each.
        asked: rows of passages that have a question, in any order, repeated or not.
        shares: split -> its part of the documents that have a question, scaled to sum to 1; the
            first gets the rest.
        held: rows of passages that are judged already and left out; the rest of their documents is
            not, since people often judge a passage of nearly every document.
        seed: of the draw.

    Returns:
        `[passages]` int64, the split by its place in `shares`; -1 where there is no question or the
        passage is held.

    Raises:
        InputError: too few passages with a question for so many splits.

    Example:
        >>> draw_splits(
        ...     np.arange(4),
        ...     np.array([0, 1, 3]),
        ...     {"train": 2, "test": 1},
        ...     held=np.array([]),
        ...     seed=0,
        ... ).tolist()
        [0, 1, -1, 0]
    """
    # A document in one split alone: neighbours of a training passage would make the test easier
    # than it looks.
    few = len(np.unique(documents[asked])) < FEWEST_DOCUMENTS
    units = np.arange(len(documents)) if few else documents
    rows = np.setdiff1d(asked, held)
    drawn = np.unique(units[rows])
    if len(drawn) < len(shares):
        fix = (
            "Write more questions a passage, use a weaker filter, or train the question generator"
            " longer. Where it does not know the language of the text, none of that helps: add"
            " queries that people have judged (corpus.jsonl, queries.jsonl, qrels/test.tsv), or"
            " search without any: dr-lib search FOLDER QUESTION --model NAME."
        )
        raise InputError(
            f"questions about {len(drawn)} passages or documents were kept, at least {len(shares)}"
            " are needed",
            where="ask",
            fix=fix,
        )
    sizes = [max(1, int(share / sum(shares.values()) * len(drawn))) for share in shares.values()]
    sizes[0] = len(drawn) - sum(sizes[1:])
    of_unit = np.full(int(units.max()) + 1, -1)
    of_unit[np.random.default_rng([seed, 7]).permutation(drawn)] = np.repeat(
        np.arange(len(shares)), sizes
    )
    split_of = np.full(len(documents), -1)
    split_of[rows] = of_unit[units[rows]]
    return split_of


def first_of_each(sources: np.ndarray) -> np.ndarray:
    """The first question of each passage, `[questions]` bool; `sources` are rows in any order, as
    those of passages that were drawn by document.

    Example:
        >>> first_of_each(np.array([5, 2, 2, 5])).tolist()
        [True, True, False, False]
    """
    return ~pd.Series(sources).duplicated().to_numpy()


def shared_words(questions: Sequence[str], passages: Sequence[str]) -> float:
    """Mean share of a question's distinct words that its passage has too; case does not count.

    Example:
        >>> shared_words(["Why do tides rise?"], ["Tides rise twice a day."])
        0.5
    """
    check_texts(questions=questions, passages=passages)
    shares = []
    for question, passage in zip(questions, passages, strict=True):
        asked = set(words_of(question, shortest=1))
        shares.append(len(asked.intersection(words_of(passage, shortest=1))) / max(1, len(asked)))
    return float(np.mean(shares)) if shares else 0.0
