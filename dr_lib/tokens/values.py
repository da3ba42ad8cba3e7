"""A number for each piece of a token store: importances (CDMAE), keyword weights (MASTER), kept beside it on disk.

They are made once and laid out as the pieces are, so that a batch carries them in `TokenBatch.values`.
Page: ideas/masking.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from dr_lib.errors import InputError
from dr_lib.files import file_digest, fresh_folder, read_json, write_json
from dr_lib.tokens.assemble import spread
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.flat import FlatWriter, open_flat
from dr_lib.tokens.layout import Side, Title
from dr_lib.tokens.store import TokenStore

FORMAT = "dr_lib token values 1"
REBUILD = "Make the values again."
Blocks = Iterable[tuple[np.ndarray, np.ndarray]]


class TokenValues:
    """One number a piece, memory-mapped.

    Attributes:
        folder: where they lie.
        store: the tokens that they belong to.
        title, text: a float16 or float32 for each piece of all titles and of all bodies, end to end.

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["dense vectors", "sparse"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 60)
        >>> store = TokenStore.build(texts, tokenizer, place / "store", columns=("text",), progress=False)
        >>> lengths = np.arange(len(store.text_ids))
        >>> values = TokenValues.write(store, place / "values", [(lengths[:0], lengths)])
        >>> values.batch(np.array([1]), max_length=8)[0, 0].item()
        0.0
    """

    def __init__(self, folder: Path, store: TokenStore, meta: dict[str, Any]):
        self.folder, self.store = folder, store
        pieces = {"title": len(store.title_ids), "text": len(store.text_ids)}
        self.title, self.text = (open_flat(folder / f"{part}.npy", meta["dtype"], pieces[part]) for part in pieces)

    @staticmethod
    def write(
        store: TokenStore, folder: Path, blocks: Blocks, dtype: Literal["float16", "float32"] = "float32"
    ) -> "TokenValues":
        """Write values as they come, and open the result; the folder is whole or absent.

        Args:
            store: the tokens.
            folder: where to write; older values there are replaced.
            blocks: values of some titles and of some bodies, in the order of the store's pieces.
            dtype: float16 takes half the room and keeps three digits of numbers between 0.0001 and 65,504.

        Raises:
            InputError: a value is not finite in `dtype`, or there are not as many values as pieces.
        """
        folder = Path(folder)
        with fresh_folder(folder) as draft:
            with FlatWriter(draft / "title.npy", dtype) as title, FlatWriter(draft / "text.npy", dtype) as text:
                for values in blocks:
                    for writer, part in zip((title, text), values, strict=True):
                        writer.append(_finite(part, dtype))
            found, wanted = (title.length, text.length), (len(store.title_ids), len(store.text_ids))
            if found != wanted:
                raise InputError(f"{found} values for {wanted} pieces", where="blocks", fix="Give one for each piece.")
            files = {part: file_digest(draft / f"{part}.npy") for part in ("title", "text")}
            write_json(draft / "meta.json", {"format": FORMAT, "store": store.digest, "dtype": dtype, "files": files})
        return TokenValues.open(folder, store, verify=False)

    @staticmethod
    def open(folder: Path, store: TokenStore, *, verify: bool = True) -> "TokenValues":
        """Open values written earlier.

        Args:
            folder: their place.
            store: the tokens that they were made for.
            verify: compare every file with its checksum; sizes are checked always.

        Raises:
            InputError: there are none, they belong to another store, or a file is missing, truncated or altered.
        """
        folder = Path(folder)
        meta = read_json(folder / "meta.json")
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise InputError("no token values of this version", where=folder / "meta.json", fix=REBUILD)
        if meta["store"] != store.digest:
            problem = f"made for store {meta['store'][:16]}, not for {store.digest[:16]}"
            raise InputError(problem, where=folder, fix="Make the values again from these tokens.")
        values = TokenValues(folder, store, meta)
        for part, digest in meta["files"].items() if verify else ():
            if file_digest(folder / f"{part}.npy") != digest:
                raise InputError("altered since it was written", where=folder / f"{part}.npy", fix=REBUILD)
        return values

    def batch(
        self,
        rows: np.ndarray,
        *,
        max_length: int,
        title: Title = "pair",
        pad_to_multiple: int = 8,
        side: Side = "right",
    ) -> Tensor:
        """`[batch, length]` float32: the value at each position of `TokenStore.batch` for the same arguments.

        0 at special positions and padding. Arguments and errors are those of `TokenStore.batch`.
        """
        cut = self.store.cut(rows, max_length=max_length, title=title, pad_to_multiple=pad_to_multiple, side=side)
        return spread(cut, self.title, self.text)

    def attach(self, batch: TokenBatch, **layout: Any) -> TokenBatch:
        """The batch with its `values`; `layout` are the arguments of `TokenStore.batch` that it was made with."""
        return replace(batch, values=self.batch(batch.rows.numpy(), **layout))


def _finite(values: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        values = np.asarray(values).astype(dtype)
    if not np.isfinite(values).all():
        raise InputError(f"a value is not a finite {dtype}", where="blocks", fix="Give finite numbers, or float32.")
    return values
