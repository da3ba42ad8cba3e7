"""BM25 over stemmed words: the first negatives of every paper here, and the baseline of their
tables.

The score of a passage is the sum, over the words w of the query, of ``idf(w) * tf / (tf + k1 * (1 -
b + b * length / mean_length))`` with ``idf(w) = log(1 + (N - df + 0.5) / (df + 0.5))``: Lucene's
form, with the k1 = 0.9 and b = 0.4 that are usual for MS MARCO passages. Words, stems, stop words
and weights are those of the library `bm25s`. Indexing and search are our own: vectorised, one
sparse product for many queries, ties broken (`benchmarks/bench_bm25.py` compares). Page of the
book: ideas/negatives.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import Stemmer
from datasets import Dataset
from scipy import sparse
from tqdm.auto import tqdm

from dr_lib.collections import Collection
from dr_lib.errors import InputError, check_texts
from dr_lib.files import fresh_folder, new_array, open_array, read_json, write_json
from dr_lib.retrieval.ranking import Ranking
from dr_lib.stages import stage
from dr_lib.tokens import Layout, load_tokenizer, truncate
from dr_lib.words import words_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# passages counted at a time; at most 65,536, since their numbers are 16-bit
CHUNK = 16_384
MATCHES = 1 << 22  # scores in memory at a time
# English stop words of Lucene and bm25s. Importing bm25s for them would, if JAX is installed, start
# JAX on the GPU and reserve three quarters of its memory. fmt: off
STOP_WORDS = (
    "a",
    "an",
    "and",
    "are",
    "as",
    "at",
    "be",
    "but",
    "by",
    "for",
    "if",
    "in",
    "into",
    "is",
    "it",
    "no",
    "not",
    "of",
    "on",
    "or",
    "such",
    "that",
    "the",
    "their",
    "then",
    "there",
    "these",
    "they",
    "this",
    "to",
    "was",
    "will",
    "with",
)
# fmt: on
# the arrays of scipy's csr_matrix
ARRAYS = {"data": np.float32, "indices": np.int32, "indptr": np.int64}


class Bm25:
    """A BM25 index of a collection; made by `build` or `open`.

    Attributes:
        title: whether the title was put before the text.
        passages: number of passages.
    """

    def __init__(self, weights: sparse.csr_matrix, words: "_Words", *, title: bool):
        self.title, self.passages = title, weights.shape[1]
        self._weights, self._words = weights, words

    @classmethod
    def build(
        cls,
        texts: Dataset,
        folder: Path | None = None,
        *,
        title: bool = True,
        k1: float = 0.9,
        b: float = 0.4,
    ) -> "Bm25":
        """Index a collection.

        With a folder, weights are written to disk as they are computed, and memory holds the
        vocabulary and about 3 bytes per (passage, word) pair: just over a gigabyte for the 8.8
        million passages of MS MARCO.

        Args:
            texts: passages with the columns `title` and `text`, read in chunks.
            folder: where to write the index; it is then opened memory-mapped. In memory only if
                None.
            title: put the title before the text.
            k1: saturation of repeated words, at least 0.
            b: share of length normalisation, in [0, 1].

        Raises:
            InputError: no passages, or `k1` or `b` out of range.

        Example:
            >>> texts = Dataset.from_dict(
            ...     {"title": ["", ""], "text": ["a red fox", "two foxes and a dog"]}
            ... )
            >>> Bm25.build(texts).search(["dogs"], k=2).rows.tolist()
            [[1, -1]]
        """
        if not len(texts):
            fix = "Give at least one passage."
            raise InputError("no passage to index", where="texts", fix=fix)
        if not (0 <= k1 < np.inf):
            raise InputError(f"{k1} is not a valid k1", where="k1", fix="Give a number from 0 on.")
        if not 0 <= b <= 1:
            raise InputError(f"{b} is outside [0, 1]", where="b", fix="Give a share.")
        words = _Words()
        chunks = tqdm(range(0, len(texts), CHUNK), desc="bm25", unit="chunk", delay=1)
        counts = [_count(words, _strings(texts, start, title)) for start in chunks]
        if folder is None:
            return cls(_weigh(counts, len(words.stems), k1, b), words, title=title)
        with fresh_folder(folder, "BM25 index") as draft:
            _weigh(counts, len(words.stems), k1, b, draft)
            write_json(draft / "words.json", list(words.stems))
            write_json(draft / "bm25.json", {"title": title, "passages": len(texts)})
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> "Bm25":
        """Open an index; its weights stay on disk (memory-mapped).

        Raises:
            InputError: a file is missing or cut short.
        """
        info = read_json(folder / "bm25.json")
        arrays = [open_array(folder / f"{name}.npy") for name in ARRAYS]
        words = _Words(read_json(folder / "words.json"))
        weights = sparse.csr_matrix(
            tuple(arrays), shape=(len(words.stems), info["passages"]), copy=False
        )
        return cls(weights, words, title=info["title"])

    def search(
        self, queries: Sequence[str], k: int, *, query_ids: Sequence[str] | None = None
    ) -> Ranking:
        """Rank the passages that share a word with each query.

        Args:
            queries: texts.
            k: passages per query; a passage without a word of the query is never returned.
            query_ids: ids for the ranking; "0", "1", ... if None.

        Returns:
            A ranking of depth `min(k, passages)`, order score descending, then row ascending.

        Raises:
            InputError: one text in place of a list, or `k` below 1.
        """
        check_texts(queries=queries, query_ids=query_ids)
        if k < 1:
            raise InputError(f"{k} passages a query", where="k", fix="Ask for at least 1.")
        k = min(k, self.passages)
        rows = np.full((len(queries), k), -1, np.int32)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        words = self._counts(queries)
        bar = tqdm(total=len(queries), desc="bm25 search", unit="query", delay=1)
        for start, stop in self._groups(words):
            matches = words[start:stop] @ self._weights
            for query in range(start, stop):
                ends = slice(*matches.indptr[query - start : query - start + 2])
                places, top = best(matches.indices[ends], matches.data[ends], k)
                rows[query, : len(top)], scores[query, : len(top)] = places, top
            bar.update(stop - start)
        bar.close()
        names = query_ids if query_ids is not None else [str(i) for i in range(len(queries))]
        return Ranking(names, rows, scores, self.passages)

    def pair_scores(
        self, queries: Sequence[str], owners: np.ndarray, rows: np.ndarray
    ) -> np.ndarray:
        """The scores of given passages for each query; 0 for those that share no word with it.

        Args:
            queries: texts.
            owners: `[pairs]` the query of each pair, ascending.
            rows: `[pairs]` the passage of each pair.

        Returns:
            `[pairs]` float32, in the order of the pairs.
        """
        check_texts(queries=queries)
        scores, words = np.zeros(len(rows), np.float32), self._counts(queries)
        for start, stop in self._groups(words):
            part = slice(*np.searchsorted(owners, [start, stop]))
            matches = words[start:stop] @ self._weights
            matches.sort_indices()  # for look-ups by binary search
            scores[part] = np.asarray(matches[owners[part] - start, rows[part]]).reshape(-1)
        return scores

    def _counts(self, queries: Sequence[str]) -> sparse.csr_matrix:
        """How often each known word occurs in each query: `[queries, words]` float32."""
        ids = [self._words.known(query) for query in queries]
        ends = np.cumsum([0, *map(len, ids)])
        words = np.array([word for query in ids for word in query], np.int32)
        shape = (len(queries), self._weights.shape[0])
        counts = sparse.csr_matrix((np.ones(len(words), np.float32), words, ends), shape=shape)
        counts.sum_duplicates()
        return counts

    def _groups(self, words: sparse.csr_matrix) -> Iterator[tuple[int, int]]:
        """Ranges of queries whose matches fit in memory together."""
        matches = np.diff(self._weights.indptr)[words.indices]
        sums = np.append(0, np.cumsum(matches, dtype=np.int64))[words.indptr]
        start = 0
        while start < words.shape[0]:
            stop = max(
                start + 1, int(np.searchsorted(sums, sums[start] + MATCHES, side="right")) - 1
            )
            yield start, stop
            start = stop


class _Words(dict):
    """From a word to the number of its stem, -1 for a stop word; stems are numbered in order of
    appearance.
    """

    def __init__(self, stems: Sequence[str] = ()):
        super().__init__(dict.fromkeys(STOP_WORDS, -1))
        self._stem = Stemmer.Stemmer("english").stemWord
        self.stems = {stem: number for number, stem in enumerate(stems)}

    def __missing__(self, word: str) -> int:
        self[word] = number = self.stems.setdefault(self._stem(word), len(self.stems))
        return number

    def of(self, text: str) -> list[int]:
        """The numbers of a text's words; unknown words are added."""
        return [number for word in words_of(text) if (number := self[word]) >= 0]

    def known(self, text: str) -> list[int]:
        """The numbers of a text's words, without words that no passage contains."""
        stems = (
            self.stems.get(self._stem(word)) for word in words_of(text) if self.get(word) != -1
        )
        return [number for number in stems if number is not None]


def _strings(texts: Dataset, start: int, title: bool) -> list[str]:
    rows = texts[start : start + CHUNK]
    return (
        [f"{a} {b}" for a, b in zip(rows["title"], rows["text"], strict=True)]
        if title
        else rows["text"]
    )


class _Counts(NamedTuple):
    """How often words occur in the passages of a chunk, by word, then passage.

    Attributes:
        words: `[words of the chunk]` int32, ascending.
        frequency: `[words of the chunk]` int32, in how many of its passages each is.
        passages, counts: `[pairs]` index of the passage in the chunk, and how often the word is in
            it; in small integer types.
        lengths: `[passages]` int32, in words.
    """

    words: np.ndarray
    frequency: np.ndarray
    passages: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray


def _count(words: _Words, texts: list[str]) -> _Counts:
    ids = [words.of(text) for text in texts]
    lengths = np.array([len(numbers) for numbers in ids], np.int32)
    numbers = np.fromiter(
        (number for passage in ids for number in passage), np.int64, lengths.sum()
    )
    # Word and passage in one integer: much faster to sort than two keys.
    keys = np.sort((numbers << 16) | np.repeat(np.arange(len(ids)), lengths))
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(first, append=len(keys))
    passages = keys[first] & 0xFFFF
    distinct, frequency = np.unique(keys[first] >> 16, return_counts=True)
    few = np.min_scalar_type(counts.max(initial=0))
    return _Counts(
        distinct.astype(np.int32),
        frequency,
        passages.astype(np.uint16),
        counts.astype(few),
        lengths,
    )


def _weigh(
    chunks: list[_Counts], words: int, k1: float, b: float, folder: Path | None = None
) -> sparse.csr_matrix:
    """The weight of each word in each passage `[words, passages]` float32, in memory or in the
    files of a folder.
    """
    lengths = np.concatenate([chunk.lengths for chunk in chunks])
    frequency = np.zeros(words, np.int64)
    for chunk in chunks:
        frequency[chunk.words] += chunk.frequency
    idf = np.log(1 + (len(lengths) - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
    saturation = k1 * (1 - b + b * lengths / max(lengths.mean(), 1e-9))
    indptr = np.append(0, np.cumsum(frequency))
    # an empty file cannot be memory-mapped
    sizes = [max(1, int(size)) for size in (indptr[-1], indptr[-1], words + 1)]
    arrays = [
        new_array(folder / f"{name}.npy", kind, (size,)) if folder else np.empty(size, kind)
        for (name, kind), size in zip(ARRAYS.items(), sizes, strict=True)
    ]
    data, indices = arrays[:2]
    arrays[2][:] = indptr
    free, start = indptr[:-1].copy(), 0
    for chunk in chunks:
        # The next free position in each word's row, then the ones after it.
        before = np.cumsum(chunk.frequency) - chunk.frequency
        places = np.repeat(free[chunk.words] - before, chunk.frequency) + np.arange(
            len(chunk.passages)
        )
        passages = chunk.passages.astype(np.int32) + start
        shares = chunk.counts / (chunk.counts + saturation[passages])
        indices[places] = passages
        data[places] = np.repeat(idf[chunk.words], chunk.frequency) * shares
        free[chunk.words] += chunk.frequency
        start += len(chunk.lengths)
    return sparse.csr_matrix(tuple(arrays), shape=(words, len(lengths)), copy=False)


@stage(reads=())
def bm25_index(
    folder: Path,
    collection: Collection,
    *,
    title: bool,
    tokenizer: Path | str | None = None,
    layout: Layout | None = None,
) -> None:
    """`index/`: BM25 over the passages, with or without titles; with a layout, only over what an
    encoder reads of them.
    """
    passages = collection.passages
    if layout:
        read = {"tokenizer": load_tokenizer(tokenizer), "layout": layout}
        names = passages.column_names
        passages = passages.map(
            cut_texts,
            batched=True,
            fn_kwargs=read,
            remove_columns=names,
            keep_in_memory=True,
            desc="cut",
        )
    Bm25.build(passages, folder / "index", title=title)


@stage(reads=())
def weighted_bm25_index(
    folder: Path, collection: Collection, *, title: bool, k1: float, b: float
) -> None:
    """`index/`: BM25 over whole passages with other weights than the usual ones."""
    Bm25.build(collection.passages, folder / "index", title=title, k1=k1, b=b)


def cut_texts(
    rows: dict[str, list[str]], tokenizer: "PreTrainedTokenizerFast", layout: Layout
) -> dict[str, list[str]]:
    """What an encoder reads of each passage, as text: a control for what truncation alone costs a
    retriever.

    Args:
        rows: passages with the columns `title` and `text`.
        tokenizer: of the encoder.
        layout: how it reads them.

    Returns:
        `title` and `text`, each up to the last character of its last piece that is read.
    """
    columns = [
        (rows[name], tokenizer(rows[name], add_special_tokens=False, return_offsets_mapping=True))
        for name in ("title", "text")
    ]
    pieces = [np.array([len(ids) for ids in coded["input_ids"]]) for _, coded in columns]
    left = truncate(*pieces, max_length=layout.passage_length, mode=layout.title)
    return {
        name: [
            text[: places[count - 1][1]] if count else ""
            for text, places, count in zip(texts, coded["offset_mapping"], counts, strict=True)
        ]
        for name, (texts, coded), counts in zip(
            ("title", "text"), columns, (left.title, left.body), strict=True
        )
    }


@stage(reads=("split",))
def bm25_run(folder: Path, index: Path, collection: Collection, *, split: str, depth: int) -> None:
    """`ranking/`: BM25's results for the queries of a split, without passages that are the query
    itself (`Collection.own_rows`).
    """
    queries, itself = collection.queries(split), collection.own_rows(split)
    ranking = Bm25.open(index / "index").search(
        queries["text"][:], depth + (itself is not None), query_ids=queries["id"][:]
    )
    ranking.without(itself, depth).save(folder / "ranking")


def best(rows: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The `k` rows with the highest scores, and the scores; best first, ties by ascending row."""
    if len(scores) > k:
        high = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
        rows, scores = rows[high], scores[high]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]
