"""Batches of fine-tuning: queries, each with one positive and its hard negatives, apart or pair by
pair.

SimLM section 3.2 and its loader (reference code: unilm, simlm/src/loaders): a fixed number of
queries per batch, one positive per query and epoch, a window of negatives that moves on with the
epoch. Any step can be requested at any time. Book: ideas/negatives, ideas/distillation.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from dr_lib.errors import InputError
from dr_lib.losses import gather, world_size
from dr_lib.tokens import COARSE, Layout, QueryPassagePairs, TokenBatch, TokenStore
from dr_lib.training.examples import (
    Examples,
    Positive,
    TeacherScores,
    draw_negatives,
    draw_positives,
    known_positives,
)


@dataclass(frozen=True)
class RetrievalBatch:
    """Queries and their passages: query i's positive is row i * n of `passages`, its n - 1
    negatives follow.

    All tensors are on one device. With several processes each has its own part, `B` queries, of
    the step's batch.

    Attributes:
        queries: `B` sequences.
        passages: `B * n` sequences.
        passage_rows: `[B * n]` int64, rows of the passages in their token store, or other numbers
            that are equal where one passage is as right as the other (body first selection:
            documents).
        known_positives: `[B, W * B * n]` bool, True where the passage of that column is any known
            positive of the query, the query's own positive column excepted; columns of the whole
            batch, of all W processes. None where `passage_rows` tell all.
        teacher_scores: `[B, n]` float32, NaN where the teacher has not read a pair; None without a
            teacher.
    """

    queries: TokenBatch
    passages: TokenBatch
    passage_rows: Tensor
    known_positives: Tensor | None = None
    teacher_scores: Tensor | None = None

    def __len__(self) -> int:
        return len(self.queries)


class EpochSampler:
    """Step -> what to visit of some items: each once an epoch, those too few for a batch left out
    of it.

    Batches are of equal size: what contrastive training compares must not depend on the texts'
    lengths. With several processes each takes an equal part of every batch.

    Args:
        items: `[n]` integers, their numbers.
        batch_size: how many a step, at most n.
        seed: of the order.
        shared: False gives each process the whole of every batch.

    Example:
        >>> sampler = EpochSampler(np.array([4, 5, 6]), batch_size=2, seed=0)
        >>> epoch, chosen = sampler.of(1)
        >>> epoch, len(set(chosen))
        (1, 2)
    """

    def __init__(self, items: np.ndarray, batch_size: int, seed: int, *, shared: bool = True):
        self.items, self.batch_size, self.seed, self.shared = items, batch_size, seed, shared
        self.steps_per_epoch = len(items) // batch_size
        # Two orders are kept: that of an epoch and, at its end, of the next one, whose batches are
        # made ahead.
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def of(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch of a step, and the items that this process visits in it."""
        epoch, items = self.whole(step)
        return epoch, items[self.own_part]

    @property
    def own_part(self) -> slice:
        """Which items of each step are this process's: all where it is alone.

        Raises:
            InputError: the processes cannot share a batch evenly.
        """
        if not self.shared:
            return slice(0, self.batch_size)
        count, beyond = divmod(self.batch_size, world_size())
        if beyond:
            problem = f"{world_size()} processes cannot share a batch of {self.batch_size} evenly"
            raise InputError(
                problem,
                where="DR_PROCESSES",
                fix="Change the number of processes, or the size of a batch.",
            )
        first = count * (distributed.get_rank() if world_size() > 1 else 0)
        return slice(first, first + count)

    def whole(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch of a step, and the items `[batch_size]` that all processes visit in it."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch, self._order(epoch)[within * self.batch_size :][: self.batch_size]

    def _shuffled(self, epoch: int) -> np.ndarray:
        # An order of the epoch's number alone: a run that goes on at any step needs nothing of the
        # steps before.
        return np.random.default_rng([self.seed, epoch]).permutation(self.items)


class RetrievalBatches:
    """Fine-tuning batches by step number.

    Args:
        query_store: tokens of the queries.
        passage_store: tokens of the passages.
        examples: positives and negatives; its rows are rows of the two stores.
        batch_queries: queries per batch, of all processes; the queries that do not fill one are
            left out of that epoch.
        passages_per_query: one positive and this many less one negatives (`n`, SimLM: 16).
        layout: how queries and passages become sequences.
        seed: of the order of queries and of the choice of positives and negatives.
        positive: which positive a query trains with, see `draw_positives`.
        teacher: scores of the examples by a re-ranker, for distillation.
        shared: whether several processes have a part of every batch each, or whole ones.

    Raises:
        InputError: fewer queries than a batch takes.
    """

    def __init__(
        self,
        query_store: TokenStore,
        passage_store: TokenStore,
        examples: Examples,
        *,
        batch_queries: int,
        passages_per_query: int = 16,
        layout: Layout | None = None,
        seed: int = 0,
        positive: Positive = "rotate",
        teacher: TeacherScores | None = None,
        shared: bool = True,
    ):
        if len(examples) < batch_queries:
            problem = f"{len(examples)} training queries do not fill a batch of {batch_queries}"
            fix = "Take a smaller batch or more training queries."
            raise InputError(problem, where="batch_queries", fix=fix)
        self.query_store, self.passage_store = query_store, passage_store
        self.examples, self.teacher, self.positive = examples, teacher, positive
        self.passages_per_query = passages_per_query
        self.seed = seed
        self.layout = layout or Layout()
        self.sampler = EpochSampler(np.arange(len(examples)), batch_queries, seed, shared=shared)

    def batch(self, step: int) -> RetrievalBatch:
        """The batch of micro-step `step`, counted from 0 through all epochs; the same number, the
        same batch.
        """
        # A process compares its queries with the passages of all processes, so it has to know what
        # these are.
        (every, columns), n, part = self.drawn(step), self.passages_per_query, self.sampler.own_part
        chosen, rows = every[part], columns[part.start * n : part.stop * n]
        known = known_positives(
            self.examples, chosen, columns, passages_per_query=n, first=part.start * n
        )
        scores = (
            None
            if self.teacher is None
            else self.teacher.of(self.examples, chosen, rows.reshape(-1, n))
        )
        return RetrievalBatch(
            self.query_store.batch(self.examples.query_rows[chosen], **self.layout.queries),
            self.passage_store.batch(rows, **self.layout.passages, pad_to_multiple=COARSE),
            torch.from_numpy(rows),
            torch.from_numpy(known),
            None if scores is None else torch.from_numpy(scores),
        )

    def drawn(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Queries of a step as numbers in the examples, and the rows of their passages: of all
        processes together.
        """
        epoch, chosen = self.sampler.whole(step)
        return chosen, self.passage_rows(chosen, epoch)

    def passage_rows(self, chosen: np.ndarray, epoch: int) -> np.ndarray:
        """Rows `[len(chosen) * n]` int64 of the passages that these queries get in an epoch, each
        positive first.
        """
        draw = {"seed": self.seed, "epoch": epoch}
        positives = draw_positives(self.examples, chosen, rule=self.positive, **draw)
        negatives = draw_negatives(self.examples, chosen, self.passages_per_query - 1, **draw)
        return np.concatenate([positives[:, None], negatives], axis=1).reshape(-1)


class PairBatches(RetrievalBatches):
    """Batches of a cross-encoder's training by step number: each query with its positive and
    negatives, pair by pair.

    The queries of a step and their passages are drawn as for the dual encoder.

    Args:
        pairs: queries and passages, and how a pair is laid out.
        examples: positives and negatives; its rows are rows of the two stores.
        options: further arguments of `RetrievalBatches`; of `passages_per_query`, SimLM has 64.

    Raises:
        InputError: fewer queries than a batch takes.
    """

    def __init__(self, pairs: QueryPassagePairs, examples: Examples, **options: Any):
        super().__init__(pairs.queries, pairs.passages, examples, **options)
        self.pairs = pairs

    def batch(self, step: int) -> TokenBatch:
        """`B * n` pairs of micro-step `step`: pair i * n is query i with its positive, its n - 1
        negatives follow.
        """
        (every, rows), n, part = self.drawn(step), self.passages_per_query, self.sampler.own_part
        return self.pairs.batch(
            np.repeat(self.examples.query_rows[every[part]], n),
            rows[part.start * n : part.stop * n],
        )


def gather_batch(
    batch: RetrievalBatch, queries: Tensor, passages: Tensor
) -> dict[str, Tensor | None]:
    """What a contrastive loss compares: the vectors of a batch, and beside them those of all other
    processes.

    Args:
        batch: this process's own.
        queries: `[B, hidden]` its vectors, any float type: scores need more than the eight bits of
            bf16.
        passages: `[B * n, hidden]`.

    Returns:
        Arguments of `losses.contrastive_and_accuracy` and `losses.passage_centric`, the same in
        every process; ``queries`` `[W * B, hidden]` and ``passages`` `[W * B * n, hidden]` of all W
        processes, float32, with gradient; ``passage_ids`` `[W * B * n]` and ``known_positives`` `[W
        * B, W * B * n]` or None.
    """
    known = batch.known_positives
    return {
        "queries": gather(queries.float()),
        "passages": gather(passages.float()),
        "passage_ids": gather(batch.passage_rows),
        "known_positives": None if known is None else gather(known),
    }
