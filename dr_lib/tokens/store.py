"""The token store: every passage tokenised once, kept flat on disk, and cut into padded batches without a Python loop.

Packing of a passage: SimLM's title and body as a pair, or the other papers' ways (see `layout.py`). Explained in the
book's chapter on your own corpus.
"""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest, read_json
from dr_lib.tokens.assemble import Cut, assemble
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.build import FORMAT, write_store
from dr_lib.tokens.flat import REBUILD, open_flat
from dr_lib.tokens.layout import Side, Title, check_layout, padded_length, truncate
from dr_lib.tokens.tokenizer import tokenizer_digest


class TokenStore:
    """Token ids of a collection's passages (or queries), memory-mapped.

    Attributes:
        folder: where it lies.
        digest: SHA-256 of its content; two stores with the same digest give the same batches.
        tokenizer: digest of the tokenizer it was built with.
        special: ids of the special tokens, keys ``pad unk cls sep mask``.
        vocab_size: number of ids that the tokenizer knows.
        title_ids, text_ids: the pieces of all titles and all bodies, end to end, without special tokens.
        title_offsets, text_offsets: `[n + 1]` int64, where each begins and the last one ends.
        continuation: `[vocab]` bool, True for pieces that continue a word.

    Example:
        >>> import tempfile
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"title": ["Dense vectors", ""], "text": ["They are short.", "Sparse."]})
        >>> folder = Path(tempfile.mkdtemp()) / "tokens"
        >>> store = TokenStore.build(texts, train_wordpiece(texts["text"], 60), folder, progress=False)
        >>> store.batch(np.array([0, 1]), max_length=12).input_ids.shape
        torch.Size([2, 12])
    """

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.folder, self.digest = folder, meta["digest"]
        self.tokenizer: str = meta["tokenizer"]
        self.special: dict[str, int] = meta["special"]
        self.vocab_size: int = meta["vocab_size"]
        self._rows: int = meta["rows"]
        arrays = {
            name: open_flat(folder / f"{name}.npy", facts["dtype"], facts["length"])
            for name, facts in meta["files"].items()
        }
        self.continuation = arrays["continuation"]
        self.text_ids, self.text_offsets = arrays["text_ids"], arrays["text_offsets"]
        self.title_ids = arrays.get("title_ids", self.text_ids[:0])
        self.title_offsets = arrays.get("title_offsets", np.zeros(self._rows + 1, np.int64))

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

        The text of a collection is data: a literal [MASK] in a passage becomes ordinary pieces, not the special token.

        Args:
            texts: rows with the columns named, strings without null.
            tokenizer: a WordPiece tokenizer; its truncation and padding settings are ignored.
            folder: where to write; an older store there is replaced.
            columns: ``("title", "text")``, or one column (queries), which is then the body.
            workers: threads of the tokenizer; None leaves it to ``TOKENIZERS_PARALLELISM``, 1 stays in this thread.
            progress: show a bar.

        Raises:
            InputError: a column is missing or holds a null, the tokenizer does not fit, or `folder` is another's.
        """
        write_store(texts, tokenizer, Path(folder), tuple(columns), workers, progress)
        return TokenStore.open(folder)

    @staticmethod
    def open(folder: Path, *, verify: bool = True) -> "TokenStore":
        """Open a store built earlier.

        Args:
            folder: its place.
            verify: compare every file with its checksum (about a second for 500 MB); sizes are checked always.

        Raises:
            InputError: there is no store, or a file is missing, truncated or altered.
        """
        folder = Path(folder)
        meta = _read_meta(folder / "meta.json")
        store = TokenStore(folder, meta)
        for name, facts in meta["files"].items() if verify else ():
            if file_digest(folder / f"{name}.npy") != facts["sha256"]:
                raise InputError("altered since it was written", where=folder / f"{name}.npy", fix=REBUILD)
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
        title_pieces, body_pieces = np.diff(self.title_offsets), np.diff(self.text_offsets)
        return truncate(title_pieces, body_pieces, max_length=max_length, mode=title).lengths

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
            max_length: longest sequence, special tokens included, at least 4.
            title: ``"pair"`` = [CLS] title [SEP] body [SEP] with types 0 and 1, or [CLS] body [SEP] where there is no
                title; ``"joined"`` = [CLS] title body [SEP]; ``"none"`` = [CLS] body [SEP].
            pad_to_multiple: the padded length is a multiple of this, but never more than `max_length`.
            side: the end that loses pieces; ``"left"`` keeps the last turns of a dialogue.

        Raises:
            InputError: no rows, a row outside the store, or an argument outside its range.
        """
        cut = self.cut(rows, max_length=max_length, title=title, pad_to_multiple=pad_to_multiple, side=side)
        return assemble(cut, self.title_ids, self.text_ids, special=self.special, continuation=self.continuation)

    def cut(
        self,
        rows: np.ndarray,
        *,
        max_length: int,
        title: Title = "pair",
        pad_to_multiple: int = 8,
        side: Side = "right",
    ) -> Cut:
        """Which pieces `batch` takes for the same arguments, and where it puts them."""
        check_layout(max_length, title, side, pad_to_multiple)
        rows = check_rows(rows, len(self))
        title_from, body_from = self.title_offsets[rows], self.text_offsets[rows]
        title_pieces, body_pieces = self.title_offsets[rows + 1] - title_from, self.text_offsets[rows + 1] - body_from
        kept = truncate(title_pieces, body_pieces, max_length=max_length, mode=title, side=side)
        width = int(padded_length(kept.lengths.max(), pad_to_multiple, max_length))
        return Cut(rows, kept, title_from + kept.title_start, body_from + kept.body_start, width)


def check_rows(rows: np.ndarray, size: int) -> np.ndarray:
    """Return `rows` as a new int64 array; raise `InputError` unless they are row numbers below `size`."""
    rows = np.asarray(rows)
    if rows.ndim != 1 or not len(rows) or not np.issubdtype(rows.dtype, np.integer):
        raise InputError("not a list of row numbers", where="rows", fix="Give a one-dimensional array of integers.")
    if rows.min() < 0 or rows.max() >= size:
        wrong = rows[(rows < 0) | (rows >= size)][0]
        raise InputError(f"row {wrong} of {size}", where="rows", fix="Rows count from 0.")
    return rows.astype(np.int64)


def _read_meta(path: Path) -> dict[str, Any]:
    meta = read_json(path)
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise InputError("not a token store of this version", where=path, fix=REBUILD)
    if json_digest({key: value for key, value in meta.items() if key != "digest"}) != meta.get("digest"):
        raise InputError("altered since it was written", where=path, fix=REBUILD)
    return meta
