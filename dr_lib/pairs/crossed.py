"""Batches of a cross-encoder's training: each query with its positive and its hard negatives, pair by pair.

SimLM section 3.2 (the re-ranker). The queries of a step and their passages are drawn as for the dual encoder.
Book: ideas/distillation.
"""

import numpy as np

from dr_lib.pairs.batches import RetrievalBatches
from dr_lib.pairs.examples import Examples
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.crossed import Crossing


class CrossedBatches:
    """Training batches by step number.

    Args:
        crossing: queries and passages, and how a pair is laid out.
        examples: positives and negatives; its rows are rows of the two stores.
        batch_queries: queries a batch (`B`).
        passages_per_query: one positive and this many less one negatives (`n`, SimLM: 64).
        seed: of the order of queries and of the choice of positives and negatives.

    Raises:
        InputError: fewer queries than a batch takes, or rows that the stores do not have.
    """

    def __init__(
        self,
        crossing: Crossing,
        examples: Examples,
        *,
        batch_queries: int,
        passages_per_query: int = 64,
        seed: int = 0,
    ):
        self.crossing, self.examples, self.passages_per_query = crossing, examples, passages_per_query
        self._draws = RetrievalBatches(
            crossing.queries, crossing.passages, examples, batch_queries=batch_queries,
            passages_per_query=passages_per_query, seed=seed,
        )  # fmt: skip

    def batch(self, step: int) -> TokenBatch:
        """`B * n` pairs of micro-step `step`: pair i * n is query i with its positive, its n - 1 negatives follow."""
        chosen, rows = self._draws.drawn(step)
        asked = np.repeat(self.examples.query_rows[chosen], self.passages_per_query)
        return self.crossing.batch(asked, rows)
