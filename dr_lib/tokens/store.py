"""The token store: every passage tokenised once, stored flat on disk, and cut into padded batches
without Python loops; and the batch type used everywhere.

A number per piece may be stored alongside (importances of CDMAE, keyword weights of MASTER).
`BatchStream` divides an epoch into batches as a function of the step: all batches of one padded
length have the same number of rows, so that an epoch has few distinct shapes, for each of which a
CPU builds bf16 kernels and a GPU compiles graphs. Training resumes at any step without replaying
earlier ones; process r of W takes the steps `W * step + r`. For the layout of a passage see
`layout.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import datasets
import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import (
    file_digest,
    fresh_folder,
    json_digest,
    new_array,
    open_array,
    read_json,
    write_json,
)
from dr_lib.stages import stage
from dr_lib.tokens.layout import (
    CHUNK,
    MULTIPLE,
    Side,
    Slice,
    Title,
    check_titles,
    load_tokenizer,
    padded_length,
    special_ids,
    tokenizer_digest,
    truncate,
)

# The batch ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenBatch:
    """Padded token ids of some passages or queries.

    All tensors are on one device.

    Attributes:
        input_ids: `[batch, length]` int64.
        attention_mask: `[batch, length]` int64, 1 at real tokens, 0 at padding.
        token_type_ids: `[batch, length]` int64, 0 for title (or the only segment), 1 for the body
            of a pair.
        special: `[batch, length]` bool, True at [CLS], [SEP] and padding.
        word_start: `[batch, length]` bool, True at the first piece of each word, never at a special
            position.
        rows: `[batch]` int64, the row of each sequence in its token store.
        values: `[batch, length]` float32, a number per piece (importance, keyword weight), 0 at
            special positions; None if a method needs none.
        lengths: `[batch]` int64, real tokens of each sequence, on the host, so that sorting a
            batch does not wait for a GPU. None where they are not known.
        share: its size relative to a full batch of this length, less than 1 at the end of an epoch;
            weighs accumulated batches.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    special: Tensor
    word_start: Tensor
    rows: Tensor
    values: Tensor | None = None
    lengths: np.ndarray | None = None
    share: float = 1.0

    def to(self, device: torch.device | str) -> "TokenBatch":
        """The same batch on another device."""
        return to_device(self, device)

    def take(self, index: Tensor) -> "TokenBatch":
        """The sequences at `index` `[n]` int64, in its order; repeats allowed."""
        known = self.lengths is not None and index.device.type == "cpu"
        lengths = self.lengths[index.numpy()] if known else None
        return self._changed(lambda tensor: tensor[index], lengths)

    def cut(self, length: int) -> "TokenBatch":
        """The first `length` positions of every sequence; the others must be padding."""
        lengths = None if self.lengths is None else np.minimum(self.lengths, length)
        return self._changed(
            lambda tensor: tensor[:, :length] if tensor.ndim == 2 else tensor, lengths
        )

    def _changed(
        self, change: Callable[[Tensor], Tensor], lengths: np.ndarray | None
    ) -> "TokenBatch":
        """The batch with every tensor changed, and these lengths."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        changed = {name: change(part) for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **changed, lengths=lengths)

    def with_ids(self, input_ids: Tensor) -> "TokenBatch":
        """The same positions with other ids, for masked or replaced input."""
        return replace(self, input_ids=input_ids)

    def model_inputs(self) -> dict[str, Tensor]:
        """Keyword arguments of a Hugging Face encoder."""
        return {
            name: getattr(self, name) for name in ("input_ids", "attention_mask", "token_type_ids")
        }

    def __len__(self) -> int:
        return self.input_ids.shape[0]


def to_device(batch: Any, device: torch.device | str) -> Any:
    """Move a tensor, or a dataclass of tensors and nested dataclasses, to a device; other values
    are unchanged.
    """
    if is_dataclass(batch):
        return replace(
            batch,
            **{part.name: to_device(getattr(batch, part.name), device) for part in fields(batch)},
        )
    if not isinstance(batch, Tensor):
        return batch
    # A copy from pinned memory to CUDA is asynchronous, and torch keeps the memory until it is
    # done; other copies are synchronous, except on Apple's GPUs, where the memory could be reused
    # too early.
    on_its_way = torch.device(device).type == "cuda"
    if on_its_way and batch.device.type == "cpu" and torch.cuda.is_available():
        batch = batch.pin_memory()
    return batch.to(device, non_blocking=on_its_way)


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices without it, such as Apple's GPUs."""
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


def to_batch(
    cut: Slice,
    titles: np.ndarray,
    bodies: np.ndarray,
    *,
    special: Mapping[str, int],
    continuation: np.ndarray,
) -> TokenBatch:
    """Assemble a batch from the pieces of titles and bodies.

    Args:
        cut: what stays of which rows.
        titles, bodies: the pieces of all rows of the store, end to end.
        special: ids by name.
        continuation: `[vocab]` bool, True for pieces that continue a word.
    """
    position = np.arange(cut.width)[None, :]
    body_start = 1 + cut.left.title[:, None] + cut.left.separate[:, None]
    real = position < cut.left.lengths[:, None]
    in_title, in_body = cut.places()
    content = in_title | in_body
    # All real positions start as [SEP]; [CLS] and the pieces overwrite them, and the separators are
    # left.
    ids = np.where(real, special["sep"], special["pad"]).astype(np.int64)
    ids[:, 0] = special["cls"]
    ids[in_title], ids[in_body] = cut.take(titles, bodies)
    # A piece whose word was truncated at its start counts as a word, as in the papers' masking
    # code.
    first = (position == 1) | (position == body_start)
    return TokenBatch(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.from_numpy(real.astype(np.int64)),
        token_type_ids=torch.from_numpy(
            (real & cut.left.separate[:, None] & (position >= body_start)).astype(np.int64)
        ),
        special=torch.from_numpy(~content),
        word_start=torch.from_numpy(content & (first | ~continuation[ids])),
        rows=torch.from_numpy(cut.rows),
        lengths=cut.left.lengths,
    )


# The store ----------------------------------------------------------------------------------------


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
    """Token ids of a collection's passages (or queries): memory-mapped by `build` and `open`, in
    memory by `of`.

    Attributes:
        folder: its folder; None if it is in memory.
        digest: SHA-256 of its content; two stores with the same digest give the same batches. Empty
            if it is in memory.
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
        ...     texts, train_wordpiece(texts["text"], 60), folder
        ... )
        >>> store.batch(np.array([0, 1]), max_length=12).input_ids.shape
        torch.Size([2, 12])
    """

    def __init__(
        self,
        meta: Mapping[str, Any],
        continuation: np.ndarray,
        columns: Mapping[str, tuple[np.ndarray, np.ndarray]],
        folder: Path | None = None,
    ):
        self.folder, self.digest = folder, meta.get("digest", "")
        self.tokenizer: str = meta["tokenizer"]
        self.special: dict[str, int] = meta["special"]
        self.vocab_size: int = meta["vocab_size"]
        self.continuation = continuation
        self.text_ids, self.text_offsets = columns["text"]
        untitled = self.text_ids[:0], np.zeros_like(self.text_offsets)
        self.title_ids, self.title_offsets = columns.get("title", untitled)

    @staticmethod
    def build(
        texts: datasets.Dataset,
        tokenizer: PreTrainedTokenizerFast,
        folder: Path,
        columns: tuple[str, ...] = ("title", "text"),
    ) -> "TokenStore":
        """Tokenise `texts` into `folder` and open the result; the folder is whole or absent.

        Text is data: a literal [MASK] in a passage becomes ordinary pieces, not the special token.

        Args:
            texts: rows with the columns named, strings without null.
            tokenizer: a WordPiece tokenizer; its truncation and padding settings are ignored.
            folder: where to write; an older store there is replaced.
            columns: ``("title", "text")``, or one column (queries), which is then the body.

        Raises:
            InputError: the tokenizer does not fit, or `folder` holds something else.
        """
        reader = _reader(tokenizer)
        with fresh_folder(folder, "token store") as draft:
            parts = dict(zip(("title", "text")[-len(columns) :], columns, strict=True))
            _write_ids(texts, reader, draft, parts)
            np.save(draft / "continuation.npy", reader.continuation)
            meta = reader.meta | {
                "columns": list(parts),
                "files": {path.name: file_digest(path) for path in sorted(draft.iterdir())},
            }
            write_json(draft / "meta.json", meta | {"digest": json_digest(meta)})
        return TokenStore.open(folder)

    @staticmethod
    def of(
        texts: Sequence[str],
        tokenizer: PreTrainedTokenizerFast,
        titles: Sequence[str] | None = None,
    ) -> "TokenStore":
        """Tokenise some texts in memory; batches are those of `build`.

        Args:
            texts: bodies of passages, or queries.
            tokenizer: as in `build`; read at its first use, and again when tokens were added.
            titles: one per text, "" if it has none; None if no text has one.

        Raises:
            InputError: the tokenizer does not fit, one text in place of a list, or another number
                of titles.
        """
        check_titles(texts, titles)
        reader = _reader_of(tokenizer, len(tokenizer))
        columns = {"text": texts} if titles is None else {"text": texts, "title": titles}
        read = {part: reader.flat(list(column)) for part, column in columns.items()}
        columns = {part: (ids, _offsets(counts)) for part, (ids, counts) in read.items()}
        return TokenStore(reader.meta, reader.continuation, columns)

    @staticmethod
    def open(folder: Path) -> "TokenStore":
        """Open a store built earlier; `InputError` where there is none."""
        meta = read_json(folder / "meta.json")
        columns = {}
        for part in meta["columns"]:
            offsets = open_array(folder / f"{part}_offsets.npy")
            # an empty file cannot be mapped
            ids = (
                np.memmap(folder / f"{part}_ids.bin", meta["dtype"], mode="r")
                if offsets[-1]
                else np.zeros(0, meta["dtype"])
            )
            columns[part] = np.asarray(ids), np.asarray(offsets)
        return TokenStore(meta, np.load(folder / "continuation.npy"), columns, folder)

    def __len__(self) -> int:
        return len(self.text_offsets) - 1

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Raise `InputError` naming both digests if the store was built with another tokenizer."""
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
        """Truncate, lay out and pad some rows.

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
        pad_to_multiple: int = MULTIPLE,
        side: Side = "right",
        random_ints: np.ndarray | None = None,
    ) -> Slice:
        """Which pieces of some rows go into a batch, and where.

        Args:
            rows: `[batch]` integers, rows of the store, in any order, repeats allowed.
            max_length: longest sequence, special tokens included, at least 4.
            title: ``"pair"`` = [CLS] title [SEP] body [SEP] with types 0 and 1, or [CLS] body [SEP]
                where there is no title; ``"joined"`` = [CLS] title body [SEP]; ``"none"`` = [CLS]
                body [SEP].
            pad_to_multiple: the padded length is a multiple of this, but never more than
                `max_length`.
            side: the side from which texts are truncated; ``"left"`` keeps the last turns of a
                dialogue.
            random_ints: `[batch]` uint64 that choose a window of each long body, see `truncate`;
                None truncates at `side`.
        """
        rows = np.asarray(rows).astype(np.int64)
        title_from, body_from = self.title_offsets[rows], self.text_offsets[rows]
        title_pieces = self.title_offsets[rows + 1] - title_from
        body_pieces = self.text_offsets[rows + 1] - body_from
        left = truncate(
            title_pieces,
            body_pieces,
            max_length=max_length,
            mode=title,
            side=side,
            random_ints=random_ints,
        )
        width = int(padded_length(left.lengths.max(), pad_to_multiple, max_length))
        return Slice(rows, left, title_from + left.title_start, body_from + left.body_start, width)


class _Reader(NamedTuple):
    """What a store takes from its tokenizer.

    Attributes:
        tokenizer: a copy that neither cuts nor pads and takes the text of special tokens for
            ordinary text.
        continuation: as of `TokenStore`.
        meta: its `tokenizer`, `vocab_size`, `special` and `dtype`.
    """

    tokenizer: Tokenizer
    continuation: np.ndarray
    meta: dict[str, Any]

    def flat(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts end to end, and how many each has."""
        codes = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        pieces = [code.ids for code in codes]
        counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return np.fromiter(chain.from_iterable(pieces), self.meta["dtype"], counts.sum()), counts


@lru_cache(maxsize=4)
def _reader_of(tokenizer: PreTrainedTokenizerFast, _size: int) -> _Reader:
    """The reader of a tokenizer, cached: making it can cost more than encoding a few texts."""
    return _reader(tokenizer)


def _reader(tokenizer: PreTrainedTokenizerFast) -> _Reader:
    special, pieces = special_ids(tokenizer), tokenizer.get_vocab()
    vocab_size = max(len(tokenizer), 1 + max(pieces.values()))
    prefix = tokenizer.backend_tokenizer.model.continuing_subword_prefix
    continuation = np.zeros(vocab_size, bool)
    continuation[
        [id_ for piece, id_ in pieces.items() if piece.startswith(prefix) and piece != prefix]
    ] = True
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    meta = {
        "tokenizer": tokenizer_digest(tokenizer),
        "vocab_size": vocab_size,
        "special": special,
        "dtype": "uint16" if vocab_size < 2**16 else "int32",
    }
    return _Reader(copy, continuation, meta)


def _write_ids(
    texts: datasets.Dataset, reader: _Reader, draft: Path, columns: dict[str, str]
) -> None:
    """Ids of each column end to end, and where each text begins, a chunk of texts at a time."""
    counts: dict[str, list[np.ndarray]] = {part: [] for part in columns}
    with ExitStack() as stack:
        files = {
            part: stack.enter_context((draft / f"{part}_ids.bin").open("wb")) for part in columns
        }
        bar = stack.enter_context(tqdm(total=len(texts), desc="Tokens", unit=" texts", delay=1))
        for chunk in texts.select_columns(list(columns.values())).with_format(None).iter(CHUNK):
            for part, column in columns.items():
                ids, pieces = reader.flat(chunk[column])
                ids.tofile(files[part])
                counts[part].append(pieces)
            bar.update(len(pieces))
    for part, parts in counts.items():
        np.save(draft / f"{part}_offsets.npy", _offsets(*parts))


def _offsets(*counts: np.ndarray) -> np.ndarray:
    """Where each text begins, and the last one ends."""
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))


class TokenValues:
    """A number per piece of a store (importances of CDMAE, keyword weights of MASTER),
    memory-mapped.

    They are computed once and stored in the order of the pieces; batches carry them in
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
        ...     texts, tokenizer, place / "store", columns=("text",)
        ... )
        >>> lengths = np.arange(len(store.text_ids))
        >>> values = TokenValues.write(store, place / "values", [(lengths[:0], lengths)])
        >>> values.batch(np.array([1]), max_length=8)[0, 0].item()
        0.0
    """

    def __init__(self, folder: Path, store: TokenStore):
        self.folder, self.store = folder, store
        files = (folder / f"{part}.npy" for part in ("title", "text"))
        self.title, self.text = (np.asarray(open_array(file)) for file in files)

    @staticmethod
    def write(
        store: TokenStore,
        folder: Path,
        blocks: Iterable[tuple[np.ndarray, np.ndarray]],
        dtype: Literal["float16", "float32"] = "float32",
    ) -> "TokenValues":
        """Write values block by block and open the result; the folder is written atomically.

        Args:
            store: the tokens.
            folder: where to write; older values there are replaced.
            blocks: values of some titles and of some bodies, in the order of the store's pieces.
            dtype: float16 takes half the space and keeps three digits of numbers between 0.0001 and
                65,504.

        Raises:
            InputError: a value is not finite in `dtype`.
        """
        with fresh_folder(folder, "token values") as draft:
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
        return TokenValues(folder, store)

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


# Epochs of batches --------------------------------------------------------------------------------

Window = Literal["first", "random"]
BLOCK = 1 << 17  # rows sorted by length together; larger blocks would save little padding
# rows of a stage: MS MARCO's 8.8 million passages are 17 shards of 1.6 GB at 768 numbers
SHARD = 4 * BLOCK


def plan_epoch(
    lengths: np.ndarray, *, tokens_per_batch: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Divide all rows into batches: shuffle, sort by padded length, cut, shuffle the batches.

    The longest rows are cut first: with padded length P a batch takes `tokens_per_batch // P` rows,
    at least one, and only the last batch (the shortest rows) may be smaller than its kind. Shapes
    and number of batches are the same in every epoch, the rows that meet in a batch are not.

    Args:
        lengths: `[n]` padded lengths, at least 1.
        tokens_per_batch: budget of rows x padded length. A single row above it is a batch of its
            own.
        seed, epoch: fix the order; 0 or more.

    Returns:
        One array of row numbers (int64) per batch; together they hold every row exactly once.

    Example:
        >>> [
        ...     rows.tolist()
        ...     for rows in plan_epoch(
        ...         np.array([8, 16, 8, 16]), tokens_per_batch=32, seed=0, epoch=0
        ...     )
        ... ]
        [[2, 0], [1, 3]]
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    # A stable sort keeps the shuffled order among rows of equal length, so that batches differ
    # between epochs.
    order = order[np.argsort(-lengths[order].astype(np.int32), kind="stable")]
    batches = _cut(order, lengths[order], tokens_per_batch)
    return [batches[index] for index in random.permutation(len(batches))]


def plan_by_length(lengths: np.ndarray, tokens_per_batch: int, max_length: int) -> list[np.ndarray]:
    """Cut the rows into batches: longest first, `tokens_per_batch // padded length` rows each.

    The padded length decides the batch size, so there are at most as many shapes as padded lengths,
    plus the last batch.

    Example:
        >>> [batch.tolist() for batch in plan_by_length(np.array([5, 16, 9, 8, 1]), 16, 32)]
        [[1], [2], [3, 0], [4]]
    """
    order = np.argsort(-lengths, kind="stable")
    return _cut(order, padded_length(lengths[order], MULTIPLE, max_length), tokens_per_batch)


def shards(rows: int) -> list[tuple[int, int]]:
    """First row and end of each shard of a collection; one for up to half a million passages.

    Example:
        >>> shards(300), shards(SHARD + 1)[1]
        ([(0, 300)], (524288, 524289))
    """
    return [(part.start, part.stop) for part in blocks(0, rows, SHARD)]


def blocks(first: int, end: int, size: int | None = None) -> list[slice]:
    """Rows from `first` to `end` in pieces of `size`, by default those that are sorted together."""
    size = size or BLOCK
    return [slice(start, min(start + size, end)) for start in range(first, end, size)]


def _cut(rows: np.ndarray, padded: np.ndarray, tokens_per_batch: int) -> list[np.ndarray]:
    """Cut rows into batches, each as large as the budget allows at the length of its first row, the
    longest.
    """
    batches, start = [], 0
    while start < len(rows):
        stop = start + max(1, tokens_per_batch // int(padded[start]))
        batches.append(rows[start:stop])
        start = stop
    return batches


class BatchStream:
    """Batches of a store, epoch after epoch.

    Args:
        store: where the tokens lie.
        tokens_per_batch: budget of rows x padded length of a batch, at least `max_length`.
        max_length: longest sequence, special tokens included.
        title: see `TokenStore.batch`.
        seed: 0 or more; another seed gives another order.
        beside: `[n]` length of the longest other text that goes with each row; the budget then
            counts the longer of the two, so that batches of those texts fit too.
        pad_to_multiple: padded lengths are multiples of this, but never more than `max_length`.
        window: what is read of a passage that is too long: its beginning, or a new random window in
            each epoch (Condenser and MASTER, released code).
        values: numbers per piece for the batches to carry.

    Raises:
        InputError: the budget is smaller than one sequence.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        tokens_per_batch: int,
        max_length: int,
        title: Title = "pair",
        seed: int = 0,
        beside: np.ndarray | None = None,
        pad_to_multiple: int = MULTIPLE,
        window: Window = "first",
        values: TokenValues | None = None,
    ):
        if tokens_per_batch < max_length:
            problem = f"budget of {tokens_per_batch} cannot hold one sequence of {max_length}"
            raise InputError(
                problem, where="tokens_per_batch", fix="Raise the budget or lower max_length."
            )
        self.store, self.values, self.seed, self.window = store, values, seed, window
        self.tokens_per_batch = tokens_per_batch
        self._layout = {
            "max_length": max_length,
            "title": title,
            "pad_to_multiple": pad_to_multiple,
        }
        lengths = np.maximum(store.lengths(max_length, title), 0 if beside is None else beside)
        self._lengths = padded_length(lengths, pad_to_multiple, max_length)
        plan = partial(plan_epoch, self._lengths, tokens_per_batch=tokens_per_batch, seed=seed)
        self.plan = lru_cache(maxsize=2)(plan)  # an epoch and, at its end, the next one
        self.steps_per_epoch = len(self.plan(epoch=0))

    def batch(self, step: int) -> TokenBatch:
        """The batch of a step, counted from 0 over all epochs; the last of an epoch may be a
        `share` of a full one.
        """
        epoch, index = self.locate(step)
        rows, layout = self.plan(epoch=epoch)[index], self._layout
        if self.window == "random":
            random = np.random.default_rng([self.seed, epoch, index])
            layout = layout | {
                "random_ints": random.integers(2**63, size=len(rows), dtype=np.uint64)
            }
        full = max(1, self.tokens_per_batch // int(self._lengths[rows[0]]))
        batch = replace(self.store.batch(rows, **layout), share=len(rows) / full)
        return batch if self.values is None else self.values.attach(batch, **layout)

    def locate(self, step: int) -> tuple[int, int]:
        """Epoch of a step and its place in that epoch."""
        return divmod(step, self.steps_per_epoch)
