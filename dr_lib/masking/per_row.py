"""RetroMAE's masks for enhanced decoding: each position predicts its token from its own sample of the others.

One `[length, length]` mask a passage. Page: ideas/masking.
"""

import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.masking.budget import Budget, piece_budget
from dr_lib.masking.rounds import go_round, never_seen
from dr_lib.masking.words import random_keys, take_words, words_of
from dr_lib.tokens import TokenBatch


def per_row(
    batch: TokenBatch,
    rate: float,
    generator: torch.Generator,
    *,
    budget: Budget = "maskable",
    draws: int | None = None,
) -> Tensor:
    """Draw a whole-word mask for each row of the decoder's attention (RetroMAE, enhanced decoding).

    Args:
        batch: passages; only `special`, `word_start` and `attention_mask` are read.
        rate: share of pieces that a row may not see, in [0, 1].
        generator: on the batch's device; the same state gives the same masks.
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"` (the released code).
        draws: None shuffles the words of a passage once, and each row starts at a word of its own and goes round; each
            row by itself is a whole-word draw, and about as many of them differ as there are words. A number makes
            that many independent draws a passage, at most one a position, of which each row picks one (the released
            code: 256); it costs many times as much on a CPU.

    Returns:
        `[batch, length, length]` bool, True where row i may not see column j: the hidden pieces, itself, and padding.
        [CLS] and [SEP] are seen by every row but their own.

    Raises:
        InputError: the rate is outside [0, 1], `budget` is unknown, or `draws` is below 1.

    Example:
        >>> import torch
        >>> from dr_lib.masking import per_row
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> per_row(batch, 0.0, torch.Generator())[0].long().tolist()
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    limit = piece_budget(batch, rate, budget)
    if draws is not None and draws < 1:
        raise InputError(f"{draws} draws", where="draws", fix="Give 1 or more, or None.")
    length = batch.special.shape[1]
    if rate == 0:
        nothing = torch.zeros_like(batch.special)[:, None].repeat(1, length, 1)
        return never_seen(nothing, batch.attention_mask == 0)
    if draws is None:
        return go_round(batch, limit, generator)
    return never_seen(_pick_draws(batch, limit, generator, min(draws, length)), batch.attention_mask == 0)


def _pick_draws(batch: TokenBatch, limit: Tensor, generator: torch.Generator, draws: int) -> Tensor:
    """`draws` masks a passage, and for each row one of them."""
    rows, length = batch.special.shape
    words, special = (t.repeat_interleave(draws, 0) for t in (words_of(batch), batch.special))
    masks = take_words(random_keys(special, generator, words), limit.repeat_interleave(draws))
    picks = torch.randint(draws, (rows, length), generator=generator, device=special.device)
    picks += draws * torch.arange(rows, device=special.device)[:, None]
    return masks[picks]
