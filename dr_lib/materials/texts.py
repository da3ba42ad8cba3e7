"""Texts written about passages: generated questions or continuations, as strings and as tokens.

A folder holds `texts.arrow` (the strings, column text), `store/` (their tokens) and `offsets.npy`: the texts of
passage p are the rows `offsets[p]` to `offsets[p + 1]` of both. Page: ideas/generators.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.materials.strings import StringWriter, read_strings
from dr_lib.tokens import FlatWriter, TokenStore

STRINGS = "texts.arrow"


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
        *,
        progress: bool = True,
    ) -> "Texts":
        """Write texts as they come, in memory for one block of passages.

        Args:
            folder: an existing folder.
            texts: blocks of passages in order, for each passage its texts (possibly none).
            tokenizer: of the model that will read them.
            progress: show the tokenizer's bar.

        Raises:
            InputError: not one text in all.

        Example:
            >>> import tempfile
            >>> from dr_lib.tokens import load_tokenizer
            >>> folder = Path(tempfile.mkdtemp())
            >>> made = Texts.write(folder, [[["who?", "why?"], []], [["when?"]]], load_tokenizer("embedded"))
            >>> made.offsets.tolist(), made.of(0)
            ([0, 2, 2, 3], ['who?', 'why?'])
        """
        with (
            StringWriter(folder / STRINGS, ("text",)) as strings,
            FlatWriter(folder / "offsets.npy", np.int64) as ends,
        ):
            ends.append(np.zeros(1, np.int64))
            for block in texts:
                before = strings.length
                for text in chain.from_iterable(block):
                    strings.append((text,))
                ends.append(before + np.cumsum([len(own) for own in block], dtype=np.int64))
        if not strings.length:
            raise InputError("no text was written for any passage", where=folder, fix="Train the writer longer.")
        rows = read_strings(folder / STRINGS)
        TokenStore.build(rows, tokenizer, folder / "store", columns=("text",), progress=progress)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> "Texts":
        """Open what `write` left; `InputError` where a file is missing or does not fit the others."""
        folder = Path(folder)
        store = TokenStore.open(folder / "store")
        try:
            offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
            strings = read_strings(folder / STRINGS)
        except (OSError, ValueError, EOFError, pa.ArrowInvalid) as error:
            raise InputError(f"not a whole folder of texts ({error})", where=folder, fix="Make it again.") from None
        if not offsets[-1] == len(store) == len(strings):
            sizes = f"{len(strings)} strings, {len(store)} tokenised, offsets up to {offsets[-1]}"
            raise InputError(f"files do not fit: {sizes}", where=folder, fix="Make it again.")
        return cls(strings, store, offsets)

    def __len__(self) -> int:
        return len(self.strings)

    def of(self, passage: int) -> list[str]:
        """The texts of one passage."""
        return self.strings[int(self.offsets[passage]) : int(self.offsets[passage + 1])]["text"]

    def owners(self) -> np.ndarray:
        """The passage of each text, `[texts]` int64."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
