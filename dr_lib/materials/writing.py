"""Texts for all passages of a collection, shard by shard: what a killed run has written is not written again.

Passages are taken by length, so that a batch holds hardly any padding, but only within windows of consecutive
passages: the result is put together one window at a time and never lies in memory whole. Page: ideas/generators.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.training import hash64

Writer = Callable[[np.ndarray], list[list[str]]]
WINDOW = 65_536
BATCHES_PER_SHARD = 16
SCRATCH = "checkpoint-texts"  # named so that the cache of stages knows it for scratch and drops it in the end


@dataclass
class Counts:
    """What became of the texts that were drawn.

    Attributes:
        passages: passages written about.
        drawn: texts that the model wrote.
        empty: of those, texts without a character.
        repeated: of those, texts that their passage had already.
        kept: what is left.
        without: passages that are left without any text.
    """

    passages: int = 0
    drawn: int = 0
    empty: int = 0
    repeated: int = 0
    kept: int = 0
    without: int = 0

    def clean(self, texts: Sequence[str]) -> list[str]:
        """The texts of one passage without empty and repeated ones (case does not count), and count them.

        Example:
            >>> counts = Counts()
            >>> counts.clean(["Who?", " who? ", "", "why?"]), counts.repeated, counts.empty
            (['Who?', 'why?'], 1, 1)
        """
        stripped = [text.strip() for text in texts]
        full = [text for text in stripped if text]
        distinct: dict[str, str] = {}
        for text in full:
            distinct.setdefault(text.casefold(), text)
        kept = list(distinct.values())
        self.passages += 1
        self.drawn += len(texts)
        self.empty += len(stripped) - len(full)
        self.repeated += len(full) - len(kept)
        self.kept += len(kept)
        self.without += not kept
        return kept


def write_texts(
    folder: Path, lengths: np.ndarray, write: Writer, *, at_once: int, title: str, progress: bool = True
) -> Iterator[list[list[str]]]:
    """Write about every passage and give the texts back in the passages' order, a window at a time.

    Args:
        folder: the stage's folder; shards lie in its `checkpoint-texts/` until the stage is finished.
        lengths: `[passages]` tokens of each passage, to sort by.
        write: rows of passages -> for each its texts; the same rows must give the same texts.
        at_once: passages of one call of `write`.
        title: what is written, for the bar.
        progress: show a bar.
    """
    with tqdm(total=len(lengths), desc=title, unit="passage", disable=not progress) as bar:
        for start in range(0, len(lengths), WINDOW):
            shards = plan_shards(lengths[start : start + WINDOW], at_once)
            texts: list[list[str]] = [[] for _ in lengths[start : start + WINDOW]]
            for number, batches in enumerate(shards):
                rows = np.concatenate(batches)
                path = folder / SCRATCH / f"{start}-{number}.json"
                own = read_shard(path, rows + start)
                if own is None:
                    own = [text for batch in batches for text in write(batch + start)]
                    write_json(path, {"rows": (rows + start).tolist(), "texts": own})
                for row, found in zip(rows, own, strict=True):
                    texts[row] = found
                bar.update(len(rows))
            yield texts


def plan_shards(lengths: np.ndarray, at_once: int) -> list[list[np.ndarray]]:
    """Rows in batches of like length, longest first, and the batches in shards.

    Example:
        >>> plan_shards(np.array([3, 9, 5]), at_once=2)
        [[array([1, 2]), array([0])]]
    """
    order = np.argsort(-lengths, kind="stable")
    batches = [order[start : start + at_once] for start in range(0, len(order), at_once)]
    return [batches[start : start + BATCHES_PER_SHARD] for start in range(0, len(batches), BATCHES_PER_SHARD)]


def read_shard(path: Path, rows: np.ndarray) -> list[list[str]] | None:
    """The texts of a shard, or None where it is missing or of other passages."""
    if not path.is_file():
        return None
    try:
        content = read_json(path)
    except InputError:
        return None
    return content["texts"] if content["rows"] == rows.tolist() else None


def spelled(tokenizer: PreTrainedTokenizerBase, ids: Tensor) -> list[str]:
    """Rows of ids as texts, special tokens left out; a first piece that continues a word loses WordPiece's mark."""
    return [text.removeprefix("##") for text in tokenizer.batch_decode(ids.cpu(), skip_special_tokens=True)]


def uniform_numbers(seed: int, rows: np.ndarray, copies: int, steps: int) -> np.ndarray:
    """One number in [0, 1) for each token to come, by (seed, passage, copy, token): `[rows * copies, steps]` float32.

    Example:
        >>> first, both = uniform_numbers(0, np.array([7]), 2, 3), uniform_numbers(0, np.array([4, 7]), 2, 3)
        >>> bool((both[2:] == first).all())
        True
    """
    numbers = hash64(seed, rows[:, None, None], np.arange(copies)[:, None], np.arange(steps))
    return ((numbers >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)).reshape(-1, steps)
