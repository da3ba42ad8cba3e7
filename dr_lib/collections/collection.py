"""A collection: passages, queries and judgements, memory-mapped.

Book: ideas/evaluation, reference/data.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from dr_lib.collections.rows import document_numbers, judged_rows
from dr_lib.errors import InputError


class Collection:
    """Passages, and queries with relevance judgements by split.

    Args:
        name: what the collection is called.
        digest: SHA-256 (hex) over the content, the same for plain and compressed files.
        info: licence, source, versions and counts.
        passages: columns id, title, text, doc, position (doc "" and position 0 where unknown).
        queries: all queries, columns id, text, answers.
        judgements: by split, columns query, passage, grade.
        folder: the cache folder it was opened from, None for a sample.

    Example:
        >>> rows = datasets.Dataset.from_dict({"id": ["a"], "title": [""], "text": ["x"], "doc": [""], "position": [0]})
        >>> asked = datasets.Dataset.from_dict({"id": ["q"], "text": ["why"], "answers": [[]]})
        >>> judged = datasets.Dataset.from_dict({"query": ["q"], "passage": ["a"], "grade": [1]})
        >>> tiny = Collection("tiny", "0" * 64, {}, rows, asked, {"test": judged})
        >>> tiny.splits, tiny.qrels("test")
        (('test',), {'q': {'a': 1}})
    """

    def __init__(
        self,
        name: str,
        digest: str,
        info: Mapping[str, Any],
        passages: datasets.Dataset,
        queries: datasets.Dataset,
        judgements: Mapping[str, datasets.Dataset],
        folder: Path | None = None,
    ):
        self.name, self.digest, self.info = name, digest, dict(info)
        self.passages, self.folder = passages, folder
        self._queries, self._judgements = queries, dict(judgements)
        self._grades: dict[str, dict[str, dict[str, int]]] = {}

    def __repr__(self) -> str:
        return f"Collection({self.name!r}, {len(self.passages)} passages, splits {', '.join(self.splits) or 'none'})"

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have judgements."""
        return tuple(self._judgements)

    @cached_property
    def _query_rows(self) -> dict[str, int]:
        return {id_: row for row, id_ in enumerate(self._queries["id"][:])}

    @property
    def licence(self) -> str:
        """What the source says of its licence, on one line; of each part where there are several."""
        told = self.info.get("licence", "unknown")
        parts = [f"{part}: {own}" for part, own in told.items()] if isinstance(told, Mapping) else [str(told)]
        return " ".join("; ".join(parts).split())

    def _check_split(self, split: str) -> None:
        if split in self._judgements:
            return
        fix = f"Use one of: {', '.join(self.splits)}."
        if not self.splits:
            fix = "It has no judgements: use its passages for pre-training, or add qrels/<split>.tsv to the folder."
        raise InputError(f"there is no split {split!r}", where=f"collection {self.name}", fix=fix)

    def queries(self, split: str | None = None) -> datasets.Dataset:
        """Queries of a split in file order: those that have a judgement there.

        Args:
            split: a name from `splits`; None gives every query, judged or not.

        Returns:
            Dataset with columns id, text, answers (a list of strings, may be empty).

        Raises:
            InputError: a split that does not exist.
        """
        if split is None:
            return self._queries
        rows = sorted(self._query_rows[query] for query in self.qrels(split))
        return self._queries.select(rows)

    def qrels(self, split: str) -> dict[str, dict[str, int]]:
        """Judgements of a split: query id -> passage id -> grade.

        Raises:
            InputError: a split that does not exist.
        """
        self._check_split(split)
        if split not in self._grades:
            table = self._judgements[split].with_format("arrow")[:].to_pydict()
            grades: dict[str, dict[str, int]] = {}
            for query, passage, grade in zip(table["query"], table["passage"], table["grade"], strict=True):
                grades.setdefault(query, {})[passage] = grade
            self._grades[split] = grades
        return self._grades[split]

    def relevant_rows(self, split: str, grade: int = 1) -> list[np.ndarray]:
        """Rows of the relevant passages of each query of a split, in the order of `queries`.

        Args:
            split: a name from `splits`.
            grade: lowest grade that counts.
        """
        return judged_rows(self.qrels(split), self.queries(split)["id"][:], self.passages["id"], grade)

    def documents(self) -> tuple[np.ndarray, np.ndarray]:
        """Number of each passage's document and its place there, `[passages]` int64; without one it is its own."""
        return document_numbers(self.passages["doc"]), np.asarray(self.passages["position"][:], np.int64)

    def sample(
        self,
        passages: int | None = None,
        train_queries: int | None = None,
        dev_queries: int | None = None,
        test_queries: int | None = None,
        seed: int = 0,
        other_queries: Mapping[str, int] | None = None,
    ) -> "Collection":
        """A smaller collection, the same for the same arguments.

        Queries are drawn per split, all their positives are kept, and other passages (whole documents at a time)
        fill up to `passages`; passages and queries keep their order. Draws are nested: more contains less.

        Args:
            passages: number of passages; None for all.
            train_queries: at most so many queries of the split train; None for all; ignored without such a split.
            dev_queries: the same for dev.
            test_queries: the same for test.
            seed: of all draws.
            other_queries: the same for splits with other names, such as ``{"dev/small": 500}``. Splits named nowhere
                keep the queries whose positives are all in the sample.

        Raises:
            InputError: a number below 1, or positives that do not fit into `passages`.
        """
        from dr_lib.collections.sample import draw_sample

        limits = {"train": train_queries, "dev": dev_queries, "test": test_queries, **(other_queries or {})}
        return draw_sample(self, passages, limits, seed)
