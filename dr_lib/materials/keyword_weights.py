"""How rare each word is: the weights by which MASTER draws the words that it hides from a decoder. Page: ideas/masking.

The paper says TF-IDF, the released code one by the count of the word in the collection.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from tqdm.auto import tqdm

from dr_lib.errors import InputError
from dr_lib.materials.chains import LAST, chain
from dr_lib.materials.words import WordBlock, WordTable, word_blocks
from dr_lib.tokens import TokenStore, TokenValues

Weighting = Literal["inverse_count", "tfidf"]
Weigh = Callable[[np.ndarray, WordBlock], np.ndarray]


def write_keyword_weights(
    store: TokenStore, folder: Path, *, weighting: Weighting = "inverse_count", progress: bool = True
) -> TokenValues:
    """Write the weight of each piece, that of its word, in float32.

    Args:
        store: tokens of the passages; words are counted in all of them, title and body of a passage together.
        folder: where to write; it is whole or absent.
        weighting: `"inverse_count"`, 1 / occurrences in the collection (released code); `"tfidf"`, occurrences in the
            passage x ln(passages / passages with the word) (paper, which gives no formula).
        progress: show a bar.

    Raises:
        InputError: an unknown weighting.

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["a b", "a"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 20)
        >>> store = TokenStore.build(texts, tokenizer, place / "store", columns=("text",), progress=False)
        >>> write_keyword_weights(store, place / "values", progress=False).text.tolist()
        [0.5, 1.0, 0.5]
    """
    if weighting not in get_args(Weighting):
        valid = ", ".join(get_args(Weighting))
        raise InputError(f"unknown value {weighting!r}", where="weighting", fix=f"Choose one of {valid}.")
    with tqdm(total=2 * len(store), desc="Keyword weights", unit=" passages", disable=not progress) as bar:
        table = WordTable(store.vocab_size)
        weigh = (_by_count if weighting == "inverse_count" else _by_tfidf)(store, table, bar)

        def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for block in word_blocks(store):
                yield block.on_pieces(weigh(table.number(block), block))
                bar.update(block.last - block.first)

        return TokenValues.write(store, folder, blocks(), dtype="float32")


def _by_count(store: TokenStore, table: WordTable, bar: tqdm) -> Weigh:
    counts = np.zeros(0, np.int64)
    for block in word_blocks(store):
        counts = _tally(counts, table.learn(block), table)
        bar.update(block.last - block.first)
    return lambda numbers, block: 1.0 / counts[numbers]


def _by_tfidf(store: TokenStore, table: WordTable, bar: tqdm) -> Weigh:
    passages_with = np.zeros(0, np.int64)
    for block in word_blocks(store):
        pairs = np.unique(chain(block.rows, table.learn(block)))
        passages_with = _tally(passages_with, pairs & LAST, table)
        bar.update(block.last - block.first)

    def weigh(numbers: np.ndarray, block: WordBlock) -> np.ndarray:
        _, of_word, times = np.unique(chain(block.rows, numbers), return_inverse=True, return_counts=True)
        return times[of_word] * np.log(len(store) / passages_with[numbers])

    return weigh


def _tally(counts: np.ndarray, numbers: np.ndarray, table: WordTable) -> np.ndarray:
    """The counts by word number, with some words more."""
    found = np.bincount(numbers, minlength=len(table))
    found[: len(counts)] += counts
    return found
