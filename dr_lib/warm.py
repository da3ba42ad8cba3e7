"""Search that starts at once: what a first search has opened is remembered, and the next one opens
just that, with numpy.

A process spends seconds on importing torch and transformers, yet one question takes little of them:
the weights of its words in the BM25 index, one pass through a BERT, and its product with the
vectors of the passages. That is computed here; `retrieval.Bm25.search`, `models.open_encoder` and
`retrieval.search` are the slow twins that tests compare it with.

A `Memory` holds the state of all that an answer depends on: the files of collection, models and
records, those of the cache, the library's own code and the installed packages. Where anything
differs, a search opens everything anew, and the first answer is computed here too: it does not
change with the second call. Page of the book: practice/own-corpus.
"""

import hashlib
import json
import math
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import Stemmer
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from dr_lib.errors import InputError, visible
from dr_lib.files import open_array, read_json, read_sealed, sealed, write_json
from dr_lib.places import cache_root, data_root, find_data
from dr_lib.words import words_of

SHOWN, INDENT = 240, " " * 6
"""Characters of a passage that are shown, and where its text begins in a terminal."""
BLOCK = 1 << 15
"""Passages whose vectors are in memory at a time."""
GRID = np.linspace(-6, 6, 3073)  # 256 points to a unit; beyond 6, erf is 1 in float32
ERF, SLOPE = (
    np.array([math.erf(x) for x in GRID.tolist()]),
    2 / math.sqrt(math.pi) * np.exp(-(GRID**2)),
)


# What a search gives ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hit:
    """One passage that was found; `grade` is its judgement, None where the query has none for
    it.
    """

    rank: int
    id: str
    title: str
    text: str
    score: float
    grade: int | None = None

    @property
    def relevant(self) -> bool:
        """Whether it is judged relevant: of TREC's grades some are below 0."""
        return (self.grade or 0) > 0


@dataclass(frozen=True)
class Result:
    """The results of every system for one query.

    Attributes:
        query: the question.
        relevant: how many passages are judged relevant to it; None where it is no query of the
            collection.
        hits: system -> passages, best first.
    """

    query: str
    relevant: int | None
    hits: dict[str, list[Hit]]

    @property
    def judged(self) -> str:
        """How many passages are judged relevant, in words; empty where it is no query of the
        collection.
        """
        verb = " is" if self.relevant == 1 else "s are"
        return "" if self.relevant is None else f"{self.relevant} passage{verb} judged relevant"

    def as_text(self, width: int = 100) -> str:
        """The results for a terminal, one system below the other.

        Args:
            width: columns of the terminal.

        Returns:
            The query, a line on its judgements if it has any, and for each passage rank, ``*``
            where it is judged relevant, score and id, then title and text.

        Example:
            >>> hit = Hit(1, "p7", "Tides.", "The moon pulls.", 3.25, grade=1)
            >>> print(Result("why tides", 1, {"BM25": [hit]}).as_text(width=40))
            why tides
            1 passage is judged relevant (*)
            <BLANKLINE>
            BM25
            ----------------------------------------
             1 *    3.250  p7
                  Tides: The moon pulls.
        """
        lines = [one_line(self.query), *([f"{self.judged} (*)"] if self.judged else [])]
        for system, hits in self.hits.items():
            lines += ["", one_line(system), "-" * width, *([] if hits else ["nothing found"])]
            for hit in hits:
                text = shortened(
                    one_line(f"{hit.title.rstrip(' .')}: {hit.text}".removeprefix(": "))
                )
                lines.append(
                    f"{hit.rank:2d} {'*' if hit.relevant else ' '} {hit.score:8.3f} "
                    f" {one_line(hit.id)}"
                )
                lines += wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT)
        return "\n".join(lines)

    def as_json(self) -> str:
        """One line of JSON, safe to look at in a terminal."""
        return visible(json.dumps(asdict(self), ensure_ascii=False))


def shortened(text: str) -> str:
    """As much of a text as is shown, in whole words."""
    return text if len(text) <= SHOWN else text[:SHOWN].rsplit(" ", 1)[0] + " …"


def one_line(text: str) -> str:
    """Text on one line, in which what a terminal would act on is written out.

    Example:
        >>> print(one_line("a\\x1b[31mb\\n c"))
        a\\u001b[31mb c
    """
    return visible(" ".join(text.split()))


class Found(NamedTuple):
    """What a system finds: for each query its rows, best first, and their scores; a
    `retrieval.Ranking` serves too.
    """

    rows: Sequence[np.ndarray]
    scores: Sequence[np.ndarray]


class Searcher:
    """Some systems side by side over one collection.

    Args:
        systems: by the name that is shown: from queries and a depth to what is `Found` (-1 fills up
            a line).
        passages: from rows of the collection to the columns id, title and text.
        grades: from the text of a query to its judgements by passage id, None where it is no query
            of the collection.
    """

    def __init__(
        self,
        systems: Mapping[str, Callable[[Sequence[str], int], Any]],
        passages: Callable[[list[int]], Mapping[str, Sequence[str]]],
        grades: Callable[[str], Mapping[str, int] | None],
    ):
        if not systems:
            raise InputError("nothing to search with", where="search", fix="Give BM25 or a model.")
        self.systems, self._passages, self._grades = dict(systems), passages, grades

    def search(self, queries: str | Sequence[str], k: int = 5) -> list[Result]:
        """The first `k` passages of every system for each query (or the only one); known judgements
        are shown.

        Raises:
            InputError: an empty query, or `k` below 1.
        """
        queries = [queries] if isinstance(queries, str) else queries
        check_queries(queries, k)
        rankings, results = {name: system(queries, k) for name, system in self.systems.items()}, []
        for row, query in enumerate(queries):
            grades = self._grades(query.strip())
            relevant = None if grades is None else sum(grade > 0 for grade in grades.values())
            found = {
                name: self._hits(one.rows[row], one.scores[row], grades or {})
                for name, one in rankings.items()
            }
            results.append(Result(query, relevant, found))
        return results

    def _hits(self, rows: np.ndarray, scores: np.ndarray, grades: Mapping[str, int]) -> list[Hit]:
        passages = self._passages(rows[rows >= 0].tolist())
        columns = zip(
            passages["id"], passages["title"], passages["text"], scores.tolist(), strict=False
        )
        return [Hit(rank, *row, grades.get(row[0])) for rank, row in enumerate(columns, 1)]


def check_queries(queries: Sequence[str], k: int) -> None:
    """Raise `InputError` for an empty query or a `k` below 1; worth knowing before an index is
    made.
    """
    if any(not query.strip() for query in queries):
        raise InputError("the query is empty", where="search", fix="Write a question.")
    if k < 1:
        raise InputError(f"k is {k}", where="k", fix="Give 1 or more.")


# One question at a time, with numpy ---------------------------------------------------------------


class WordSearch:
    """BM25 from the files of an index.

    Args:
        index: folder that `retrieval.Bm25.build` wrote.
        stop_words: words that do not count.

    Raises:
        InputError: a file is missing or cut short.
    """

    def __init__(self, index: str | Path, stop_words: Iterable[str]):
        index = Path(index)
        self.passages = read_json(index / "bm25.json")["passages"]
        self._weights, self._rows, self._ends = (
            open_array(index / f"{name}.npy") for name in ("data", "indices", "indptr")
        )
        self._numbers = {
            stem: number for number, stem in enumerate(read_json(index / "words.json"))
        }
        self._stop_words, self._stem = frozenset(stop_words), Stemmer.Stemmer("english").stemWord

    def __call__(self, query: str, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows `[found]` of the best passages that share a word with the query, at most `k`, and
        scores float32.
        """
        words = [word for word in words_of(query) if word not in self._stop_words]
        counts = Counter(
            number for word in words if (number := self._numbers.get(self._stem(word))) is not None
        )
        scores = np.zeros(self.passages, np.float32)
        for number, count in sorted(counts.items()):  # the order of the slow twin's sparse product
            part = slice(*self._ends[number : number + 2])
            # no passage is twice in a word's row
            scores[self._rows[part]] += np.float32(count) * self._weights[part]
        rows = np.flatnonzero(scores)
        return best(rows, scores[rows], k)


class VectorSearch:
    """A dense retriever: the vector of a question, then the passages nearest to it.

    Args:
        encoder: arguments of `QueryEncoder`.
        vectors: `.npy` files with the vectors of the passages, in order.
    """

    def __init__(self, encoder: Mapping[str, Any], vectors: Sequence[str]):
        self._encoder, self._vectors = (
            QueryEncoder(**encoder),
            [open_array(path) for path in vectors],
        )

    def __call__(self, query: str, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows `[found]` of the nearest passages, at most `k`, and scores float32."""
        return nearest(self._encoder(query), self._vectors, k)


@dataclass(eq=False)
class QueryEncoder:
    """A BERT with absolute positions and GELU, for one question at a time (Devlin et al. 2019).

    Args:
        weights: file of its weights (safetensors), with or without a head.
        tokenizer: its `tokenizer.json`.
        layers, heads: sizes.
        epsilon: of its LayerNorms.
        first, last: ids of [CLS] and [SEP].
        length: longest sequence, special tokens included.
        side: the end that a long question loses, "right" or "left".
        plain: whether the name of a special token in a text is ordinary text.
        prompt: what stands before a question.
        pooling: "cls" or "mean".
        projection: file with the weights of a `models.Projection`, None where there is none.
        normalise: whether vectors have length 1.

    Raises:
        InputError: a file that is not there, or without the weights of a BERT in a type that numpy
            has.
    """

    weights: str
    tokenizer: str
    layers: int
    heads: int
    epsilon: float
    first: int
    last: int
    length: int
    side: str
    plain: bool
    prompt: str
    pooling: str
    projection: str | None
    normalise: bool

    def __post_init__(self) -> None:
        self._pieces = Tokenizer.from_file(self.tokenizer)
        self._pieces.no_truncation()
        self._pieces.no_padding()
        self._pieces.encode_special_tokens = self.plain
        try:
            file = safe_open(self.weights, "numpy")
            names = file.keys()
            words = next(
                name for name in names if name.endswith("embeddings.word_embeddings.weight")
            )
            # "bert." where it was saved with a head
            prefix = words.removesuffix("embeddings.word_embeddings.weight")
            used = [
                name
                for name in names
                if name.startswith((f"{prefix}embeddings.", f"{prefix}encoder.")) and name != words
            ]
            self._weights = {
                name.removeprefix(prefix): file.get_tensor(name).astype(np.float32, copy=False)
                for name in used
            }
            # much of the file, of which a question reads a few rows
            self._words = file.get_slice(words)
            if self.projection:
                extra = safe_open(self.projection, "numpy")
                names = extra.keys()
                self._weights |= {
                    name: extra.get_tensor(name).astype(np.float32, copy=False) for name in names
                }
        except (OSError, SafetensorError, TypeError, StopIteration) as error:
            raise InputError(
                f"not the weights of a BERT ({error})",
                where=self.weights,
                fix="Save the model again.",
            ) from error

    def __call__(self, query: str) -> np.ndarray:
        """The vector `[hidden]` float32 of a question."""
        pieces, room = (
            self._pieces.encode(self.prompt + query, add_special_tokens=False).ids,
            self.length - 2,
        )
        kept = pieces[:room] if self.side == "right" else pieces[max(0, len(pieces) - room) :]
        states = self.states([self.first, *kept, self.last])
        vector = states[0] if self.pooling == "cls" else states.mean(0)
        if self.projection:
            vector = self._norm(self._linear(vector, "projection.linear"), "projection.norm", 1e-5)
        return vector / np.linalg.norm(vector) if self.normalise else vector

    def states(self, ids: Sequence[int]) -> np.ndarray:
        """Last-layer states `[length, hidden]` float32 of a sequence of ids."""
        words = np.concatenate([self._words[number : number + 1] for number in ids]).astype(
            np.float32
        )
        positions, types = (
            self._weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("position", "token_type")
        )
        states = words + positions[: len(ids)] + types[0]
        states = self._norm(states, "embeddings.LayerNorm")
        for layer in (f"encoder.layer.{number}" for number in range(self.layers)):
            parts = (
                self._linear(states, f"{layer}.attention.self.{part}")
                for part in ("query", "key", "value")
            )
            query, key, value = (
                part.reshape(len(ids), self.heads, -1).transpose(1, 0, 2) for part in parts
            )
            # [heads, length, length]
            scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(query.shape[2]))
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            taken = (shares @ value).transpose(1, 0, 2).reshape(len(ids), -1)
            taken = self._linear(taken, f"{layer}.attention.output.dense")
            states = self._norm(states + taken, f"{layer}.attention.output.LayerNorm")
            wide = gelu(self._linear(states, f"{layer}.intermediate.dense"))
            states = self._norm(
                states + self._linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm"
            )
        return states

    def _linear(self, states: np.ndarray, name: str) -> np.ndarray:
        return states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, states: np.ndarray, name: str, epsilon: float | None = None) -> np.ndarray:
        centred = states - states.mean(-1, keepdims=True)
        spread = np.sqrt(
            np.square(centred).mean(-1, keepdims=True) + np.float32(epsilon or self.epsilon)
        )
        return centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the share of a normal distribution below x (Hendrycks and Gimpel 2016), float32 as
    `x` is.

    erf is read from a table of 256 points to a unit and carried to the value between by its first
    two derivatives, which leaves it off by 3e-9 at most; `math.erf` for each number would take ten
    times as long.

    Example:
        >>> gelu(np.array([-1.0, 0.0, 2.0], np.float32)).round(4).tolist()
        [-0.15870000422000885, 0.0, 1.9544999599456787]
    """
    scaled = (x / math.sqrt(2)).astype(np.float64).clip(-6, 6)
    near = np.rint((scaled + 6) * 256).astype(np.int32)
    off = scaled - GRID[near]
    erf = ERF[near] + off * SLOPE[near] * (1 - off * GRID[near])
    return (x * 0.5 * (1 + erf)).astype(np.float32)


def nearest(
    query: np.ndarray, shards: Sequence[np.ndarray], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The passages of highest inner product with one query, as `retrieval.search` finds and orders
    them.

    Products in float32 only propose. With all of them off by at most e, whoever belongs among the
    first k has a product of at least the k-th highest less 2e; what has is computed again in
    float64, rounded to float32, and that decides.

    Args:
        query: `[hidden]` float32.
        shards: `[passages, hidden]` each, float16 or float32, perhaps memory-mapped; their rows are
            counted on.
        k: passages wanted.

    Returns:
        Rows `[min(k, passages)]` int64 and scores float32, order score descending, then row
        ascending.

    Example:
        >>> nearest(
        ...     np.array([1, 0], np.float32),
        ...     [np.eye(2, dtype=np.float32), np.ones((1, 2), np.float32)],
        ...     k=2,
        ... )[0].tolist()
        [0, 2]
    """
    rows, scores, first = np.zeros(0, np.int64), np.zeros(0, np.float32), 0
    length = np.linalg.norm(query.astype(np.float64))
    for block in (
        shard[start : start + BLOCK] for shard in shards for start in range(0, len(shard), BLOCK)
    ):
        vectors = np.require(block, np.float32, "C")
        longest = np.sqrt(np.vecdot(vectors, vectors).max())
        # the bound of `retrieval.search`
        off = 1.02 * (len(query) + 8) * 2.0**-23 * length * float(longest) + 1e-35
        fast = (vectors @ query).astype(np.float64)
        least = (
            np.partition(fast, len(fast) - k)[len(fast) - k] - 2 * off if len(fast) > k else -np.inf
        )
        likely = np.flatnonzero(
            fast >= (max(least, scores[k - 1] - off) if len(scores) == k else least)
        )
        true = np.vecdot(vectors[likely], query.astype(np.float64)).astype(np.float32)
        rows, scores = best(
            np.concatenate([rows, likely + first]), np.concatenate([scores, true]), k
        )
        first += len(vectors)
    return rows, scores


def best(rows: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The `k` rows of the highest scores and these, best first, equal scores by ascending row."""
    if len(scores) > k:
        high = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
        rows, scores = rows[high], scores[high]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


# A collection without the library of its Arrow files ----------------------------------------------


class Texts:
    """Passages and judgements of a collection, from the Arrow files that `collections.open_source`
    made.

    Args:
        folder: of these files.
    """

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        splits = read_json(folder / "collection.json")["splits"]
        tables = [
            folder / name
            for name in ("passages.arrow", "queries.arrow", *(name for _, name in splits))
        ]
        self._passages, self._queries, *self._judged = (
            pa.ipc.open_stream(pa.memory_map(str(one))).read_all() for one in tables
        )

    def passages(self, rows: Sequence[int]) -> dict[str, list[str]]:
        """The columns id, title and text of some passages."""
        return {
            name: [self._passages[name][row].as_py() for row in rows]
            for name in ("id", "title", "text")
        }

    def grades(self, query: str) -> dict[str, int] | None:
        """Passage id -> grade over all splits, for a query of the collection that has judgements;
        else None.
        """
        texts, found = self._queries["text"], {}
        rows = pc.indices_nonzero(pc.match_substring(texts, query)).to_pylist()
        ids = [
            self._queries["id"][row].as_py() for row in rows if texts[row].as_py().strip() == query
        ]
        for split in self._judged if ids else ():
            # by query, since of two with one text the later one counts
            own: dict[str, dict[str, int]] = {}
            for one in split.filter(pc.is_in(split["query"], pa.array(ids))).to_pylist():
                own.setdefault(one["query"], {})[one["passage"]] = one["grade"]
            for grades in own.values():
                found |= grades
        return found or None


# What was opened, and from what -------------------------------------------------------------------


class Memory:
    """What searches with the same arguments from the same place opened the last time.

    Args:
        source: the collection or record, as a command line names it.
        models: records, folders and names of retrievers, likewise.
        reranker: folder of a re-ranker, with which nothing is remembered.
        bm25: whether BM25 is one of the systems.

    Attributes:
        file: where it is kept.
        given: the state of all that decides what is opened, as it was before; None where that
            cannot be told.
    """

    def __init__(
        self,
        source: str,
        models: Sequence[Path] = (),
        reranker: Path | None = None,
        *,
        bm25: bool = True,
    ):
        self.given, self._source, self._models = None, source, [str(model) for model in models]
        # told by whoever opens it
        with suppress(InputError, LookupError, TypeError, OSError, ValueError, RuntimeError):
            # the first is of the caller
            around = [Path.cwd(), os.environ.get("HOME"), data_root(), sys.version, sys.path[1:]]
            key = hashlib.sha256(repr([source, self._models, bm25, *around]).encode()).hexdigest()
            self.file = cache_root() / "searches" / f"{key[:16]}.json"
            self.given = None if reranker or not source.strip() else self._now()

    def recall(self) -> Searcher | None:
        """The searcher as it was opened then; None where there was none, or anything has
        changed.
        """
        if self.given is None:
            return None
        with suppress(InputError):
            kept = read_sealed(self.file, "memory of a search", "Remove it.")
            if kept.get("given") == self.given and all(
                state_of(place) == state for place, state in kept["opened"].items()
            ):
                return opened(kept["collection"], kept["systems"])
        return None

    def keep(
        self,
        collection: str | Path,
        systems: Sequence[tuple[str, Mapping[str, Any]]],
        places: Iterable[str | Path],
    ) -> None:
        """Remember what was opened, unless what decides it has changed since.

        Args:
            collection, systems: as `opened` takes them.
            places: files and folders that they lie in, and whatever else they were made from.
        """
        if self.given is not None and self._now() == self.given:
            states = {
                str(place): state_of(place) for place in places if str(place) not in self.given
            }
            content = {
                "given": self.given,
                "opened": states,
                "collection": str(collection),
                "systems": list(systems),
            }
            # a cache that cannot be written, a path that is not UTF-8: it stays slow
            with suppress(OSError, ValueError):
                write_json(self.file, sealed(content))

    def _now(self) -> dict[str, str]:
        """The state of every place where a search looks for what it was given, and of the code that
        looks.
        """
        collections, others = [self._source], [*self._models]
        for name in filter(names_record, (self._source, *self._models)):
            recipe = read_json(Path(name).expanduser())["recipe"]
            collections.append(recipe["collection"]["name"])
            others += [recipe["retriever"]] if recipe.get("retriever") else []
        found = {Path(name).expanduser() for name in (*collections, *others)}
        found |= {root / name for root in (data_root(),) if root for name in collections}
        # perhaps a method, of which the newest record counts
        if not all(Path(name).exists() for name in self._models):
            found.add(cache_root() / "records")
        states = {str(place): state_of(place) for place in found}
        return states | {"library": state_of(Path(__file__).parent, ".py"), "packages": _packages()}


def opened(collection: str | Path, systems: Sequence[tuple[str, Mapping[str, Any]]]) -> Searcher:
    """The searcher of a collection.

    Args:
        collection: folder of its Arrow files.
        systems: the name that is shown, and arguments of `WordSearch` or `VectorSearch`.

    Raises:
        InputError: a file that cannot be used.
    """

    def each(
        one: Callable[[str, int], tuple[np.ndarray, np.ndarray]], queries: Sequence[str], k: int
    ) -> Found:
        pairs = [one(query, k) for query in queries]
        return Found([rows for rows, _ in pairs], [scores for _, scores in pairs])

    texts = Texts(collection)
    made = {name: (WordSearch if "index" in own else VectorSearch)(**own) for name, own in systems}
    return Searcher(
        {name: partial(each, one) for name, one in made.items()}, texts.passages, texts.grades
    )


def names_record(source: str) -> bool:
    """Whether a .json file is a record: one object with its checksum first, where a collection has
    an object a line.
    """
    path = Path(source).expanduser()
    if not source.endswith(".json") or not path.is_file():
        return source.endswith(".json") and find_data(source) is None
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().strip() == "{" and file.readline().lstrip().startswith('"checksum"')


def state_of(place: str | Path, ending: str = "") -> str:
    """SHA-256 (hex) of the state of a file, or of the files of a folder whose names have an ending.

    No file is read: one that was changed or replaced has another size, inode or time, and nobody
    sets the time of an inode (ctime). What lies in hidden folders does not count, since no
    collection and no model has anything there.
    """
    files, known = [Path(place)], set()
    for folder, inner, names in os.walk(place, followlinks=True):
        if (here := Path(folder).resolve()) in known:  # a link that leads back
            inner.clear()
            continue
        known.add(here)
        inner[:] = [name for name in inner if not name.startswith(".")]
        files += [Path(folder, name) for name in names if name.endswith(ending)]
    facts = []
    for path in sorted(files):
        with suppress(OSError):  # not there, or a link to nothing
            if stat.S_ISREG((one := path.stat()).st_mode):
                facts.append((str(path), one.st_size, one.st_ino, one.st_mtime_ns, one.st_ctime_ns))
    return hashlib.sha256(
        repr([Path(place).resolve(), Path(place).exists(), facts]).encode()
    ).hexdigest()


def _packages() -> str:
    """SHA-256 (hex) of names, versions and times of what is installed, as the folders with its
    metadata have them.
    """
    found = []
    for place in sys.path:
        with suppress(OSError), os.scandir(place or ".") as entries:
            found += [
                (one.name, one.stat().st_mtime_ns)
                for one in entries
                if one.name.endswith((".dist-info", ".egg-info"))
            ]
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()
