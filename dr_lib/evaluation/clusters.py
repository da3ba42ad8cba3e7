"""Clusters of queries, which are not independent of each other.

Questions about one article, turns of one dialogue and questions from one template share what makes
them easy or hard, so standard errors are computed over clusters. Each query belongs to one:

- a **question template** if the texts were made from templates: without the title of its passage,
  most queries are the same as others (MedQuAD's, made from sixteen templates);
- the **document** of its first relevant passage; a passage without one is its own;
- a **dialogue**, inferred from the rows of a file: a row that shares a turn with the previous one
  belongs to the same dialogue. Exact if all turns of a dialogue are present (Topical-Chat), too
  fine if turns were sampled (SGD);
- **itself** elsewhere: a sentence of a sentence task, a query without a relevant passage.

Page of the book: ideas/statistics.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import datasets
import numpy as np
from pydantic import model_validator

from dr_lib.collections import Collection
from dr_lib.collections.collection import judged_rows, rows_of
from dr_lib.errors import check_texts
from dr_lib.settings import Settings


class Clusters(Settings):
    """The cluster of every query of a record.

    Attributes:
        by: what a cluster is: "document", "question template", "dialogue" or "query".
        names: the clusters in order of appearance; () if each query is its own.
        of: for each query the index of its cluster in `names`.

    Example:
        >>> clusters = Clusters.named("document", ["Ant", "Ant", "Bee"])
        >>> clusters.names, clusters.of
        (('Ant', 'Bee'), (0, 0, 1))
    """

    by: str
    names: tuple[str, ...]
    of: tuple[int, ...]

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        ends = (min(self.of, default=0), max(self.of, default=-1))
        if ends[0] < 0 or (self.names and ends[1] >= len(self.names)):
            raise ValueError("a query belongs to a cluster that has no name")
        return self

    @classmethod
    def named(cls, by: str, names: Iterable[str]) -> Self:
        """From the name of each query's cluster."""
        places: dict[str, int] = {}
        of = tuple(places.setdefault(name, len(places)) for name in names)
        return cls(by=by, names=tuple(places), of=of)

    @classmethod
    def alone(cls, queries: int) -> Self:
        """Each query is its own cluster."""
        return cls(by="query", names=(), of=tuple(range(queries)))

    def chosen(self, places: Sequence[int]) -> Self:
        """The clusters of some of the queries, given by index."""
        if not self.names:
            return self.alone(len(places))
        return self.named(self.by, (self.names[self.of[place]] for place in places))


class TaskSettings(Settings):
    """Settings of an evaluation on its own files in place of a collection.

    Attributes:
        longest: name of the field with the maximum sequence length.
    """

    longest: ClassVar[str] = "length"

    def arguments(self) -> dict[str, Any]:
        """Arguments of its stage: these settings and its files."""
        raise NotImplementedError

    def clusters(self, rows: int) -> Clusters:
        """The cluster of each evaluated row."""
        return Clusters.alone(rows)


def clusters_of(
    collection: Collection, split: str, query_ids: Sequence[str], grade: int = 1
) -> Clusters:
    """Question template, else document, of the queries of a split.

    Args:
        collection: has the queries and their judgements.
        split: the split that they were measured on.
        query_ids: queries in the order wanted; unknown ones are their own clusters.
        grade: minimum grade of a relevant passage.
    """
    rows = judged_rows(collection.qrels(split), query_ids, collection.passages["id"], grade)
    first = np.array([row[0] if len(row) else -1 for row in rows], np.int64)
    known = np.flatnonzero(first >= 0)
    passages = collection.passages.select(first[known])
    texts = dict(zip(*(collection.queries(split)[name][:] for name in ("id", "text")), strict=True))
    asked = [texts[query_ids[place]] for place in known]
    templates = question_templates(asked, passages["title"][:])
    names = [f"query {query}" for query in query_ids]
    for place, name in zip(known, templates or _documents(passages), strict=True):
        names[place] = name
    if len(set(names)) == len(names):
        return Clusters.alone(len(names))
    return Clusters.named("question template" if templates else "document", names)


def documents_of(collection: Collection, passage_ids: Sequence[str]) -> Clusters:
    """The document of each passage."""
    rows = rows_of(passage_ids, collection.passages["id"])
    return Clusters.named("document", _documents(collection.passages.select(rows)))


def _documents(passages: datasets.Dataset) -> list[str]:
    columns = (passages[name][:] for name in ("doc", "id"))
    return [doc or f"passage {id_}" for doc, id_ in zip(*columns, strict=True)]


def question_templates(questions: Sequence[str], titles: Sequence[str]) -> list[str]:
    """The template of each question; [] if most have none.

    A template is a question without the title of its passage. Questions are taken to be made from
    templates if more than half of them share theirs with others.

    Args:
        questions: texts of queries.
        titles: the title of each one's passage, "" for none.

    Example:
        >>> question_templates(["What is gout?", "What is lupus?"], ["gout", "lupus"])
        ['What is …?', 'What is …?']
        >>> question_templates(["Who has gout?", "What is lupus?"], ["gout", "lupus"])
        []
    """
    check_texts(questions=questions, titles=titles)
    left = [
        (
            re.sub(r"\s*…\s*", " … ", question.replace(title, "…")).replace("… ?", "…?").strip()
            if title
            else question
        )
        for question, title in zip(questions, titles, strict=True)
    ]
    filled = Counter(
        text for text, question in zip(left, questions, strict=True) if text != question
    )
    shared = sum(count for count in filled.values() if count > 1)
    return left if 2 * shared > len(left) else []
