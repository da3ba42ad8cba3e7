"""From records to the numbers of a page: means with intervals, and paired differences between configurations.

The one place where a record becomes a number; tables and figures only show what comes out of here.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dr_lib.errors import InputError
from dr_lib.evaluation import Interval, bootstrap_interval
from dr_lib.lab import Record, recorded_folder, load_records

Runs = Mapping[str, Sequence[Record]]

SCALES = ("paper", "gpu", "laptop")


def recorded(study: str, collection: str | None = None) -> dict[str, list[Record]]:
    """The book's own records of a study, at the largest scale that has any: label -> records, one a seed.

    Args:
        study: name of the study, e.g. "simlm/table08".
        collection: only records made on this collection; None takes all.
    """
    for scale in SCALES:
        found: dict[str, list[Record]] = {}
        for record in load_records(recorded_folder(scale), study):
            if collection in (None, record.data["collection"]["name"]):
                found.setdefault(record.label, []).append(record)
        if found:
            return found
    return {}


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


def mean_interval(records: Sequence[Record], measure: str) -> Interval:
    """Mean over queries and seeds in percent, with its 95 % bootstrap interval."""
    return bootstrap_interval(per_query(records, measure))


def difference(better: Sequence[Record], worse: Sequence[Record], measure: str) -> Interval:
    """Mean of the paired differences per query, in percentage points, with its 95 % bootstrap interval."""
    return bootstrap_interval(paired(better, worse, measure))


def paired(better: Sequence[Record], worse: Sequence[Record], measure: str) -> np.ndarray:
    """Differences per seed and query `[seeds, queries]`, in percentage points, over the seeds that both have.

    Raises:
        InputError: the two were measured on different queries, or share no seed.
    """
    seeds = sorted({record.seed for record in better} & {record.seed for record in worse})
    if not seeds:
        raise InputError("no seed in common", where=f"{better[0].label} and {worse[0].label}", fix="Run both anew.")
    if better[0].query_ids != worse[0].query_ids:
        raise InputError("different queries", where=f"{better[0].label} and {worse[0].label}", fix="Run both anew.")
    chosen = [[record for record in side if record.seed in seeds] for side in (better, worse)]
    ordered = [sorted(side, key=lambda record: record.seed) for side in chosen]
    return per_query(ordered[0], measure) - per_query(ordered[1], measure)
