"""Validation during training without an index: dev queries against a small pool in memory (DPR-PAQ, section 3.3).

The pool holds the relevant passages of some dev queries and hard negatives of each. The paper finds that the MRR over
it goes with that of the full search, which loss and in-batch accuracy often do not. It costs seconds and is never below
the full one: it chooses checkpoints and is not reported. A rank is found by counting the scores above the best relevant
passage, so nothing is sorted. Order and rounding are those of `retrieval.search`: on the whole collection the ranks are
those of the search.

Paper and code: the released code (dpr-scale) keeps a passage that several queries bring as often as they bring it, and
its twin is then a wrong answer; it ranks the first relevant passage only. Here each passage stands once, and the first
relevant one that is found counts. Page of the book: ideas/evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dr_lib.errors import InputError
from dr_lib.tokens import Layout, TokenStore, plan_by_length
from dr_lib.training import machine

SCORE_BYTES = 1 << 28  # of float64 scores in memory together


@dataclass(frozen=True, eq=False)
class ValidationPool:
    """Queries, the passages they are compared with, and which of these are relevant.

    Attributes:
        query_rows: `[queries]` int64, rows of the query store.
        passage_rows: `[pool]` int64, rows of the passage store, ascending, each once.
        places: `[relevant ones of all queries]` int64, places in the pool.
        offsets: `[queries + 1]` int64; those of query i are `places[offsets[i]:offsets[i + 1]]`, at least one.

    Example:
        >>> pool = ValidationPool.of([0, 3], positives=[[7], [2, 9]], negatives=np.array([[2, 5], [8, -1]]))
        >>> pool.passage_rows.tolist(), pool.places.tolist(), pool.offsets.tolist()
        ([2, 5, 7, 8, 9], [2, 0, 4], [0, 1, 3])
    """

    query_rows: np.ndarray
    passage_rows: np.ndarray
    places: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(
        cls, query_rows: Sequence[int] | np.ndarray, positives: Sequence[Sequence[int] | np.ndarray], negatives: np.ndarray
    ) -> "ValidationPool":
        """Collect the passages of some queries; whatever is relevant to one is a negative of the others.

        Args:
            query_rows: rows of the query store, a few hundred.
            positives: rows of the relevant passages of each, at least one.
            negatives: `[queries, depth]`, rows of hard negatives, best first, -1 for none. For a pool that is a whole
                collection: one line of all its rows.

        Raises:
            InputError: no query, one without a relevant passage, or lists of different lengths.
        """
        counts = [len(rows) for rows in positives]
        if not counts or min(counts) < 1 or len(counts) != len(query_rows):
            problem = f"{len(query_rows)} queries, relevant passages for {sum(map(bool, counts))} of {len(counts)}"
            raise InputError(problem, where="validation pool", fix="Give each query at least one relevant passage.")
        relevant = np.concatenate([np.asarray(rows, np.int64) for rows in positives])
        others = np.asarray(negatives, np.int64).ravel()
        rows = np.unique(np.concatenate([relevant, others[others >= 0]]))
        offsets = np.cumsum([0, *counts])
        return cls(np.asarray(query_rows, np.int64), rows, np.searchsorted(rows, relevant), offsets)

    def __len__(self) -> int:
        return len(self.passage_rows)


@torch.inference_mode()
def pool_ranks(queries: Tensor, passages: Tensor, pool: ValidationPool) -> np.ndarray:
    """Rank of the first relevant passage in the pool, from 1: score descending, then row ascending.

    Scores are inner products in float64 rounded to float32, some queries at a time.

    Args:
        queries: `[queries, hidden]`, in the pool's order.
        passages: `[pool, hidden]`, likewise, on the same device.
        pool: who is relevant to whom.

    Returns:
        `[queries]` int64.
    """
    if queries.device.type == "mps":  # Apple's GPUs lack float64
        queries, passages = queries.cpu(), passages.cpu()
    wide, at_once = passages.double(), max(1, SCORE_BYTES // (8 * len(passages)))
    scores = (line for part in queries.split(at_once) for line in (part.double() @ wide.T).float())
    ranks = []
    for line, own in zip(scores, np.split(pool.places, pool.offsets[1:-1]), strict=True):
        of_own = line[torch.from_numpy(own).to(line.device)]
        best = of_own.max()
        first = own[(of_own == best).cpu().numpy()].min()
        ranks.append(1 + (line > best).sum() + (line[:first] == best).sum())
    return torch.stack(ranks).cpu().numpy()


@torch.inference_mode()
def pool_mrr(
    pool: ValidationPool,
    query_store: TokenStore,
    passage_store: TokenStore,
    encoder: nn.Module,
    passage_encoder: nn.Module | None = None,
    *,
    layout: Layout,
    normalise: bool = True,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
) -> np.ndarray:
    """Encode a pool at any step of a training, which is not disturbed, and score it.

    Args:
        pool: queries and passages.
        query_store, passage_store: where their tokens are.
        encoder: `encoder(batch)` -> `[batch, hidden]`; of queries, and of passages that have none of their own.
        passage_encoder: a second encoder, for passages.
        layout: how queries and passages become sequences.
        normalise: compare by cosine in place of the inner product.
        precision: of the forward pass.

    Returns:
        MRR of each query, `[queries]` float64.
    """
    queries = _encode(encoder, query_store, pool.query_rows, layout.queries, precision)
    passages = _encode(passage_encoder or encoder, passage_store, pool.passage_rows, layout.passages, precision)
    if normalise:
        queries, passages = nn.functional.normalize(queries, dim=1), nn.functional.normalize(passages, dim=1)
    return 1 / pool_ranks(queries, passages, pool)


def _encode(encoder: nn.Module, store: TokenStore, rows: np.ndarray, layout: dict[str, Any], precision: str) -> Tensor:
    """Vectors `[rows, hidden]` float32 of some rows of a store; every module is left in the mode that it was in."""
    device = next(encoder.parameters()).device
    # Sorted by length a batch holds hardly any padding; in the end the vectors go back to their rows' order.
    plan = plan_by_length(store.lengths(**layout)[rows], machine.encoding_budget(), layout["max_length"])
    with machine.evaluating(encoder, machine.precision(precision, device)) as forward:
        vectors = [forward(store.batch(rows[part], **layout).to(device)).float() for part in plan]
    return torch.cat(vectors)[torch.from_numpy(np.argsort(np.concatenate(plan))).to(device)]
