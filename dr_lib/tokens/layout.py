"""How a title and a body become one sequence: which pieces stay, and where each lands; for a whole batch at once.

Packing of a passage as in the papers (SimLM and PAIR: a text pair; RetroMAE and Tevatron: one segment). Nothing here
knows words or files, only lengths. Explained in the book's chapter on your own corpus.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from dr_lib.errors import InputError

Title = Literal["pair", "joined", "none"]
Side = Literal["right", "left"]
SHORTEST = 4


@dataclass(frozen=True)
class Kept:
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


def truncate(title: np.ndarray, body: np.ndarray, *, max_length: int, mode: Title, side: Side = "right") -> Kept:
    """Cut titles and bodies of the given lengths to `max_length`, special tokens included.

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
    return Kept(kept_title, kept_body, (title - kept_title) * from_left, (body - kept_body) * from_left, separate)


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
