"""Random masks: of pieces, of whole words, supersets, complements, one per row; what replaces a
masked piece; and the sampling that all masks share.

SimLM, RetroMAE, Condenser and MASTER all hide a fixed number of pieces of each passage, not each
piece with a probability. They count pieces differently: `budget`. Their whole-word collators take
words in a given order: a word that would exceed the budget is skipped, later and shorter ones may
still be taken. Here this is computed for a whole batch at once, in two equivalent ways: on a CPU
with early termination, on a GPU in a fixed number of steps without synchronisation. Page:
ideas/masking.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.losses.checks import check_name, check_share
from dr_lib.tokens import TokenBatch
from dr_lib.tokens.store import widest_float

Budget = Literal["maskable", "all"]

SMALLEST_EXTRA_RATE = 1e-4
AT_ONCE = 2**18
"""Pieces that a CPU draws for at a time if each row has a mask of its own: they fit into a core's
cache.
"""


def check_rate(rate: float) -> None:
    """Refuse a rate that is not a share, such as 15 for 15 %."""
    if not 0 <= rate <= 1:
        fix = "Give a share, such as 0.15 for 15 %."
        raise InputError(f"{rate} is not between 0 and 1", where="rate", fix=fix)


def piece_budget(batch: TokenBatch, rate: float, budget: Budget = "maskable") -> Tensor:
    """Number of pieces to hide in each passage, `[batch]` int64: max(1, round(rate x pieces)),
    halves rounded to even.

    Args:
        batch: the passages.
        rate: share of the pieces, in [0, 1]; 0 gives 0, any other rate at least 1.
        budget: `"maskable"` counts the pieces that are not special (Condenser and MASTER), `"all"`
            counts [CLS] and [SEP] too (SimLM and RetroMAE, whose 30 % is 31 to 32 % of the maskable
            pieces of a passage).

    Raises:
        InputError: a rate outside [0, 1], or an unknown budget.
    """
    check_rate(rate)
    check_name("budget", budget, get_args(Budget))
    if rate == 0:
        return torch.zeros(len(batch), dtype=torch.int64, device=batch.special.device)
    counted = (
        batch.special.shape[1] - batch.special.sum(1)
        if budget == "maskable"
        else batch.attention_mask.sum(1)
    )
    if counted.device.type == "cpu":  # numpy is faster for small arrays
        return torch.from_numpy(np.maximum(np.rint(counted.numpy() * rate), 1).astype(np.int64))
    return counted.to(widest_float(counted.device)).mul_(rate).round_().clamp_(min=1).long()


def uniform(
    batch: TokenBatch, rate: float, generator: torch.Generator, *, budget: Budget = "maskable"
) -> Tensor:
    """Draw exactly `max(1, round(rate x pieces))` pieces of each passage, regardless of words.

    BERT's first masks, and those of CDMAE's encoder with `unit="piece"`.

    Args:
        batch: passages; only `special` and `attention_mask` are read.
        rate: share of pieces to hide, in [0, 1]; 0 hides nothing, 1 everything but special
            positions.
        generator: on the batch's device; the same state gives the same mask.
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"`.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones; a passage without
        pieces has none.

    Example:
        >>> import torch
        >>> from dr_lib.masking import uniform
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> uniform(batch, 0.5, torch.Generator().manual_seed(0)).sum().item()
        2
    """
    limit = piece_budget(batch, rate, budget)
    return (
        take_words(random_keys(batch.special, generator), limit)
        if rate
        else torch.zeros_like(batch.special)
    )


def whole_word(
    batch: TokenBatch, rate: float, generator: torch.Generator, *, budget: Budget = "maskable"
) -> Tensor:
    """Draw a whole-word mask per passage, as SimLM, RetroMAE, Condenser and MASTER do.

    Words are taken in random order until `max(1, round(rate x pieces))` pieces are hidden. A word
    that would exceed the budget is skipped and a later, shorter one may be taken, so the count
    never exceeds the budget, and is below it only if nothing more fits: a passage whose words are
    all longer than the budget gets an empty mask, as in the released code.

    Args:
        batch: passages; only `special`, `word_start` and `attention_mask` are read.
        rate: share of pieces to hide, in [0, 1]; 0 hides nothing.
        generator: on the batch's device; the same state gives the same mask.
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"`.

    Returns:
        `[batch, length]` bool, True at hidden pieces, never at special ones.

    Paper and code: all released code caps the budget at 512 pieces, which matters only for longer
    passages; here there is no cap.

    Example:
        >>> import torch
        >>> from dr_lib.masking import whole_word
        >>> from dr_lib.tokens import TokenBatch
        >>> special = torch.tensor([[True, False, False, False, False, True]])
        >>> starts = torch.tensor([[False, True, True, False, True, False]])
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=starts, rows=torch.arange(1))
        >>> whole_word(batch, 0.25, torch.Generator().manual_seed(0)).sum().item()
        1
    """
    limit = piece_budget(batch, rate, budget)
    if rate == 0:
        return torch.zeros_like(batch.special)
    return take_words(random_keys(batch.special, generator, words_of(batch)), limit)


def superset(
    batch: TokenBatch,
    mask: Tensor,
    rate: float,
    generator: torch.Generator,
    *,
    encoder_rate: float,
    budget: Budget = "maskable",
) -> Tensor:
    """The union of a mask with a second whole-word draw, hiding about `rate` of the pieces in total
    (SimLM, 3.1).

    The second draw is over all words, including those already hidden, at `extra_rate(encoder_rate,
    rate)`: the union contains the first mask and hides the share `rate` in expectation, not in each
    passage.

    Args:
        batch: passages.
        mask: `[batch, length]` bool, the encoder's mask.
        rate: the decoder's rate, in [0, 1].
        generator: on the batch's device.
        encoder_rate: the rate at which `mask` was drawn.
        budget: as for `whole_word`.

    Returns:
        `[batch, length]` bool that contains `mask`; `mask` itself if `rate` is not above
        `encoder_rate`, as in the released code.

    Example:
        >>> import torch
        >>> from dr_lib.masking import superset, whole_word
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 13, 14, 3]])
        >>> special, ones, zeros = ids < 5, torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> source = torch.Generator().manual_seed(0)
        >>> mask = whole_word(batch, 0.3, source)
        >>> bool((superset(batch, mask, 0.5, source, encoder_rate=0.3) >= mask).all())
        True
    """
    extra = extra_rate(encoder_rate, rate)
    return mask | whole_word(batch, extra, generator, budget=budget) if extra else mask


def nested(
    batch: TokenBatch,
    rate: float,
    decoder_rate: float,
    generator: torch.Generator,
    *,
    budget: Budget = "maskable",
) -> tuple[Tensor, Tensor]:
    """The masks of `whole_word` at `rate` and of `superset` at `decoder_rate`, drawn together,
    which on a GPU needs half as many kernels.

    Args:
        batch: passages; only `special`, `word_start` and `attention_mask` are read.
        rate, decoder_rate: of encoder and decoder, each in [0, 1].
        generator: on the batch's device.
        budget: as for `whole_word`.

    Returns:
        Both masks, `[batch, length]` bool.
    """
    extra, none = extra_rate(rate, decoder_rate), torch.zeros_like(batch.special)
    shares = [share for share in (rate, extra) if share]
    if not shares:
        return none, none
    words = words_of(batch)
    keys = [random_keys(batch.special, generator, words) for _ in shares]
    limits = [piece_budget(batch, share, budget) for share in shares]
    masks = list(take_words(torch.cat(keys), torch.cat(limits)).chunk(len(shares)))
    mask = masks[0] if rate else none
    return mask, mask | masks[-1] if extra else mask


def extra_rate(encoder_rate: float, rate: float) -> float:
    """Rate of `superset`'s second draw: `(rate - encoder_rate) / (1 - encoder_rate)`, or 0 if that
    is 1e-4 or less.

    Example:
        >>> extra_rate(0.5, 0.75), extra_rate(0.5, 0.5)
        (0.5, 0.0)
    """
    check_share("encoder_rate", encoder_rate)
    check_share("rate", rate)
    extra = (rate - encoder_rate) / (1 - encoder_rate) if encoder_rate < 1 else 0.0
    return extra if extra > SMALLEST_EXTRA_RATE else 0.0


def complementary(batch: TokenBatch, mask: Tensor) -> Tensor:
    """All maskable pieces that `mask` leaves visible (MASTER, complementary mask prediction).

    Args:
        batch: passages; only `special` is read.
        mask: `[batch, length]` bool, the encoder's mask.

    Returns:
        `[batch, length]` bool; disjoint from `mask`, and together with it all but the special
        positions.
    """
    return ~(mask | batch.special)


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
        budget: the pieces that the rate refers to, `"maskable"` ones or `"all"` (the released
            code).
        draws: None draws a mask for every row (the paper); a number draws that many masks per
            passage, at most one per position, of which each row picks one (the released code: 256).

    Returns:
        `[batch, length, length]` bool, True where row i may not see column j. A row sees neither
        its hidden pieces nor itself nor padding; [CLS] and [SEP] are seen by all other rows.

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
    limit, (rows, length) = piece_budget(batch, rate, budget), batch.special.shape
    pool = length if draws is None else min(draws, length)
    hidden = torch.zeros(rows, pool, length, dtype=torch.bool, device=batch.special.device)
    words = words_of(batch)
    step = rows if hidden.device.type != "cpu" else max(1, AT_ONCE // length**2)
    for start in range(0, rows if rate else 0, step):
        some = slice(start, start + step)
        keys = random_keys(batch.special[some], generator, words[some], pool)
        hidden[some] = take_words(keys, limit[some].repeat_interleave(pool)).view(-1, pool, length)
    if draws is not None:
        picks = torch.randint(pool, (rows, length), generator=generator, device=hidden.device)
        hidden = hidden[torch.arange(rows, device=hidden.device)[:, None], picks]
    hidden |= (batch.attention_mask == 0)[:, None]
    hidden.diagonal(dim1=1, dim2=2).fill_(True)
    return hidden


MaskPolicy = Literal["mask", "80_10_10"]


def hide(
    batch: TokenBatch,
    mask: Tensor,
    mask_id: int,
    vocab_size: int,
    generator: torch.Generator,
    policy: MaskPolicy = "mask",
    special_ids: Iterable[int] = (),
) -> Tensor:
    """Ids of the batch with the masked pieces replaced.

    Args:
        batch: clean passages.
        mask: `[batch, length]` bool, the positions to replace.
        mask_id: id of [MASK].
        vocab_size: number of pieces of the tokenizer; larger ids are never drawn.
        generator: on the batch's device; unused with `"mask"`.
        policy: `"mask"` writes [MASK] everywhere (SimLM's script); `"80_10_10"` writes [MASK] with
            probability 0.8, a random id with 0.1, and leaves the piece with 0.1 (BERT, RetroMAE,
            Condenser, MASTER, CDMAE).
        special_ids: ids that are never random replacements. The released collators draw from the
            whole vocabulary; an empty list reproduces that.

    Returns:
        `[batch, length]` int64 ids.

    Example:
        >>> import torch
        >>> from dr_lib.masking import hide
        >>> from dr_lib.tokens import TokenBatch
        >>> ids = torch.tensor([[2, 11, 12, 3]])
        >>> special = (ids == 2) | (ids == 3)
        >>> ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
        >>> batch = TokenBatch(ids, ones, zeros, special, word_start=~special, rows=torch.arange(1))
        >>> hide(batch, ids == 12, 4, 20, torch.Generator()).tolist()
        [[2, 11, 4, 3]]
    """
    check_name("policy", policy, get_args(MaskPolicy))
    ids = batch.input_ids
    if policy == "mask":
        return ids.masked_fill(mask, mask_id)
    allowed = _allowed(vocab_size, frozenset(special_ids), ids.device)
    # One number decides both: below 8 [MASK], from 8 to 9 the id at that fraction of the
    # vocabulary, above 9 no change.
    draw = torch.rand(
        ids.shape, generator=generator, device=ids.device, dtype=widest_float(ids.device)
    ).mul_(10)
    drawn = allowed.take(((draw - 8) * len(allowed)).long().clamp_(0, len(allowed) - 1))
    hidden = torch.where(draw < 8, mask_id, drawn)
    return torch.where(mask & (draw < 9), hidden, ids)


@lru_cache(maxsize=8)
def _allowed(vocab_size: int, special_ids: frozenset[int], device: torch.device) -> Tensor:
    """The ids of random replacements, int64, ascending; cached, since copying a table to a GPU
    synchronises.
    """
    return torch.tensor([id_ for id_ in range(vocab_size) if id_ not in special_ids], device=device)


# The draw -----------------------------------------------------------------------------------------

AHEAD = np.arange(6)[:, None]
"""Words that a CPU examines before it drops finished rows."""


def words_of(batch: TokenBatch) -> Tensor:
    """Word number of each piece, `[batch, length]` int64 from 1 (0 before the first word)."""
    return batch.word_start.cumsum(1)


def first_pieces(batch: TokenBatch) -> Tensor:
    """Column of the first piece of each piece's word, `[batch, length]` int64 (0 before the first
    word).
    """
    column = torch.arange(batch.word_start.shape[1], device=batch.word_start.device)
    return (column * batch.word_start).cummax(1).values


def random_keys(
    special: Tensor, generator: torch.Generator, words: Tensor | None = None, draws: int = 1
) -> Tensor:
    """Keys for `take_words` that put the words in random order.

    A key has 31 random bits: among 100 words two collide in one passage of 400,000, and are then
    taken together.

    Args:
        special: `[batch, length]` bool, True where nothing may be taken.
        generator: on the same device.
        words: `[batch, length]` int64, word number of each piece; None makes every piece a word.
        draws: orders to draw per passage.

    Returns:
        `[batch * draws, length]` int32, draws of one passage adjacent.
    """
    (rows, length), device = special.shape, special.device
    if device.type == "cpu":  # each random number of 64 bits serves two words
        random_bits = torch.empty((rows, draws, length // 2 + 1), dtype=torch.int64)
        random_bits = (
            random_bits.random_(-(2**63), None, generator=generator)
            .view(torch.int32)
            .bitwise_right_shift_(1)
        )
    else:  # Apple's GPUs draw no more than 32
        random_bits = torch.empty((rows, draws, length + 1), dtype=torch.int32, device=device)
        random_bits.random_(torch.iinfo(torch.int32).max, generator=generator)
    keys = (
        random_bits[..., :length]
        if words is None
        else random_bits.gather(2, words[:, None].expand(rows, draws, length))
    )
    return _put_last(keys, special[:, None]).reshape(rows * draws, length)


def ranked_keys(scores: Tensor, words: Tensor, special: Tensor) -> Tensor:
    """Keys for `take_words` that put the words with the highest score first, ties from the left.

    Args:
        scores: `[batch, length]` float32 without NaN, equal for all pieces of a word.
        words: `[batch, length]` int64 word numbers below the length, ascending.
        special: `[batch, length]` bool, True where nothing may be taken.

    Returns:
        `[batch, length]` int64.
    """
    bits = (-scores.float() + 0.0).view(torch.int32)
    # The bits of a negative float grow with its magnitude: flip them, so that the integers have the
    # floats' order.
    ordered = (bits ^ ((bits >> 31) & torch.iinfo(torch.int32).max)).long()
    room = (words.shape[1] + 1).bit_length()  # wide enough for any word number
    return _put_last(ordered.bitwise_left_shift_(room).bitwise_or_(words), special)


def take_words(keys: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest key first, if they fit into the budget.

    Args:
        keys: `[batch, length]` int32 or int64 from `random_keys` or `ranked_keys`: one value per
            word.
        budget: `[batch]` int64, the most pieces to take, at least 1.

    Returns:
        `[batch, length]` bool, True at the pieces taken.
    """
    # numpy vectorises where torch does not
    if keys.device.type == "cpu":
        return torch.from_numpy(_take_on_cpu(keys.numpy(), budget.numpy()))
    return take_on_device(keys, budget)


def take_across(keys: Tensor, budget: Tensor) -> Tensor:
    """Take whole words, lowest key first, until the budget is reached; the last one may exceed it
    (MASTER's rule).

    Args and result as for `take_words`.
    """
    last, length = torch.iinfo(keys.dtype).max, keys.shape[1]
    ranked = (
        torch.from_numpy(np.sort(keys.numpy(), axis=1))
        if keys.device.type == "cpu"
        else keys.sort(dim=1).values
    )
    crossing = ranked.gather(1, (budget[:, None] - 1).clamp_(max=length - 1))
    return keys < crossing.clamp_(max=last - 1).add_(1)


def _put_last(keys: Tensor, special: Tensor) -> Tensor:
    """`keys`, set to the maximum where nothing may be taken; in place."""
    last = torch.iinfo(keys.dtype).max
    if keys.device.type == "cpu":
        np.copyto(keys.numpy(), last, where=special.numpy())
        return keys
    return keys.masked_fill_(special, last)


def _take_on_cpu(keys: np.ndarray, budget: np.ndarray) -> np.ndarray:
    length, last, every = keys.shape[1], np.iinfo(keys.dtype).max, np.arange(len(keys))
    ranked = np.sort(keys, axis=1)
    # Once sorted, pieces of a word are adjacent: all words before the one that crosses the budget
    # are taken at once.
    crossing = np.where(budget < length, ranked[every, np.minimum(budget, length - 1)], last)
    taken = keys < crossing[:, None]
    open_rows = ((crossing == ranked[every, budget - 1]) & (crossing != last)).nonzero()[0]
    if len(open_rows):
        _take_shorter_on_cpu(taken, keys, ranked, budget, open_rows)
    return taken


def _take_shorter_on_cpu(
    taken: np.ndarray, keys: np.ndarray, ranked: np.ndarray, budget: np.ndarray, rows: np.ndarray
) -> None:
    """In the open rows, go through the words after the one that exceeds the budget, until the row
    is full or ends.

    Args:
        taken: `[batch, length]` bool, the words before the one at position `budget`; more are added
            in place.
        keys: `[batch, length]`, one value per word.
        ranked: `[batch, length]`, `keys` sorted along each row.
        budget: `[batch]`, most pieces to take.
        rows: the open rows, in which a word straddles position `budget`.
    """
    budget, before = budget[rows], int(budget[rows].min()) - 1
    left = budget - taken.take(rows, 0).sum(1)
    starts, sizes, names, end = _words_in_line(ranked[rows, before:])
    word = starts.searchsorted(
        budget - before + np.arange(len(rows)) * (ranked.shape[1] - before + 1)
    )
    added = []
    while len(rows):
        # A few words of every open row at once; then full and finished rows are dropped.
        coming = np.minimum(word + AHEAD, end)
        fits = np.empty(coming.shape, bool)
        for size, fit in zip(sizes.take(coming), fits, strict=True):
            np.less_equal(size, left, out=fit)
            left -= size * fit
        step, some = fits.nonzero()
        added.append((rows[some], names[coming[step, some]]))
        word += len(AHEAD)
        going = ((left > 0) & (word < end)).nonzero()[0]
        rows, left, word, end = rows[going], left[going], word[going], end[going]
    rows, names = map(np.concatenate, zip(*added, strict=True))
    some, columns = np.divmod(
        (keys.take(rows, 0) == names[:, None]).ravel().nonzero()[0], keys.shape[1]
    )
    taken[rows[some], columns] = True


def _words_in_line(ranked: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Words of rows laid end to end, except the first: where they begin, their pieces and their
    keys.

    Each row ends with a sentinel word that is too long for any budget; the last result is their
    indices.
    """
    line = np.full((len(ranked), ranked.shape[1] + 1), np.iinfo(ranked.dtype).max, ranked.dtype)
    line[:, :-1] = ranked
    line = line.ravel()
    starts = (line[1:] != line[:-1]).nonzero()[0] + 1
    names = line.take(starts)
    end = (names == line[-1]).nonzero()[0]
    sizes = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
    sizes[end] = line.size
    return starts, sizes, names, end


def take_on_device(keys: Tensor, budget: Tensor) -> Tensor:
    """`take_words` without synchronisation, for a GPU."""
    length, last = keys.shape[1], torch.iinfo(keys.dtype).max
    ranked, order = keys.sort(dim=1)
    crossing = ranked.gather(1, budget.clamp(max=length - 1)[:, None])
    crossing.masked_fill_(budget[:, None] >= length, last)
    taken = keys < crossing
    behind = (ranked > crossing) & (ranked != last)
    left = (budget - taken.sum(1)).clamp_(max=behind.sum(1))[:, None]
    sizes, first = _word_sizes(ranked, behind)
    spare = left - sizes.sum(1, keepdim=True)
    # Each round takes words of at most half of what is left, up to the first one that does not fit,
    # or up to and including a longer one that does. Either way what is left is at least halved, and
    # skipped words stay too long. The initial `left` is less than the word that exceeded the budget
    # and at most what follows it, so it is below half the length.
    for _ in range(((length - 1) // 2).bit_length()):
        short = sizes <= left >> 1
        steps = sizes * short
        fits = steps.cumsum(1, dtype=torch.int32) + (sizes - steps) <= left
        ends = fits ^ short
        sizes.masked_fill_(fits & (ends.cumsum(1) <= ends), 0)
        left = spare + sizes.sum(1, keepdim=True)
    words = torch.zeros_like(first).scatter_add_(1, first, (sizes == 0).long())
    return taken | torch.zeros_like(taken).scatter_(1, order, words.gather(1, first).bool())


def _word_sizes(ranked: Tensor, behind: Tensor) -> tuple[Tensor, Tensor]:
    """For rows with the pieces of words adjacent: the size of each word of `behind` at its last
    piece, and more than a row's length elsewhere, `[batch, length]` int32; the position of each
    word's first piece, int64.
    """
    length = ranked.shape[1]
    index = torch.arange(length, device=ranked.device)
    begins = torch.ones_like(behind)
    torch.ne(ranked[:, 1:], ranked[:, :-1], out=begins[:, 1:])
    first = (index * begins).cummax(1).values
    is_last = begins.roll(-1, 1) & behind
    return torch.where(is_last, index + 1 - first, length + 1).int(), first
