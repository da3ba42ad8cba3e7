"""Queries for a collection that has none: a generator writes questions about every passage, and
those that lead back to it are kept.

The generator is the book's own, a public one (doc2query), or one trained on another collection's
queries; a question is kept if it was written only once and BM25 finds its passage again
(`materials.questions.consistent`). Splits that people have judged are kept: if there is a judged
test split, only training queries are written, about unjudged passages. No passage and no question
is in two splits; they are drawn by document, so that neighbours of a training passage are not
generated test passages. Page of the book: practice/own-corpus.
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
"""BM25 must rank a question's passage among this many: a small number would favour the questions
that BM25 answers best.
"""


@dataclass(frozen=True)
class GeneratedQueries:
    """A collection with generated questions.

    Attributes:
        recipe: the given recipe on the new collection; it measures "test" if its own split does not
            exist there.
        folder: the collection in BEIR layout; copy it to keep, correct or extend it.
        counts: number of questions after each step, and `shared_words`, the mean share of a
            question's words in its passage.
    """

    recipe: Recipe
    folder: Path
    counts: dict[str, Any]

    def and_also(self, further: "GeneratedQueries") -> "GeneratedQueries":
        """These and later questions, counted together."""
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
            generator is trained, or which trained one is used (a doc2query model).
        learn_from: the collection whose training queries a generator first learns to write, unless
            the recipe names a trained one. None: the generator that comes with the book.
        use_judgements: keep the queries of the collection's splits, and write those of missing
            splits; False writes all.
        per_passage: questions written about a passage. Training uses all that pass, dev and test
            one per passage, since several would not be independent.
        cache: where the stages are kept.
        parts: rows of the passages to ask about, in parts written one after the other: when the
            cache's time is up, the finished parts are used. Empty: all passages.
        splits: which of the missing splits are written; None: all.

    Raises:
        TimeIsUpError: no part is finished yet.
        InputError: too few unjudged passages, `learn_from` has no training queries, or too few
            questions passed.
    """
    collection, cache = open_sample(recipe.collection), cache or Cache()
    judged = list(collection.splits) if use_judgements else []
    held = relevant_ids(collection, judged)
    same = np.arange(len(collection)) if collection.same_text is None else collection.same_text
    # copies of a passage are asked about once
    free = len(np.setdiff1d(same, same[rows_of(list(held), collection.passages["id"])]))
    if free < FEWEST_PASSAGES:
        copies = f" ({len(collection)}, but copies)" * (len({*same}) < len(same))
        problem = (
            f"{free} passage{'s' * (free != 1)}{copies} to write questions about, too few to train"
            " and test"
        )
        told = f" ({len(held)} have questions to test on, and are kept for that)" if held else ""
        fix = f"Give text for {FEWEST_PASSAGES} or more passages."
        if (most := recipe.collection.passages) == len(collection):
            fix = (
                f"Choose a larger scale: this one uses only {most} passages, the judged ones first."
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
    """The stages that write questions about each part of a collection, and a name for the
    generator; arguments as for `generate_queries`.
    """
    if ready := recipe.auxiliary.questions.model or ("embedded" if learn_from is None else None):
        writer = open_writer(ready)
        written_by = f"the question generator {writer.name}"
    else:
        open_collection(learn_from).qrels("train")  # raises the collection's own error
        elsewhere = Inputs(recipe.with_(collection=learn_from))
        writer = trainings.question_generator(elsewhere, SEED)
        written_by = f"a model trained on the queries of {open_collection(learn_from).name}"
    inputs, drawn = Inputs(recipe), {"per_passage": per_passage, "top_k": 10, "seed": SEED}
    return [trainings.questions_by(inputs, writer, part, **drawn) for part in about], written_by


def relevant_ids(collection: Collection, splits: Sequence[str]) -> set[str]:
    """Ids of the passages relevant to any query of some splits."""
    return {
        passage
        for split in splits
        for grades in collection.qrels(split).values()
        for passage, grade in grades.items()
        if grade > 0
    }


# From questions to a collection -------------------------------------------------------------------

GENERATED_SHARES = {"train": 0.75, "dev": 0.05, "test": 0.2}
"""Split -> share of the documents that are not judged."""
FEWEST_DOCUMENTS = 50
"""With fewer documents with questions than this, splits are drawn by passage."""
FEWEST_TESTED, MOST_TESTED, TESTED_AT_ONCE = 50, 1_000, 125
"""If test questions are written first: least and most passages that they are about, and how many
passages a part has.
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
    """A folder in BEIR layout and `counts.json`, the number of questions after each step.

    Training uses all questions that pass, the other splits one per passage: several would not be
    independent.

    Args:
        folder: where to write.
        questions: the `Texts`, one for each part of the passages.
        index: of BM25 over the collection.
        collection: the passages that the questions are about.
        asked_about: the parts, in the same order (`Collection.part`); empty: all passages.
        name: of the new folder, see `generated_name`.
        judged: splits that people have judged, which are kept.
        splits: which splits are written; None: all unjudged ones.
        top_k: BM25 must rank the passage among this many; a small number would favour questions
            that BM25 answers best.
        seed: of the splits.
        written_by: the generator, for the README.
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
    # and is not among people's queries
    once = asked_once([*strings, *(query.text for query in queries)])[: len(strings)]
    retriever, documents = ByWords(Bm25.open(index / "index"), all_texts), collection.documents()[0]
    same = collection.same_text
    leads_back = consistent(retriever, sources, documents, top_k=top_k, same=same)
    passing = np.flatnonzero(once & leads_back)
    if same is not None:  # no text in two splits: the first passage with it is asked about
        passing = passing[same[sources[passing]] == sources[passing]]
    chosen = _choose(passing, sources, collection, judged, splits or [*GENERATED_SHARES], seed=seed)
    # numbered after those written before
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
    """The queries and judgements of some splits, unchanged."""
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
    """The questions of each unjudged split: in train all of a passage, elsewhere its first.

    Args:
        passing: numbers of the questions that passed the filters, ascending.
        sources: `[questions]` row of the passage that each is about.
        collection: the passages.
        judged: splits that people have judged, whose passages are left out.
        splits: the wanted splits.
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
    """The name of a collection with generated questions."""
    return f"{collection.name.removesuffix('-questions')}-questions"


def tested_first(
    collection: Collection, held: Sequence[str] = ()
) -> tuple[list[np.ndarray], np.ndarray]:
    """Passages for test questions, in parts that can be written one after the other, and passages
    for training questions.

    Drawn by document, as in `draw_splits`; the draw depends only on the passages, so it is known
    before anything is written.

    Args:
        collection: the passages.
        held: ids of judged passages.

    Returns:
        Parts of rows for testing, and rows for training; only the first of equal passages.
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
    """The README of the folder."""
    by_people = (
        f"Judged by people: {', '.join(judged)}." if judged else "No query was judged by people."
    )
    # the note of a collection that already has generated questions applies to the new ones too
    generated = collection.info.get("questions") or f"written by {written_by}. {by_people}"
    return (
        f"# {collection.name}, with generated questions\n\n- Source: the passages of"
        f" {collection.name} (digest {collection.passages_digest[:16]}).\n- {GENERATED}:"
        f" {generated}\n- Licence: {collection.licence}\n"
    )


def asked_once(texts: Sequence[str]) -> np.ndarray:
    """Which questions were written only once, `[questions]` bool; case is ignored.

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

    By document, so that neighbours of a training passage are not test passages; a collection of few
    documents is split by passage instead.

    Args:
        documents: `[passages]` int64, the document of each.
        asked: rows of passages with a question, in any order, repeated or not.
        shares: split -> its share of the documents with a question, scaled to sum to 1; the first
            gets the remainder.
        held: rows of judged passages, which are left out; other passages of their documents are
            not, since people often judge a passage of nearly every document.
        seed: of the draw.

    Returns:
        `[passages]` int64, the index of the split in `shares`; -1 if there is no question or the
        passage is held.

    Raises:
        InputError: fewer passages with a question than splits.

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
    # Each document in one split only: neighbours of a training passage would make the test easier
    # than it looks.
    few = len(np.unique(documents[asked])) < FEWEST_DOCUMENTS
    units = np.arange(len(documents)) if few else documents
    rows = np.setdiff1d(asked, held)
    drawn = np.unique(units[rows])
    if len(drawn) < len(shares):
        fix = (
            "Write more questions per passage, use a weaker filter, or train the question generator"
            " longer. If it does not know the language of the text, none of this helps: add"
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
    """The first question of each passage, `[questions]` bool; `sources` are rows in any order.

    Example:
        >>> first_of_each(np.array([5, 2, 2, 5])).tolist()
        [True, True, False, False]
    """
    return ~pd.Series(sources).duplicated().to_numpy()


def shared_words(questions: Sequence[str], passages: Sequence[str]) -> float:
    """Mean share of a question's distinct words that occur in its passage; case is ignored.

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
