"""The token store: every passage tokenised once, kept flat on disk, and cut into padded batches without a Python loop.

Packing of a passage: SimLM's title and body as a pair, or the other papers' ways (see `layout.py`). Explained in the book's
chapter on your own corpus.
"""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest, read_json
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.build import FORMAT, write_store
from dr_lib.tokens.flat import open_flat
from dr_lib.tokens.layout import Kept, Side, Title, check_layout, padded_length, truncate
from dr_lib.tokens.tokenizer import tokenizer_digest


class TokenStore:
    """Token ids of a collection's passages (or queries), memory-mapped.

    Attributes:
        folder: where it lies.
        digest: SHA-256 of its content; two stores with the same digest give the same batches.
        tokenizer: digest of the tokenizer it was built with.
        special: ids of the special tokens, keys `pad unk cls sep mask`.
        vocab_size: number of ids that the tokenizer knows.
    """

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.folder, self.digest = folder, json_digest(meta)
        self.tokenizer: str = meta["tokenizer"]
        self.special: dict[str, int] = meta["special"]
        self.vocab_size: int = meta["vocab_size"]
        self._rows: int = meta["rows"]
        arrays = {
            name: open_flat(folder / f"{name}.npy", facts["dtype"], facts["length"])
            for name, facts in meta["files"].items()
        }
        self._continuation = np.asarray(arrays["continuation"])
        self._text_ids, self._text_offsets = arrays["text_ids"], arrays["text_offsets"]
        self._title_ids = arrays.get("title_ids", self._text_ids[:0])
        self._title_offsets = arrays.get("title_offsets", np.zeros(self._rows + 1, np.int64))

    @staticmethod
    def build(
        texts: datasets.Dataset,
        tokenizer: PreTrainedTokenizerFast,
        folder: Path,
        columns: tuple[str, ...] = ("title", "text"),
        workers: int | None = None,
        progress: bool = True,
    ) -> "TokenStore":
        """Tokenise `texts` into `folder` and open the result; the folder is whole or absent.

        The text of a collection is data: a literal `[MASK]` in a passage becomes ordinary pieces, never the special token.

        Args:
            texts: rows with the columns named, strings without null.
            tokenizer: a WordPiece tokenizer; its truncation and padding settings are ignored.
            folder: where to write; an older store there is replaced.
            columns: `("title", "text")`, or one column (queries), which is then the body.
            workers: threads of the tokenizer; None leaves it to `TOKENIZERS_PARALLELISM`, 1 stays in this thread.
            progress: show a bar.

        Raises:
            InputError: a column is missing or holds a null, the tokenizer does not fit, or `folder` holds something else.
        """
        write_store(texts, tokenizer, Path(folder), tuple(columns), workers, progress)
        return TokenStore.open(folder)

    @staticmethod
    def open(folder: Path, *, verify: bool = True) -> "TokenStore":
        """Open a store built earlier.

        Args:
            folder: its place.
            verify: compare every file with its checksum (about a second per 500 MB); types and sizes are always checked.

        Raises:
            InputError: there is no store, or a file is missing, truncated or altered.
        """
        folder = Path(folder)
        meta = read_json(folder / "meta.json")
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise InputError(
                "not a token store of this version", where=folder / "meta.json", fix="Build the store again."
            )
        store = TokenStore(folder, meta)
        for name, facts in meta["files"].items() if verify else ():
            if file_digest(folder / f"{name}.npy") != facts["sha256"]:
                raise InputError(
                    "altered since it was written", where=folder / f"{name}.npy", fix="Build the store again."
                )
        return store

    def __len__(self) -> int:
        return self._rows

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Raise `InputError` that names both digests if the store was built with another tokenizer."""
        digest = tokenizer_digest(tokenizer)
        if digest != self.tokenizer:
            raise InputError(
                f"built with tokenizer {self.tokenizer[:16]}, not with the given {digest[:16]}",
                where=self.folder,
                fix="Build the store again with this tokenizer, or load the one it was built with.",
            )

    def lengths(self, max_length: int, title: Title = "pair") -> np.ndarray:
        """Sequence lengths `[n]` int64 after truncation, special tokens included."""
        check_layout(max_length, title)
        return self._kept(slice(None), max_length, title, "right").lengths

    def batch(
        self,
        rows: np.ndarray,
        *,
        max_length: int,
        title: Title = "pair",
        pad_to_multiple: int = 8,
        side: Side = "right",
    ) -> TokenBatch:
        """Cut, lay out and pad some rows.

        Args:
            rows: `[batch]` integers, rows of the store, in any order, repeats allowed.
            max_length: longest sequence, special tokens included.
            title: `"pair"` = [CLS] title [SEP] body [SEP] with types 0 and 1 (without title: [CLS] body [SEP]);
                `"joined"` = [CLS] title body [SEP]; `"none"` = [CLS] body [SEP].
            pad_to_multiple: the padded length is a multiple of this, but never more than `max_length`.
            side: the end that loses pieces.

        Raises:
            InputError: no rows, a row outside the store, or an argument outside its range.
        """
        check_layout(max_length, title, side)
        rows = self._checked_rows(rows)
        kept = self._kept(rows, max_length, title, side)
        width = int(padded_length(kept.lengths.max(), pad_to_multiple, max_length))
        position = np.arange(width)[None, :]
        title_end = 1 + kept.title[:, None]
        body_start = title_end + kept.separate[:, None]
        end = kept.lengths[:, None]
        in_title = (position >= 1) & (position < title_end)
        in_body = (position >= body_start) & (position < end - 1)
        real = position < end

        ids = np.where(real, self.special["sep"], self.special["pad"])
        ids[:, 0] = self.special["cls"]
        ids[in_title] = _gather(self._title_ids, self._title_offsets[rows] + kept.title_start, kept.title)
        ids[in_body] = _gather(self._text_ids, self._text_offsets[rows] + kept.body_start, kept.body)
        content = in_title | in_body
        # A piece cut off from the start of its word by truncation opens a word of its own (reference rule of the mask draw).
        segment_start = (position == 1) | (position == body_start)
        return TokenBatch(
            input_ids=torch.from_numpy(ids),
            attention_mask=torch.from_numpy(real.astype(np.int64)),
            token_type_ids=torch.from_numpy(
                (real & (position >= body_start) & kept.separate[:, None]).astype(np.int64)
            ),
            special=torch.from_numpy(~content),
            word_start=torch.from_numpy(content & (segment_start | ~self._continuation[ids])),
            rows=torch.from_numpy(rows),
        )

    def _kept(self, rows: np.ndarray | slice, max_length: int, title: Title, side: Side) -> Kept:
        if isinstance(rows, slice):
            lengths = np.diff(self._title_offsets), np.diff(self._text_offsets)
        else:
            lengths = tuple(offsets[rows + 1] - offsets[rows] for offsets in (self._title_offsets, self._text_offsets))
        return truncate(*lengths, max_length=max_length, mode=title, side=side)

    def _checked_rows(self, rows: np.ndarray) -> np.ndarray:
        rows = np.array(rows)
        if rows.ndim != 1 or not len(rows) or not np.issubdtype(rows.dtype, np.integer):
            raise InputError("not a list of row numbers", where="rows", fix="Give a one-dimensional array of integers.")
        if rows.min() < 0 or rows.max() >= len(self):
            wrong = rows[(rows < 0) | (rows >= len(self))][0]
            raise InputError(f"row {wrong} of {len(self)}", where="rows", fix="Rows count from 0.")
        return rows.astype(np.int64)


def _gather(ids: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `ids[start : start + count]` over all rows."""
    shift = starts - (np.cumsum(counts) - counts)
    return ids[np.repeat(shift, counts) + np.arange(counts.sum())]
