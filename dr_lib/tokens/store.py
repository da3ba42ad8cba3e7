"""The token store: every passage tokenised once, kept flat on disk, and cut into padded batches
without a Python loop.

Beside the pieces may lie a number for each (importances of CDMAE, keyword weights of MASTER).
Packing of a passage: see `layout.py`. Explained in the book's chapter on your own corpus.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import file_digest, fresh_folder, json_digest, new_array, read_json, write_json
from dr_lib.stages import stage
from dr_lib.tokens.layout import Side, Slice, Title, TokenBatch, padded_length, to_batch, truncate
from dr_lib.tokens.tokenizer import load_tokenizer, special_ids, tokenizer_digest

CHUNK = 2048  # texts tokenised at a time: memory stays bounded


@stage(reads=())
def passage_tokens(folder: Path, collection: Collection, tokenizer: Path | str) -> None:
    """`store/`: titles and texts of the passages as token ids; the same for all models that share a
    tokenizer.
    """
    words = load_tokenizer(tokenizer)
    TokenStore.build(collection.passages, words, folder / "store", columns=("title", "text"))


@stage(reads=("split",))
def query_tokens(
    folder: Path, collection: Collection, tokenizer: Path | str, *, split: str
) -> None:
    """`store/`: the queries of a split as token ids."""
    TokenStore.build(
        collection.queries(split), load_tokenizer(tokenizer), folder / "store", columns=("text",)
    )


class TokenStore:
    """Token ids of a collection's passages (or queries), memory-mapped.

    Attributes:
        folder: where it lies.
        digest: SHA-256 of its content; two stores with the same digest give the same batches.
        tokenizer: digest of the tokenizer it was built with.
        special: ids of the special tokens, keys ``pad unk cls sep mask``.
        vocab_size: number of ids that the tokenizer knows.
        title_ids, text_ids: the pieces of all titles and all bodies, end to end, without special
            tokens.
        title_offsets, text_offsets: `[n + 1]` int64, where each begins and the last one ends.
        continuation: `[vocab]` bool, True for pieces that continue a word.

    Example:
        >>> import tempfile
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict(
        ...     {"title": ["Dense vectors", ""], "text": ["They are short.", "Sparse."]}
        ... )
        >>> folder = Path(tempfile.mkdtemp()) / "tokens"
        >>> store = TokenStore.build(
        ...     texts, train_wordpiece(texts["text"], 60), folder, progress=False
        ... )
        >>> store.batch(np.array([0, 1]), max_length=12).input_ids.shape
        torch.Size([2, 12])
    """

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.folder, self.digest = folder, meta["digest"]
        self.tokenizer: str = meta["tokenizer"]
        self.special: dict[str, int] = meta["special"]
        self.vocab_size: int = meta["vocab_size"]
        self.continuation = np.load(folder / "continuation.npy")
        self.text_ids, self.text_offsets = self._column("text", meta["dtype"])
        self.title_ids, self.title_offsets = self.text_ids[:0], np.zeros_like(self.text_offsets)
        if "title" in meta["columns"]:
            self.title_ids, self.title_offsets = self._column("title", meta["dtype"])

    def _column(self, name: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all texts of a column end to end, and where each begins."""
        offsets, ids = (
            np.load(self.folder / f"{name}_offsets.npy", mmap_mode="r"),
            self.folder / f"{name}_ids.bin",
        )
        # an empty file cannot be mapped
        flat = np.memmap(ids, dtype, mode="r") if offsets[-1] else np.zeros(0, dtype)
        return np.asarray(flat), np.asarray(offsets)

    @staticmethod
    def build(
        texts: datasets.Dataset,
        tokenizer: PreTrainedTokenizerFast,
        folder: Path,
        columns: tuple[str, ...] = ("title", "text"),
        progress: bool = True,
    ) -> "TokenStore":
        """Tokenise `texts` into `folder` and open the result; the folder is whole or absent.

        The text of a collection is data: a literal [MASK] in a passage becomes ordinary pieces, not
        the special token.

        Args:
            texts: rows with the columns named, strings without null.
            tokenizer: a WordPiece tokenizer; its truncation and padding settings are ignored.
            folder: where to write; an older store there is replaced.
            columns: ``("title", "text")``, or one column (queries), which is then the body.
            progress: show a bar.

        Raises:
            InputError: the tokenizer does not fit, or `folder` holds something else.
        """
        folder, special = Path(folder), special_ids(tokenizer)
        pieces = tokenizer.get_vocab()
        vocab_size = max(len(tokenizer), 1 + max(pieces.values()))
        dtype = "uint16" if vocab_size < 2**16 else "int32"
        prefix = tokenizer.backend_tokenizer.model.continuing_subword_prefix
        continuation = np.zeros(vocab_size, bool)
        continuation[
            [id_ for piece, id_ in pieces.items() if piece.startswith(prefix) and piece != prefix]
        ] = True
        with fresh_folder(folder, "token store") as draft:
            parts = dict(zip(("title", "text")[-len(columns) :], columns, strict=True))
            _write_ids(texts, _plain(tokenizer), draft, parts, dtype, progress)
            np.save(draft / "continuation.npy", continuation)
            meta = {
                "tokenizer": tokenizer_digest(tokenizer),
                "columns": list(parts),
                "vocab_size": vocab_size,
                "special": special,
                "dtype": dtype,
                "files": {path.name: file_digest(path) for path in sorted(draft.iterdir())},
            }
            write_json(draft / "meta.json", meta | {"digest": json_digest(meta)})
        return TokenStore.open(folder)

    @staticmethod
    def open(folder: Path) -> "TokenStore":
        """Open a store built earlier; `InputError` where there is none."""
        return TokenStore(Path(folder), read_json(Path(folder) / "meta.json"))

    def __len__(self) -> int:
        return len(self.text_offsets) - 1

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Raise `InputError` that names both digests if the store was built with another
        tokenizer.
        """
        digest = tokenizer_digest(tokenizer)
        if digest != self.tokenizer:
            problem = (
                f"built with tokenizer {self.tokenizer[:16]}, not with the given {digest[:16]}"
            )
            fix = "Build the store again with this tokenizer, or load the one it was built with."
            raise InputError(problem, where=self.folder, fix=fix)

    def lengths(self, max_length: int, title: Title = "pair", **_: Any) -> np.ndarray:
        """Sequence lengths `[n]` int64 after truncation, special tokens included; no other argument
        changes them.
        """
        title_pieces, body_pieces = np.diff(self.title_offsets), np.diff(self.text_offsets)
        return truncate(title_pieces, body_pieces, max_length=max_length, mode=title).lengths

    def batch(self, rows: np.ndarray, **layout: Any) -> TokenBatch:
        """Cut, lay out and pad some rows.

        Args:
            rows: `[batch]` integers, rows of the store, in any order, repeats allowed.
            layout: arguments of `slice`.
        """
        cut = self.slice(rows, **layout)
        return to_batch(
            cut, self.title_ids, self.text_ids, special=self.special, continuation=self.continuation
        )

    def slice(
        self,
        rows: np.ndarray,
        *,
        max_length: int,
        title: Title = "pair",
        pad_to_multiple: int = 8,
        side: Side = "right",
        lots: np.ndarray | None = None,
    ) -> Slice:
        """Which pieces of some rows a batch takes, and where it puts them.

        Args:
            rows: `[batch]` integers, rows of the store, in any order, repeats allowed.
            max_length: longest sequence, special tokens included, at least 4.
            title: ``"pair"`` = [CLS] title [SEP] body [SEP] with types 0 and 1, or [CLS] body [SEP]
                where there is no title; ``"joined"`` = [CLS] title body [SEP]; ``"none"`` = [CLS]
                body [SEP].
            pad_to_multiple: the padded length is a multiple of this, but never more than
                `max_length`.
            side: the end that loses pieces; ``"left"`` keeps the last turns of a dialogue.
            lots: `[batch]` uint64 by which a window of each long body is drawn, see `truncate`;
                None keeps one end.
        """
        rows = np.asarray(rows).astype(np.int64)
        title_from, body_from = self.title_offsets[rows], self.text_offsets[rows]
        title_pieces, body_pieces = (
            self.title_offsets[rows + 1] - title_from,
            self.text_offsets[rows + 1] - body_from,
        )
        left = truncate(
            title_pieces, body_pieces, max_length=max_length, mode=title, side=side, lots=lots
        )
        width = int(padded_length(left.lengths.max(), pad_to_multiple, max_length))
        return Slice(rows, left, title_from + left.title_start, body_from + left.body_start, width)


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
    dtype: str,
    progress: bool,
) -> None:
    """Ids of each column end to end, and where each text begins, a chunk of texts at a time."""
    counts: dict[str, list[np.ndarray]] = {part: [] for part in columns}
    with ExitStack() as stack:
        files = {
            part: stack.enter_context((draft / f"{part}_ids.bin").open("wb")) for part in columns
        }
        bar = stack.enter_context(
            tqdm(total=len(texts), desc="Tokens", unit=" texts", disable=not progress)
        )
        for chunk in texts.select_columns(list(columns.values())).with_format(None).iter(CHUNK):
            for part, column in columns.items():
                codes = tokenizer.encode_batch_fast(chunk[column], add_special_tokens=False)
                pieces = [code.ids for code in codes]
                counts[part].append(np.fromiter(map(len, pieces), np.int64, len(pieces)))
                np.fromiter(chain.from_iterable(pieces), dtype, counts[part][-1].sum()).tofile(
                    files[part]
                )
            bar.update(len(pieces))
    for part, parts in counts.items():
        np.save(
            draft / f"{part}_offsets.npy",
            np.cumsum(np.concatenate([np.zeros(1, np.int64), *parts])),
        )


class TokenValues:
    """A number for each piece of a store (importances of CDMAE, keyword weights of MASTER),
    memory-mapped.

    They are made once and laid out as the pieces are, so that a batch carries them in
    `TokenBatch.values`. Page: ideas/masking.

    Attributes:
        folder: where they lie.
        store: the tokens that they belong to.
        title, text: a float16 or float32 for each piece of all titles and of all bodies, end to
            end.

    Example:
        >>> import tempfile, datasets
        >>> from dr_lib.tokens import train_wordpiece
        >>> texts = datasets.Dataset.from_dict({"text": ["dense vectors", "sparse"]})
        >>> place, tokenizer = Path(tempfile.mkdtemp()), train_wordpiece(texts["text"], 60)
        >>> store = TokenStore.build(
        ...     texts, tokenizer, place / "store", columns=("text",), progress=False
        ... )
        >>> lengths = np.arange(len(store.text_ids))
        >>> values = TokenValues.write(store, place / "values", [(lengths[:0], lengths)])
        >>> values.batch(np.array([1]), max_length=8)[0, 0].item()
        0.0
    """

    def __init__(self, folder: Path, store: TokenStore):
        self.folder, self.store = folder, store
        files = (folder / f"{part}.npy" for part in ("title", "text"))
        self.title, self.text = (np.asarray(np.load(file, mmap_mode="r")) for file in files)

    @staticmethod
    def write(
        store: TokenStore,
        folder: Path,
        blocks: Iterable[tuple[np.ndarray, np.ndarray]],
        dtype: Literal["float16", "float32"] = "float32",
    ) -> "TokenValues":
        """Write values as they come, and open the result; the folder is whole or absent.

        Args:
            store: the tokens.
            folder: where to write; older values there are replaced.
            blocks: values of some titles and of some bodies, in the order of the store's pieces.
            dtype: float16 takes half the room and keeps three digits of numbers between 0.0001 and
                65,504.

        Raises:
            InputError: a value is not finite in `dtype`.
        """
        with fresh_folder(Path(folder), "token values") as draft:
            lengths = {"title": len(store.title_ids), "text": len(store.text_ids)}
            written = dict.fromkeys(lengths, 0)
            files = {
                part: new_array(draft / f"{part}.npy", dtype, (length,))
                for part, length in lengths.items()
            }
            for values in blocks:
                for part, numbers in zip(files, values, strict=True):
                    end = written[part] + len(numbers)
                    with np.errstate(over="ignore"):
                        files[part][written[part] : end] = numbers
                    if not np.isfinite(files[part][written[part] : end]).all():
                        fix = "Give finite numbers, or float32."
                        raise InputError(
                            f"a value is not a finite {dtype}", where="blocks", fix=fix
                        )
                    written[part] = end
            del files  # closes them, which Windows needs before the folder can be renamed
        return TokenValues(Path(folder), store)

    @staticmethod
    def open(folder: Path, store: TokenStore) -> "TokenValues":
        """Open values written earlier for this store."""
        return TokenValues(Path(folder), store)

    def batch(self, rows: np.ndarray, **layout: Any) -> Tensor:
        """`[batch, length]` float32: the value at each position of `TokenStore.batch` for the same
        arguments.

        0 at special positions and padding.
        """
        cut = self.store.slice(rows, **layout)
        values = np.zeros((len(cut.rows), cut.width), np.float32)
        in_title, in_body = cut.places()
        values[in_title], values[in_body] = cut.take(self.title, self.text)
        return torch.from_numpy(values)

    def attach(self, batch: TokenBatch, **layout: Any) -> TokenBatch:
        """The batch with its `values`; `layout` are the arguments of `TokenStore.batch` that it was
        made with.
        """
        return replace(batch, values=self.batch(batch.rows.numpy(), **layout))
