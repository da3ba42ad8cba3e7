"""What fine-tuning learns from: for each query its known positives and a list of hard negatives, as plain arrays.

SimLM section 3.2 (reference code: unilm, simlm/src/loaders). Book: ideas/negatives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, read_json, write_json

OVERLAP_BLOCK = 16_384
ARRAYS = ("query_rows", "positives", "offsets", "negatives")


@dataclass(frozen=True)
class Examples:
    """Training queries with positives and negatives, all as rows of their token stores.

    Attributes:
        query_rows: `[queries]` int64, each at most once.
        positives: `[all positives]` int64, those of query i at `offsets[i]:offsets[i + 1]`, at least one each.
        offsets: `[queries + 1]` int64.
        negatives: `[queries, depth]` int32, -1 where a query has fewer.
        passages: number of passages that may be drawn.

    Raises:
        InputError: a row outside its range, a query without positive, or a positive among a query's negatives.

    Example:
        >>> examples = Examples.of([4, 9], positives=[[0], [1, 2]], negatives=[[3, 5], [6, -1]], passages=8)
        >>> len(examples), examples.offsets.tolist()
        (2, [0, 1, 3])
    """

    query_rows: np.ndarray
    positives: np.ndarray
    offsets: np.ndarray
    negatives: np.ndarray
    passages: int

    @classmethod
    def of(
        cls,
        query_rows: Sequence[int] | np.ndarray,
        positives: Sequence[Sequence[int] | np.ndarray],
        negatives: Sequence[Sequence[int]] | np.ndarray | None = None,
        *,
        passages: int,
    ) -> "Examples":
        """Make examples from one list of positives a query; without `negatives` hard ones are drawn at random."""
        counts = [len(rows) for rows in positives]
        flat = np.concatenate([np.asarray(rows, dtype=np.int64) for rows in positives] or [np.zeros(0, np.int64)])
        given = np.zeros((len(counts), 0), np.int32) if negatives is None else np.asarray(negatives, dtype=np.int32)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(np.asarray(query_rows, dtype=np.int64), flat, offsets, given, passages)

    def save(self, folder: Path) -> None:
        """Write one `.npy` file an array and `examples.json` to `folder`, in one step."""
        with fresh_folder(Path(folder)) as draft:
            for name in ARRAYS:
                np.save(draft / f"{name}.npy", getattr(self, name), allow_pickle=False)
            write_json(draft / "examples.json", {"passages": self.passages})

    @classmethod
    def open(cls, folder: Path) -> "Examples":
        """Open saved examples; the arrays stay on disk (memory-mapped).

        Raises:
            InputError: a file is missing or cut short, or the arrays do not fit each other.
        """
        folder = Path(folder)
        passages = read_json(folder / "examples.json")["passages"]
        return cls(*(_open_array(folder / f"{name}.npy") for name in ARRAYS), passages=passages)

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_ranges()
        self._check_overlap()

    def __len__(self) -> int:
        return len(self.query_rows)

    def counts(self, chosen: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Number of known positives of the chosen queries, int64."""
        return self.offsets[1:][chosen] - self.offsets[:-1][chosen]

    def places_of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where in `positives` those of the chosen queries stand, one after the other, and where each query's begin."""
        counts = self.counts(chosen)
        first = np.cumsum(counts) - counts
        return np.repeat(self.offsets[chosen] - first, counts) + np.arange(counts.sum()), first

    def positives_of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positives of the chosen queries one after the other, and where each query's own ones begin."""
        places, first = self.places_of(chosen)
        return self.positives[places], first

    def _check_shapes(self) -> None:
        queries = len(self.query_rows)
        if queries == 0:
            raise InputError("no training query", where="query_rows", fix="Give at least one query with a positive.")
        lengths = {"offsets": len(self.offsets) - 1, "negatives": len(self.negatives)}
        for name, length in lengths.items():
            if length != queries:
                raise InputError(f"{length} rows for {queries} queries", where=name, fix="Give one for each query.")
        if len(np.unique(self.query_rows)) != queries:
            raise InputError("a query appears twice", where="query_rows", fix="Join its positives into one list.")
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.positives):
            raise InputError("do not span the positives", where="offsets", fix="Begin at 0 and end at their number.")
        if (missing := self.counts() < 1).any():
            row = self.query_rows[missing.argmax()]
            raise InputError(f"query row {row} has no positive", where="positives", fix="Leave such queries out.")

    def _check_ranges(self) -> None:
        fix = f"Rows run from 0 to {self.passages - 1}."
        if self.positives.min() < 0 or self.positives.max() >= self.passages:
            raise InputError("row outside the passages", where="positives", fix=fix)
        if self.negatives.size and (self.negatives.min() < -1 or self.negatives.max() >= self.passages):
            raise InputError("row outside the passages", where="negatives", fix=f"{fix} Fill up with -1.")
        if self.counts().max() >= self.passages:
            raise InputError("a query to which every passage is positive", where="positives", fix="Leave it out.")

    def _check_overlap(self) -> None:
        owners = np.repeat(np.arange(len(self)), self.counts())
        for start in range(0, len(owners), OVERLAP_BLOCK):  # in blocks: the whole comparison would not fit in memory
            owner, own = owners[start : start + OVERLAP_BLOCK], self.positives[start : start + OVERLAP_BLOCK]
            clash = (self.negatives[owner] == own[:, None]).any(axis=1)
            if clash.any():
                row, passage = self.query_rows[owner[clash.argmax()]], own[clash.argmax()]
                raise InputError(
                    f"passage {passage} is a positive of query row {row} and one of its negatives",
                    where="negatives",
                    fix="Drop known positives when mining.",
                )


def _open_array(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"not a whole .npy file ({error})", where=path, fix="Make the examples again.") from None
