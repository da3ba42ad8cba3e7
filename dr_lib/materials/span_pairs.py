"""Scattered words of a passage as queries: what teaches a small cross-encoder to compare words, without any label.

A run of words of each passage, about half of them left out, asks for its passage among its neighbours. Kin to the
inverse cloze task (Lee et al. 2019), but read by a cross-encoder and with the words left in the passage: finding equal
words on both sides is what is to be learnt. None of the five papers needs it, since their re-rankers start from models
that know it. Page: ideas/distillation.
"""

from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples

SHORTEST, LONGEST = 10, 24
"""Pieces of a run, before words are left out; the longest is not reached."""
KEPT = 0.5
NEAR = 4
"""Passages nearby that are hard negatives of each query."""
WITHIN = 12
"""How far in the order of documents a near passage is."""


def store_spans(
    passages: TokenStore,
    order: np.ndarray,
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    *,
    count: int,
    seed: int = 0,
    progress: bool = True,
) -> None:
    """Write `store/` (the queries) and `examples/` (query i asks for one passage; near passages are its negatives).

    Args:
        passages: tokens of the collection; passages without text are left out.
        order: `[passages]` int64, all rows so that passages of one document stand beside each other.
        folder: an existing folder.
        tokenizer: the one that `passages` were built with.
        count: number of queries; each passage gets about equally many.
        seed: of all draws.
        progress: show the tokenizer's bar.

    Raises:
        InputError: fewer than two passages, no passage with text, or another tokenizer.
    """
    passages.check_tokenizer(tokenizer)
    usable = np.flatnonzero(np.diff(passages.text_offsets))
    if len(passages) < 2 or not len(usable):
        fix = "Take a collection of several passages with text."
        raise InputError("nothing to tell apart", where="makers.cross_encoder.start", fix=fix)
    rng = np.random.default_rng(seed)
    rounds = -(-count // len(usable))
    rows = np.concatenate([rng.permutation(usable) for _ in range(rounds)])[:count]
    texts = tokenizer.batch_decode(scattered_words(passages, rows, rng))
    TokenStore.build(
        Dataset.from_dict({"text": texts}), tokenizer, folder / "store", columns=("text",), progress=progress
    )
    near = near_passages(rows, order, rng)
    Examples.of(np.arange(count), rows[:, None], near, passages=len(passages)).save(folder / "examples")


def scattered_words(passages: TokenStore, rows: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Some whole words of a run of each passage's text, as pieces in their order; `rows` have text.

    A word that the run cuts in two is left out. Where nothing would be left the run's first word stays.
    """
    begin, end = passages.text_offsets[rows], passages.text_offsets[rows + 1]
    pieces = np.minimum(rng.integers(SHORTEST, LONGEST, len(rows)), end - begin)
    start = begin + rng.integers(0, end - begin - pieces + 1)
    first = np.cumsum(pieces) - pieces
    ids = passages.text_ids[np.arange(pieces.sum()) - np.repeat(first - start, pieces)]
    begins = ~passages.continuation[ids]
    whole = begins.copy()
    begins[first] = True
    word = np.cumsum(begins) - 1
    behind = np.minimum(start + pieces, len(passages.text_ids) - 1)
    cut = (start + pieces < end) & passages.continuation[passages.text_ids[behind]]
    left = (rng.random(word[-1] + 1) < KEPT) & whole[begins]
    left[word[(first + pieces - 1)[cut]]] = False
    kept = left[word]
    empty = ~np.logical_or.reduceat(kept, first)
    kept |= np.isin(word, word[first[empty]])
    ends = np.cumsum(np.add.reduceat(kept, first))
    return np.split(ids[kept], ends[:-1])


def near_passages(rows: np.ndarray, order: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """`[rows, NEAR]` int64 passages that stand at most `WITHIN` places from each row in `order`; -1 for itself."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    steps = rng.integers(-WITHIN, WITHIN + 1, (len(rows), NEAR))
    near = order[np.clip(place[rows][:, None] + steps, 0, len(order) - 1)]
    return np.where(near == rows[:, None], -1, near)
