"""The data of the page "Search with the models": small retrievers, passages, their vectors and
judged questions.

The page searches in the reader's browser (`book/extra/search-page/search.js`), also from disk,
where a page may load only scripts. So everything is a script with one string: gzipped JSON or
safetensors, 7 bits a letter. It is written here when the book is built. The retrievers are trained
here too, at the first build, within a minute each on one core.

`make book SEARCHED=NAME` searches another collection, with retrievers trained on its own questions,
or on Primer's if it has none; without judged questions only typed ones are answered. Page:
practice/search-in-the-page.
"""

import gzip
import inspect
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import Stemmer
import torch
from bm25s.stopwords import STOPWORDS_EN
from IPython.display import HTML
from safetensors.numpy import load, load_file, save, save_file
from transformers import AutoConfig, AutoModelForMaskedLM

from dr_book.tables import QUESTION_KINDS, data_named, table
from dr_lib import collections, retrieval, tokens
from dr_lib.collections import Collection, judged_rows
from dr_lib.files import file_digest, write_text
from dr_lib.lab import Cache, Data, Recipe, Run, execute, models_of, open_checkpoint, stage
from dr_lib.models import DenseEncoder, DenseSettings
from dr_lib.objectives import NAMES
from dr_lib.retrieval import Bm25, encode, encode_queries
from dr_lib.tokens import TokenStore, load_tokenizer
from dr_lib.words import words_of

FOLDER = "extra/search-page"
SEARCHED = os.environ.get("SEARCHED") or "primer"
METHODS = ("simlm", "retromae", "mlm", "none")
"""Pre-training methods that need only passages, in the order of the page, beginning with a
bottleneck method.
"""
MEASURE, CUT = "MRR@10", 10
TRAINING: dict[str, Any] = {
    "passage_length": 128,
    "query_length": 32,
    "pretraining": {"steps": 50, "learning_rate": 1e-3, "tokens_per_batch": 2048},
    "finetuning": {"steps": 50, "learning_rate": 5e-4, "batch_queries": 32, "negatives": 1},
    "evaluation": {"measures": [MEASURE]},
}
"""Two epochs of Primer's training questions; four took twice as long and found no more."""
WEIGHTS = "model.safetensors.gz"
WRITTEN = ("systems.inc", "loaded.inc")
"""Files that the page includes when built; scripts are loaded on demand."""
DEEPEST = 1000
"""The lowest rank that is reported; below it a passage counts as not found."""
EXAMPLES, FLIPS = 8, 4
WORDS, POSITIONS = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
WORD_STEPS = 31
"""Quantisation steps from 0 to the largest number of a word embedding: embeddings are most of a
retriever, and tolerate coarser steps.
"""
CONFIG = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
CONFIG += ("hidden_act", "layer_norm_eps", "max_position_embeddings", "type_vocab_size")


# Weights and vectors in 8 bits --------------------------------------------------------------------


def quantised(rows: np.ndarray, steps: int = 127) -> tuple[np.ndarray, np.ndarray]:
    """A matrix as whole numbers and a factor for each row: ``rows ≈ numbers * factors[:, None]``.

    Args:
        rows: `[rows, columns]` float.
        steps: the largest whole number, at most 127.

    Returns:
        Numbers `[rows, columns]` int8 from `-steps` to `steps`, and factors `[rows]` float32.

    Example:
        >>> numbers, factors = quantised(np.array([[2.0, -254.0], [0.0, 0.0]]))
        >>> numbers.tolist(), factors.tolist()
        ([[1, -127], [0, 0]], [2.0, 1.0])
    """
    largest = np.abs(rows).max(1)
    factors = np.where(largest > 0, largest / steps, 1).astype(np.float32)
    return np.round(rows / factors[:, None]).astype(np.int8), factors


@once
def base_words() -> tuple[np.ndarray, np.ndarray]:
    """Word embeddings of the embedded base model `[vocab, hidden]` int8, and their factors
    `[vocab]`.

    Every retriever starts from them and changes them little: stored as differences, its own take a
    third of the bytes.
    """
    return quantised(_arrays(DenseEncoder.from_pretrained("embedded"))[WORDS], WORD_STEPS)


def _arrays(model: DenseEncoder) -> dict[str, np.ndarray]:
    return {name: tensor.float().numpy() for name, tensor in model.encoder.state_dict().items()}


def write_weights(model: DenseEncoder, file: Path) -> None:
    """Write a retriever in 8 bits: matrices as whole numbers beside "<name>.factors", biases and
    LayerNorm as float32.

    Word embeddings are differences to `base_words`, in its steps. Positions that passages never
    reach are left out; configuration and settings are in the metadata.
    """
    longest, arrays = model.settings.passage_length, {}
    for name, values in _arrays(model).items():
        if name == WORDS:
            numbers, factors = base_words()
            arrays[name] = np.clip(np.round(values / factors[:, None]) - numbers, -127, 127).astype(
                np.int8
            )
        elif values.ndim == 2:
            arrays[name], arrays[f"{name}.factors"] = quantised(
                values[: longest if name == POSITIONS else None]
            )
        else:
            arrays[name] = values
    config = model.encoder.config.to_dict() | {"max_position_embeddings": longest}
    metadata = {
        "config": json.dumps({name: config[name] for name in CONFIG}),
        "dense": model.settings.model_dump_json(),
    }
    file.write_bytes(squeezed(save(arrays, metadata)))


def unpack(file: Path) -> DenseEncoder:
    """The retriever of a `model.safetensors.gz`, with the tokenizer of the embedded base model."""
    content = gzip.decompress(file.read_bytes())
    settings = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    arrays, (numbers, factors) = load(content), base_words()
    arrays |= {WORDS: numbers.astype(np.int16) + arrays[WORDS], f"{WORDS}.factors": factors}
    state = {name: _whole(arrays, name) for name in arrays if not name.endswith(".factors")}
    options = json.loads(settings["config"]) | {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    config = AutoConfig.for_model(**options)
    model = AutoModelForMaskedLM.from_config(config).base_model.eval()
    model.load_state_dict(state)
    return DenseEncoder(
        model, DenseSettings(**json.loads(settings["dense"])), load_tokenizer("embedded")
    )


def _whole(arrays: Mapping[str, np.ndarray], name: str) -> torch.Tensor:
    factors = arrays.get(f"{name}.factors")
    return torch.from_numpy(arrays[name] if factors is None else arrays[name] * factors[:, None])


def on_axes(vectors: np.ndarray) -> dict[str, np.ndarray]:
    """Vectors in the basis of their principal axes, in whole numbers with a common step.

    ``vectors ≈ step * components.T @ axes``. On most axes the numbers are small, which gzip stores
    in few bits. No component of a vector of length 1 is above 1, so 127 steps are enough.

    Args:
        vectors: `[passages, hidden]` float32.

    Returns:
        `components` `[hidden, passages]` int8, `axes` `[hidden, hidden]` float32 (orthonormal
        rows), `step` `[1]` float32.
    """
    axes = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors)[1].T.astype(np.float32, order="C")
    components = axes @ vectors.T
    step = np.maximum(1, np.abs(components).max(initial=0)) / np.float32(127)
    # safetensors writes an array's memory unchanged
    numbers = np.round(components / step).astype(np.int8, order="C")
    return {"components": numbers, "axes": axes, "step": np.array([step], np.float32)}


def from_axes(stored: Mapping[str, np.ndarray]) -> np.ndarray:
    """Vectors `[passages, hidden]` float32 from the output of `on_axes`."""
    return stored["step"] * stored["components"].T.astype(np.float32) @ stored["axes"]


@stage()
def small_weights(folder: Path, model: Path) -> None:
    """`model.safetensors.gz`: a retriever in 8 bits."""
    write_weights(DenseEncoder.from_pretrained(model), folder / WEIGHTS)


@stage(resumable=True)
def small_vectors(folder: Path, weights: Path, passages: Path) -> None:
    """`vectors.safetensors`: every passage as a vector of a retriever in 8 bits, stored by
    `on_axes`.
    """
    model = unpack(weights)
    store = TokenStore.open(passages / "store")
    found = encode(
        model,
        store,
        folder / ".vectors.npy",
        **model.settings.passages,
        normalise=model.settings.normalise,
    )
    save_file(on_axes(found), folder / "vectors.safetensors")


@stage()
def small_queries(folder: Path, weights: Path, queries: Path) -> None:
    """`queries.npy`: the queries of a split as vectors of a retriever in 8 bits."""
    encode_queries(
        unpack(weights),
        TokenStore.open(queries / "store"),
        folder / "queries.npy",
        precision="fp32",
    )


# What the page loads ------------------------------------------------------------------------------


class Retriever(NamedTuple):
    """A retriever in 8 bits, and its scores in full precision on the searched collection."""

    weights: Path
    measured: float | None


def trained(method: str, name: str, cache: Cache) -> Retriever:
    """A retriever pre-trained by a method and fine-tuned on a collection's questions, or on
    Primer's if it has none for training and testing.
    """
    splits = collections.load(name, allow_duplicates=True).splits
    able = {"train", "test"} <= {*splits}
    recipe = Recipe(collection=name if able else "primer", objective=method, **TRAINING)
    record = execute(Run("search-in-the-page", method, "smoke", recipe), cache)
    model = models_of(record, cache)["retriever"]
    packed = small_weights(Data(str(model), file_digest(model / "model.safetensors")))
    measured = 100 * record.means[MEASURE] if able else None
    return Retriever(cache.get(packed) / WEIGHTS, measured)


def trained_vectors(method: str, name: str, split: str, cache: Cache) -> tuple[Path, Path]:
    """Files with a collection's passages as vectors of `trained`'s retriever, stored by `on_axes`,
    and the queries of a split.
    """
    collection = collections.load(name, allow_duplicates=True)
    tokenizer = open_checkpoint("embedded").tokenizer
    weights = Data.file(trained(method, name, cache).weights)
    passages = small_vectors(weights, tokens.passage_tokens(collection, tokenizer))
    queries = small_queries(weights, tokens.query_tokens(collection, tokenizer, split=split))
    return cache.get(passages) / "vectors.safetensors", cache.get(queries) / "queries.npy"


def encoded_parts(
    folder: Path,
    method: str,
    name: str,
    parts: Sequence[str],
    facts: Mapping[str, Any],
    columns: Mapping[str, Sequence[str]],
) -> None:
    """Write texts that are not a collection as two parts: facts about them and their words, and
    their vectors.

    Args:
        folder: where the parts go.
        method: which retriever of the search page encodes them.
        name: the collection that it searches there.
        parts: the names of both.
        facts: of the texts, for the first part.
        columns: `title` and `text` of each.
    """
    model = unpack(trained(method, name, Cache(announce=lambda line: None)).weights)
    vectors = model.encode(columns["text"], columns["title"])
    _write_part(folder / f"{parts[0]}.js", parts[0], _json({**facts, "words": words(columns, [])}))
    _write_part(folder / f"{parts[1]}.js", parts[1], squeezed(save(on_axes(vectors))))


class System(NamedTuple):
    """A search system, and the rank of each test query's first relevant passage (0: not found)."""

    key: str
    name: str
    ranks: np.ndarray


def write_search(
    to: Path,
    name: str = SEARCHED,
    retrievers: Mapping[str, Retriever] | None = None,
    cache: Cache | None = None,
) -> list[Path]:
    """Write everything that the page loads into the staged source of the book.

    Args:
        to: the staged source.
        name: of the collection, as `collections.load` takes it.
        retrievers: by pre-training method; None trains them.
        cache: where models, vectors and indexes are kept.

    Returns:
        The files written.
    """
    collection, cache = (
        collections.load(name, allow_duplicates=True),
        cache or Cache(announce=lambda line: None),
    )
    if retrievers is None:
        retrievers = {method: trained(method, name, cache) for method in METHODS}
    tokenizer, passages = open_checkpoint("embedded").tokenizer, collection.passages
    store = tokens.passage_tokens(collection, tokenizer)
    split = "test" if "test" in collection.splits else next(iter(collection.splits), None)
    queries = collection.queries(split)[:] if split else {"id": [], "text": []}
    relevant = judged_rows(collection.qrels(split) if split else {}, queries["id"], passages["id"])
    parts = {"texts": _json({"titles": passages["title"][:], "texts": passages["text"][:]})}
    parts["base-words"] = squeezed(
        save(dict(zip(("numbers", "factors"), base_words(), strict=True)))
    )
    systems = [System("bm25", "BM25", bm25_ranks(collection, queries["text"], relevant, cache))]
    for key, retriever in retrievers.items():
        weights = Data.file(retriever.weights)
        vectors = cache.get(small_vectors(weights, store)) / "vectors.safetensors"
        ranks = np.zeros(0, int)
        if split:
            asked = small_queries(weights, tokens.query_tokens(collection, tokenizer, split=split))
            ranks = dense_ranks(
                np.load(cache.get(asked) / "queries.npy"), load_file(vectors), relevant
            )
        systems.append(System(key, NAMES[key][0].upper() + NAMES[key][1:], ranks))
        parts[f"model-{key}"] = retriever.weights.read_bytes()
        parts[f"vectors-{key}"] = squeezed(vectors.read_bytes())
    judged = {
        "texts": queries["text"],
        "relevant": [rows.tolist() for rows in relevant],
        "ranks": np.stack([one.ranks for one in systems], 1).tolist(),
        "examples": examples(queries["id"]),
        "flips": flips(systems),
    }
    said = {
        "passages": len(passages),
        "systems": [{"key": one.key, "name": one.name} for one in systems],
    }
    wordpiece = load_tokenizer("embedded")
    pieces = wordpiece.convert_ids_to_tokens(range(len(wordpiece)))
    parts["start"] = _json(
        said | {"judged": judged, "pieces": pieces, "words": words(passages, queries["text"])}
    )
    files = [
        _write_part(to / FOLDER / f"{part}.js", part, content) for part, content in parts.items()
    ]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    told = f"The first question loads {megabytes:.1f}\N{NO-BREAK SPACE}MB, once."
    write_text(to / FOLDER / WRITTEN[1], f'<p class="dr-note">{told}</p>\n')
    write_text(
        to / FOLDER / WRITTEN[0],
        systems_table(collection, systems, retrievers, by_kind(queries["id"]), files).data + "\n",
    )
    return [*files, *(to / FOLDER / name for name in WRITTEN)]


def _json(value: Any) -> bytes:
    return squeezed(json.dumps(value, ensure_ascii=False).encode())


def squeezed(content: bytes) -> bytes:
    """gzip at its best: numbers without repeats become shorter if it does not look for any."""
    found = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        writer = zlib.compressobj(9, zlib.DEFLATED, 31, 9, strategy)
        found.append(writer.compress(content) + writer.flush())
    return min(found, key=len)


def spelled(content: bytes) -> str:
    """Bytes as text for a JavaScript string, 7 bits a letter: in UTF-8 a sixth longer than the
    bytes, where base64 is a third longer.

    Letters that are not allowed there are shifted by 128, so that only the low 7 bits of a letter
    count.

    Example:
        >>> spelled(b"a"), spelled(b"\\0")
        ('0@', '\\x80\\x80')
    """
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    letters = np.packbits(np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7), axis=1)[:, 0] >> 1
    letters[np.isin(letters, list(b'\0\n\r"\\'))] += 128
    return letters.tobytes().decode("latin-1")


def _write_part(file: Path, name: str, content: bytes) -> Path:
    """Write a script with one gzipped part."""
    write_text(file, f'searchPage.part("{name}", "{spelled(content)}");\n')
    return file


def words(passages: Any, queries: Sequence[str]) -> dict[str, Any]:
    """BM25's facts about words: stop words, and the stems of words that differ from them.

    Stems come from the stemmer of `retrieval.Bm25`; the page looks them up and needs no stemmer.
    """
    stem, found = Stemmer.Stemmer("english").stemWord, set()
    for column in (passages["title"][:], passages["text"][:], queries):
        for text in column:
            found.update(words_of(text))
    options = inspect.signature(Bm25.build).parameters
    settings = {name: options[name].default for name in ("k1", "b")}
    stems = {word: stem(word) for word in sorted(found)}
    return settings | {
        "stop": sorted(STOPWORDS_EN),
        "stems": {word: one for word, one in stems.items() if one != word},
    }


# Ranks, and which questions are offered -----------------------------------------------------------


def bm25_ranks(
    collection: Collection, texts: Sequence[str], relevant: Sequence[np.ndarray], cache: Cache
) -> np.ndarray:
    """Rank `[queries]` of the first relevant passage with BM25, 0 if it is not among the first
    1,000.
    """
    index = Bm25.open(cache.get(retrieval.bm25_index(collection, title=True)) / "index")
    found = index.search(texts, DEEPEST).rows if len(texts) else np.zeros((0, 1), int)
    hits = [
        np.flatnonzero(np.isin(rows, wanted)) for rows, wanted in zip(found, relevant, strict=True)
    ]
    return np.array([places[0] + 1 if len(places) else 0 for places in hits], int)


def dense_ranks(
    queries: np.ndarray, passages: Mapping[str, np.ndarray], relevant: Sequence[np.ndarray]
) -> np.ndarray:
    """The same with vectors `[queries, hidden]` and passages stored by `on_axes`, as the page
    computes it.
    """
    vectors = from_axes(passages)
    ranks = np.zeros(len(queries), int)
    for i, wanted in enumerate(relevant):
        if len(wanted):
            scores = vectors @ queries[i]
            best = wanted[np.argmax(scores[wanted])]
            rank = 1 + np.sum(scores > scores[best]) + np.sum(scores[:best] == scores[best])
            ranks[i] = rank if rank <= DEEPEST else 0
    return ranks


def by_kind(ids: Sequence[str]) -> dict[str, list[int]]:
    """Rows of the questions of each kind, if ids contain it as Primer's do ("p030-meaning"); else
    nothing.
    """
    endings = [id_.rpartition("-")[2] for id_ in ids]
    if not {*endings} <= QUESTION_KINDS.keys():
        return {}
    return {
        kind: [row for row, ending in enumerate(endings) if ending == kind]
        for kind in QUESTION_KINDS
    }


def examples(ids: Sequence[str]) -> list[int]:
    """Rows of some questions, drawn with a fixed seed: none was chosen for its result. For Primer,
    questions that share no word with their passage.
    """
    rows = by_kind(ids).get("meaning") or range(len(ids))
    return np.random.default_rng(0).permutation(rows)[:EXAMPLES].tolist()


def flips(systems: Sequence[System]) -> list[int]:
    """Queries whose first relevant passage is among the first three of one system and far down for
    all others, or among the first ten of all retrievers and far down for BM25: those of each kind
    with the widest gap.
    """
    ranks = np.stack([np.where(one.ranks > 0, one.ranks, DEEPEST + 1) for one in systems]).astype(
        float
    )
    if len(systems) < 2 or not ranks.shape[1]:
        return []
    kinds = [(ranks[[i]], np.delete(ranks, i, 0), 3) for i in range(len(systems))]
    kinds += [(ranks[1:], ranks[:1], 10)]
    chosen: list[int] = []
    for good, others, highest in kinds:
        gaps = np.where(good.max(0) <= highest, others.min(0) / good.max(0), 0)
        chosen += [
            int(i)
            for i in np.argsort(-gaps, kind="stable")[:FLIPS]
            if gaps[i] > 2 and i not in chosen
        ]
    return chosen


def systems_table(
    collection: Collection,
    systems: Sequence[System],
    retrievers: Mapping[str, Retriever],
    kinds: Mapping[str, Sequence[int]],
    files: Sequence[Path],
) -> HTML:
    """The systems of the page: scores in full precision and as the page searches (also for each
    kind of question), and the size that a reader loads.
    """
    sizes = {file.stem: file.stat().st_size / 1e6 for file in files}
    common = sizes["texts"] + sizes["start"] + sizes["base-words"]
    rows = []
    for system in systems:
        reached = np.where((system.ranks > 0) & (system.ranks <= CUT), system.ranks, np.inf)
        here = 100 / reached
        loaded = sum(size for part, size in sizes.items() if part.endswith(f"-{system.key}"))
        retriever = retrievers.get(system.key)
        rows.append(
            [
                system.name,
                retriever and retriever.measured,
                float(here.mean()) if len(here) else None,
                *(float(here[chosen].mean()) for chosen in kinds.values()),
                loaded or common,
            ]
        )
    asked = f"{len(systems[0].ranks):,} test questions"
    if not len(systems[0].ranks):
        asked = "no judged questions"
    data = f"{data_named(collection.name)} ({len(collection.passages):,} passages, {asked})"
    caption = f"{MEASURE} in percent on {data}. BM25 has no weights or vectors to round."
    named_kinds = map(QUESTION_KINDS.get, kinds)
    columns = ["", "full precision", "as this page searches, 8 bits", *named_kinds]
    columns.append("megabytes loaded")
    return table(columns, rows, caption=caption)
