"""The batch that every later step works on, and how titles and bodies become one: which pieces
stay, where each lands.

Packing of a passage as in the papers (SimLM and PAIR: a text pair; RetroMAE and Tevatron: one
segment). Nothing here knows files, only lengths and flat arrays of pieces. Page of the book:
practice/own-corpus.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from dr_lib.settings import Settings

Title = Literal["pair", "joined", "none"]
Side = Literal["right", "left"]


class Layout(Settings):
    """How queries and passages become sequences.

    Args:
        title: how a title joins its passage: two segments, one, or not at all, see
            `TokenStore.slice`.
        passage_length, query_length: longest sequences in pieces, special tokens included (SimLM:
            144 and 32).
        query_side: the end that a long query loses; "left" keeps the last turns of a dialogue
            (DPR-PAQ section 3.3).

    Example:
        >>> Layout(passage_length=64).passages
        {'max_length': 64, 'title': 'pair'}
    """

    title: Title = "pair"
    passage_length: int = Field(144, gt=3)
    query_length: int = Field(32, gt=2)
    query_side: Side = "right"

    @property
    def passages(self) -> dict[str, Any]:
        """Arguments of `TokenStore.batch` for passages."""
        return {"max_length": self.passage_length, "title": self.title}

    @property
    def queries(self) -> dict[str, Any]:
        """Arguments of `TokenStore.batch` for queries."""
        return {"max_length": self.query_length, "title": "none", "side": self.query_side}


@dataclass(frozen=True)
class TokenBatch:
    """Padded token ids of some passages or queries.

    All tensors are on one device.

    Attributes:
        input_ids: `[batch, length]` int64.
        attention_mask: `[batch, length]` int64, 1 at real tokens, 0 at padding.
        token_type_ids: `[batch, length]` int64, 0 for title (or the only segment), 1 for the body
            of a pair.
        special: `[batch, length]` bool, True at [CLS], [SEP] and padding.
        word_start: `[batch, length]` bool, True at the first piece of each word, never at a special
            position.
        rows: `[batch]` int64, the row of each sequence in its token store.
        values: `[batch, length]` float32, a number for each piece (importance, keyword weight), 0
            at special positions; None where a method needs none.
        lengths: `[batch]` int64, real tokens of each sequence, as numbers of the host: whoever
            sorts a batch on a GPU need not wait for it. None where they are not known.
        share: the part of a full batch of this length that it is; less than 1 at the end of an
            epoch. Accumulated batches are weighed by it.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    special: Tensor
    word_start: Tensor
    rows: Tensor
    values: Tensor | None = None
    lengths: np.ndarray | None = None
    share: float = 1.0

    def to(self, device: torch.device | str) -> "TokenBatch":
        """The same batch on another device."""
        return to_device(self, device)

    def take(self, index: Tensor) -> "TokenBatch":
        """The sequences that `index` `[n]` int64 names, in its order; repeats allowed."""
        known = self.lengths is not None and index.device.type == "cpu"
        lengths = self.lengths[index.numpy()] if known else None
        return self._changed(lambda tensor: tensor[index], lengths)

    def cut(self, length: int) -> "TokenBatch":
        """The first `length` positions of every sequence, where the others are padding."""
        lengths = None if self.lengths is None else np.minimum(self.lengths, length)
        return self._changed(
            lambda tensor: tensor[:, :length] if tensor.ndim == 2 else tensor, lengths
        )

    def _changed(
        self, change: Callable[[Tensor], Tensor], lengths: np.ndarray | None
    ) -> "TokenBatch":
        """The batch with every tensor changed, and these lengths."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        changed = {name: change(part) for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **changed, lengths=lengths)

    def with_ids(self, input_ids: Tensor) -> "TokenBatch":
        """The same positions with other ids, for masked or replaced input."""
        return replace(self, input_ids=input_ids)

    def model_inputs(self) -> dict[str, Tensor]:
        """Keyword arguments of a Hugging Face encoder."""
        return {
            name: getattr(self, name) for name in ("input_ids", "attention_mask", "token_type_ids")
        }

    def __len__(self) -> int:
        return self.input_ids.shape[0]


def to_device(batch: Any, device: torch.device | str) -> Any:
    """A tensor, or a dataclass of tensors and of further such dataclasses, on a device; other
    values stay as they are.
    """
    if is_dataclass(batch):
        return replace(
            batch,
            **{part.name: to_device(getattr(batch, part.name), device) for part in fields(batch)},
        )
    if not isinstance(batch, Tensor):
        return batch
    # From pinned memory a copy to CUDA goes on by itself, and torch keeps the memory until it is
    # done; other memory has been read when the call is back. Apple's GPUs read it later, when it
    # may be another tensor's.
    on_its_way = torch.device(device).type == "cuda"
    if on_its_way and batch.device.type == "cpu" and torch.cuda.is_available():
        batch = batch.pin_memory()
    return batch.to(device, non_blocking=on_its_way)


def finest(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices that have nothing finer, such as Apple's GPUs."""
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


@dataclass(frozen=True)
class Truncated:
    """What is left of each passage after truncation.

    Attributes:
        title, body: `[batch]` int64, number of pieces left.
        title_start, body_start: `[batch]` int64, how many pieces of each were dropped in front.
        separate: `[batch]` bool, True where title and body are two segments with a [SEP] between.
    """

    title: np.ndarray
    body: np.ndarray
    title_start: np.ndarray
    body_start: np.ndarray
    separate: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Length of each sequence, special tokens included."""
        return self.title + self.body + 2 + self.separate


def truncate(
    title: np.ndarray,
    body: np.ndarray,
    *,
    max_length: int,
    mode: Title,
    side: Side = "right",
    lots: np.ndarray | None = None,
) -> Truncated:
    """Cut titles and bodies of the given lengths to `max_length`, special tokens included.

    A pair is cut longest-first as Hugging Face's tokenizers do it: a segment shorter than half the
    room is kept whole and the other takes the rest; if both are longer, the room is split in half,
    and an odd piece goes to the longer one (to the body where they are equal). A passage that lacks
    title or body is a single segment in every mode.

    Args:
        title, body: `[batch]` int64, number of pieces.
        max_length: the longest sequence allowed, at least 4.
        mode: `"pair"`, `"joined"` (title and body in one segment) or `"none"` (body alone).
        side: the end that loses pieces; `"left"` keeps the last turns of a dialogue.
        lots: `[batch]` uint64; a long body then keeps a window that begins at any place, each
            equally likely, drawn by these numbers. None keeps what `side` says.

    Example:
        >>> left = truncate(np.array([30, 2]), np.array([40, 90]), max_length=20, mode="pair")
        >>> left.title, left.body, left.lengths
        (array([8, 2]), array([ 9, 15]), array([20, 20]))
    """
    title = np.zeros_like(title) if mode == "none" else title
    separate = (title > 0) & (body > 0) & (mode == "pair")
    room = max_length - 2 - separate
    if mode == "pair":
        shorter = np.minimum(np.minimum(title, body), room // 2)
        longer = np.minimum(np.maximum(title, body), room - shorter)
        title_left, body_left = (
            np.where(title > body, longer, shorter),
            np.where(title > body, shorter, longer),
        )
    elif side == "right":
        title_left = np.minimum(title, room)
        body_left = np.minimum(body, room - title_left)
    else:
        body_left = np.minimum(body, room)
        title_left = np.minimum(title, room - body_left)
    from_left = side == "left"
    body_start = (body - body_left) * from_left
    if lots is not None:
        body_start = (lots % (body - body_left + 1).astype(np.uint64)).astype(np.int64)
    return Truncated(title_left, body_left, (title - title_left) * from_left, body_start, separate)


def padded_length(length: int | np.ndarray, multiple: int, max_length: int) -> np.ndarray:
    """Lengths rounded up to a multiple, but never past `max_length`, so that no position lies
    outside the model.

    Example:
        >>> padded_length(np.array([3, 8, 9, 29]), multiple=8, max_length=30)
        array([ 8,  8, 16, 30])
    """
    return np.minimum(-(-np.asarray(length) // multiple) * multiple, max_length)


@dataclass(frozen=True)
class Slice:
    """Which pieces of some rows stay, and where each lands.

    Attributes:
        rows: `[batch]` int64, rows of the store.
        left: how many pieces of each title and body stay.
        title_from, body_from: `[batch]` int64, where they begin in the flat arrays of the store.
        width: padded length.
    """

    rows: np.ndarray
    left: Truncated
    title_from: np.ndarray
    body_from: np.ndarray
    width: int

    def take(self, titles: np.ndarray, bodies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What stays of two flat arrays that run beside the store's pieces, all rows end to end."""
        return concat_runs(titles, self.title_from, self.left.title), concat_runs(
            bodies, self.body_from, self.left.body
        )

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """`[batch, width]` bool twice: positions of title pieces, and of body pieces."""
        position = np.arange(self.width)[None, :]
        title_end = 1 + self.left.title[:, None]
        body_start = title_end + self.left.separate[:, None]
        in_title = (position >= 1) & (position < title_end)
        return in_title, (position >= body_start) & (position < self.left.lengths[:, None] - 1)


def to_batch(
    cut: Slice,
    titles: np.ndarray,
    bodies: np.ndarray,
    *,
    special: Mapping[str, int],
    continuation: np.ndarray,
) -> TokenBatch:
    """Put the pieces of all titles and bodies in their places.

    Args:
        cut: what stays of which rows.
        titles, bodies: the pieces of all rows of the store, end to end.
        special: ids by name.
        continuation: `[vocab]` bool, True for pieces that continue a word.
    """
    position = np.arange(cut.width)[None, :]
    body_start = 1 + cut.left.title[:, None] + cut.left.separate[:, None]
    real = position < cut.left.lengths[:, None]
    in_title, in_body = cut.places()
    content = in_title | in_body
    # Everything real is a [SEP] at first; [CLS] and the pieces then take their places, and the
    # separators are left.
    ids = np.where(real, special["sep"], special["pad"]).astype(np.int64)
    ids[:, 0] = special["cls"]
    ids[in_title], ids[in_body] = cut.take(titles, bodies)
    # A piece that truncation cut off from the start of its word counts as a word, as in the papers'
    # mask draw.
    first = (position == 1) | (position == body_start)
    return TokenBatch(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.from_numpy(real.astype(np.int64)),
        token_type_ids=torch.from_numpy(
            (real & cut.left.separate[:, None] & (position >= body_start)).astype(np.int64)
        ),
        special=torch.from_numpy(~content),
        word_start=torch.from_numpy(content & (first | ~continuation[ids])),
        rows=torch.from_numpy(cut.rows),
        lengths=cut.left.lengths,
    )


def concat_runs(ids: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `ids[start : start + count]` over all rows.

    Example:
        >>> concat_runs(np.arange(10, 20), starts=np.array([7, 0]), counts=np.array([2, 3]))
        array([17, 18, 10, 11, 12])
    """
    # Row by row the positions rise by 1; the shift is what takes a row's part of the result to its
    # place in `ids`.
    shift = starts - (np.cumsum(counts) - counts)
    return ids[np.repeat(shift, counts) + np.arange(counts.sum())]
