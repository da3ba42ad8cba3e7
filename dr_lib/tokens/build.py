"""Tokenise a column or two of a data set and write a token store, with memory bounded by one chunk of texts.

Explained in the book's chapter on your own corpus.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from tokenizers import Tokenizer
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.files import file_digest, fresh_folder, json_digest, write_json
from dr_lib.tokens.flat import FlatWriter
from dr_lib.tokens.tokenizer import special_ids, tokenizer_digest

FORMAT = "dr_lib token store 1"
CHUNK = 2048


def write_store(
    texts: datasets.Dataset,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    columns: tuple[str, ...],
    workers: int | None,
    progress: bool,
) -> None:
    """Write the files of a store; see `TokenStore.build` for the arguments."""
    special = special_ids(tokenizer)
    _check_target(texts, folder, columns)
    vocab_size = max(len(tokenizer), 1 + max(tokenizer.get_vocab().values()))
    dtype = np.uint16 if vocab_size < 2**16 else np.int32
    with fresh_folder(folder) as draft:
        parts = ("title", "text")[-len(columns) :]
        with _threads(workers):
            _write_ids(texts, _plain(tokenizer), draft, dict(zip(parts, columns, strict=True)), dtype, progress)
        np.save(draft / "continuation.npy", _continuation(tokenizer, vocab_size))
        meta = {
            "format": FORMAT,
            "tokenizer": tokenizer_digest(tokenizer),
            "columns": list(columns),
            "rows": len(texts),
            "vocab_size": vocab_size,
            "special": special,
            "files": {path.stem: _facts(path) for path in sorted(draft.glob("*.npy"))},
        }
        write_json(draft / "meta.json", meta | {"digest": json_digest(meta)})


def _check_target(texts: datasets.Dataset, folder: Path, columns: tuple[str, ...]) -> None:
    if not 1 <= len(columns) <= 2:
        raise InputError(f"{len(columns)} columns", where="columns", fix="Give title and text, or the text alone.")
    for column in columns:
        if column not in texts.column_names:
            known = ", ".join(texts.column_names)
            raise InputError(f"no column {column!r}", where="columns", fix=f"There are {known}.")
    if not len(texts):
        raise InputError("no rows", where="texts", fix="Give at least one text.")
    if folder.exists() and not (folder / "meta.json").is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("holds something that is not a token store", where=folder, fix="Give a new or empty folder.")


def _plain(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """A copy that neither cuts nor pads and takes the text of special tokens for ordinary text."""
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    return copy


def _write_ids(
    texts: datasets.Dataset,
    tokenizer: Tokenizer,
    draft: Path,
    columns: dict[str, str],
    dtype: np.typing.DTypeLike,
    progress: bool,
) -> None:
    with ExitStack() as stack:
        ids = {part: stack.enter_context(FlatWriter(draft / f"{part}_ids.npy", dtype)) for part in columns}
        ends = {part: stack.enter_context(FlatWriter(draft / f"{part}_offsets.npy", np.int64)) for part in columns}
        for writer in ends.values():
            writer.append(np.zeros(1, np.int64))
        bar = stack.enter_context(tqdm(total=len(texts), desc="Tokens", unit=" texts", disable=not progress))
        first = 0
        for chunk in texts.select_columns(list(columns.values())).with_format(None).iter(CHUNK):
            for part, column in columns.items():
                flat, counts = _encode(tokenizer, chunk[column], column, first)
                ends[part].append(ids[part].length + np.cumsum(counts))
                ids[part].append(flat)
            first += len(counts)
            bar.update(len(counts))


def _encode(tokenizer: Tokenizer, texts: list[str], column: str, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of a chunk of texts, end to end, and the number of ids of each."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            place = f"column {column!r}, row {first + index}"
            raise InputError(f"not a text but {type(text).__name__}", where=place, fix="Repair the row.")
    pieces = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
    return np.fromiter(chain.from_iterable(pieces), np.int32, counts.sum()), counts


def _continuation(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> np.ndarray:
    """`[vocab]` bool, True for pieces that continue a word (`##` and the like)."""
    prefix = tokenizer.backend_tokenizer.model.continuing_subword_prefix
    inner = [index for piece, index in tokenizer.get_vocab().items() if piece.startswith(prefix) and piece != prefix]
    table = np.zeros(vocab_size, bool)
    table[inner] = True
    return table


def _facts(path: Path) -> dict[str, Any]:
    array = np.load(path, mmap_mode="r")
    return {"dtype": array.dtype.name, "length": len(array), "sha256": file_digest(path)}


@contextmanager
def _threads(workers: int | None) -> Iterator[None]:
    """Set the threads of the Rust tokenizer for a while (its pool is made once a process, at first use)."""
    if workers is None:
        yield
        return
    if workers < 1:
        raise InputError(f"{workers} threads", where="workers", fix="Give 1 or more, or None.")
    wanted = {"TOKENIZERS_PARALLELISM": "false" if workers == 1 else "true", "RAYON_NUM_THREADS": str(workers)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
