"""Intervals of measures that belong to a whole set of rows: Matthews, F1, correlations (MASTER, Table 7).

Such a measure is no mean over rows, so each resample of the rows is measured anew. Page of the book: ideas/evaluation.
"""

from collections.abc import Callable, Sequence

import numpy as np

from dr_lib.errors import InputError
from dr_lib.evaluation.nlu_measures import measure
from dr_lib.evaluation.scores import Scores
from dr_lib.evaluation.statistics import Interval, interval_of

DRAWS = 1_000


def measure_interval(
    runs: Sequence[Scores], name: str, *, draws: int = DRAWS, seed: int = 0, level: float = 0.95
) -> Interval:
    """A measure of one configuration, and its bootstrap interval over rows.

    Args:
        runs: one a seed, with the columns "predicted" and "actual" (`lab.protocols.build_nlu`), of the same rows.
        name: a key of `nlu_measures.MEASURES`.
        draws, seed, level: as in `bootstrap_interval`.

    Raises:
        InputError: no run, or runs of different rows.

    Example:
        >>> rows = {"predicted": [1, 1, 0, 0], "actual": [1, 0, 0, 0]}
        >>> measure_interval([Scores(list("abcd"), rows)], "accuracy").mean
        0.75
    """
    return _interval(lambda rows: _mean(runs, name, rows), _same_rows(runs), draws, seed, level)


def measure_difference(
    first: Sequence[Scores], second: Sequence[Scores], name: str, *, draws: int = DRAWS, seed: int = 0,
    level: float = 0.95,
) -> Interval:  # fmt: skip
    """First minus second configuration, both measured on the same resampled rows."""
    rows = _same_rows([*first, *second])
    return _interval(lambda drawn: _mean(first, name, drawn) - _mean(second, name, drawn), rows, draws, seed, level)


def _interval(value: Callable[[np.ndarray], float], rows: int, draws: int, seed: int, level: float) -> Interval:
    rng = np.random.default_rng(seed)
    drawn = np.array([value(rng.integers(0, rows, rows)) for _ in range(draws)])
    return interval_of(value(np.arange(rows)), drawn, level)


def _mean(runs: Sequence[Scores], name: str, rows: np.ndarray) -> float:
    """Mean over seeds of the measure on some rows."""
    values = [measure(run.per_query("predicted")[rows], run.per_query("actual")[rows], (name,))[name] for run in runs]
    return float(np.mean(values))


def _same_rows(runs: Sequence[Scores]) -> int:
    actual = [run.per_query("actual") for run in runs]
    if not runs or any(not np.array_equal(one, actual[0]) for one in actual):
        raise InputError("runs of different rows, or none", where="nlu", fix="Measure all on the same file.")
    return len(actual[0])
