"""Batches of fine-tuning: queries, each with one positive and its hard negatives, apart or pair by pair.

SimLM section 3.2 and its loader (reference code: unilm, simlm/src/loaders): a fixed number of queries a batch, one
positive a query and epoch, a window of negatives that moves on with the epoch. Any step can be asked for at any time.
Book: ideas/negatives, ideas/distillation.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.losses import gather, steps_together
from dr_lib.tokens import QueryPassagePairs, Side, TokenBatch, TokenStore
from dr_lib.training.examples import Examples, TeacherScores, draw_negatives, draw_positives, known_positives


@dataclass(frozen=True)
class RetrievalBatch:
    """Queries and their passages: query i's positive is row i * n of `passages`, its n - 1 negatives follow.

    All tensors are on one device.

    Attributes:
        queries: `B` sequences.
        passages: `B * n` sequences.
        passage_rows: `[B * n]` int64, rows of the passages in their token store, or other numbers that are equal where
            one passage is as right as the other (body first selection: documents).
        known_positives: `[B, W * B * n]` bool, True where the passage of that column is any known positive of the
            query, the query's own positive column excepted; columns of the batches of all W processes of this step,
            those of process 0 first. None where `passage_rows` tell all.
    """

    queries: TokenBatch
    passages: TokenBatch
    passage_rows: Tensor
    known_positives: Tensor | None = None
    teacher_scores: Tensor | None = None

    def to(self, device: torch.device | str) -> "RetrievalBatch":
        """The same batch on another device."""
        return RetrievalBatch(
            self.queries.to(device),
            self.passages.to(device),
            self.passage_rows.to(device, non_blocking=True),
            None if self.known_positives is None else self.known_positives.to(device, non_blocking=True),
            None if self.teacher_scores is None else self.teacher_scores.to(device, non_blocking=True),
        )

    def __len__(self) -> int:
        return len(self.queries)


class RetrievalBatches:
    """Fine-tuning batches by step number.

    Args:
        query_store: tokens of the queries.
        passage_store: tokens of the passages.
        examples: positives and negatives; its rows are rows of the two stores.
        batch_queries: queries a batch (`B`); the queries that do not fill one are left out of that epoch.
        passages_per_query: one positive and this many less one negatives (`n`, SimLM: 16).
        query_length, passage_length: longest sequences, special tokens included (SimLM: 32 and 144).
        title: how a passage is packed, as in `TokenStore.batch`.
        seed: of the order of queries and of the choice of positives and negatives.
        pad_to_multiple: padded lengths are multiples of this, for few distinct shapes.
        teacher: scores of the examples by a re-ranker, for distillation.
        query_side: the end that a long query loses; "left" keeps the last turns of a dialogue.

    Raises:
        InputError: fewer queries than a batch takes, or rows that the stores do not have.
    """

    def __init__(
        self,
        query_store: TokenStore,
        passage_store: TokenStore,
        examples: Examples,
        *,
        batch_queries: int,
        passages_per_query: int = 16,
        query_length: int = 32,
        passage_length: int = 144,
        title: Literal["pair", "joined", "none"] = "pair",
        seed: int = 0,
        pad_to_multiple: int = 16,
        teacher: TeacherScores | None = None,
        query_side: Side = "right",
    ):
        _check_sizes(len(query_store), len(passage_store), examples, batch_queries, passages_per_query)
        self.query_store, self.passage_store = query_store, passage_store
        self.examples, self.teacher = examples, teacher
        self.batch_queries, self.passages_per_query, self.seed = batch_queries, passages_per_query, seed
        self._query_shape = {"max_length": query_length, "title": "none", "pad_to_multiple": 8, "side": query_side}
        self._passage_shape = {"max_length": passage_length, "title": title, "pad_to_multiple": pad_to_multiple}
        self._order = lru_cache(maxsize=2)(self._shuffled)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches that the queries give."""
        return len(self.examples) // self.batch_queries

    def batch(self, step: int) -> RetrievalBatch:
        """The batch of micro-step `step`, counted from 0 through all epochs; the same number, the same batch."""
        chosen, rows = self.drawn(step)
        together = steps_together(step)
        columns = np.concatenate([rows if other == step else self.drawn(other)[1] for other in together])
        known = known_positives(
            self.examples, chosen, columns, passages_per_query=self.passages_per_query,
            first=together.index(step) * len(rows),
        )  # fmt: skip
        return RetrievalBatch(
            self.query_store.batch(self.examples.query_rows[chosen], **self._query_shape),
            self.passage_store.batch(rows, **self._passage_shape),
            torch.from_numpy(rows),
            torch.from_numpy(known),
            None if self.teacher is None else self._taught(chosen, rows),
        )

    def drawn(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Queries of a step as numbers in the examples `[B]`, and the rows `[B * n]` of their passages."""
        epoch, within = divmod(step, self.steps_per_epoch)
        chosen = self._order(epoch)[within * self.batch_queries :][: self.batch_queries]
        return chosen, self.passage_rows(chosen, epoch)

    def _taught(self, chosen: np.ndarray, rows: np.ndarray) -> Tensor:
        own = rows.reshape(len(chosen), -1)
        return torch.from_numpy(self.teacher.of(self.examples, chosen, own))

    def passage_rows(self, chosen: np.ndarray, epoch: int) -> np.ndarray:
        """Rows `[len(chosen) * n]` int64 of the passages that these queries get in an epoch, each positive first."""
        positives = draw_positives(self.examples, chosen, seed=self.seed, epoch=epoch)
        wanted = self.passages_per_query - 1
        negatives = draw_negatives(self.examples, chosen, wanted, seed=self.seed, epoch=epoch)
        return np.concatenate([positives[:, None], negatives], axis=1).reshape(-1)

    def _shuffled(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, epoch]).permutation(len(self.examples))


def _check_sizes(queries: int, passages: int, examples: Examples, batch_queries: int, passages_per_query: int) -> None:
    for name, value in {"batch_queries": batch_queries, "passages_per_query": passages_per_query}.items():
        if value < 1:
            raise InputError(f"{value} is less than 1", where=name, fix="Give 1 or more.")
    if len(examples) < batch_queries:
        raise InputError(
            f"{len(examples)} training queries do not fill a batch of {batch_queries}",
            where="batch_queries",
            fix="Take a smaller batch or more training queries.",
        )
    if examples.query_rows.min() < 0 or examples.query_rows.max() >= queries:
        raise InputError("row outside the query store", where="query_rows", fix=f"The store has {queries} rows.")
    if examples.passages != passages:
        raise InputError(
            f"examples speak of {examples.passages} passages, the store has {passages}",
            where="passages",
            fix="Make the examples and the store from the same collection.",
        )


class PairBatches:
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
        crossing: QueryPassagePairs,
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


def gather_batch(batch: RetrievalBatch, queries: Tensor, passages: Tensor) -> dict[str, Tensor | None]:
    """Arguments of `losses.contrastive`, `losses.pair` and `losses.in_batch_accuracy`, the same in every process.

    Args:
        batch: this process's own.
        queries: `[B, hidden]` its vectors, any float type: scores need more than the eight bits of bf16.
        passages: `[B * n, hidden]`.

    Returns:
        ``queries`` `[W * B, hidden]` and ``passages`` `[W * B * n, hidden]` of all W processes, float32, with gradient;
        ``passage_ids`` `[W * B * n]` and ``known_positives`` `[W * B, W * B * n]` or None.
    """
    known = batch.known_positives
    return {
        "queries": gather(queries.float()),
        "passages": gather(passages.float()),
        "passage_ids": gather(batch.passage_rows),
        "known_positives": None if known is None else gather(known),
    }
