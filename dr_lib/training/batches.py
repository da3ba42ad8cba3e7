"""Fine-tuning batches: queries, each with one positive and hard negatives, as separate texts or as
pairs.

SimLM section 3.2 and its loader (reference code: unilm, simlm/src/loaders): a fixed number of
queries per batch, one positive per query and epoch, and a window of negatives that advances with
the epoch. Batches can be requested in any order. Book: ideas/negatives, ideas/distillation.
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
        passage_rows: `[B * n]` int64, rows of the passages in their token store, or other ids that
            are equal for passages that are equally relevant (body first selection: documents).
        known_positives: `[B, W * B * n]` bool, True where the passage of that column is a known
            positive of the query, except the query's own positive column; columns of all W
            processes. None if `passage_rows` suffice.
        teacher_scores: `[B, n]` float32, NaN where the teacher has not scored a pair; None without
            a teacher.
    """

    queries: TokenBatch
    passages: TokenBatch
    passage_rows: Tensor
    known_positives: Tensor | None = None
    teacher_scores: Tensor | None = None

    def __len__(self) -> int:
        return len(self.queries)


class EpochSampler:
    """Step -> a batch of items: each item at most once per epoch, an incomplete last batch dropped.

    All batches have the same size, since in contrastive training it decides the loss. With several
    processes each takes an equal part of every batch.

    Args:
        items: `[n]` integers.
        batch_size: items per step, over all processes, at most n.
        seed: of the order.
        shared: False gives each process whole batches.

    Example:
        >>> sampler = EpochSampler(np.array([4, 5, 6]), batch_size=2, seed=0)
        >>> epoch, chosen = sampler.of(1)
        >>> epoch, len(set(chosen))
        (1, 2)
    """

    def __init__(self, items: np.ndarray, batch_size: int, seed: int, *, shared: bool = True):
        self.items, self.batch_size, self.seed, self.shared = items, batch_size, seed, shared
        self.steps_per_epoch = len(items) // batch_size
        # Two permutations are kept: this epoch's, and the next one's, whose first batches are made
        # ahead.
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def of(self, step: int) -> tuple[int, np.ndarray]:
        """Epoch of a step, and this process's items."""
        epoch, items = self.whole(step)
        return epoch, items[self.own_part]

    @property
    def own_part(self) -> slice:
        """This process's part of each batch; all of it if it is alone.

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
        """Epoch of a step, and the items `[batch_size]` of all processes."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch, self._order(epoch)[within * self.batch_size :][: self.batch_size]

    def _shuffled(self, epoch: int) -> np.ndarray:
        # A function of the epoch alone: a run can be resumed at any step.
        return np.random.default_rng([self.seed, epoch]).permutation(self.items)


class RetrievalBatches:
    """Fine-tuning batches by step number.

    Args:
        query_store: tokens of the queries.
        passage_store: tokens of the passages.
        examples: positives and negatives, as rows of the two stores.
        batch_queries: queries per batch over all processes; an incomplete last batch is dropped.
        passages_per_query: one positive and n - 1 negatives (`n`, SimLM: 16).
        layout: how queries and passages become sequences.
        seed: of the order of queries and the draw of positives and negatives.
        positive: which positive a query gets, see `draw_positives`.
        teacher: a re-ranker's scores of the examples, for distillation.
        shared: whether processes share every batch, or get whole ones.

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
        """The batch of micro-step `step`, counted from 0 over all epochs; the same step always
        gives the same batch.
        """
        # A process compares its queries with the passages of all processes, so it needs their rows.
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
        """Queries of a step, as indices into the examples, and the rows of their passages, over all
        processes.
        """
        epoch, chosen = self.sampler.whole(step)
        return chosen, self.passage_rows(chosen, epoch)

    def passage_rows(self, chosen: np.ndarray, epoch: int) -> np.ndarray:
        """Rows `[len(chosen) * n]` int64 of these queries' passages in an epoch, each positive
        first.
        """
        draw = {"seed": self.seed, "epoch": epoch}
        positives = draw_positives(self.examples, chosen, rule=self.positive, **draw)
        negatives = draw_negatives(self.examples, chosen, self.passages_per_query - 1, **draw)
        return np.concatenate([positives[:, None], negatives], axis=1).reshape(-1)


class PairBatches(RetrievalBatches):
    """Cross-encoder batches by step number: each query paired with its positive and negatives.

    Queries and passages are drawn as for the dual encoder.

    Args:
        pairs: queries and passages, and how a pair is laid out.
        examples: positives and negatives, as rows of the two stores.
        options: further arguments of `RetrievalBatches`; of `passages_per_query`, SimLM has 64.

    Raises:
        InputError: fewer queries than a batch takes.
    """

    def __init__(self, pairs: QueryPassagePairs, examples: Examples, **options: Any):
        super().__init__(pairs.queries, pairs.passages, examples, **options)
        self.pairs = pairs

    def batch(self, step: int) -> TokenBatch:
        """`B * n` pairs of micro-step `step`: pair i * n is query i with its positive; its n - 1
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
    """What a contrastive loss compares: the vectors of the batch over all processes.

    Args:
        batch: this process's own.
        queries: `[B, hidden]` vectors of any float type; converted, since scores need more than the
            eight bits of bf16.
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
