"""BM25 over stemmed words, on `bm25s`: the first negatives of every paper here, and the baseline of their tables.

The score of a passage is the sum, over the words w of the query, of
``idf(w) * tf / (tf + k1 * (1 - b + b * length / mean_length))`` with ``idf(w) = log(1 + (N - df + 0.5) / (df + 0.5))``:
Lucene's form, with the k1 = 0.9 and b = 0.4 that are usual for MS MARCO passages. Tokens, weights and files are those
of `bm25s`; what is ours is the building (whole arrays at a time, where the library walks over passages in Python) and
the search (one sparse product for many queries, with ties decided). Page of the book: ideas/negatives.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from bm25s.tokenization import Tokenizer
from datasets import Dataset
from scipy import sparse
from tqdm.auto import tqdm

from dr_lib.collections import Collection
from dr_lib.errors import InputError, check_share
from dr_lib.files import file_digest, fresh_folder, read_json, write_json
from dr_lib.retrieval.ranking import Ranking
from dr_lib.stages import stage

CHUNK = 16_384
MATCHES = 1 << 22


class Bm25:
    """A BM25 index of a collection; made by `build` or `open`.

    Attributes:
        index: the `bm25s` index; its score matrix may be memory-mapped.
        title: whether the title was put before the text.
        passages: number of passages.
    """

    def __init__(self, index: bm25s.BM25, *, title: bool, language: str):
        self.index, self.title, self.language = index, title, language
        self.passages = int(index.scores["num_docs"])
        self._tokenizer = _tokenizer(language)
        self._tokenizer.stem_to_sid = index.vocab_dict
        shape = (len(index.scores["indptr"]) - 1, self.passages)
        self._weights = sparse.csr_matrix(
            (index.scores["data"], index.scores["indices"], index.scores["indptr"]), shape=shape, copy=False
        )

    @classmethod
    def build(
        cls,
        texts: Dataset,
        folder: Path | None = None,
        *,
        title: bool = True,
        k1: float = 0.9,
        b: float = 0.4,
        language: str = "english",
        progress: bool = True,
    ) -> "Bm25":
        """Index a collection.

        Args:
            texts: passages with the columns `title` and `text`, read in chunks.
            folder: where to write the index; it is then opened memory-mapped. In memory only if None.
            title: put the title before the text.
            k1: saturation of repeated words, at least 0.
            b: share of length normalisation, in [0, 1].
            language: name of a Snowball stemmer; stop words are those of `bm25s` for it.
            progress: show a bar.

        Raises:
            InputError: no passage, a rate out of range, or an unknown language.

        Example:
            >>> texts = Dataset.from_dict({"title": ["", ""], "text": ["a red fox", "two foxes and a dog"]})
            >>> Bm25.build(texts, progress=False).search(["dogs"], k=2).rows.tolist()
            [[1, -1]]
        """
        check_share(b, "b")
        if k1 < 0:
            raise InputError(f"k1 is {k1}", where="k1", fix="Give a number of at least 0.")
        if len(texts) == 0:
            raise InputError("there is no passage to index", where="bm25", fix="Give a collection with passages.")
        tokenizer, parts = _tokenizer(language), []
        chunks = tqdm(range(0, len(texts), CHUNK), desc="bm25", unit="chunk", disable=not progress)
        parts = [_count(tokenizer, _strings(texts, start, title)) for start in chunks]
        index = bm25s.BM25(k1=k1, b=b, method="lucene")
        index.vocab_dict, index.nonoccurrence_array = dict(tokenizer.stem_to_sid), None
        index.unique_token_ids_set = set(index.vocab_dict.values())
        index.scores = _weigh(parts, len(index.vocab_dict), k1, b)
        built = cls(index, title=title, language=language)
        if folder is None:
            return built
        built.save(folder)
        return cls.open(folder)

    def save(self, folder: Path) -> None:
        """Write the index in the files of `bm25s` (`.npy` and JSON) beside `bm25.json`, in one step."""
        with fresh_folder(Path(folder)) as draft:
            self.index.save(draft, show_progress=False)
            files = {path.name: file_digest(path) for path in sorted(draft.iterdir())}
            info = {"title": self.title, "language": self.language, "passages": self.passages, "files": files}
            write_json(draft / "bm25.json", info)

    @classmethod
    def open(cls, folder: Path) -> "Bm25":
        """Open a saved index; its score matrix stays on disk (memory-mapped).

        Raises:
            InputError: a file is missing, cut short or altered.
        """
        folder = Path(folder)
        info = read_json(folder / "bm25.json")
        for name, digest in info["files"].items():
            if not (folder / name).is_file() or file_digest(folder / name) != digest:
                raise InputError("file is missing or altered", where=folder / name, fix="Build the index again.")
        index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        return cls(index, title=info["title"], language=info["language"])

    def search(
        self, queries: Sequence[str], k: int, *, query_ids: Sequence[str] | None = None, progress: bool = False
    ) -> Ranking:
        """Rank the passages that share a word with each query.

        Args:
            queries: texts.
            k: passages wanted a query; a passage without a word of the query is never returned.
            query_ids: ids for the ranking; "0", "1", ... if None.
            progress: show a bar.

        Returns:
            A ranking of depth `min(k, passages)`, order score descending, then row ascending.

        Raises:
            InputError: `k` is below 1.
        """
        if k < 1:
            raise InputError(f"k is {k}", where="k", fix="Ask for at least one passage.")
        k = min(k, self.passages)
        rows = np.full((len(queries), k), -1, np.int32)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        words = self._words(queries)
        bar = tqdm(total=len(queries), desc="bm25 search", unit="query", disable=not progress)
        for start, stop in self._groups(words):
            found = words[start:stop] @ self._weights
            for query in range(start, stop):
                ends = slice(*found.indptr[query - start : query - start + 2])
                best, places = _best(found.data[ends], found.indices[ends], k)
                rows[query, : len(best)], scores[query, : len(best)] = places, best
            bar.update(stop - start)
        bar.close()
        names = query_ids if query_ids is not None else [str(i) for i in range(len(queries))]
        return Ranking(names, rows, scores, self.passages)

    def pair_scores(self, queries: Sequence[str], owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The scores of some passages of each query, those that share no word with it (0) included.

        Args:
            queries: texts.
            owners: `[pairs]` the query of each pair, ascending.
            rows: `[pairs]` the passage of each pair.

        Returns:
            `[pairs]` float32, in the order of the pairs.
        """
        scores, words = np.zeros(len(rows), np.float32), self._words(queries)
        for start, stop in self._groups(words):
            part = slice(*np.searchsorted(owners, [start, stop]))
            found = words[start:stop] @ self._weights
            found.sort_indices()  # it is then looked up by halving, not from end to end
            scores[part] = np.asarray(found[owners[part] - start, rows[part]]).reshape(-1)
        return scores

    def _words(self, queries: Sequence[str]) -> sparse.csr_matrix:
        """How often each known word occurs in each query: `[queries, words]` float32."""
        found = list(self._tokenizer.streaming_tokenize(queries, update_vocab=False, allow_empty=False))
        ends = np.cumsum([0, *map(len, found)])
        words = np.array([word for ids in found for word in ids], np.int32)
        shape = (len(queries), self._weights.shape[0])
        counts = sparse.csr_matrix((np.ones(len(words), np.float32), words, ends), shape=shape)
        counts.sum_duplicates()
        return counts

    def _groups(self, words: sparse.csr_matrix) -> Iterator[tuple[int, int]]:
        """Runs of queries whose matches fit in memory together."""
        matches = np.diff(self._weights.indptr)[words.indices]
        sums = np.concatenate([[0], np.cumsum(matches, dtype=np.int64)])[words.indptr]
        start = 0
        while start < words.shape[0]:
            stop = max(start + 1, int(np.searchsorted(sums, sums[start] + MATCHES, side="right")) - 1)
            yield start, stop
            start = stop


def _tokenizer(language: str) -> Tokenizer:
    try:
        return Tokenizer(stemmer=Stemmer.Stemmer(language), stopwords=language)
    except (KeyError, ValueError):
        known = ", ".join(Stemmer.algorithms())
        raise InputError(
            f"no stemmer or stop words for {language!r}", where="language", fix=f"Known: {known}."
        ) from None


def _strings(texts: Dataset, start: int, title: bool) -> list[str]:
    rows = texts[start : start + CHUNK]
    return [f"{a} {b}" for a, b in zip(rows["title"], rows["text"], strict=True)] if title else rows["text"]


def _count(tokenizer: Tokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Words of a chunk of passages, sorted by word, then passage: word, passage in chunk, count; and all lengths."""
    ids = list(tokenizer.streaming_tokenize(texts, update_vocab=True, allow_empty=False))
    lengths = np.array([len(words) for words in ids], np.int32)
    words = np.fromiter((word for passage in ids for word in passage), np.int64, lengths.sum())
    keys = np.sort((words << 32) | np.repeat(np.arange(len(ids)), lengths))
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(first, append=len(keys))
    keys = keys[first]
    return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32), counts.astype(np.int32), lengths


def _weigh(parts: list[tuple[np.ndarray, ...]], vocabulary: int, k1: float, b: float) -> dict[str, np.ndarray | int]:
    """Put the counts of all chunks in one matrix, word by word, as `bm25s` keeps it, and turn them into scores."""
    lengths = np.concatenate([part[3] for part in parts])
    frequency = sum((np.bincount(part[0], minlength=vocabulary) for part in parts), np.zeros(vocabulary, np.int64))
    idf = np.log(1 + (len(lengths) - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(frequency)])
    data, indices = np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32)
    saturation = k1 * (1 - b + b * lengths / max(lengths.mean(), 1e-9))
    free, start = indptr[:-1].copy(), 0
    for words, passages, counts, chunk_lengths in parts:
        places = free[words] + np.arange(len(words)) - np.searchsorted(words, words)
        indices[places] = passages + start
        data[places] = idf[words] * (counts / (counts + saturation[passages + start]))
        free += np.bincount(words, minlength=vocabulary)
        start += len(chunk_lengths)
    return {"data": data, "indices": indices, "indptr": indptr, "num_docs": len(lengths)}


def _best(scores: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The `k` highest scores and their rows, equal scores by ascending row."""
    if len(scores) > k:
        kept = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
        scores, rows = scores[kept], rows[kept]
    order = np.lexsort((rows, -scores))[:k]
    return scores[order], rows[order]


@stage()
def bm25_index(folder: Path, collection: Collection, *, title: bool) -> None:
    """`index/`: BM25 over the passages, titles included or not."""
    Bm25.build(collection.passages, folder / "index", title=title)


@stage()
def bm25_run(folder: Path, index: Path, collection: Collection, *, split: str, depth: int) -> None:
    """`ranking/`: what BM25 finds for the queries of a split."""
    queries = collection.queries(split)
    ranking = Bm25.open(index / "index").search(queries["text"][:], depth, query_ids=queries["id"][:], progress=True)
    ranking.save(folder / "ranking")
