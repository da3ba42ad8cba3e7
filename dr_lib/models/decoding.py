"""Text written token by token: top-k or nucleus sampling with a cache, for many rows at once. Page: ideas/generators.

Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p). One uniform number decides each token, so what a row becomes
does not depend on the rows beside it: a run that was cut off writes the same texts when it goes on.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from dr_lib.errors import InputError
from dr_lib.models.sampling import pick

LOOK = 4
"""Tokens between two looks at how many rows still go on; a GPU would have to wait for every look."""
MULTIPLE = 64
"""Row counts are rounded up to this when ended rows are dropped, for few distinct shapes."""


class Decoding(Protocol):
    """A model in the middle of writing: what it has read so far is in its cache."""

    first: Tensor
    """`[rows]` int64, the id that each row goes on from."""

    def logits(self, ids: Tensor) -> Tensor:
        """Logits `[rows, vocab]` of the next token, after `[rows]` one more id each."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        ...


@dataclass(frozen=True)
class Choice:
    """How the next token is drawn.

    Args:
        top_k: among the so many likeliest tokens; None does not limit their number.
        top_p: among the fewest likeliest tokens whose chances sum to this, in (0, 1]; None keeps all. With `top_k` it
            is a share of what that leaves.
        temperature: logits are divided by it, above 0.

    Raises:
        InputError: a value out of range.
    """

    top_k: int | None = None
    top_p: float | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"{self.top_k} is below 1", where="top_k", fix="Give 1 or more, or None.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"{self.top_p} is outside (0, 1]", where="top_p", fix="Give a share above 0, or None.")
        if self.temperature <= 0:
            raise InputError(f"{self.temperature} is not above 0", where="temperature", fix="Give a number above 0.")


@torch.inference_mode()
def write(decoding: Decoding, uniform: Tensor, choice: Choice, *, end: int, forbidden: Tensor) -> Tensor:
    """Let every row write until it ends or the room is used up.

    Args:
        decoding: the model and what it has read.
        uniform: `[rows, steps]` float32 in [0, 1): one number a token; `steps` is the longest text.
        choice: how a token is drawn.
        end: id that ends a text; it is never the first one.
        forbidden: int64 ids that are never written.

    Returns:
        `[rows, steps]` int64, `end` from where a text ends.
    """
    rows, steps = uniform.shape
    written = torch.full((rows, steps), end, dtype=torch.int64, device=uniform.device)
    places = torch.arange(rows, device=uniform.device)
    going, ids = torch.ones_like(places, dtype=torch.bool), decoding.first
    for step in range(steps):
        logits = decoding.logits(ids).index_fill_(1, forbidden, -torch.inf)
        if step == 0:
            logits[:, end] = -torch.inf
        ids = torch.where(going, draw_next(logits, uniform[places, step], choice), end)
        written[places, step] = ids
        going = going & (ids != end)
        if (step + 1) % LOOK == 0:
            count = int(going.sum())
            if count == 0:
                break
            needed = -(-count // MULTIPLE) * MULTIPLE
            if needed <= len(places) // 2:
                kept = torch.argsort(going, descending=True, stable=True)[:needed]
                decoding.keep(kept)
                places, going, ids = places[kept], going[kept], ids[kept]
    return written


def draw_next(logits: Tensor, uniform: Tensor, choice: Choice) -> Tensor:
    """Draw one id a row; chances are float32 whatever the type of the logits.

    Args:
        logits: `[rows, vocab]`.
        uniform: `[rows]` float32 in [0, 1).
        choice: which tokens may be drawn.

    Returns:
        `[rows]` int64.

    Example:
        >>> logits = torch.tensor([[0.0, 2.0, 1.0, -9.0]])
        >>> [draw_next(logits, torch.tensor([u]), Choice(top_k=2)).item() for u in (0.0, 0.7, 0.8)]
        [1, 1, 2]
    """
    if choice.top_k is None or choice.top_k >= logits.shape[1]:
        chances = softened(logits, choice.temperature)
        return pick(chances if choice.top_p is None else nucleus(chances, choice.top_p), uniform)
    best, ids = logits.topk(choice.top_k)
    chances = softened(best, choice.temperature)
    if choice.top_p is not None:
        chances = torch.where(chances.cumsum(-1) - chances < choice.top_p, chances, 0.0)
    upper = chances.cumsum(-1)
    place = (upper <= uniform[:, None] * upper[:, -1:]).sum(-1)
    last = (chances > 0).sum(-1) - 1  # rounding must not lead past the last one that may be drawn
    return ids.gather(1, torch.minimum(place, last)[:, None])[:, 0]


def softened(logits: Tensor, temperature: float) -> Tensor:
    """Softmax at a temperature, in float32."""
    return torch.softmax(logits if temperature == 1 else logits.float() / temperature, -1, dtype=torch.float32)


def nucleus(chances: Tensor, top_p: float) -> Tensor:
    """The chances, 0 outside the fewest likeliest tokens whose chances sum to `top_p` (ties stay in).

    As many of the least likely tokens go as `1 - top_p` holds; only sorted chances are needed for that, no ids.

    Args:
        chances: `[rows, vocab]` float32, each row summing to 1.
        top_p: in (0, 1].
    """
    ascending = sorted_values(chances)
    dropped = (ascending.cumsum(-1) <= 1 - top_p).sum(-1, keepdim=True).clamp(max=chances.shape[1] - 1)
    return chances.masked_fill(chances < ascending.gather(1, dropped), 0.0)


def sorted_values(values: Tensor) -> Tensor:
    """Each row in ascending order; on a CPU by numpy, whose sort of plain numbers is many times as fast."""
    return torch.from_numpy(np.sort(values.numpy(), axis=-1)) if values.device.type == "cpu" else values.sort(-1).values


def never_written(tokenizer: PreTrainedTokenizerBase, vocab: int, end: int | None = None) -> list[int]:
    """Ids that no text may hold: every special token but `end`, and rows of the model that stand for no token.

    Args:
        tokenizer: of any kind.
        vocab: number of the model's logits.
        end: id of the token that may end a text; None where none may.
    """
    special = {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    unused = range(len(tokenizer), vocab)
    return sorted({*special, *tokenizer.all_special_ids, *unused} - {end})


def end_of_text(tokenizer: PreTrainedTokenizerBase) -> int:
    """Id that ends a text: the tokenizer's end token, or [SEP] where it has none."""
    return int(tokenizer.sep_token_id if tokenizer.eos_token_id is None else tokenizer.eos_token_id)
