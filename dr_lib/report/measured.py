"""From records to the numbers of a page: means with intervals, paired differences, and what a page may show at all.

The one place where a record becomes a number; tables and figures only show what comes out of here.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dr_lib.errors import InputError
from dr_lib.evaluation import Interval, bootstrap_intervals, holm, paired_tests, smallest_detectable_difference
from dr_lib.lab import SCALES, Record, load_records, recorded_folder
from dr_lib.lab.records import grouped

Runs = Mapping[str, Sequence[Record]]
"""Label -> records, one per seed."""
Pair = tuple[str, str]
"""(first, second) labels; a difference is first minus second."""


def recorded(study: str) -> dict[str, list[Record]]:
    """The book's own records of a study, on the collection that has most of them: label -> records by seed.

    Args:
        study: name of the study, e.g. "simlm/table08".
    """
    records = _at_largest_scale(study)
    digests = [record.data["collection"]["digest"] for record in records]
    most = max(digests, key=digests.count, default=None)
    return grouped([one for one, digest in zip(records, digests, strict=True) if digest == most], "label")


def recorded_by_collection(study: str) -> dict[str, dict[str, list[Record]]]:
    """The book's own records of a study over many collections: collection -> label -> records by seed."""
    records = _at_largest_scale(study)
    names = dict.fromkeys(record.data["collection"]["name"] for record in records)
    return {name: grouped([one for one in records if one.data["collection"]["name"] == name], "label") for name in names}


def _at_largest_scale(study: str) -> list[Record]:
    """The book's own records of a study, at the largest scale that has any."""
    return next(filter(None, (load_records(recorded_folder(scale), study) for scale in SCALES)), [])


def recorded_studies(prefix: str) -> list[str]:
    """Names of the studies that the book has records of and that begin with `prefix`, in order, each once."""
    records = [record for scale in SCALES for record in load_records(recorded_folder(scale))]
    return sorted({record.study for record in records if record.study.startswith(prefix)})


def presentable(runs: Runs) -> Runs:
    """The runs that a page may show: smoke runs only prove that everything works, so they are left out."""
    return {label: records for label, records in runs.items() if records and records[0].scale != "smoke"}


def per_query(records: Sequence[Record], measure: str) -> np.ndarray:
    """Scores of one configuration, in percent.

    Args:
        records: the same recipe with different seeds; all must have been measured on the same queries.
        measure: e.g. "MRR@10".

    Returns:
        `[seeds, queries]` float64.

    Raises:
        InputError: the records answer different queries.
    """
    for other in records[1:]:
        if other.query_ids != records[0].query_ids:
            raise InputError("other queries than the first seed's", where=other.file_name, fix="Run all seeds anew.")
    return 100.0 * np.stack([record.per_query(measure) for record in records]).astype(np.float64)


def paired(first: Sequence[Record], second: Sequence[Record], measure: str) -> np.ndarray:
    """Differences per seed and query `[seeds, queries]`, in percentage points, over the seeds that both have.

    Raises:
        InputError: the two were measured on different queries, or share no seed.
    """
    sides = [{record.seed: record for record in side} for side in (first, second)]
    seeds = sorted(set(sides[0]) & set(sides[1]))
    if not seeds or first[0].query_ids != second[0].query_ids:
        problem = "different queries" if seeds else "no seed in common"
        raise InputError(problem, where=f"{first[0].label} and {second[0].label}", fix="Run both anew.")
    one, other = (per_query([side[seed] for seed in seeds], measure) for side in sides)
    return one - other


def mean_intervals(runs: Runs, measure: str) -> dict[str, Interval]:
    """Label -> mean over queries and seeds in percent, with its 95 % bootstrap interval.

    Raises:
        InputError: two configurations were measured on different queries.
    """
    filled = {label: per_query(records, measure) for label, records in runs.items() if records}
    return dict(zip(filled, bootstrap_intervals(list(filled.values())), strict=True)) if filled else {}


def differences(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, Interval]:
    """First minus second of each pair that was run: mean paired difference per query in points, with its interval."""
    return _of_pairs(pairs, runs, measure, bootstrap_intervals)


def corrected_tests(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, float]:
    """p-value of each pair that was run: its paired difference over queries and seeds, with Holm's correction."""
    return _of_pairs(pairs, runs, measure, lambda columns: map(float, holm(paired_tests(columns))))


def detectable(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, float]:
    """The smallest difference in points that the queries of each pair can detect (power 0.8, level 0.05)."""
    return _of_pairs(pairs, runs, measure, lambda columns: map(smallest_detectable_difference, columns))


def _of_pairs(pairs: Sequence[Pair], runs: Runs, measure: str, judge: Callable) -> dict[Pair, Interval | float]:
    run = [pair for pair in pairs if all(runs.get(label) for label in pair)]
    columns = [paired(runs[first], runs[second], measure) for first, second in run]
    return dict(zip(run, judge(columns), strict=True)) if run else {}
