"""The information of each word about its neighbours: CDMAE's average mutual information (eq. 7 and 8). Page: ideas/masking.

The paper defines the mutual information of two words and a mean over longer n-grams too. What it leaves open is a
choice here: how it is measured beyond two words, what happens at the ends of a text, and what a rare n-gram counts.

At the end: how rare each word is, by which MASTER draws the words that it hides from a decoder. The paper says TF-IDF, the
released code one by the count of the word in the collection.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm.auto import tqdm

from dr_lib.materials.ngrams import NgramCounts, look_up, word_blocks
from dr_lib.stages import stage
from dr_lib.tokens import TokenStore, TokenValues
from dr_lib.training import hash64

Pmi = Literal["naive", "minseg"]
Edges = Literal["renorm", "zero"]


@stage()
def importances(
    folder: Path,
    passages: Path,
    counts: Path,
    *,
    window: int = 4,
    pmi: Pmi = "naive",
    edges: Edges = "renorm",
    floor: float = 1.0,
    ppmi: bool = False,
) -> None:
    """`values/`: the importance of each piece beside the tokens; `counts`: the n-grams; the rest as below."""
    options = {"window": window, "pmi": pmi, "edges": edges, "floor": floor, "ppmi": ppmi}
    write_importances(NgramCounts.open(counts / "counts"), TokenStore.open(passages / "store"), folder / "values", **options)


def write_importances(counts: NgramCounts, store: TokenStore, folder: Path, *, window: int = 4, **options: Any) -> TokenValues:
    """Write the importance of each piece, that of its word, in float16.

    Args:
        counts: n-grams of at least `window` words, of the same tokenizer.
        store: the tokens that the importances are for.
        folder: where to write; it is whole or absent.
        window: longest n-gram, L in eq. 8 (4 in the paper).
        options: `pmi`, `edges`, `floor` and `ppmi`, see `average_mutual_information`.

    Raises:
        InputError: the counts belong to another tokenizer.
    """

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with tqdm(total=len(store), desc="Importances", unit=" passages") as bar:
            for block in word_blocks(store, counts.unit):
                own = counts.of(block)[:window]
                yield block.on_pieces(average_mutual_information(own, block.room, counts.totals, **options))
                bar.update(block.last - block.first)

    return TokenValues.write(store, folder, blocks(), dtype="float16")


def average_mutual_information(
    counts: Sequence[np.ndarray],
    room: np.ndarray,
    totals: Sequence[int],
    *,
    pmi: Pmi = "naive",
    edges: Edges = "renorm",
    floor: float = 1.0,
    ppmi: bool = False,
) -> np.ndarray:
    """Mean information of the n-grams that end at a word plus that of those which begin there (CDMAE eq. 8).

    Args:
        counts: for each order from 1 to L: `[words]`, occurrences of the n-gram that begins at each word, 0 unknown.
        room: `[words]`, words from each word to the end of its text, itself included.
        totals: occurrences of all n-grams of each order in the collection.
        pmi: information of an n-gram. `"naive"`: log p(n-gram) less the log p of its words (eq. 7 with more words);
            `"minseg"`: the least over all ways to cut it into shorter n-grams (Levine et al. 2021), so that a strongly
            bound part does not count for the whole. Both agree for two words.
        edges: at the ends of a text some n-grams do not exist. `"renorm"` averages over those that do, and a side
            without any takes the mean of the other; `"zero"` counts them as 0.
        floor: what an unknown n-gram counts, above 0. Never leave it out or give it no information: then what is left
            are mostly n-grams of function words, and the mask prefers stop words, the opposite of what it is for.
        ppmi: take negative information for 0.

    Returns:
        `[words]` float64, in nats; 0 for a word that stands alone.

    Example:
        >>> counts = [np.array([2, 2, 1]), np.array([2, 1, 0])]
        >>> average_mutual_information(counts, np.array([3, 2, 1]), (6, 4)).round(6).tolist()
        [3.008155, 3.008155, 3.008155]
    """
    shares = _log_shares(counts, totals, floor)
    sums, numbers = np.zeros((2, len(room))), np.zeros((2, len(room)))  # of the n-grams that begin, that end at a word
    for n, values in enumerate(_against_words(shares) if pmi == "naive" else _against_cuts(shares), start=2):
        fits = room >= n
        values = np.where(fits, np.maximum(values, 0) if ppmi else values, 0.0)
        sums[0] += values
        numbers[0] += fits
        sums[1, n - 1 :] += values[: 1 - n]  # it ends so many words later
        numbers[1, n - 1 :] += fits[: 1 - n]
    if edges == "zero":
        return sums.sum(axis=0) / (len(counts) - 1)
    after, before = sums / np.maximum(numbers, 1)
    return np.where(numbers[1] > 0, before, after) + np.where(numbers[0] > 0, after, before)


def _log_shares(counts: Sequence[np.ndarray], totals: Sequence[int], floor: float) -> list[np.ndarray]:
    """log p of the n-gram that begins at each word, by order; a word never seen counts 1."""
    least = [1.0] + [floor] * (len(counts) - 1)
    return [
        np.log(np.where(count > 0, count, rare)) - np.log(max(total, 1))
        for count, total, rare in zip(counts, totals, least, strict=False)
    ]


def _against_words(shares: list[np.ndarray]) -> list[np.ndarray]:
    """Pointwise mutual information of the n-gram that begins at each word, by order from 2, against single words."""
    parts, found = shares[0], []
    for n in range(2, len(shares) + 1):
        parts = parts + _later(shares[0], n - 1)
        found.append(shares[n - 1] - parts)
    return found


def _against_cuts(shares: list[np.ndarray]) -> list[np.ndarray]:
    """The same against the likeliest cut; `best` is the likeliest way to build an n-gram, whole or cut."""
    best, found = [shares[0]], []
    for n in range(2, len(shares) + 1):
        cut = np.max([shares[k - 1] + _later(best[n - k - 1], k) for k in range(1, n)], axis=0)
        found.append(shares[n - 1] - cut)
        best.append(np.maximum(shares[n - 1], cut))
    return found


def _later(values: np.ndarray, places: int) -> np.ndarray:
    """Each word gets the value of the word so many places later; 0 beyond the end."""
    moved = np.zeros_like(values)
    moved[: max(len(values) - places, 0)] = values[places:]
    return moved


# Keyword weights ------------------------------------------------------------------------------------------------------


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
