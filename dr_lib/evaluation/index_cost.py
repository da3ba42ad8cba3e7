"""The cost of an index: bytes on disk or in memory, and the stages of a search (SimLM, Table 3).

One vector per passage is `passages * hidden * bytes of a number`: 27 GB for MS MARCO's 8.8 million passages and 768
numbers of float32, as the paper prints it. One vector per token, as ColBERT keeps them, is `tokens * hidden * bytes of a
number`, and the search has two stages. Nothing is compressed, as in the paper. Page of the book: ideas/evaluation.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dr_lib.retrieval import open_array

ONE_STAGE = ("nearest passages by inner product",)
TWO_STAGES = ("passages that hold a token near one of the query's", "sum of best token matches for each of these")


@dataclass(frozen=True)
class IndexCost:
    """Size of an index and how it is searched.

    Attributes:
        vectors: number of vectors.
        hidden: numbers per vector.
        dtype: type of a number.
        stages: what a search does, step by step.

    Example:
        >>> IndexCost.single_vector(8_841_823, 768, "float32").gigabytes
        27.2
    """

    vectors: int
    hidden: int
    dtype: str
    stages: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Size of the vectors alone, without ids and file headers."""
        return self.vectors * self.hidden * np.dtype(self.dtype).itemsize

    @property
    def gigabytes(self) -> float:
        """Size in units of 10^9 bytes, to one decimal."""
        return round(self.bytes / 1e9, 1)

    @classmethod
    def single_vector(cls, passages: int, hidden: int, dtype: str = "float32") -> "IndexCost":
        """One vector per passage, searched exactly in one stage."""
        return cls(passages, hidden, dtype, ONE_STAGE)

    @classmethod
    def of_file(cls, path: Path) -> "IndexCost":
        """The same for vectors on disk: a `.npy` file `[passages, hidden]`; only its header is read.

        Raises:
            InputError: not a whole `.npy` file.
        """
        array = open_array(Path(path))
        return cls.single_vector(*array.shape, dtype=array.dtype.name)

    @classmethod
    def multi_vector(
        cls, token_counts: np.ndarray | int, hidden: int = 128, dtype: str = "float16", *, most: int | None = None
    ) -> "IndexCost":
        """One vector per token, as ColBERT (128 numbers of 16 bits) would keep the same collection.

        Args:
            token_counts: `[passages]` whole numbers, such as `TokenStore.lengths` gives them, or their sum.
            hidden: numbers per vector.
            dtype: type of a number.
            most: tokens kept of a passage; None for all.

        Example:
            >>> IndexCost.multi_vector(np.array([10, 200]), hidden=4, dtype="float16", most=100).bytes
            880
        """
        tokens = np.asarray(token_counts, np.int64).clip(0, most).sum()
        return cls(int(tokens), hidden, dtype, TWO_STAGES)
