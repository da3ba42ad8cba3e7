"""Texts generated from passages (questions, continuations): as strings and as tokens, and their
generation.

A folder holds `texts.arrow` (the strings, column text), `store/` (their tokens) and `offsets.npy`:
the texts of passage p are the rows `offsets[p]` to `offsets[p + 1]` of both. They are generated
shard by shard, so that a killed run does not repeat finished shards. Page: ideas/generators.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import datasets
import numpy as np
import torch
from datasets import Features, Value
from datasets.arrow_writer import ArrowWriter
from torch import Tensor
from tqdm.auto import tqdm
from transformers import (
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from dr_lib.errors import InputError, check_texts
from dr_lib.files import open_array, read_json, write_json
from dr_lib.models import (
    CausalDecoding,
    Sampling,
    Seq2seqDecoding,
    end_of_text,
    never_written,
    write_texts,
)
from dr_lib.stages import TimeIsUpError, stage, time_is_up
from dr_lib.tokens import TokenStore, load_tokenizer
from dr_lib.training import hash64, machine

STRINGS = "texts.arrow"
ROWS_AT_ONCE = {"cpu": 512, "cuda": 8192}
"""Texts generated in parallel, which does not change them."""
ROWS_TIMES_WEIGHTS = 2**36
"""Bound on rows times a model's weights, because of the key-value cache: 4 GB in bfloat16 for GPT-2
with 200 tokens.
"""
BATCHES_PER_SHARD = 4
# a name that the cache of stages drops at the end
SCRATCH = "checkpoint-texts"


def open_strings(path: Path, *columns: str) -> ArrowWriter:
    """A file of texts to write row by row or batch by batch; call `finalize` at the end."""
    return ArrowWriter(path=str(path), features=Features(dict.fromkeys(columns, Value("string"))))


@dataclass(frozen=True)
class Texts:
    """The texts of all passages.

    Attributes:
        strings: dataset with the column text, memory-mapped.
        store: the same texts as tokens.
        offsets: `[passages + 1]` int64.
    """

    strings: datasets.Dataset
    store: TokenStore
    offsets: np.ndarray

    @classmethod
    def write(
        cls,
        folder: Path,
        texts: Iterable[Sequence[Sequence[str]]],
        tokenizer: PreTrainedTokenizerFast,
    ) -> "Texts":
        """Write texts block by block, with one block of passages in memory.

        Args:
            folder: an existing folder.
            texts: blocks of passages in order, for each passage its texts (possibly none).
            tokenizer: of the model that will read them.

        Raises:
            InputError: there is no text at all.

        Example:
            >>> import tempfile
            >>> from dr_lib.tokens import load_tokenizer
            >>> folder = Path(tempfile.mkdtemp())
            >>> made = Texts.write(
            ...     folder, [[["who?", "why?"], []], [["when?"]]], load_tokenizer("embedded")
            ... )
            >>> made.offsets.tolist(), made.strings[:2]["text"]
            ([0, 2, 2, 3], ['who?', 'why?'])
        """
        counts: list[int] = []
        with open_strings(folder / STRINGS, "text") as strings:
            for block in texts:
                counts += [len(row_texts) for row_texts in block]
                if any(block):
                    strings.write_batch({"text": list(chain.from_iterable(block))})
            strings.finalize()
        if not sum(counts):
            raise InputError(
                "no text was written for any passage", where=folder, fix="Train the writer longer."
            )
        np.save(folder / "offsets.npy", np.cumsum([0, *counts]))
        rows = datasets.Dataset.from_file(str(folder / STRINGS))
        TokenStore.build(rows, tokenizer, folder / "store", columns=("text",))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> "Texts":
        """Open what `write` left."""
        return cls(
            datasets.Dataset.from_file(str(folder / STRINGS)),
            TokenStore.open(folder / "store"),
            open_array(folder / "offsets.npy"),
        )

    def __len__(self) -> int:
        return len(self.strings)

    def owners(self) -> np.ndarray:
        """The passage of each text, `[texts]` int64."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@stage()
def text_tokens(folder: Path, texts: Path, tokenizer: Path | str) -> None:
    """`store/`: the tokens of some texts for a model with another tokenizer."""
    rows, words = Texts.open(texts).strings, load_tokenizer(tokenizer)
    TokenStore.build(rows, words, folder / "store", columns=("text",))


def distinct(texts: Sequence[str], counts: Counter) -> list[str]:
    """The texts of one passage without empty and repeated ones (ignoring case), counting what was
    dropped.

    Args:
        texts: as generated.
        counts: incremented for `passages`, texts `drawn`, `empty`, `repeated` (for the same
            passage) and `kept`, and passages `without` any.

    Example:
        >>> counts = Counter()
        >>> distinct(["Who?", " who? ", "", "why?"], counts), counts["repeated"], counts["empty"]
        (['Who?', 'why?'], 1, 1)
    """
    check_texts(texts=texts)
    full = [text for text in map(str.strip, texts) if text]
    spellings: dict[str, str] = {}
    for text in full:
        spellings.setdefault(text.casefold(), text)
    dropped = {"empty": len(texts) - len(full), "repeated": len(full) - len(spellings)}
    counts.update(
        passages=1, drawn=len(texts), **dropped, kept=len(spellings), without=int(not spellings)
    )
    return list(spellings.values())


@dataclass(frozen=True)
class PassageWriter:
    """Generates texts about the passages of a batch; see `write_all`.

    Attributes:
        model: in eval mode, on its device; fastest in bfloat16.
        tokenizer: the model's own.
        begin: rows of passages -> the decoding state after reading them, `copies` times each.
        copies: texts per passage.
        longest: maximum text length in tokens.
        choice: how tokens are drawn.
        may_end: whether a text may end earlier; it is never empty.
        seed: of the draws.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    begin: Callable[[np.ndarray], Seq2seqDecoding | CausalDecoding]
    copies: int
    longest: int
    choice: Sampling
    may_end: bool
    seed: int = 0

    @torch.inference_mode()
    def __call__(self, rows: np.ndarray) -> list[list[str]]:
        """The texts about some passages, by passage."""
        device, end = self.model.device, end_of_text(self.tokenizer)
        vocab = self.model.get_output_embeddings().weight.shape[0]
        forbidden = torch.tensor(
            never_written(self.tokenizer, vocab, end if self.may_end else None), device=device
        )
        # Random numbers depend on passage and position only, so that batching and interruptions do
        # not change the texts.
        uniform = torch.from_numpy(uniform_numbers(self.seed, rows, self.copies, self.longest)).to(
            device
        )
        ids = write_texts(self.begin(rows), uniform, self.choice, end=end, forbidden=forbidden)
        texts = spelled(self.tokenizer, ids)
        return [texts[start : start + self.copies] for start in range(0, len(texts), self.copies)]


def save_texts(
    folder: Path, write: PassageWriter, store: TokenStore, tokenizer: Path | str, *, title: str
) -> None:
    """Generate texts about every passage, drop empty and repeated ones, and save the rest with
    their counts (`counts.json`).

    Args:
        folder: of a resumable stage.
        write: generates the texts.
        store: tokens of the passages.
        tokenizer: of the model that will read the texts.
        title: what is written, for the bar.
    """
    side_by_side = min(
        ROWS_AT_ONCE.get(machine.device().type, 512),
        ROWS_TIMES_WEIGHTS // write.model.num_parameters(),
    )
    counts, at_once = Counter(), max(1, side_by_side // write.copies)
    written = write_all(folder, np.diff(store.text_offsets), write, at_once=at_once, title=title)
    Texts.write(
        folder,
        ([distinct(row_texts, counts) for row_texts in block] for block in written),
        load_tokenizer(tokenizer),
    )
    write_json(folder / "counts.json", counts)


def ready(model: PreTrainedModel) -> PreTrainedModel:
    """A model for inference: without gradients, with weights in bfloat16 if the machine computes it
    natively.
    """
    torch.set_num_threads(machine.threads())
    bf16 = machine.precision("auto", model.device) == "bf16"
    return model.requires_grad_(False).to(torch.bfloat16 if bf16 else torch.float32)


def writer_tokenizer(writer: Path | str, public: bool) -> PreTrainedTokenizerBase:
    """The tokenizer of a model trained here, or of a public one, of any kind."""
    return (
        AutoTokenizer.from_pretrained(writer, trust_remote_code=False)
        if public
        else load_tokenizer(writer)
    )


def write_all(
    folder: Path,
    lengths: np.ndarray,
    write: Callable[[np.ndarray], list[list[str]]],
    *,
    at_once: int,
    title: str,
) -> Iterator[list[list[str]]]:
    """Generate texts about every passage and yield them in the passages' order, a shard at a time.

    Args:
        folder: the stage's folder; shards are kept in its `checkpoint-texts/` until the stage is
            finished.
        lengths: `[passages]` tokens of each passage, to sort by.
        write: rows of passages -> for each its texts; the same rows must give the same texts.
        at_once: passages of one call of `write`.
        title: what is written, for the bar.
    """
    size = BATCHES_PER_SHARD * at_once
    with tqdm(total=len(lengths), desc=title, unit="passage") as bar:
        for start in range(0, len(lengths), size):
            # Passages are sorted by length, for little padding, but only within a shard: at most
            # one shard is repeated after a kill, and one is in memory.
            rows = start + np.argsort(-lengths[start : start + size], kind="stable")
            path = folder / SCRATCH / f"{start}.json"
            try:
                texts = read_json(path)
            except InputError:  # none yet, or a broken one
                texts = []
            if len(texts) != len(rows):  # written by a machine with another batch size
                written = []
                for part in range(0, len(rows), at_once):
                    if time_is_up():
                        raise TimeIsUpError(f"{title}: stopped after {start:,} of {len(lengths):,}")
                    written += write(rows[part : part + at_once])
                texts = [written[place] for place in np.argsort(rows)]
                write_json(path, texts)
            bar.update(len(rows))
            yield texts


def spelled(tokenizer: PreTrainedTokenizerBase, ids: Tensor) -> list[str]:
    """Decode rows of ids without special tokens; a first piece that continues a word loses its
    `##`.
    """
    return [
        text.removeprefix("##")
        for text in tokenizer.batch_decode(ids.cpu(), skip_special_tokens=True)
    ]


def uniform_numbers(seed: int, rows: np.ndarray, copies: int, steps: int) -> np.ndarray:
    """One number in [0, 1) per token, a function of (seed, passage, copy, token): `[rows *
    copies, steps]` float32.

    Example:
        >>> first, both = (
        ...     uniform_numbers(0, np.array([7]), 2, 3),
        ...     uniform_numbers(0, np.array([4, 7]), 2, 3),
        ... )
        >>> bool((both[2:] == first).all())
        True
    """
    numbers = hash64(seed, rows[:, None, None], np.arange(copies)[:, None], np.arange(steps))
    return ((numbers >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)).reshape(-1, steps)
