"""Encoding passages to disk: sorted by length, in few shapes, resumable and atomic.

Passages are encoded longest first, so that batches have little padding, the most expensive batch
comes first (if it fits in memory, all do), and only a few shapes reach the model. Vectors go
directly into a memory-mapped `.npy`. A side file records progress; a killed run resumes there and
ends with the same vectors.

A large collection is encoded in shards, each a stage of its own, so that several machines can share
the work. The last bits of a vector depend on the shape of its batch, hence on the rows it is sorted
with; so rows are sorted within fixed blocks, and a shard consists of whole blocks: batches, and
hence vectors, do not depend on the sharding. SimLM encodes in half precision and stores float32.
Vectors of texts that this encoder has encoded before, in any collection, are reused
(`fill_missing`). Pages of the book: ideas/dual-encoders, practice/from-thousands-to-a-billion.
"""

import hashlib
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import json_digest, new_array, open_array, read_json, write_json
from dr_lib.models import DenseEncoder, Prompts, encoder_digest, open_encoder
from dr_lib.places import find_model
from dr_lib.retrieval.exact import search
from dr_lib.retrieval.ranking import Ranking
from dr_lib.stages import Cache, Data, TimeIsUpError, code_digest, stage, time_is_up
from dr_lib.tokens import Side, Title, TokenStore, blocks, plan_by_length
from dr_lib.training import machine

MULTIPLE = 8  # padded lengths, as `plan_by_length` counts them
SAVE_EVERY = 10.0  # seconds between progress notes
TEXT_BYTES = 16  # of a text's digest: collision-free for a trillion texts


def encode(
    encoder: nn.Module,
    store: TokenStore,
    path: Path,
    *,
    max_length: int,
    title: Title = "pair",
    side: Side = "right",
    tokens_per_batch: int | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    precision: Literal["auto", "bf16", "bf16_weights", "fp32"] = "auto",
    normalise: bool = True,
    rows: tuple[int, int] | np.ndarray | None = None,
    devices: Sequence[torch.device] | None = None,
) -> np.ndarray:
    """Encode the rows of a token store, or a shard of them, into one array on disk.

    Args:
        encoder: a module that turns a `TokenBatch` into `[batch, hidden]`, such as
            `models.DenseEncoder`; it computes on the device where its weights lie.
        store: the tokens of passages or queries.
        path: the `.npy` file to write; it appears only when complete.
        max_length: longest sequence, special tokens included.
        title: how a title joins its passage, as in `TokenStore.batch`.
        side: the side from which long texts are truncated; "left" keeps the last turns of a
            dialogue.
        tokens_per_batch: rows x padded length of a batch; None takes `machine.encoding_budget`.
        dtype: number type of the stored vectors.
        precision: "bf16" is autocast, as SimLM's half precision; "bf16_weights" rounds the weights
            too, which is about a quarter faster on a CPU and changes vectors a hundred times as
            much (cosine to float32 0.99998 against 0.9999998 for a 2 x 128 model); "auto" is
            `machine.frozen_precision`.
        normalise: scale each vector to length 1.
        rows: first row and end of a shard, as in `shards`; or individual rows, ascending; None
            encodes all.
        devices: devices that share the batches; None takes those of `machine.spread`. Batches, and
            hence vectors, are the same on any number.

    Returns:
        `[rows, hidden]`, memory-mapped, read-only; row i is the vector of the i-th of the rows.

    Raises:
        InputError: nothing to encode, or a vector that is not finite.
    """
    if len(store) == 0:
        raise InputError(
            "there is nothing to encode", where="encode", fix="Give a store with at least one row."
        )
    chosen = np.arange(*(rows or (0, len(store)))) if not isinstance(rows, np.ndarray) else rows
    device = next(encoder.parameters()).device
    how, budget = (
        machine.frozen_precision(precision, device),
        tokens_per_batch or machine.encoding_budget(),
    )
    lengths = store.lengths(max_length, title)
    parts = (chosen[block] for block in blocks(0, len(chosen)))
    plans = ((part, plan_by_length(lengths[part], budget, max_length)) for part in parts)
    batches = [part[batch] for part, plan in plans for batch in plan]
    layout = {"max_length": max_length, "title": title, "side": side}
    key = json_digest(
        [
            store.digest,
            layout,
            budget,
            dtype,
            how,
            normalise,
            chosen.tobytes().hex() if isinstance(rows, np.ndarray) else chosen[[0, -1]].tolist(),
            _weights_digest(encoder),
        ]
    )

    def vectors_of(forward: nn.Module, rows: np.ndarray) -> Callable[[], np.ndarray]:
        place = next(forward.parameters()).device
        vectors = forward(store.batch(rows, **layout, pad_to_multiple=MULTIPLE).to(place)).float()
        return fetching(nn.functional.normalize(vectors, dim=1) if normalise else vectors)

    with machine.spread(encoder, how, devices) as work:
        made = partial(work, vectors_of)
        return fill(path, batches, made, key, dtype=dtype)


def fill(
    path: Path,
    batches: Sequence[np.ndarray],
    make: Callable[[Sequence[np.ndarray]], Iterator[Callable[[], np.ndarray]]],
    key: str,
    *,
    dtype: str,
) -> np.ndarray:
    """Write vectors into one array on disk, batch by batch; a killed call is resumed by the next
    one with the same key.

    Args:
        path: the array, written atomically.
        batches: rows, each in exactly one batch, in any order; the array has them ascending.
        make: batches -> for each, in order, a function that waits for its vectors `[batch,
            hidden]`.
        key: of everything the vectors depend on; progress under another key is dropped.
        dtype: number type of the stored vectors.

    Returns:
        `[rows, hidden]`, memory-mapped, read-only.

    Raises:
        InputError: a vector that is not finite.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.partial")
    note = path.with_name(f".{path.name}.progress.json")
    order = np.sort(np.concatenate(batches))
    places, saved = [np.searchsorted(order, rows) for rows in batches], time.monotonic()
    array, done, check = _unfinished(draft, note, key, places)

    def save() -> None:
        array.flush()  # before the note, which must not claim more than is in the file
        write_json(note, {"key": key, "batches": done, "crc32": check})

    made = zip(batches[done:], make(batches[done:]), strict=True)
    with tqdm(
        total=len(order),
        initial=sum(map(len, batches[:done])),
        desc="encode",
        unit="passage",
        delay=1,
    ) as bar:
        try:
            # A GPU computes the next batch while the last one's vectors are written and the one
            # after is prepared.
            for (rows, fetch), _ in pairwise(chain(made, [None])):
                values = np.ascontiguousarray(fetch(), dtype)
                if not np.isfinite(values).all():
                    row = rows[(~np.isfinite(values).all(axis=1)).argmax()]
                    fix = "Check the encoder's weights."
                    raise InputError("vector is not finite", where=f"passage row {row}", fix=fix)
                if array is None:
                    array = new_array(draft, dtype, (len(order), values.shape[1]))
                array[places[done]] = values
                done, check = done + 1, zlib.crc32(values, check)
                bar.update(len(rows))
                if time.monotonic() - saved > SAVE_EVERY:
                    save()
                    saved = time.monotonic()
                if time_is_up() and done < len(batches):
                    raise TimeIsUpError(f"encoding was stopped after {done:,} batches")
        finally:
            if done:
                save()
    array = None  # some systems cannot rename a mapped file
    draft.replace(path)
    note.unlink()
    return open_array(path)


def fill_missing(
    folder: Path, texts: Sequence[bytes], by: str, make: Callable[[np.ndarray, Path], np.ndarray]
) -> None:
    """`vectors.npy`: vectors are copied from finished stages next to this one, and `make` encodes
    the rest, so that only new or changed texts are encoded.

    Equal texts share a vector: in batches of different shapes theirs would differ in the last bits,
    which would order the copies in a ranking.

    Args:
        folder: of the stage; `texts.npy` and `by.json` tell later stages what is in it.
        texts: a 16-byte digest per row of what is encoded.
        by: digest of the encoder and of everything else that a vector depends on.
        make: `[missing]` indices of rows, ascending, and the file to write -> their vectors.
    """
    place_of: dict[bytes, int] = {}
    for place, text in enumerate(texts):
        place_of.setdefault(text, place)
    known: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    repeated = [place for place, text in enumerate(texts) if place_of[text] != place]
    first = [place_of[texts[place]] for place in repeated]
    missing = np.ones(len(texts), bool)
    missing[repeated] = False
    cache, kind = Cache(folder.parent), folder.name.split("-")[0]
    for beside in sorted(folder.parent.glob(f"{kind}-*/by.json")):
        with suppress(InputError, OSError):  # another process may remove it
            if read_json(beside) != by or not missing.any():
                continue
            names = np.asarray(open_array(beside.with_name("texts.npy")))
            if names.dtype != np.uint8 or names.shape[1:] != (TEXT_BYTES,):
                continue  # altered since it was written
            rows, places = [], []
            for row, name in enumerate(map(bytes, names)):
                if (place := place_of.get(name)) is not None and missing[place]:
                    rows.append(row)
                    places.append(place)
            if rows:
                cache.check(beside.parent)
                known.append((*map(np.array, (places, rows)), open_vectors([beside.parent])[0]))
                missing[places] = False
    if known:
        fresh, draft = np.flatnonzero(missing), folder / ".vectors.npy"
        new = make(fresh, folder / "checkpoint-missing" / "vectors.npy") if len(fresh) else None
        like = known[0][2]
        array = new_array(draft, like.dtype, (len(texts), like.shape[1]))
        for places, rows, vectors in known:
            array[places] = vectors[rows]
        if new is not None:
            array[fresh] = new
        array.flush()
        array = new = None
        draft.replace(folder / "vectors.npy")
    else:
        make(np.arange(len(texts)), folder / "vectors.npy")
    if repeated:
        array = np.lib.format.open_memmap(folder / "vectors.npy", mode="r+")
        array[repeated] = array[first]
        array.flush()
    named = np.frombuffer(b"".join(texts), np.uint8).reshape(-1, TEXT_BYTES)
    np.save(folder / "texts.npy", named, allow_pickle=False)
    write_json(folder / "by.json", by)


def text_digest(*parts: bytes) -> bytes:
    """A 16-byte digest of what is encoded."""
    digest = hashlib.blake2b(digest_size=TEXT_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def fetching(vectors: Tensor) -> Callable[[], np.ndarray]:
    """Start copying vectors to the host; the returned function waits for them.

    A copy requested after the next batch would wait for that too; with pinned memory it is
    asynchronous.
    """
    if vectors.device.type != "cuda":
        return lambda: vectors.cpu().numpy()
    copied, done = vectors.to("cpu", non_blocking=True), torch.cuda.Event()
    done.record()

    def fetch() -> np.ndarray:
        done.synchronize()
        return copied.numpy()

    return fetch


def _unfinished(
    draft: Path, note: Path, key: str, places: Sequence[np.ndarray]
) -> tuple[np.memmap | None, int, int]:
    """The array of an interrupted run, the number of its batches and their CRC-32, if it had the
    same key.

    Vectors are checked: after a power cut the note may be on disk without the vectors.
    """
    try:
        left, check = read_json(note), 0
        if left["key"] == key:
            array = np.lib.format.open_memmap(draft, mode="r+")
            for rows in places[: left["batches"]]:
                check = zlib.crc32(array[rows], check)
            if check == left["crc32"]:
                return array, left["batches"], check
    except (InputError, OSError, ValueError, LookupError, TypeError):
        pass  # an unreadable or malformed note
    return None, 0, 0


def _weights_digest(module: nn.Module) -> str:
    """SHA-256 (hex) of a module's weights by name, independent of the device."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def encode_queries(
    encoder: DenseEncoder, store: TokenStore, path: Path, **options: Any
) -> np.ndarray:
    """Vectors of the queries of a store, with the encoder's own settings; further arguments of
    `encode`.
    """
    how = {**encoder.settings.queries, "normalise": encoder.settings.normalise}
    return encode(encoder, store, path, **how, **options)


@stage(resumable=True, gpu=True)
def vectors(
    folder: Path, encoder: Path, passages: Path, *, rows: tuple[int, int], dtype: str = "float32"
) -> None:
    """`vectors.npy`: a vector for each passage of a shard, with the retriever's own settings.

    Args:
        folder: where to write; a killed build is resumed.
        encoder: a retriever's stage, or the folder of a saved encoder.
        passages: tokens of the passages (`store/`).
        rows: first row and end of the shard, see `shards`.
        dtype: number type of the stored vectors.
    """
    places = [encoder / "passage_model", encoder / "model", encoder]
    place = next(candidate for candidate in places if (candidate / "dense.json").is_file())
    model = DenseEncoder.from_pretrained(place, device=machine.device())
    store, layout = TokenStore.open(passages / "store"), model.settings.passages
    how = {"normalise": model.settings.normalise, "dtype": dtype}
    precision = machine.frozen_precision("auto", machine.device())
    read = [store.tokenizer, layout, how, precision, _weights_digest(model), code_digest(vectors)]

    def make(places: np.ndarray, path: Path) -> np.ndarray:
        chosen = rows if len(places) == rows[1] - rows[0] else places + rows[0]
        return encode(model, store, path, **layout, **how, rows=chosen)

    texts = []
    for row in range(*rows):
        title, text = (
            slice(*ends[row : row + 2]) for ends in (store.title_offsets, store.text_offsets)
        )
        texts.append(text_digest(store.title_ids[title].tobytes(), store.text_ids[text].tobytes()))
    fill_missing(folder, texts, json_digest(read), make)


@stage(resumable=True, gpu=True, reads=("split",))
def dense_run(
    folder: Path,
    encoder: Path,
    vectors: list[Path],
    queries: Path,
    collection: Collection,
    *,
    split: str | None,
    depth: int,
) -> None:
    """`ranking/`: the passages nearest to each query; `queries.npy`, the vectors of these queries.

    Args:
        folder: where to write.
        encoder: a retriever's stage.
        vectors: of the passages, all shards in order.
        queries: their tokens (`store/`).
        collection: for the ids of the queries.
        split: of the queries; None for other queries, whose ids are their numbers.
        depth: passages kept for each query.
    """
    model = DenseEncoder.from_pretrained(encoder / "model", device=machine.device())
    asked = encode_queries(model, TokenStore.open(queries / "store"), folder / "queries.npy")
    save_nearest(folder, asked, vectors, collection, split=split, depth=depth)


def save_nearest(
    folder: Path,
    asked: np.ndarray,
    vectors: list[Path],
    collection: Collection,
    *,
    split: str | None,
    depth: int,
) -> None:
    """`ranking/`: the passages nearest to the query vectors `asked` `[queries, hidden]` of a split,
    without passages that are the query itself (`Collection.own_rows`); all shards in order.
    """
    passages, itself = open_vectors(vectors), collection.own_rows(split) if split else None
    deep = depth + (itself is not None)
    scores, rows = search(asked, passages, deep, device=machine.device())
    ids = collection.queries(split)["id"][:] if split else map(str, range(len(rows)))
    ranking = Ranking(ids, rows, scores, sum(map(len, passages)))
    ranking.without(itself, depth).save(folder / "ranking")


def open_vectors(folders: list[Path]) -> list[np.ndarray]:
    """The arrays of a collection's finished shards, in order, for `search` and `vectors_at`."""
    return [open_array(folder / "vectors.npy") for folder in folders]


# Encoders used as they come -----------------------------------------------------------------------
# Any model that sentence-transformers opens, with its own modules, pooling, normalisation, prompts
# and maximum length. Nothing is trained, and there is no token store, because each model has its
# own tokenizer. all-MiniLM-L6-v2 can be installed as a package (`make models`). It was trained on
# SQuAD, NQ and MS MARCO among others, which the papers of this book test on, so it is in none of
# their tables. Page: practice/real-models.

CHUNK = 128  # passages passed at a time; the model makes batches of its own


def given(name: str | Path) -> Data:
    """An encoder that is used as it comes, as an argument of stages: its key is the digest of its
    files.

    Args:
        name: a folder, "all-MiniLM-L6-v2" where its package is installed, or a name on the hub.

    Raises:
        InputError: nothing of that name.
    """
    folder = find_model(name)
    return Data(str(folder), encoder_digest(folder))


@stage(resumable=True, gpu=True, reads=())
def given_vectors(
    folder: Path,
    encoder: Path,
    collection: Collection,
    *,
    rows: tuple[int, int],
    dtype: str = "float32",
    title: bool = True,
    prompts: Prompts | None = None,
) -> None:
    """`vectors.npy`: a vector for each passage of a shard, its title before its text.

    Args:
        folder: where to write; a killed build is resumed.
        encoder: as found by `given`.
        collection: whose passages are encoded.
        rows: first row and end of the shard, as in `tokens.shards`.
        dtype: number type of the stored vectors.
        title: False encodes the texts alone.
        prompts: in place of those in the encoder's folder.
    """
    model = open_encoder(encoder, device=machine.device(), prompts=prompts)
    passages = collection.passages
    precision = machine.precision("auto", machine.device())
    texts, lengths = [], []
    for block in blocks(*rows):
        part = passages[block]
        titles = part["title"] if title else [""] * len(part["text"])
        pairs = [*zip(titles, part["text"], strict=True)]
        texts += [text_digest(*(text.encode() for text in pair)) for pair in pairs]
        lengths += [sum(map(len, pair)) for pair in pairs]

    def vectors_of(rows: np.ndarray) -> Callable[[], np.ndarray]:
        part = passages[rows.tolist()]
        return partial(model.encode, part["text"], part["title"] if title else None)

    def make(places: np.ndarray, path: Path) -> np.ndarray:
        batches = []
        for block in blocks(0, len(places)):
            part = places[block]
            # batches of similar lengths have little padding
            longest_first = part[np.argsort(-np.array(lengths)[part], kind="stable")]
            batches += np.split(rows[0] + longest_first, range(CHUNK, len(part), CHUNK))
        key = json_digest([CHUNK, dtype, places.tobytes().hex()])
        made = partial(map, vectors_of)
        return fill(path, batches, made, key, dtype=dtype)

    by = [encoder_digest(encoder), dtype, title, precision, code_digest(given_vectors)]
    by.append(prompts and prompts.passage)
    with machine.evaluating(model, precision):
        fill_missing(folder, texts, json_digest(by), make)


@stage(gpu=True, reads=("split",))
def given_run(
    folder: Path,
    encoder: Path,
    vectors: list[Path],
    collection: Collection,
    *,
    split: str,
    depth: int,
    prompts: Prompts | None = None,
) -> None:
    """`ranking/`: the passages nearest to each query of a split; `queries.npy`, the vectors of
    these queries.
    """
    model = open_encoder(encoder, device=machine.device(), prompts=prompts)
    with machine.evaluating(model, machine.precision("auto", machine.device())):
        asked = model.encode(collection.queries(split)["text"][:], queries=True)
    np.save(folder / "queries.npy", asked, allow_pickle=False)
    save_nearest(folder, asked, vectors, collection, split=split, depth=depth)
