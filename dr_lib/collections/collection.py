"""A collection: passages, queries and judgements, memory-mapped; samples of it; and the mapping
from ids to rows.

Vectors, rankings and negatives use rows (0, 1, 2, ...), judgements and run files use ids. Page
of the book: ideas/evaluation.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from hashlib import sha256
from html import escape
from itertools import chain, zip_longest
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dr_lib.errors import InputError
from dr_lib.files import json_digest

JUDGEMENT = datasets.Features(
    {
        "query": datasets.Value("string"),
        "passage": datasets.Value("string"),
        "grade": datasets.Value("int64"),
    }
)
Grades = dict[str, dict[str, int]]
IDS_AT_ONCE = 1 << 18  # ids in one Arrow array where they have to be copied
ROWS_AT_ONCE = 1 << 14
KINDS = ".txt", ".md", ".markdown", ".rst", ".adoc", ".asciidoc", ".html", ".htm"
"""Endings of texts; any may be followed by `.gz`."""
COPIED = "title", "text", "doc"
"""Columns of `copy_key`."""
IRREGULAR = {
    "duplicate_texts": "passages that repeat another one",
    "empty_passage_left_out": "passages without title and text, left out",
    "empty_query_left_out": "queries without text, left out",
    "judgements_of_absent_passages": (
        "judgements of passages that are not there, counted as not found"
    ),
    "judgements_left_out": "judgements of unknown queries, or given twice, left out",
    "queries_without_judgement": "queries without a judgement",
    "left_out_of_train": "training queries that are asked in dev or test too, left out of train",
    "tested_too": "training queries that are asked in dev or test too, kept in train",
}
"""Counts of a collection's `info` that a reader should see."""
AS_PUBLISHED = "as_published"  # in `info`: training queries that are tested too stay
OWN_PASSAGE = "own_passage"  # in `info`: whether a query that is a passage may find itself
COMPARED = 1000  # queries to compare with the passage of their id, before comparing all


class Collection:
    """Passages, and queries with relevance judgements by split.

    Args:
        name: the collection's name.
        digest: SHA-256 (hex) over the content, the same for plain and compressed files.
        info: licence, source, versions and counts.
        passages: columns id, title, text, doc, position (doc "" and position 0 where unknown).
        queries: all queries, columns id, text, answers.
        judgements: by split, columns query, passage, grade.
        folder: the cache folder it was opened from, None for a sample.
        place: the name or path it was loaded by, None for a sample.
        passages_digest: SHA-256 (hex) over the passages alone, see `rows_digest`; None: it is
            computed where it is asked for.

    Example:
        >>> rows = datasets.Dataset.from_dict(
        ...     {"id": ["a"], "title": [""], "text": ["x"], "doc": [""], "position": [0]}
        ... )
        >>> asked = datasets.Dataset.from_dict({"id": ["q"], "text": ["why"], "answers": [[]]})
        >>> judged = datasets.Dataset.from_dict({"query": ["q"], "passage": ["a"], "grade": [1]})
        >>> tiny = Collection("tiny", "0" * 64, {}, rows, asked, {"test": judged})
        >>> tiny.splits, tiny.qrels("test"), len(tiny), tiny["a"]["text"]
        (('test',), {'q': {'a': 1}}, 1, 'x')
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
        place: str | None = None,
        passages_digest: str | None = None,
    ):
        self.name, self.digest, self.info = name, digest, dict(info)
        self.passages, self.folder, self.place = passages, folder, place
        if passages_digest:
            self.passages_digest = passages_digest
        self._queries, self._judgements = queries, dict(judgements)
        self._grades: dict[str, Grades] = {}
        self._own_rows: dict[str, np.ndarray | None] = {}
        self._parts: dict[tuple[str, ...], Collection] = {}

    def __repr__(self) -> str:
        return (
            f"Collection({self.name!r}, {len(self.passages)} passages, splits"
            f" {', '.join(self.splits) or 'none'})"
        )

    def _repr_html_(self) -> str:
        """The collection at a glance, in a notebook."""
        first = next(
            iter(self.passages.select(range(min(1, len(self))))), {"title": "", "text": ""}
        )
        facts = {
            "passages": f"{len(self):,}",
            **{
                f"queries, {name}": "not read yet"
                if judged is None
                else f"{len(self.qrels(name)):,}"
                for name, judged in self._judgements.items()
            },
        }
        facts |= {name: f"{count:,}" for name, count in self.irregular.items()}
        facts |= {"licence": self.licence, "digest": self.digest[:16]}
        facts["first passage"] = shorten(
            f"{first['title']}: {first['text'][:1000]}".removeprefix(": "), 200, placeholder=" …"
        )
        rows = (
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
            for name, value in facts.items()
        )
        return f"<table><caption>Collection {escape(self.name)}</caption>{''.join(rows)}</table>"

    def __len__(self) -> int:
        return len(self.passages)

    def __getitem__(self, name: str) -> dict[str, Any]:
        """A passage by its id: id, title, text, doc, position."""
        if (row := self._passage_rows.get(name)) is None:
            fix = (
                "Passages have ids, as in `collection.passages['id']`; by its row, one is"
                " `collection.passages[0]`."
            )
            raise InputError(
                f"there is no passage {name!r}", where=f"collection {self.name}", fix=fix
            )
        return self.passages[row]

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have judgements."""
        return tuple(self._judgements)

    @property
    def irregular(self) -> dict[str, int]:
        """What was left out or is unusual, in words, with its count; for a sample, of the whole
        collection.
        """
        counts = {"tested_too": len(self.tested_too)} | self.info.get("counts", {})
        return {words: counts[name] for name, words in IRREGULAR.items() if counts.get(name)}

    @property
    def licence(self) -> str:
        """The source's licence statement, on one line; for each part if there are several."""
        licence = self.info.get("licence", "unknown")
        parts = (
            [f"{part}: {terms}" for part, terms in licence.items()]
            if isinstance(licence, Mapping)
            else [str(licence)]
        )
        return " ".join("; ".join(parts).split())

    @cached_property
    def _passage_rows(self) -> dict[str, int]:
        return {id_: row for row, id_ in enumerate(self.passages["id"][:])}

    @cached_property
    def _query_rows(self) -> dict[str, int]:
        return {id_: row for row, id_ in enumerate(self._queries["id"][:])}

    @cached_property
    def passages_digest(self) -> str:
        """SHA-256 (hex) over the passages alone, in order, independent of the queries."""
        return rows_digest(self.passages)

    def only(self, *splits: str) -> "Collection":
        """The same passages with the queries and judgements of some splits only, or of none.

        A stage's key then depends only on what it can read.
        """
        if splits not in self._parts:
            asked = [self.queries(split) for split in splits]  # refuses an unknown split
            part = copy(self)
            part.digest, part._parts = self.passages_digest, {}
            part._judgements = {split: self._judgements[split] for split in splits}
            for name in ("_query_rows", "tested_too"):
                part.__dict__.pop(name, None)
            rows = sorted(
                {self._query_rows[query] for split in splits for query in self.qrels(split)}
            )
            part._queries = self._queries.select(rows)
            if splits:
                judged = [self._judgements[split] for split in splits]
                read = [self.passages_digest, *splits, *map(rows_digest, [*asked, *judged])]
                part.digest = json_digest([*read, self.info.get(OWN_PASSAGE)])
            self._parts[splits] = part
        return self._parts[splits]

    def part(self, rows: Sequence[int]) -> "Collection":
        """Some of the passages, without queries."""
        passages = self.passages.select(rows)
        none = self._queries.select([])
        return Collection(self.name, rows_digest(passages), {}, passages, none, {})

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
        return self._queries.select(sorted(self._query_rows[query] for query in self.qrels(split)))

    def qrels(self, split: str) -> Grades:
        """Judgements of a split: query id -> passage id -> grade (0: judged not relevant).

        Raises:
            InputError: a split that does not exist.
        """
        if split not in self._judgements:
            fix = f"Use one of: {', '.join(self.splits)}."
            if not self.splits:
                fix = (
                    "It has no judgements: use its passages for pre-training, or add"
                    " qrels/<split>.tsv to the folder."
                )
            raise InputError(
                f"there is no split {split!r}", where=f"collection {self.name}", fix=fix
            )
        if split not in self._grades:
            columns = self._judgements[split].with_format("arrow")[:].to_pydict()
            grades: Grades = {}
            for query, passage, grade in zip(*(columns[name] for name in JUDGEMENT), strict=True):
                grades.setdefault(query, {})[passage] = grade
            self._grades[split] = grades
        return self._grades[split]

    @cached_property
    def tested_too(self) -> set[str]:
        """Training queries that also occur in another split, by id or by text, ignoring case and
        spaces; of lazily read splits, those read so far.
        """
        read = [split for split, judged in self._judgements.items() if judged is not None]
        others = [self.queries(split) for split in read if not split.startswith("train")]
        if "train" not in read or not others:
            return set()
        asked = {id_ for queries in others for id_ in queries["id"][:]}
        texts = {folded(text) for queries in others for text in queries["text"][:]}
        trained = self.queries("train")
        return {
            id_
            for id_, text in zip(trained["id"][:], trained["text"][:], strict=True)
            if id_ in asked or folded(text) in texts
        }

    def without_tested(self) -> "Collection":
        """The same collection without the queries of `tested_too` in train, counted in `info`:
        training on them would leak test answers. Other splits are unchanged, and so are the
        collections of the book's records (`AS_PUBLISHED`) and samples of them.

        Raises:
            InputError: train holds no other queries.
        """
        if self.info.get(AS_PUBLISHED) or not (tested := self.tested_too):
            return self
        train = {id_: grades for id_, grades in self.qrels("train").items() if id_ not in tested}
        if not train:
            raise InputError(
                "every query of train is asked in another split too",
                where=f"collection {self.name}",
                fix="Remove qrels/train.tsv, or judge other queries for training.",
            )
        apart = copy(self)
        apart._judgements = self._judgements | {"train": _table(train)}
        apart._grades, apart._own_rows, apart._parts, apart.tested_too = {}, {}, {}, set()
        apart.digest = json_digest([self.digest, {"left_out_of_train": sorted(tested)}])
        sizes = {"queries": len(train), "judgements": sum(map(len, train.values()))}
        counts = self.info["counts"] | {"train": sizes, "left_out_of_train": len(tested)}
        apart.info = {**self.info, "counts": counts}
        return apart

    def relevant_rows(self, split: str, grade: int = 1) -> list[np.ndarray]:
        """Rows of the relevant passages of each query of a split, in the order of `queries`.

        Args:
            split: a name from `splits`.
            grade: lowest grade that counts.
        """
        return judged_rows(
            self.qrels(split), self.queries(split)["id"][:], self.passages["id"], grade
        )

    @cached_property
    def same_text(self) -> np.ndarray | None:
        """For each passage the row of its first copy (`copy_key`), `[passages]` int64; None if no
        passage repeats another.

        Training treats copies as one passage: a copy of a positive is not a negative.
        """
        if self.info.get("counts", {}).get("duplicate_texts") == 0:
            return None
        first, hashes = np.arange(len(self)), np.zeros(len(self), np.int64)
        for start in range(0, len(self), IDS_AT_ONCE):
            part = self.passages.select_columns([*COPIED])[start : start + IDS_AT_ONCE]
            hashes[start : start + IDS_AT_ONCE] = [
                hash(copy_key(*row)) for row in zip(*map(part.get, COPIED), strict=True)
            ]
        repeated = np.array([*repeats(hashes, self.passages, COPIED, copy_key)], np.int64)
        if not len(repeated):
            return None
        first[repeated[:, 0]] = repeated[:, 1]
        return first

    def positives(self, split: str) -> list[np.ndarray]:
        """The passages that training treats as relevant to each query of a split, in the order of
        `queries`.

        The rows of `relevant_rows`, then those of other queries with the same text; copies are
        replaced by the first (`same_text`).
        """
        relevant, texts = self.relevant_rows(split), self.queries(split)["text"][:]
        numbers, distinct = pd.factorize(np.array([text.strip() for text in texts], object))
        if len(distinct) < len(texts):
            order = np.argsort(numbers, kind="stable")
            for group in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
                if len(group) > 1:
                    shared = np.concatenate([relevant[row] for row in group])
                    for row in group:
                        relevant[row] = pd.unique(np.append(relevant[row], shared))
        if self.same_text is None:
            return relevant
        return [pd.unique(self.same_text[rows]) for rows in relevant]

    def with_own_passage(self, rule: Literal["drop", "keep"] | None) -> "Collection":
        """The same collection, in whose rankings a passage that is the query itself is dropped or
        kept; None changes nothing. See `own_rows`.
        """
        if rule is None or rule == self.info.get(OWN_PASSAGE):
            return self
        changed = copy(self)
        changed.digest = json_digest([self.digest, {OWN_PASSAGE: rule}])
        changed.info = {**self.info, OWN_PASSAGE: rule}
        changed._own_rows, changed._parts = {}, {}
        return changed

    def own_rows(self, split: str) -> np.ndarray | None:
        """The passage that is the query itself, excluded from its rankings and negatives, `[queries
        of the split]` int64, -1 for none; None if no query is a passage.

        It is the passage with the query's id: in ArguAna and Quora, or by the rule "drop"
        (`with_own_passage`), whatever its text, as BEIR has it; elsewhere where its text is the
        query's too, and never by the rule "keep".
        """
        if split not in self._own_rows:
            rule, queries = self.info.get(OWN_PASSAGE), self.queries(split)
            rows = np.full(len(queries), -1)
            if rule != "keep":
                rows = rows_of(queries["id"][:], self.passages["id"])
            if rule is None:
                known = np.flatnonzero(rows >= 0)
                # numeric ids may coincide by chance: a sample shows whether texts differ
                for part in (known[:COMPARED], known):
                    equal = [self._is_itself(queries[int(q)], rows[q]) for q in part]
                    rows[part[~np.array(equal, bool)]] = -1
                    if not any(equal):
                        rows[:] = -1
                        break
            self._own_rows[split] = rows if (rows >= 0).any() else None
        return self._own_rows[split]

    def own_texts(self, split: str) -> np.ndarray | None:
        """`own_rows` for training: copies are replaced by the first (`same_text`)."""
        rows, same = self.own_rows(split), self.same_text
        if rows is None or same is None:
            return rows
        return np.where(rows >= 0, same[rows], -1)

    def _is_itself(self, query: Mapping[str, Any], row: int) -> bool:
        """Whether a query has the text of a passage, with its title or without."""
        if row < 0:
            return False
        passage = self.passages[int(row)]
        texts = (query["text"], passage["text"], f"{passage['title']} {passage['text']}")
        asked, *held = map(folded, texts)
        return asked in held

    def documents(self) -> tuple[np.ndarray, np.ndarray]:
        """Number of each passage's document and its place there, `[passages]` int64; without one it
        is its own.
        """
        return document_numbers(self.passages["doc"]), np.asarray(
            self.passages["position"][:], np.int64
        )

    def sample(
        self,
        passages: int | None = None,
        train_queries: int | None = None,
        dev_queries: int | None = None,
        test_queries: int | None = None,
        seed: int = 0,
    ) -> "Collection":
        """A smaller collection, a function of the arguments.

        Queries are drawn per split, all their positives are kept, and other passages (whole
        documents at a time) are added up to `passages`; passages and queries keep their order.
        Draws are nested: larger samples contain smaller ones. If there are more positives than
        `passages`, queries are left out and counted in `info`. Splits with other names than these
        three keep the queries whose positives are all in the sample.

        Args:
            passages: number of passages; None for all.
            train_queries: at most this many queries of the split train; None for all; ignored
                without such a split.
            dev_queries: the same for dev.
            test_queries: the same for test.
            seed: of all draws.

        Raises:
            InputError: a number below 1, or no query whose positives fit into `passages`.
        """
        arguments = sample_facts(passages, train_queries, dev_queries, test_queries, seed)
        limits = arguments["queries"]
        for name, size in {"passages": passages, **limits}.items():
            if size is not None and size < 1:
                raise InputError(
                    f"a sample of {size} is empty",
                    where=name,
                    fix="Give a number from 1, or leave it out.",
                )
        asked = {
            split: self._draw_queries(split, limits[split], seed)
            for split in self.splits
            if split in limits
        }
        drawn = self._fitting(asked, passages, seed)
        left_out = {
            split: len(asked[split]) - len(grades)
            for split, grades in drawn.items()
            if len(grades) < len(asked[split])
        }
        rows = self._draw_passages(set().union(*map(_positives, drawn.values())), passages, seed)
        outside, cut = self._judged_outside(rows), {}
        for split in self.splits:
            grades = drawn.get(split, self.qrels(split))
            if split not in drawn:
                whole = {query: _positives({query: judged}) for query, judged in grades.items()}
                grades = {
                    query: grades[query]
                    for query, positives in whole.items()
                    if positives and positives.isdisjoint(outside)
                }
            inside = {
                query: {id_: grade for id_, grade in judged.items() if id_ not in outside}
                for query, judged in grades.items()
            }
            cut[split] = {query: judged for query, judged in inside.items() if judged}
        wanted = {query for grades in cut.values() for query in grades}
        query_rows = [row for id_, row in self._query_rows.items() if id_ in wanted]
        return Collection(
            self.name,
            json_digest([self.digest, arguments]),
            {**self.info, "sample": {**arguments, "of": self.digest, "left_out": left_out}},
            self.passages.select(rows),
            self._queries.select(query_rows),
            {split: _table(grades) for split, grades in cut.items() if grades},
        )

    def _judged_outside(self, rows: np.ndarray) -> set[str]:
        """Ids of judged passages that the collection has, at other rows than these."""
        judged = [*set().union(*(grades for s in self.splits for grades in self.qrels(s).values()))]
        places = rows_of(judged, self.passages["id"])
        outside = (places >= 0) & ~np.isin(places, rows)
        return {judged[place] for place in np.flatnonzero(outside)}

    def _draw_queries(self, split: str, size: int | None, seed: int) -> Grades:
        """Judgements of the drawn queries of a split; queries without a positive are never
        drawn.
        """
        grades = self.qrels(split)
        if size is None:
            return grades
        able = [query for query, judged in grades.items() if max(judged.values()) > 0]
        # A prefix of a permutation: larger draws contain smaller ones.
        order = np.random.default_rng([seed, *split.encode()]).permutation(len(able))
        return {able[row]: grades[able[row]] for row in np.sort(order[:size])}

    def _fitting(self, drawn: dict[str, Grades], size: int | None, seed: int) -> dict[str, Grades]:
        """The drawn queries whose positives fit: taken from each split in turn, in random order,
        while there is room.
        """
        if size is None or len(set().union(*map(_positives, drawn.values()))) <= size:
            return drawn
        rng, needed, chosen = np.random.default_rng([seed, 2]), set(), set()
        ids = {split: [*grades] for split, grades in drawn.items()}
        orders = [
            [(split, queries[row]) for row in rng.permutation(len(queries))]
            for split, queries in ids.items()
        ]
        for split, query in filter(None, chain.from_iterable(zip_longest(*orders))):
            further = _positives({query: drawn[split][query]}) - needed
            if len(needed) + len(further) <= size:
                needed |= further
                chosen.add((split, query))
        if not needed:
            problem = f"{size} passages cannot hold the positives of any query"
            raise InputError(
                problem,
                where=f"collection {self.name}",
                fix="Take a larger sample, or all passages.",
            )
        return {
            split: {id_: judged for id_, judged in grades.items() if (split, id_) in chosen}
            for split, grades in drawn.items()
        }

    def _draw_passages(self, positives: set[str], size: int | None, seed: int) -> np.ndarray:
        """Rows of the sample in order: the positives, then documents in random order until `size`
        is reached.
        """
        total = len(self.passages)
        if size is None or size >= total:
            return np.arange(total)
        wanted = pa.array(sorted(positives), pa.string())
        needed = pc.is_in(_column(self.passages, "id"), value_set=wanted).to_numpy()
        docs = _column(self.passages, "doc").combine_chunks().dictionary_encode()
        groups = docs.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        alone = np.flatnonzero(pc.equal(_column(self.passages, "doc"), "").to_numpy())
        # a passage without a document is its own
        groups[alone] = len(docs.dictionary) + np.arange(len(alone))
        ranks = np.random.default_rng([seed, 1]).permutation(len(docs.dictionary) + len(alone))[
            groups
        ]
        order = np.argsort(ranks, kind="stable")
        others = order[~needed[order]][: size - int(needed.sum())]
        return np.sort(np.concatenate([np.flatnonzero(needed), others]))


def sample_facts(
    passages: int | None = None,
    train_queries: int | None = None,
    dev_queries: int | None = None,
    test_queries: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The arguments of `Collection.sample`, as the digest of a sample holds them beside that of the
    whole.
    """
    limits = {"train": train_queries, "dev": dev_queries, "test": test_queries}
    return {"passages": passages, "queries": limits, "seed": seed}


def rows_digest(table: datasets.Dataset) -> str:
    """SHA-256 (hex) of the content of a table: a line of JSON a row, as files are digested while
    they are written (`store`).
    """
    content = sha256()
    for start in range(0, len(table), ROWS_AT_ONCE):
        columns = table[start : start + ROWS_AT_ONCE].values()
        for row in zip(*columns, strict=True):
            content.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return content.hexdigest()


def file_title(name: str) -> str:
    """The title of a text that has none: its file's name without folders and endings of texts.

    Example:
        >>> file_title("notes/v1.2.rst.txt.gz")
        'v1.2'
    """
    title = name.rpartition("/")[2].removesuffix(".gz")
    while Path(title).suffix.lower() in KINDS:
        title = Path(title).stem
    return title


def copy_key(title: str, text: str, doc: str) -> tuple[str, str]:
    """The identity of a passage's content: title and text, or the text alone if the title is only
    the name of its file.

    Example:
        >>> copy_key("tides (1)", "Salt.", "tides (1).txt"), copy_key("Tides", "Salt.", "tides.md")
        (('', 'Salt.'), ('Tides', 'Salt.'))
    """
    named = doc.lower().removesuffix(".gz").endswith(KINDS) and title == file_title(doc)
    return "" if named else title, text


def repeats(
    hashes: np.ndarray,
    table: datasets.Dataset,
    columns: Sequence[str],
    key: Callable[..., Hashable] = lambda *values: values,
) -> Iterator[tuple[int, int]]:
    """Rows that are equal to an earlier one: (row, the first such row).

    Args:
        hashes: `[rows]` int64, equal where the keys are.
        table: the rows.
        columns: from which `key` makes what is compared.
    """
    order = np.argsort(hashes, kind="stable")
    equal = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    suspects = np.union1d(order[equal], order[equal + 1])
    if not len(suspects):
        return
    values = table.select(suspects).select_columns([*columns])[:]
    keys = map(key, *map(values.get, columns))
    first: dict[Hashable, int] = {}
    # strings are compared only for equal hashes
    for row, shared in zip(suspects.tolist(), keys, strict=True):
        if first.setdefault(shared, row) != row:
            yield row, first[shared]


def folded(text: str) -> str:
    """A text normalised for comparing questions: case and spaces are ignored."""
    return " ".join(text.split()).casefold()


def _positives(grades: Grades) -> set[str]:
    return {id_ for judged in grades.values() for id_, grade in judged.items() if grade > 0}


def _column(dataset: datasets.Dataset, name: str) -> pa.ChunkedArray:
    return dataset.select_columns([name]).with_format("arrow")[:][name]


def _table(grades: Grades) -> datasets.Dataset:
    rows = [
        (query, id_, grade) for query, judged in grades.items() for id_, grade in judged.items()
    ]
    columns = zip(*rows, strict=True)
    return datasets.Dataset.from_dict(
        dict(zip(JUDGEMENT, columns, strict=True)), features=JUDGEMENT
    )


# From ids to rows ---------------------------------------------------------------------------------


def rows_of(ids: Sequence[str], passage_ids: Sequence[str]) -> np.ndarray:
    """The row of each id in the collection.

    Only the requested ids are in a hash table; the collection's ids are streamed once.

    Args:
        ids: ids to look up, any order, may repeat.
        passage_ids: ids of the whole collection in row order (a list, or the `id` column of its
            dataset).

    Returns:
        `[len(ids)]` int64, -1 where the collection has no such id.

    Raises:
        InputError: an id that is not a text, such as a number.

    Example:
        >>> rows_of(["c", "a", "x"], ["a", "b", "c"]).tolist()
        [2, 0, -1]
    """
    wanted = _texts(list(ids))
    distinct = wanted.unique()
    rows = np.full(len(distinct) + 1, -1, np.int64)
    start = 0
    for chunk in id_chunks(passage_ids):
        places = pc.index_in(chunk, value_set=distinct).fill_null(-1).to_numpy(zero_copy_only=False)
        hits = np.flatnonzero(places >= 0)
        rows[places[hits]] = hits + start
        start += len(chunk)
    return rows[pc.index_in(wanted, value_set=distinct).to_numpy(zero_copy_only=False)]


def id_chunks(passage_ids: Sequence[str]) -> list[pa.Array]:
    """The ids of a collection (a list, or the `id` column of a dataset) as Arrow arrays; copied
    only where re-ordered.
    """
    source: Any = getattr(passage_ids, "source", None)
    if source is not None and getattr(source, "_indices", 0) is None:
        column = source.data.column(passage_ids.column_name)
        return [chunk.cast(pa.string()) for chunk in column.chunks]
    starts = range(0, len(passage_ids), IDS_AT_ONCE)
    return [_texts(list(passage_ids[start : start + IDS_AT_ONCE])) for start in starts]


def _texts(ids: list[str]) -> pa.Array:
    try:
        return pa.array(ids, pa.string())
    except pa.ArrowTypeError:
        wrong = next(id_ for id_ in ids if not isinstance(id_, str | None))
        problem, fix = f"{wrong!r:.40} is not a text", "Give ids as texts: str(id)."
        raise InputError(problem, where="ids", fix=fix) from None


def judged_rows(
    qrels: Mapping[str, Mapping[str, int]],
    query_ids: Sequence[str],
    passage_ids: Sequence[str],
    minimum: int = 1,
) -> list[np.ndarray]:
    """Rows of the passages judged relevant to each query.

    Args:
        qrels: query id -> passage id -> grade.
        query_ids: queries in the order wanted; one without judgements gets an empty array.
        passage_ids: ids of the collection in row order.
        minimum: lowest grade that counts.

    Returns:
        One int64 array of distinct rows per query, in the order of the judgements; unknown passages
        are left out.

    Example:
        >>> [
        ...     rows.tolist()
        ...     for rows in judged_rows(
        ...         {"q": {"c": 1, "a": 2, "b": 0}}, ["q", "r"], ["a", "b", "c"]
        ...     )
        ... ]
        [[2, 0], []]
    """
    wanted = [
        [passage for passage, grade in qrels.get(query, {}).items() if grade >= minimum]
        for query in query_ids
    ]
    rows = rows_of([passage for passages in wanted for passage in passages], passage_ids)
    ends = np.cumsum([len(passages) for passages in wanted])
    return [pd.unique(part[part >= 0]) for part in np.split(rows, ends[:-1])] if wanted else []


def document_numbers(documents: Sequence[str]) -> np.ndarray:
    """The number of each passage's document, in the order of their names; a passage without one is
    its own document.

    Names stay in Arrow, so that one long name among many costs its own length and no more.

    Args:
        documents: name of each passage's document, "" for none: a list, or the `doc` column of a
            dataset.

    Returns:
        `[passages]` int64.

    Example:
        >>> document_numbers(["b", "", "a", "b"]).tolist()
        [2, 0, 1, 2]
    """
    names = pa.chunked_array(id_chunks(documents), pa.string()).combine_chunks()
    alone = pa.array((f"\0{row}" for row in range(len(names))), pa.string(), size=len(names))
    coded = pc.if_else(pc.equal(names, ""), alone, names).dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[coded.indices.to_numpy()]
