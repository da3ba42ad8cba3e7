"""A re-ranker's scores of each training query's passages, looked up for the passages of a batch.

SimLM section 3.2 (distillation): one score for every positive and every listed negative. Book: ideas/distillation.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dr_lib.errors import InputError
from dr_lib.pairs.examples import Examples


@dataclass(frozen=True)
class TeacherScores:
    """Scores beside `Examples`.

    Attributes:
        positives: `[all positives]` float32, beside `Examples.positives`.
        negatives: `[queries, depth]` float32, beside `Examples.negatives`; any number where there is no passage.

    Example:
        >>> examples = Examples.of([0], positives=[[4]], negatives=[[7, 2]], passages=9)
        >>> teacher = TeacherScores(np.array([3.0]), np.array([[1.0, -1.0]]))
        >>> teacher.of(examples, np.array([0]), np.array([[4, 2, 5]]))
        array([[ 3., -1., nan]], dtype=float32)
    """

    positives: np.ndarray
    negatives: np.ndarray

    def of(self, examples: Examples, chosen: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Scores `[batch, n]` float32 of passages; NaN where the teacher has not read that pair.

        Args:
            examples: what the scores stand beside.
            chosen: `[batch]` numbers of queries in `examples`.
            rows: `[batch, n]` passage rows.

        Raises:
            InputError: another number of positives or negatives than the examples have.
        """
        for name in ("positives", "negatives"):
            scored, listed = getattr(self, name).shape, getattr(examples, name).shape
            if scored != listed:
                raise InputError(f"{scored} scores for {listed} {name}", where="teacher", fix="Score these examples.")
        return np.fmax(self._of_positives(examples, chosen, rows), self._of_negatives(examples, chosen, rows))

    def _of_negatives(self, examples: Examples, chosen: np.ndarray, rows: np.ndarray) -> np.ndarray:
        same = rows[:, :, None] == examples.negatives[chosen][:, None, :]
        column = same.argmax(axis=2)
        found = np.take_along_axis(self.negatives[chosen].astype(np.float32), column, axis=1)
        return np.where(same.any(axis=2), found, np.float32(np.nan))

    def _of_positives(self, examples: Examples, chosen: np.ndarray, rows: np.ndarray) -> np.ndarray:
        places, _ = examples.places_of(chosen)
        owner = np.repeat(np.arange(len(chosen)), examples.counts(chosen))
        found = np.full(rows.shape, np.nan, np.float32)
        pair, column = np.nonzero(rows[owner] == examples.positives[places][:, None])
        found[owner[pair], column] = self.positives[places[pair]]
        return found

    def save(self, folder: Path) -> None:
        """Write `positives.npy` and `negatives.npy` into `folder`, float32."""
        np.save(folder / "positives.npy", self.positives.astype(np.float32))
        np.save(folder / "negatives.npy", self.negatives.astype(np.float32))

    @classmethod
    def open(cls, folder: Path) -> "TeacherScores":
        """Read what `save` wrote."""
        return cls(np.load(folder / "positives.npy"), np.load(folder / "negatives.npy"))
