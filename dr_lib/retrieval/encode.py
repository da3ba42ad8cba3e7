"""From passages to vectors on disk: length-sorted, in few shapes, resumable, and whole or absent.

Passages are taken longest first, so a batch holds passages of about one length and hardly any padding, the dearest
batch comes first (what fits it fits all), and only a few shapes ever reach the model. Vectors go straight into a
memory-mapped `.npy`. A side file says how far the work came; a killed run goes on there and ends with the same bytes.
SimLM encodes in half precision and keeps vectors as float32. Page of the book: ideas/dual-encoders.
"""

import copy
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import json_digest, read_json, write_json
from dr_lib.models import DenseEncoder
from dr_lib.retrieval.ranking import Ranking, open_array
from dr_lib.retrieval.search import search
from dr_lib.stages import stage
from dr_lib.tokens import Side, Title, TokenStore, plan_by_length
from dr_lib.training import machine
from dr_lib.training.machine import precision as choose_precision

MULTIPLE = 8


def encode(
    encoder: nn.Module,
    store: TokenStore,
    path: Path,
    *,
    max_length: int,
    title: Title = "pair",
    side: Side = "right",
    tokens_per_batch: int = 4_096,
    dtype: Literal["float32", "float16"] = "float32",
    precision: Literal["auto", "bf16", "bf16_weights", "fp32"] = "auto",
    normalise: bool = True,
    progress: bool = True,
    save_every: float = 10.0,
) -> np.ndarray:
    """Encode every row of a token store into one array on disk.

    Args:
        encoder: a module that turns a `TokenBatch` into `[batch, hidden]`, such as `models.DenseEncoder`; it computes
            on the device where its weights lie.
        store: the tokens of passages or queries.
        path: the `.npy` file to write; it appears only when complete.
        max_length: longest sequence, special tokens included.
        title: how a title joins its passage, as in `TokenStore.batch`.
        side: the end that a long text loses; "left" keeps the last turns of a dialogue.
        tokens_per_batch: rows x padded length of a batch. About 4,000 suits a CPU, 100,000 and more a GPU.
        dtype: number type of the stored vectors.
        precision: "bf16" is autocast, as SimLM's half precision; "bf16_weights" rounds the weights too, which is
            about a quarter faster on a CPU and moves a vector a hundred times as far (cosine to float32 0.99998
            against 0.9999998 for a 2 x 128 model); "auto" takes "bf16" where the machine has it, else "fp32".
        normalise: scale each vector to length 1.
        progress: show a bar.
        save_every: seconds between notes of how far the work came.

    Returns:
        `[rows of the store, hidden]`, memory-mapped, read-only; row i is the vector of row i.

    Raises:
        InputError: a batch gives a vector that is not finite, or an argument is out of range.
    """
    if tokens_per_batch < 1 or dtype not in ("float32", "float16"):
        problem = f"tokens_per_batch {tokens_per_batch}, dtype {dtype}"
        raise InputError(problem, where="encode", fix='Give at least one token and "float32" or "float16".')
    if len(store) == 0:
        raise InputError("there is nothing to encode", where="encode", fix="Give a store with at least one row.")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    device = next(encoder.parameters()).device
    how = precision if precision == "bf16_weights" else choose_precision(precision, device)
    batches = plan_by_length(store.lengths(max_length, title), tokens_per_batch, max_length)
    layout = {"max_length": max_length, "title": title, "side": side}
    settings = (store.digest, layout, tokens_per_batch, dtype, how, normalise, weights_digest(encoder))
    draft = _Draft(path, json_digest(list(settings)), len(store), np.dtype(dtype))
    with _ready(encoder, how, device) as forward, torch.inference_mode(), draft:
        bar = tqdm(total=len(store), desc="encode", unit="passage", disable=not progress)
        bar.update(sum(map(len, batches[: draft.done])))
        waiting: tuple[np.ndarray, Tensor] | None = None
        for rows in [*batches[draft.done :], None]:
            # A GPU works on the next batch while the last one's vectors are fetched and written.
            started = None if rows is None else _start(forward, store, rows, layout, device, normalise)
            if waiting is not None:
                draft.write(*waiting, save_every)
                bar.update(len(waiting[0]))
            waiting = None if started is None else (rows, started)
        bar.close()
    return draft.finish()


def _start(
    forward: nn.Module, store: TokenStore, rows: np.ndarray, layout: dict[str, Any], device: torch.device,
    normalise: bool,
) -> Tensor:  # fmt: skip
    batch = store.batch(rows, **layout, pad_to_multiple=MULTIPLE).to(device)
    vectors = forward(batch).float()
    return nn.functional.normalize(vectors, dim=1) if normalise else vectors


@contextmanager
def _ready(encoder: nn.Module, how: str, device: torch.device) -> Iterator[nn.Module]:
    """The encoder in evaluation mode and the precision asked for; the caller's own is left as it was."""
    modes = [(module, module.training) for module in encoder.modules()]
    model = copy.deepcopy(encoder).to(torch.bfloat16) if how == "bf16_weights" else encoder
    autocast = torch.autocast(device.type, torch.bfloat16) if how == "bf16" else nullcontext()
    try:
        with autocast:
            yield model.eval()
    finally:
        for module, training in modes:
            module.training = training


def weights_digest(module: nn.Module) -> str:
    """SHA-256 (hex) of a module's weights by name, whatever device they lie on."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


class _Draft:
    """The unfinished array beside its place, with a note of the batches that are safely in it."""

    def __init__(self, path: Path, key: str, rows: int, dtype: np.dtype):
        self.path, self.key, self.shape_rows, self.dtype = path, key, rows, dtype
        self.partial = path.with_name(f".{path.name}.partial")
        self.note = path.with_name(f".{path.name}.progress.json")
        self.array: np.memmap | None = None
        self.done = self.written = self._resume()
        self.saved_at = time.monotonic()

    def _resume(self) -> int:
        try:
            note = read_json(self.note)
            if note["key"] != self.key:
                return 0
            self.array = np.lib.format.open_memmap(self.partial, mode="r+")
            fits = self.array.dtype == self.dtype and self.array.shape == (self.shape_rows, note["hidden"])
            return int(note["batches"]) if fits else 0
        except (InputError, OSError, ValueError, KeyError, TypeError):
            return 0

    def __enter__(self) -> "_Draft":
        return self

    def __exit__(self, *failure: object) -> None:
        self.save()

    def write(self, rows: np.ndarray, vectors: Tensor, save_every: float) -> None:
        values = vectors.cpu().numpy().astype(self.dtype)
        if not np.isfinite(values).all():
            row = int(rows[(~np.isfinite(values).all(axis=1)).argmax()])
            raise InputError("vector is not finite", where=f"passage row {row}", fix="Check the encoder's weights.")
        if self.written == 0:
            shape = (self.shape_rows, values.shape[1])
            self.array = np.lib.format.open_memmap(self.partial, mode="w+", dtype=self.dtype, shape=shape)
        assert self.array is not None
        self.array[rows] = values
        self.written += 1
        if time.monotonic() - self.saved_at > save_every:
            self.save()

    def save(self) -> None:
        if self.array is not None and self.written:
            self.array.flush()
            note = {"key": self.key, "batches": self.written, "hidden": self.array.shape[1]}
            write_json(self.note, note)
        self.saved_at = time.monotonic()

    def finish(self) -> np.ndarray:
        self.array = None
        self.partial.replace(self.path)
        self.note.unlink(missing_ok=True)
        return open_array(self.path)


def encode_passages(encoder: DenseEncoder, store: TokenStore, path: Path, **options: Any) -> np.ndarray:
    """The passages of a store as vectors, made as the encoder's own settings have it; further arguments of `encode`."""
    settings = encoder.settings
    layout = {"max_length": settings.passage_length, "title": settings.title, "normalise": settings.normalise}
    return encode(encoder, store, path, **{"tokens_per_batch": machine.encoding_budget(), **layout, **options})


def encode_queries(encoder: DenseEncoder, store: TokenStore, path: Path, **options: Any) -> np.ndarray:
    """The queries of a store as vectors, likewise."""
    settings = encoder.settings
    layout = {"max_length": settings.query_length, "side": settings.query_side, "normalise": settings.normalise}
    layout |= {"title": "none", "tokens_per_batch": machine.encoding_budget()}
    return encode(encoder, store, path, **{**layout, **options})


@stage(resumable=True)
def vectors(folder: Path, encoder: Path, passages: Path, *, dtype: str = "float32") -> None:
    """`vectors.npy`: a vector for each passage, as the retriever's own settings have it.

    Args:
        folder: where to write; a killed build goes on from what is there.
        encoder: a retriever's stage, or the folder of one saved encoder.
        passages: tokens of the passages (`store/`).
        dtype: number type of the stored vectors.
    """
    places = [encoder / "passage_model", encoder / "model", encoder]
    place = next(one for one in places if (one / "dense.json").is_file())
    model = DenseEncoder.from_pretrained(place, device=machine.device())
    encode_passages(model, TokenStore.open(passages / "store"), folder / "vectors.npy", dtype=dtype)


@stage()
def dense_run(
    folder: Path, encoder: Path, vectors: Path, queries: Path, collection: Collection, *, split: str, depth: int
) -> None:
    """`ranking/`: the passages nearest to each query of a split; `queries.npy`, the vectors of these queries."""
    model = DenseEncoder.from_pretrained(encoder / "model", device=machine.device())
    asked = encode_queries(model, TokenStore.open(queries / "store"), folder / "queries.npy")
    passages = np.load(vectors / "vectors.npy", mmap_mode="r")
    scores, rows = search(asked, passages, depth, device=machine.device())
    Ranking(collection.queries(split)["id"][:], rows, scores).save(folder / "ranking")
