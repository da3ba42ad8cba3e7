"""Saved encoders as folders that sentence-transformers opens unchanged. Page: practice/own-corpus.

A `DenseEncoder` or `CrossEncoder` is saved as `transformers` has it. What is added here are the small files that say
how a vector is made of the states (`modules.json` and what it names), how vectors are compared, and how long a text may
be, in the names that sentence-transformers has had from its early releases on.
"""

from pathlib import Path
from typing import Any

from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.models.cross_encoder import CrossEncoder
from dr_lib.models.dense import DenseEncoder

MODULES = "sentence_transformers.models."
POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def save_dense(encoder: DenseEncoder, folder: Path) -> None:
    """Write a dense encoder with `modules.json`, pooling, normalisation, similarity and longest text.

    Args:
        encoder: any; its weights are saved as they are.
        folder: made if it is missing.

    Raises:
        InputError: an encoder with a projection, which sentence-transformers would leave out.
    """
    if encoder.settings.projection:
        fix = "Train one without (finetuning.projection), or open it with dr_lib."
        raise InputError("an encoder with a projection cannot be exported", where=folder, fix=fix)
    encoder.save(folder)
    settings, normalised = encoder.settings, encoder.settings.normalise
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if normalised else [])]
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": MODULES + kind}
        for place, (path, kind) in enumerate(steps)
    ]
    pooled = {"cls": "cls_token", "mean": "mean_tokens"}[settings.pooling]
    write_json(folder / "modules.json", modules)
    write_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": encoder.encoder.config.hidden_size, "include_prompt": True}
        | {f"pooling_mode_{name}": name == pooled for name in POOLINGS},
    )
    if normalised:
        write_json(folder / "2_Normalize" / "config.json", {})  # an empty folder would not survive a repository
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": settings.passage_length, "do_lower_case": False}
    )
    similarity = "cosine" if normalised else "dot"
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": similarity},
    )
    _finish_tokenizer(folder, settings.passage_length)


def save_cross_encoder(cross_encoder: CrossEncoder, folder: Path) -> None:
    """Write a cross-encoder whose scores are raw logits in `CrossEncoder` of sentence-transformers too.

    Args:
        cross_encoder: any; its weights are saved as they are.
        folder: made if it is missing.
    """
    cross_encoder.save(folder)
    _update(folder / "config.json", sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})
    _finish_tokenizer(folder, cross_encoder.settings.length)


def _finish_tokenizer(folder: Path, longest: int) -> None:
    """Let the tokenizer cut where the model was trained to, and give the types that tell a title from its text."""
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    _update(folder / "tokenizer_config.json", model_max_length=longest, model_input_names=inputs)


def _update(path: Path, **values: Any) -> None:
    write_json(path, read_json(path) | values)
