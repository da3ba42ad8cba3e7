"""What the losses over a batch of queries and their passages share: sizes that fit, unit vectors, who is relevant."""

import torch
from torch import Tensor

from dr_lib.errors import InputError


def checked_sizes(
    loss: str,
    queries: Tensor,
    passages: Tensor,
    temperature: float,
    passage_ids: Tensor | None,
    known_positives: Tensor | None,
) -> int:
    """Passages per query; `InputError` naming `loss` where shapes do not fit or the temperature is not above 0."""
    if not temperature > 0:
        raise InputError(f"{temperature} is not above 0", where="temperature", fix="SimLM uses 0.02; PAIR and DPR 1.")
    batch, count = len(queries), len(passages)
    fits = batch and count and count % batch == 0 and queries.shape[1:] == passages.shape[1:] and queries.ndim == 2
    fits = fits and (passage_ids is None or passage_ids.shape == (count,))
    if not fits or (known_positives is not None and known_positives.shape != (batch, count)):
        given = (queries, passages, passage_ids, known_positives)
        raise InputError(
            f"shapes {[None if t is None else tuple(t.shape) for t in given]} do not fit",
            where=loss,
            fix="Give [batch, hidden], [batch * n, hidden], ids [batch * n] and known positives [batch, batch * n].",
        )
    return count // batch


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1; like `torch.nn.functional.normalize`, with fewer passes backward."""
    return vectors * torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp(min=1e-12).reciprocal()


def relevant_passages(
    batch: int, n: int, passage_ids: Tensor | None, known_positives: Tensor | None, device: torch.device
) -> Tensor:
    """`[batch, batch * n]` bool, True where a passage is the query's positive, a copy of it, or known as relevant."""
    relevant = torch.zeros(batch, batch * n, dtype=torch.bool, device=device)
    relevant[:, ::n] = torch.eye(batch, dtype=torch.bool, device=device)
    if passage_ids is not None:
        relevant |= passage_ids[::n, None] == passage_ids
    if known_positives is not None:
        relevant |= known_positives
    return relevant
