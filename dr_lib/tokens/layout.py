"""How a title and a body become one padded sequence: which pieces stay, and where each lands; a whole batch at once.

Packing of a passage as in the papers (SimLM and PAIR: a text pair; RetroMAE and Tevatron: one segment). Nothing here
knows files, only lengths and flat arrays of pieces. Explained in the book's chapter on your own corpus.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.settings import Settings
from dr_lib.tokens.batch import TokenBatch

Title = Literal["pair", "joined", "none"]
Side = Literal["right", "left"]
SHORTEST = 4


class Layout(Settings):
    """How the texts of a run become sequences.

    Args:
        title: how a title joins its passage: two segments, one, or not at all.
        passage_length, query_length: longest sequences in pieces, special tokens included.
        query_side: the end that a long query loses; "left" keeps the last turns of a dialogue (DPR-PAQ section 3.3).
    """

    title: Title = "pair"
    passage_length: int = Field(default=144, gt=3)
    query_length: int = Field(default=32, gt=2)
    query_side: Side = "right"


@dataclass(frozen=True)
class Truncated:
    """What is left of each passage after truncation.

    Attributes (all `[batch]` int64 but the last):
        title, body: number of pieces kept.
        title_start, body_start: how many pieces of each were dropped in front.
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


def check_layout(max_length: int, title: str, side: str = "right", multiple: int = 8) -> None:
    """Raise `InputError` where an argument of the layout is outside its range."""
    if max_length < SHORTEST:
        raise InputError(f"{max_length} leaves no room for text", where="max_length", fix=f"Give {SHORTEST} or more.")
    if multiple < 1:
        raise InputError(f"{multiple} is below 1", where="pad_to_multiple", fix="Give 1 or more.")
    for name, value, valid in (("title", title, get_args(Title)), ("side", side, get_args(Side))):
        if value not in valid:
            raise InputError(f"unknown value {value!r}", where=name, fix=f"Choose one of {', '.join(valid)}.")


def truncate(title: np.ndarray, body: np.ndarray, *, max_length: int, mode: Title, side: Side = "right") -> Truncated:
    """Slice titles and bodies of the given lengths to `max_length`, special tokens included.

    A pair is cut longest-first as Hugging Face's tokenizers do it: a segment shorter than half the room is kept whole
    and the other takes the rest; if both are longer, the room is split in half, and an odd piece goes to the longer
    one (to the body where they are equal). A passage that lacks title or body is a single segment in every mode.

    Args:
        title, body: `[batch]` int64, number of pieces.
        max_length: the longest sequence allowed, at least 4.
        mode: `"pair"`, `"joined"` (title and body in one segment) or `"none"` (body alone).
        side: the end that loses pieces; `"left"` keeps the last turns of a dialogue.

    Example:
        >>> kept = truncate(np.array([30, 2]), np.array([40, 90]), max_length=20, mode="pair")
        >>> kept.title, kept.body, kept.lengths
        (array([8, 2]), array([ 9, 15]), array([20, 20]))
    """
    title = np.zeros_like(title) if mode == "none" else title
    separate = (title > 0) & (body > 0) & (mode == "pair")
    room = max_length - 2 - separate
    if mode == "pair":
        kept_title, kept_body = _longest_first(title, body, room)
    else:
        kept_title, kept_body = _one_segment(title, body, room, side)
    from_left = side == "left"
    return Truncated(kept_title, kept_body, (title - kept_title) * from_left, (body - kept_body) * from_left, separate)


def _longest_first(title: np.ndarray, body: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shorter = np.minimum(title, body)
    kept_shorter = np.minimum(shorter, room // 2)
    kept_longer = np.minimum(np.maximum(title, body), room - kept_shorter)
    title_is_longer = title > body
    return np.where(title_is_longer, kept_longer, kept_shorter), np.where(title_is_longer, kept_shorter, kept_longer)


def _one_segment(title: np.ndarray, body: np.ndarray, room: np.ndarray, side: Side) -> tuple[np.ndarray, np.ndarray]:
    if side == "right":
        kept_title = np.minimum(title, room)
        return kept_title, np.minimum(body, room - kept_title)
    kept_body = np.minimum(body, room)
    return np.minimum(title, room - kept_body), kept_body


def padded_length(length: int | np.ndarray, multiple: int, max_length: int) -> np.ndarray:
    """Lengths rounded up to a multiple, but never past `max_length`, so that no position lies outside the model.

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
        kept: how many pieces of each title and body stay.
        title_from, body_from: `[batch]` int64, where they begin in the flat arrays of the store.
        width: padded length.
    """

    rows: np.ndarray
    kept: Truncated
    title_from: np.ndarray
    body_from: np.ndarray
    width: int

    def take(self, titles: np.ndarray, bodies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What stays of two flat arrays that run beside the store's pieces, all rows end to end."""
        return concat_runs(titles, self.title_from, self.kept.title), concat_runs(
            bodies, self.body_from, self.kept.body
        )

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """`[batch, width]` bool twice: positions of title pieces, and of body pieces."""
        position = np.arange(self.width)[None, :]
        title_end = 1 + self.kept.title[:, None]
        body_start = title_end + self.kept.separate[:, None]
        in_title = (position >= 1) & (position < title_end)
        return in_title, (position >= body_start) & (position < self.kept.lengths[:, None] - 1)


def to_batch(
    cut: Slice, titles: np.ndarray, bodies: np.ndarray, *, special: Mapping[str, int], continuation: np.ndarray
) -> TokenBatch:
    """Put the pieces of all titles and bodies in their places.

    Args:
        cut: what stays of which rows.
        titles, bodies: the pieces of all rows of the store, end to end.
        special: ids by name.
        continuation: `[vocab]` bool, True for pieces that continue a word.
    """
    kept, position = cut.kept, np.arange(cut.width)[None, :]
    body_start = 1 + kept.title[:, None] + kept.separate[:, None]
    real = position < kept.lengths[:, None]
    in_title, in_body = cut.places()
    content = in_title | in_body
    second = real & kept.separate[:, None] & (position >= body_start)

    ids = np.where(real, special["sep"], special["pad"]).astype(np.int64)
    ids[:, 0] = special["cls"]
    ids[in_title], ids[in_body] = cut.take(titles, bodies)
    # A piece that truncation cut off from the start of its word counts as a word, as in the papers' mask draw.
    first = (position == 1) | (position == body_start)
    return TokenBatch(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.from_numpy(real.astype(np.int64)),
        token_type_ids=torch.from_numpy(second.astype(np.int64)),
        special=torch.from_numpy(~content),
        word_start=torch.from_numpy(content & (first | ~continuation[ids])),
        rows=torch.from_numpy(cut.rows),
    )


def values_to_batch(cut: Slice, titles: np.ndarray, bodies: np.ndarray) -> Tensor:
    """Numbers that run beside the pieces, laid out as `to_batch` lays out the pieces, 0 elsewhere.

    Args:
        cut: what stays of which rows.
        titles, bodies: a number for each piece of the store, end to end.

    Returns:
        `[batch, width]` float32.
    """
    values = np.zeros((len(cut.rows), cut.width), np.float32)
    in_title, in_body = cut.places()
    values[in_title], values[in_body] = cut.take(titles, bodies)
    return torch.from_numpy(values)


def concat_runs(ids: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `ids[start : start + count]` over all rows.

    Example:
        >>> concat_runs(np.arange(10, 20), starts=np.array([7, 0]), counts=np.array([2, 3]))
        array([17, 18, 10, 11, 12])
    """
    shift = starts - (np.cumsum(counts) - counts)
    return ids[np.repeat(shift, counts) + np.arange(counts.sum())]
