"""How rare each word is: the weights by which MASTER draws the words that it hides from a decoder. Page: ideas/masking.

The paper says TF-IDF, the released code one by the count of the word in the collection.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from tqdm.auto import tqdm

from dr_lib.materials.ngrams import look_up, word_blocks
from dr_lib.stages import stage
from dr_lib.tokens import TokenStore, TokenValues
from dr_lib.training import hash64

Weighting = Literal["inverse_count", "tfidf"]


@stage()
def keyword_weights(folder: Path, passages: Path, *, weighting: Weighting = "inverse_count") -> None:
    """`values/`: the keyword weight of each piece beside the tokens, that of its word, in float32.

    Args:
        folder: where to write.
        passages: their tokens (`store/`); words are counted in all of them, title and body of a passage together.
        weighting: `"inverse_count"`, 1 / occurrences in the collection (released code); `"tfidf"`, occurrences in the
            passage x ln(passages / passages with the word) (paper, which gives no formula).

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["a b", "a"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 20)
        >>> store = TokenStore.build(texts, tokenizer, place / "store", columns=("text",), progress=False)
        >>> keyword_weights.body(place, place)
        >>> TokenValues.open(place / "values", store).text.tolist()
        [0.5, 1.0, 0.5]
    """
    store = TokenStore.open(passages / "store")
    # By hash of the word: how often it occurs in the collection, or in how many passages. A word in a passage is hashed word
    # first: hashes of two small numbers, a row and a piece, would be the same for both exchanged.
    keys, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    bar = tqdm(total=2 * len(store), desc="Keyword weights", unit=" passages")

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for block in word_blocks(store):
            words = block.ngrams(1)[0]
            found = look_up(keys, counts, words)
            if weighting == "inverse_count":
                weights = 1.0 / found
            else:
                _, of_word, times = np.unique(hash64(words, block.rows), return_inverse=True, return_counts=True)
                weights = times[of_word] * np.log(len(store) / found)
            yield block.on_pieces(weights)
            bar.update(block.last - block.first)

    with bar:
        for block in word_blocks(store):
            words = block.ngrams(1)[0]
            if weighting == "tfidf":  # a word counts once a passage
                words = words[np.unique(hash64(words, block.rows), return_index=True)[1]]
            words, times = np.unique(words, return_counts=True)
            before, (keys, place) = len(keys), np.unique(np.append(keys, words), return_inverse=True)
            counts = np.bincount(place[:before], counts, len(keys)) + np.bincount(place[before:], times, len(keys))
            bar.update(block.last - block.first)
        TokenValues.write(store, folder / "values", blocks(), dtype="float32")
