"""Measures of classification and regression over a whole set: accuracy, F1, Matthews, Pearson, Spearman.

Rule where a value is undefined (all predictions equal, no positive class): it is 0, so that a model that has learnt
nothing does not score like one that was not run. Page of the book: ideas/evaluation.
"""

from collections.abc import Callable

import numpy as np
from scipy import stats

from dr_lib.errors import InputError


def accuracy(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Share of equal entries."""
    return float((predicted == actual).mean())


def f1(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Harmonic mean of precision and recall of class 1.

    Example:
        >>> round(f1(np.array([1, 1, 0, 1]), np.array([1, 0, 1, 1])), 3)
        0.667
    """
    right = ((predicted == 1) & (actual == 1)).sum()
    return _ratio(2 * right, (predicted == 1).sum() + (actual == 1).sum())


def matthews(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Matthews correlation of two classes: Pearson's correlation of the two 0/1 columns.

    Example:
        >>> round(matthews(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0])), 3)
        0.577
    """
    return pearson(predicted == 1, actual == 1)


def pearson(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Pearson's correlation."""
    left, right = (np.asarray(side, np.float64) - np.mean(side, dtype=np.float64) for side in (predicted, actual))
    return _ratio(left @ right, np.sqrt((left @ left) * (right @ right)))


def spearman(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks, equal values sharing their mean rank."""
    return pearson(stats.rankdata(predicted), stats.rankdata(actual))


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    "F1": f1,
    "Matthews": matthews,
    "Pearson": pearson,
    "Spearman": spearman,
}


def measure(predicted: np.ndarray, actual: np.ndarray, names: tuple[str, ...]) -> dict[str, float]:
    """Several measures of the same predictions, each between -1 and 1.

    Args:
        predicted, actual: `[rows]`, numbers of classes or scores.
        names: keys of `MEASURES`.

    Raises:
        InputError: no row, another number of rows, or a prediction that is not finite.
    """
    if len(predicted) != len(actual) or not len(actual) or not np.isfinite(predicted).all():
        problem = f"{len(predicted)} predictions (or one that is not finite) for {len(actual)} rows"
        raise InputError(problem, where="predictions", fix="Predict each row once.")
    return {name: MEASURES[name](predicted, actual) for name in names}


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below > 0 else 0.0
