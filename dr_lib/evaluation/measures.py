"""Retrieval measures by `ir-measures`: MRR@k, R@k, nDCG@k, R-precision and others, one value a query.

The rules, which differ between tools and move numbers:

- **Ties.** A ranking has none: score descending, then row ascending. The measures are given ranks in place of scores,
  so no tool sorts equal scores its own way (trec_eval: by passage id, descending).
- **Unjudged passages** are not relevant.
- **Queries.** Every query with a judgement counts. One that the run lacks scores 0, and so does one without a relevant
  passage (as `trec_eval -c`). Queries of the run without any judgement are left out.
- **Relevance** for MRR, R, P, AP and Success begins at a grade given by hand: 1 for MS MARCO, 2 for TREC DL (SimLM's
  code does the same). nDCG takes the grade itself as gain, in trec_eval's form.
- **Judged passages that the collection lacks** stay in the denominator of recall and of R-precision.
- **R-precision** (KILT's measure, DPR-PAQ Table 2) is the share of relevant ones among the first R passages, where R is
  the number of passages relevant to the query. Pages in place of passages: `evaluation/pages.py`.

Page of the book: ideas/evaluation.
"""

import re
from collections.abc import Mapping, Sequence

import ir_measures
import numpy as np
from ir_measures import AP, RR, P, R, Rprec, Success, nDCG

from dr_lib.errors import InputError
from dr_lib.evaluation.scores import Scores
from dr_lib.retrieval.ranking import Ranking
from dr_lib.retrieval.rows import rows_of

KINDS = {"MRR": RR, "R": R, "nDCG": nDCG, "P": P, "AP": AP, "Success": Success}
# These depend on which judged passages stand above the cut, not on what stands between them.
JUDGED_SUFFICE = ("R", "P", "Success")
R_PRECISION = "R-precision"

Run = dict[str, dict[str, float]]


def evaluate(
    ranking: Ranking,
    qrels: Mapping[str, Mapping[str, int]],
    passage_ids: Sequence[str],
    measures: Sequence[str] = ("MRR@10", "R@50", "R@100", "R@1000", "nDCG@10"),
    *,
    relevance: int = 1,
) -> Scores:
    """Score a ranking against judgements, by the rules above.

    Each measure gets only the part of the ranking that it can see: the first k passages, or of these only the judged
    ones for recall, precision and success. Values are those of the full run, and ten thousand queries of a thousand
    passages take a second or two.

    Args:
        ranking: rows of the collection, best first.
        qrels: query id -> passage id -> grade.
        passage_ids: ids of the collection in row order.
        measures: names such as "MRR@10", "R@1000" (or "R@1k"), "nDCG@10", "P@5", "AP@1000", "Success@20", and
            "R-precision".
        relevance: lowest grade that counts as relevant for all but nDCG.

    Returns:
        Values between 0 and 1 for every judged query, in the order of `qrels`.

    Raises:
        InputError: an unknown measure, a ranking of another collection, one too short for R-precision, or no judged
            query in the ranking.

    Example:
        >>> ranking = Ranking(["q"], np.array([[2, 0]]), np.array([[2.0, 1.0]]))
        >>> evaluate(ranking, {"q": {"a": 1}}, ["a", "b", "c"], ["MRR@10", "R@1"]).values
        {'MRR@10': array([0.5], dtype=float32), 'R@1': array([0.], dtype=float32)}
    """
    wanted = {name: parse(name, relevance) for name in measures}
    places = {query: place for place, query in enumerate(ranking.query_ids)}
    if not any(query in places for query in qrels):
        fix = "Evaluate against the split that was searched."
        raise InputError("none of the judged queries is in the ranking", where="qrels", fix=fix)
    if ranking.rows.max(initial=-1) >= len(passage_ids):
        problem = f"row {ranking.rows.max()} of {len(passage_ids)} passages"
        raise InputError(problem, where="ranking", fix="Give the ids of the collection that was searched.")
    if R_PRECISION in wanted:
        _check_depth(ranking, qrels, len(passage_ids), relevance)
    judged, judged_keys = _by_row(qrels, passage_ids, places)
    queries = [(query, places[query]) for query in qrels if query in places]
    values = {}
    for name, (kind, cut, measure) in wanted.items():
        rows = np.asarray(ranking.rows[:, :cut])
        shown = _judged(rows, judged_keys, len(passage_ids)) if kind in JUDGED_SUFFICE else rows >= 0
        found = {m.query_id: m.value for m in ir_measures.iter_calc([measure], judged, _run(rows, shown, queries))}
        values[name] = np.array([found.get(query, 0.0) for query in qrels], np.float32)
    return Scores(list(qrels), values)


def parse(name: str, relevance: int = 1) -> tuple[str, int | None, ir_measures.Measure]:
    """Kind, cut (None: no cut) and `ir-measures` object of a measure's name; an unknown one raises `InputError`.

    Example:
        >>> parse("R@1k", relevance=2)
        ('R', 1000, R(rel=2)@1000)
    """
    if name == R_PRECISION:
        return name, None, Rprec(rel=relevance)
    match = re.fullmatch(r"(\w+)@(\d+)(k?)", name)
    if match is None or match[1] not in KINDS or int(match[2]) == 0:
        known = ", ".join([*(f"{kind}@k" for kind in KINDS), R_PRECISION, "accuracy@k (by answers)"])
        raise InputError(f"unknown measure {name!r}", where="measures", fix=f"Known: {known}.")
    cut = int(match[2]) * (1000 if match[3] else 1)
    kind = KINDS[match[1]]
    return match[1], cut, (kind if kind is nDCG else kind(rel=relevance)) @ cut


def _check_depth(ranking: Ranking, qrels: Mapping[str, Mapping[str, int]], passages: int, relevance: int) -> None:
    most = max(sum(grade >= relevance for grade in grades.values()) for grades in qrels.values())
    if ranking.depth < min(most, passages):
        problem = f"a query has {most} relevant passages, the ranking {ranking.depth}"
        raise InputError(problem, where=R_PRECISION, fix="Search deeper.")


def _by_row(
    qrels: Mapping[str, Mapping[str, int]], passage_ids: Sequence[str], places: Mapping[str, int]
) -> tuple[dict[str, dict[str, int]], np.ndarray]:
    """Judgements with rows for ids, and the sorted keys `place of the query * passages + row` of those in the run."""
    rows = iter(rows_of([passage for grades in qrels.values() for passage in grades], passage_ids).tolist())
    judged, keys = {}, []
    for query, grades in qrels.items():
        own = {passage: next(rows) for passage in grades}
        judged[query] = {str(own[p]) if own[p] >= 0 else f"absent {p}": int(grade) for p, grade in grades.items()}
        if query in places:
            keys += [places[query] * len(passage_ids) + row for row in own.values() if row >= 0]
    return judged, np.sort(np.array(keys, np.int64))


def _judged(rows: np.ndarray, judged_keys: np.ndarray, passages: int) -> np.ndarray:
    """Which entries of a ranking were judged for their own query: `[queries, cut]` bool."""
    somewhere = np.zeros(passages + 1, bool)
    somewhere[judged_keys % passages] = True
    places, ranks = np.nonzero(somewhere[rows])
    keys = places * passages + rows[places, ranks]
    own = np.append(judged_keys, -1)[np.searchsorted(judged_keys, keys)] == keys
    shown = np.zeros(rows.shape, bool)
    shown[places[own], ranks[own]] = True
    return shown


def _run(rows: np.ndarray, shown: np.ndarray, queries: Sequence[tuple[str, int]]) -> Run:
    """The shown entries with `depth - rank` as score, which no two passages of a query share."""
    run = {}
    for query, place in queries:
        ranks = np.flatnonzero(shown[place])
        scores = (rows.shape[1] - ranks).astype(float).tolist()
        run[query] = dict(zip(map(str, rows[place, ranks].tolist()), scores, strict=True))
    return run
