"""A passage cut in two where its pieces are halved: MASTER's stand-in for two neighbouring passages.

MASTER's released code (section 4.2 of the paper takes real neighbours). Page: ideas/bottleneck.
"""

import torch
from torch import Tensor

from dr_lib.tokens.batch import TokenBatch


def halves(batch: TokenBatch, pad_id: int, *, pad_to_multiple: int = 8) -> tuple[TokenBatch, TokenBatch]:
    """The first floor(n / 2) pieces of each sequence and the rest, each as [CLS] pieces [SEP], token types 0.

    A separator between title and body is left out; a word may be cut, and its second part then begins with what counts
    as the start of a word. Of a single piece the first half is empty.

    Args:
        batch: sequences; `values`, if any, go along.
        pad_id: id of [PAD].
        pad_to_multiple: the padded length is a multiple of this, but never more than that of `batch`.

    Returns:
        Two batches of one padded length and the rows of `batch`.

    Example:
        >>> ids = torch.tensor([[2, 11, 12, 13, 3]])
        >>> ones, special = torch.ones_like(ids), ids < 5
        >>> one = TokenBatch(ids, ones, ones - 1, special, word_start=~special, rows=torch.arange(1))
        >>> [half.input_ids.tolist() for half in halves(one, 0, pad_to_multiple=4)]
        [[[2, 11, 3, 0]], [[2, 12, 13, 3]]]
    """
    count = (~batch.special).sum(1)
    longest = int((count - count // 2).max()) + 2
    length = min(-(-longest // pad_to_multiple) * pad_to_multiple, max(longest, batch.input_ids.shape[1]))
    pieces = torch.argsort(batch.special.to(torch.int8), dim=1, stable=True)
    first = _part(batch, pieces, torch.zeros_like(count), count // 2, length, pad_id)
    return first, _part(batch, pieces, count // 2, count - count // 2, length, pad_id)


def _part(batch: TokenBatch, pieces: Tensor, begin: Tensor, count: Tensor, length: int, pad_id: int) -> TokenBatch:
    """Some pieces of each sequence in a new one; `pieces` `[batch, length]` are their columns, in order."""
    place = torch.arange(length, device=count.device)[None, :]
    inside = (place > 0) & (place <= count[:, None])
    real = place < count[:, None] + 2
    source = pieces.gather(1, (begin[:, None] + place - 1).clamp(0, pieces.shape[1] - 1))
    closing = batch.input_ids.gather(1, (batch.attention_mask.sum(1) - 1)[:, None])
    ids = torch.where(real, closing, pad_id)
    ids = torch.where(inside, batch.input_ids.gather(1, source), ids)
    ids[:, 0] = batch.input_ids[:, 0]
    starts = batch.word_start.gather(1, source) | (place == 1)
    values = None if batch.values is None else batch.values.gather(1, source).where(inside, 0.0)
    return TokenBatch(ids, real.long(), torch.zeros_like(ids), ~inside, starts & inside, batch.rows, values)
