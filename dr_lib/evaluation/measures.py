"""Per-query scores of a run: by judgements (MRR@k, R@k, nDCG@k, ... with `ir-measures`) and answers
(accuracy@k).

The rules, which differ between tools and affect numbers:

- **Ties.** A ranking has none: score descending, then row ascending. Measures receive ranks in
  place of scores, so that no tool re-sorts equal scores (trec_eval: by passage id, descending).
- **Unjudged passages** are not relevant.
- **Depth.** Passages beyond the end of a ranking were not found: R@1000 of a ranking of 100 counts
  those 100, as in trec_eval. A study refuses a measure that looks deeper than its search.
- **Queries.** Every query with a judgement counts. A query that is missing in the run scores 0, and
  so does one without a relevant passage (as `trec_eval -c`). Queries of the run without judgements
  are ignored.
- **Grade.** Relevance is binary for all measures but nDCG: a passage is relevant from a minimum
  grade on. It is 1 if judgements are binary (MS MARCO, NQ, SQuAD, most of BEIR) and 2 for TREC DL
  2019 and 2020, whose grade 1 means "on the topic, no answer"; SimLM's code does the same. In a
  sample of TREC DL 2019 (5,000 passages), BM25's MRR@10 drops by 18 points from grade 1 to grade 2.
  nDCG always uses the grade as gain, as in trec_eval; grades below 0 (spam in TREC's Web tracks)
  count as 0.
- **Judged passages that the collection lacks** count in the denominators of recall and R-precision.
- **R-precision** (KILT's measure, DPR-PAQ Table 2) is the share of relevant ones among the first R
  passages, where R is the number of passages relevant to the query. KILT measures it over Wikipedia
  pages, DPR-PAQ over paragraphs; the notebook on that table does both.
- **accuracy@k** (DPR's measure for open questions; SimLM, MASTER, DPR-PAQ and PAIR on NQ) is
  whether one of the first k passages contains an accepted answer, judged or not. Text and answers
  are tokenised by `words.tokens`, ignoring case; an answer matches if its tokens are consecutive.
  Only a passage's text counts, not its title. In DPR's code an answer without tokens matches every
  passage, here none.

Page of the book: ideas/evaluation.

`similarities` are those of PAIR, Figure 4. Among the first 100 passages for a query some are
relevant (p+), the others are not (p-). s(p+, q) is the score of a relevant passage with the query,
s(p+, p-) that of a relevant passage with a negative. PAIR's passage-centric loss is meant to make
the second smaller than the first (its eq. 4). The paper averages over a query's passages, then over
queries, without further details; the median is given as well, since a few near-duplicates of a
positive distort the mean. Page of the book: ideas/passage-centric.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
from ir_measures import AP, RR, P, R, Rprec, Success, nDCG

from dr_lib.collections import Collection, rows_of
from dr_lib.errors import InputError, check_texts
from dr_lib.files import open_array, read_json, write_text
from dr_lib.retrieval import Ranking, holds_answer, open_vectors, vectors_at
from dr_lib.stages import stage

BY_JUDGEMENT = ("MRR@10", "R@1", "R@5", "R@20", "R@50", "R@100", "R@1000", "nDCG@10")
R_PRECISION = "R-precision"
KINDS = {"MRR": RR, "R": R, "nDCG": nDCG, "P": P, "AP": AP, "Success": Success}
# These depend only on which judged passages are above the cut.
JUDGED_SUFFICE = ("R", "P", "Success")
ACCURACY = re.compile(r"accuracy@([1-9]\d*)")
Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, eq=False)
class Scores:
    """Per-query values of one or more measures, as stored in records and used by significance
    tests.

    Attributes:
        query_ids: one id per query, distinct.
        values: measure -> `[queries]` float32, in the order of `query_ids`.

    Raises:
        InputError: a measure has another number of values, or one that is not finite.

    Example:
        >>> scores = Scores(["q1", "q2"], {"MRR@10": np.array([1.0, 0.5])})
        >>> scores.mean("MRR@10")
        0.75
    """

    query_ids: Sequence[str]
    values: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_ids", list(self.query_ids))
        values = {name: np.asarray(column, np.float32) for name, column in self.values.items()}
        object.__setattr__(self, "values", values)
        if len(set(self.query_ids)) != len(self.query_ids):
            raise InputError("a query id occurs twice", where="scores", fix="Give each query once.")
        for name, column in values.items():
            if column.shape != (len(self.query_ids),):
                problem = f"{name} has shape {column.shape} for {len(self.query_ids)} queries"
                raise InputError(problem, where="scores", fix="Give one value a query.")
            if not np.isfinite(column).all():
                query = self.query_ids[int((~np.isfinite(column)).argmax())]
                raise InputError(
                    f"{name} of query {query!r} is not a number",
                    where="scores",
                    fix="Measure again.",
                )

    def __len__(self) -> int:
        return len(self.query_ids)

    def per_query(self, measure: str) -> np.ndarray:
        """Values `[queries]` of one measure; an unknown one raises `InputError` that lists the
        known ones.
        """
        if measure not in self.values:
            fix = f"Measured were: {', '.join(self.values)}."
            raise InputError(f"no measure {measure!r}", where="scores", fix=fix)
        return self.values[measure]

    def mean(self, measure: str) -> float:
        """Mean over the queries (a fraction, not a percentage)."""
        return float(self.per_query(measure).astype(np.float64).mean())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: ids, names of measures, and the values of every query.

        Most queries share their values with many others (one rank decides MRR, recall and nDCG), so
        each distinct row of values is stored once, in `values`, and `row` has its index for each
        query. A value is the shortest decimal that reads as the same float32.

        Example:
            >>> kept = Scores(["a", "b", "c"], {"MRR": [0.1, 1, 0.1], "R": [1, 1, 1]}).to_dict()
            >>> kept["queries"], kept["measures"]
            (['a', 'b', 'c'], ['MRR', 'R'])
            >>> kept["values"], kept["row"]
            ([[0.1, 1.0], [1.0, 1.0]], [0, 1, 0])
        """
        table = np.array([*self.values.values()], np.float32).reshape(len(self.values), -1).T
        distinct, row = np.unique(table, axis=0, return_inverse=True)
        return {
            "queries": list(self.query_ids),
            "measures": [*self.values],
            "values": [[float(str(value)) for value in line] for line in distinct],
            "row": row.tolist(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], where: object = "scores") -> "Scores":
        """The inverse of `to_dict`; anything else raises `InputError`."""
        try:
            query_ids = [*map(str.__str__, content["queries"])]  # else a TypeError
            values = np.array(content["values"], np.float32).reshape(-1, len(content["measures"]))
            row = np.array(content["row"])
            if row.size and (row.dtype.kind != "i" or row.min() < 0):
                raise ValueError("the number of a row is a whole number, 0 or more")
            columns = values[row.astype(np.int64)].T
            return cls(query_ids, dict(zip(content["measures"], columns, strict=True)))
        except InputError as error:
            raise error.at(where) from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"not scores of queries ({error})", where=where, fix="Measure again."
            ) from None

    def save(self, path: Path) -> None:
        """Write one small JSON file, atomically."""
        write_text(path, json.dumps(self.to_dict()) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Scores":
        """Read a file written by `save`; a missing or invalid file raises `InputError`."""
        return cls.from_dict(read_json(path), where=path)


def evaluate(
    ranking: Ranking,
    qrels: Qrels,
    passage_ids: Sequence[str],
    measures: Sequence[str] = BY_JUDGEMENT,
    *,
    grade: int = 1,
) -> Scores:
    """Score a ranking against judgements, by the rules in this module's docstring.

    Args:
        ranking: rows of the collection, best first.
        qrels: query id -> passage id -> grade.
        passage_ids: ids of the collection in row order.
        measures: names such as "MRR@10", "R@1000" (or "R@1k"), "nDCG@10", "P@5", "AP@1000",
            "Success@20", and "R-precision".
        grade: minimum grade that counts as relevant for all but nDCG, 1 or more; 2 for TREC DL.

    Returns:
        Values between 0 and 1 for every judged query, in the order of `qrels`.

    Raises:
        InputError: an unknown measure, a ranking of another collection or too short for
            R-precision, or no judged query in the ranking.

    Example:
        >>> ranking = Ranking(["q"], np.array([[2, 0]]), np.array([[2.0, 1.0]]))
        >>> evaluate(ranking, {"q": {"a": 1}}, ["a", "b", "c"], ["MRR@10", "R@1"]).values
        {'MRR@10': array([0.5], dtype=float32), 'R@1': array([0.], dtype=float32)}
    """
    check_texts(measures=measures, passage_ids=passage_ids)
    wanted = {name: parse(name, grade) for name in measures}
    places = {query: place for place, query in enumerate(ranking.query_ids) if query in qrels}
    if not places:
        fix = "Evaluate against the split that was searched."
        raise InputError("none of the judged queries is in the ranking", where="qrels", fix=fix)
    if ranking.rows.max(initial=-1) >= len(passage_ids):
        problem = f"row {ranking.rows.max()} of {len(passage_ids)} passages"
        raise InputError(
            problem, where="ranking", fix="Give the ids of the collection that was searched."
        )
    if R_PRECISION in wanted:
        most = max(sum(level >= grade for level in grades.values()) for grades in qrels.values())
        if ranking.depth < min(most, len(passage_ids)):
            problem = f"a query has {most} relevant passages, the ranking {ranking.depth}"
            raise InputError(problem, where=R_PRECISION, fix="Search deeper.")
    # Rows are used as ids, so that a run needs no look-up; a judged passage that the collection
    # lacks keeps its id.
    known = list(dict.fromkeys(passage for grades in qrels.values() for passage in grades))
    row_of = dict(zip(known, rows_of(known, passage_ids).tolist(), strict=True))
    names = {
        passage: f"absent {passage}" if row < 0 else str(row) for passage, row in row_of.items()
    }
    # trec_eval indexes arrays by grade; grades below -1 would be out of bounds.
    judged = {
        query: {names[passage]: max(int(level), 0) for passage, level in grades.items()}
        for query, grades in qrels.items()
    }
    # Only a few of a thousand passages are judged: deep measures receive only those, at their own
    # ranks.
    hits = {
        query: np.flatnonzero(
            np.isin(ranking.rows[place], [row for id_ in qrels[query] if (row := row_of[id_]) >= 0])
        )
        for query, place in places.items()
    }
    values = {}
    for name, (kind, cut, measure) in wanted.items():
        cut = cut or ranking.depth
        run = {}
        for query, place in places.items():
            line = np.asarray(ranking.rows[place, :cut])
            ranks = (
                hits[query][hits[query] < cut]
                if kind in JUDGED_SUFFICE
                else np.flatnonzero(line >= 0)
            )
            run[query] = {
                str(row): float(cut - rank)
                for rank, row in zip(ranks, line[ranks].tolist(), strict=True)
            }
        calculated = ir_measures.iter_calc([measure], judged, run)
        scored = {metric.query_id: metric.value for metric in calculated}
        values[name] = np.array([scored.get(query, 0.0) for query in qrels], np.float32)
    return Scores(list(qrels), values)


def parse(name: str, grade: int = 1) -> tuple[str, int | None, ir_measures.Measure]:
    """Kind, cutoff (None: none) and `ir-measures` object of a measure's name; an unknown one raises
    `InputError`.

    Example:
        >>> parse("R@1k", grade=2)
        ('R', 1000, R(rel=2)@1000)
    """
    if name == R_PRECISION:
        return name, None, Rprec(rel=grade)
    match = re.fullmatch(r"(\w+)@(\d+)(k?)", name)
    if match is None or match[1] not in KINDS or int(match[2]) == 0:
        known = ", ".join(
            [*(f"{kind}@k" for kind in KINDS), R_PRECISION, "accuracy@k (by answers)"]
        )
        raise InputError(f"unknown measure {name!r}", where="measures", fix=f"Known: {known}.")
    cut = int(match[2]) * (1000 if match[3] else 1)
    kind = KINDS[match[1]]
    return match[1], cut, (kind if kind is nDCG else kind(rel=grade)) @ cut


def cut_of(name: str) -> int | None:
    """How deep a measure looks; None where its name has no cut. `R@1k` looks 1,000 deep."""
    answers = ACCURACY.fullmatch(name)
    return int(answers[1]) if answers else parse(name)[1]


def evaluate_split(
    ranking: Ranking,
    collection: Collection,
    split: str,
    measures: Sequence[str] = BY_JUDGEMENT,
    *,
    grade: int = 1,
) -> Scores:
    """Score a run of a split's queries by judgements and, where asked for, by answers.

    Args:
        ranking: of the queries of `split`.
        collection: what was searched.
        split: name of the split.
        measures: names as `evaluate` takes them, or "accuracy@20" and the like.
        grade: lowest grade that counts as relevant, as in `evaluate`; answers know no grades.

    Returns:
        Values between 0 and 1 for every judged query, in the order of the judgements.

    Raises:
        InputError: what `check_measures` and `evaluate` refuse.
    """
    check_measures(measures, collection, split)
    judged = collection.qrels(split)
    cuts = [int(match[1]) for match in map(ACCURACY.fullmatch, measures) if match]
    names = [name for name in measures if not ACCURACY.fullmatch(name)]
    values = dict(evaluate(ranking, judged, collection.passages["id"], names, grade=grade).values)
    if cuts:
        queries = collection.queries(split)
        known = dict(zip(queries["id"][:], queries["answers"][:], strict=True))
        answers = [known.get(query, []) for query in ranking.query_ids]
        hits = holds_answer(ranking.rows[:, : max(cuts)], collection.passages, answers)
        # for judged queries that the run lacks
        hits = np.append(hits, np.zeros_like(hits[:1]), axis=0)
        places = {query: place for place, query in enumerate(ranking.query_ids)}
        rows = [places.get(query, -1) for query in judged]
        values |= {f"accuracy@{cut}": hits[rows, :cut].any(axis=1) for cut in cuts}
    return Scores(list(judged), {name: values[name] for name in measures})


def check_measures(measures: Sequence[str], collection: Collection, split: str) -> None:
    """Refuse unknown measures, and those that need answers if no query of the split has one
    (`InputError`).
    """
    check_texts(measures=measures)
    for name in measures:
        if not ACCURACY.fullmatch(name):
            parse(name)
        elif not any(collection.queries(split)["answers"]):
            problem = f"{name} needs answers, and no query of split {split!r} has one"
            fix = 'Measure by judgements, such as "R@20" or "Success@20".'
            raise InputError(problem, where=f"collection {collection.name}", fix=fix)


@stage(reads=("split",))
def scores(
    folder: Path,
    run: Path,
    collection: Collection,
    *,
    split: str,
    measures: Sequence[str],
    grade: int = 1,
) -> None:
    """`scores.json`: the score of every query of a split by measure."""
    ranking = Ranking.open(run / "ranking")
    evaluate_split(ranking, collection, split, measures, grade=grade).save(folder / "scores.json")


# Similarities of passages -------------------------------------------------------------------------

POSITIVE_QUERY, POSITIVE_NEGATIVE = "s(p+, q)", "s(p+, p-)"


def passage_similarities(
    queries: np.ndarray,
    passages: np.ndarray | list[np.ndarray],
    ranking: Ranking,
    positives: Sequence[np.ndarray],
    *,
    depth: int = 100,
) -> Scores:
    """Mean and median of both similarities, as cosines, for every query with a positive and a
    negative.

    Args:
        queries: `[queries, hidden]`, in the ranking's order.
        passages: `[passages, hidden]`, float16 or float32, may be memory-mapped; or a list of such
            arrays.
        ranking: the retrieved passages of each query.
        positives: rows of the relevant passages of each query, from `collections.judged_rows`.
        depth: how many retrieved passages to use; only positives among these count.

    Returns:
        The measures "s(p+, q) mean", "s(p+, q) median", "s(p+, p-) mean" and "s(p+, p-) median" of
        the queries with at least one passage of each kind; the others are left out.

    Raises:
        InputError: no query has a positive and a negative, or vectors or positives are for another
            number of queries than the ranking.

    Example:
        >>> passages = np.array([[1.0, 0.0], [0.6, 0.8]], np.float32)
        >>> ranking = Ranking(["q"], np.array([[0, 1]]), np.array([[1.0, 0.6]]))
        >>> found = passage_similarities(passages[:1], passages, ranking, [np.array([0])])
        >>> round(found.mean("s(p+, q) mean"), 3), round(found.mean("s(p+, p-) mean"), 3)
        (1.0, 0.6)
    """
    ranking.check_lists(queries=queries, positives=positives)
    measured, values = [], []
    for place, query in enumerate(ranking.query_ids):
        rows = ranking.rows[place, :depth]
        rows = rows[rows >= 0]
        relevant = np.isin(rows, positives[place])
        if relevant.any() and not relevant.all():
            vectors = (
                queries[place],
                vectors_at(passages, rows[relevant]),
                vectors_at(passages, rows[~relevant]),
            )
            # Cosines, so that retrievers with and without normalisation are comparable.
            wide = (np.asarray(part, np.float64) for part in vectors)
            asked, near, far = (
                vector / np.maximum(np.linalg.norm(vector, axis=-1, keepdims=True), 1e-12)
                for vector in wide
            )
            with_query, with_negatives = near @ asked, near @ far.T
            measured.append(query)
            values.append(
                [f(part) for part in (with_query, with_negatives) for f in (np.mean, np.median)]
            )
    if not measured:
        problem = "no query has both a positive and a negative among what was found"
        raise InputError(problem, where="similarity", fix="Look deeper.")
    names = [
        f"{kind} {how}"
        for kind in (POSITIVE_QUERY, POSITIVE_NEGATIVE)
        for how in ("mean", "median")
    ]
    return Scores(measured, dict(zip(names, np.array(values).T, strict=True)))


@stage(reads=("split",))
def similarities(
    folder: Path,
    run: Path,
    vectors: list[Path],
    collection: Collection,
    *,
    split: str,
    depth: int = 100,
    grade: int = 1,
) -> None:
    """`scores.json`: both similarities, cosines, of each query that has a positive and a negative
    among its first `depth`.

    PAIR Figure 4; the run is a retriever's, with its query vectors in the same folder.
    """
    ranking = Ranking.open(run / "ranking")
    queries = open_array(run / "queries.npy")
    passages = open_vectors(vectors)
    positives = collection.relevant_rows(split, grade)
    passage_similarities(queries, passages, ranking, positives, depth=depth).save(
        folder / "scores.json"
    )
