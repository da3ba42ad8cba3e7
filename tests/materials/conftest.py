"""Token stores from a few words."""

from collections.abc import Callable

import datasets
import pytest
from transformers import BertTokenizerFast

from dr_lib.tokens import TokenStore

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def store_of(tmp_path) -> Callable[..., TokenStore]:
    """Make a store: `store_of(["a b c"], titles=["d"])`; with `split` every second word is cut into
    its letters.
    """
    made = []

    def make(texts: list[str], titles: list[str] | None = None, split: bool = False) -> TokenStore:
        titles = titles or [""] * len(texts)
        words = sorted(set(" ".join(titles + texts).split()))
        letters = sorted(set("".join(words))) if split else []
        pieces = dict.fromkeys(
            [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *words[:: 1 + split]]
        )
        tokenizer = BertTokenizerFast(vocab={piece: index for index, piece in enumerate(pieces)})
        rows = datasets.Dataset.from_dict({"title": titles, "text": texts})
        made.append(tmp_path / f"store{len(made)}")
        return TokenStore.build(rows, tokenizer, made[-1])

    return make
