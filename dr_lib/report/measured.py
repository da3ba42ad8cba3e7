"""From records to the numbers of a page: means with intervals, and paired differences between configurations.

The one place where a record becomes a number; tables and figures only show what comes out of here.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dr_lib.errors import InputError
from dr_lib.evaluation import (
    Interval,
    bootstrap_intervals,
    holm,
    randomisation_tests,
    smallest_detectable_difference,
)
from dr_lib.lab.records import Record, load_records, recorded_folder
from dr_lib.lab.verdicts import SCALES, records_for

Runs = Mapping[str, Sequence[Record]]


def recorded(study: str) -> dict[str, list[Record]]:
    """The book's own records of a study, at the largest scale that has any: label -> records by seed.

    Args:
        study: name of the study, e.g. "simlm/table08".
    """
    found: dict[str, list[Record]] = {}
    for record in records_for(study):
        found.setdefault(record.label, []).append(record)
    return found


def recorded_studies(prefix: str) -> list[str]:
    """Names of the studies that the book has records of and that begin with `prefix`, in order, each once."""
    records = [record for scale in SCALES for record in load_records(recorded_folder(scale))]
    return sorted({record.study for record in records if record.study.startswith(prefix)})


def spell_data(runs: Runs) -> str:
    """What some runs were measured on, in words: ``squad, 20,958 passages, 10,534 queries, laptop scale``.

    Runs on different data are told one after the other; without any run the text is empty.
    """
    records = [record for own in runs.values() for record in own]
    return "; ".join(dict.fromkeys(map(_spell_data, records)))


def _spell_data(record: Record) -> str:
    collection = record.data["collection"]
    size = f"{collection['passages']:,} passages, " if "passages" in collection else ""
    return f"{collection['name']}, {size}{len(record.query_ids):,} queries, {record.scale} scale"


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


def mean_intervals(runs: Runs, measure: str) -> dict[str, Interval]:
    """Label -> mean over queries and seeds in percent, with its 95 % bootstrap interval.

    Raises:
        InputError: two configurations were measured on different queries.
    """
    filled = {label: records for label, records in runs.items() if records}
    scores = [per_query(records, measure) for records in filled.values()]
    return dict(zip(filled, bootstrap_intervals(scores), strict=True)) if filled else {}


Pair = tuple[str, str]


def differences(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, Interval]:
    """First minus second of each pair that was run: mean paired difference per query in points, with its interval."""
    found = {pair: paired(runs[pair[0]], runs[pair[1]], measure) for pair in pairs if _both_run(pair, runs)}
    return dict(zip(found, bootstrap_intervals(list(found.values())), strict=True)) if found else {}


def detectable(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, float]:
    """The smallest difference in points that the queries of each pair would have shown (power 0.8, level 0.05)."""
    return {
        pair: smallest_detectable_difference(paired(runs[pair[0]], runs[pair[1]], measure))
        for pair in pairs
        if _both_run(pair, runs)
    }


def corrected_tests(pairs: Sequence[Pair], runs: Runs, measure: str) -> dict[Pair, float]:
    """p-value of each pair that was run: randomisation test of the paired difference, with Holm's correction."""
    found = {pair: paired(runs[pair[0]], runs[pair[1]], measure) for pair in pairs if _both_run(pair, runs)}
    return dict(zip(found, map(float, holm(randomisation_tests(list(found.values())))), strict=True)) if found else {}


def _both_run(pair: Pair, runs: Runs) -> bool:
    return all(runs.get(label) for label in pair)


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
    sides = [{record.seed: record for record in side} for side in (better, worse)]
    first, second = ([side[seed] for seed in seeds] for side in sides)
    return per_query(first, measure) - per_query(second, measure)
