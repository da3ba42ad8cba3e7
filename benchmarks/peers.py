"""sentence-transformers, set up for the comparisons."""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

from material import PASSAGE_LENGTH, Material

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def at_hand() -> bool:
    """Whether sentence-transformers can be imported."""
    if find_spec("sentence_transformers"):
        return True
    print("not compared: sentence-transformers is missing (make setup installs it)")
    return False


def sentence_model(
    found: Material, *, attention: str = "sdpa", dtype: str = "float32", device: str = "cpu"
) -> "SentenceTransformer":
    """The material's encoder in sentence-transformers: first state, passages truncated as ours."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    options = {"attn_implementation": attention, "dtype": dtype}
    body = Transformer(str(found.model), max_seq_length=PASSAGE_LENGTH, model_kwargs=options)
    return SentenceTransformer(
        modules=[body, Pooling(found.hidden, pooling_mode="cls")], device=device
    )
