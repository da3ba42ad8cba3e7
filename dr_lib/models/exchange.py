"""Saved encoders as folders that sentence-transformers opens unchanged. Page: practice/own-corpus.

A `DenseEncoder` or `CrossEncoder` is saved as `transformers` has it. What is added here are the small files that say
how a vector is made of the states (`modules.json` and what it names; a projection's weights once more), how vectors are
compared, and how long a text may be, in the names that sentence-transformers has had from its early releases on.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import Tensor

from dr_lib.files import read_json, write_json
from dr_lib.models.cross_encoder import CrossEncoder
from dr_lib.models.dense import DenseEncoder

MODULES = "sentence_transformers.models."
IDENTITY = "torch.nn.modules.linear.Identity"
POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


class Step(NamedTuple):
    """One thing that is done to the states on their way to a vector: a module's name, its settings, its weights."""

    kind: str
    config: dict[str, Any]
    weights: Mapping[str, Tensor] = MappingProxyType({})


def save_dense(encoder: DenseEncoder, folder: Path) -> None:
    """Write a dense encoder with `modules.json`, pooling, projection, normalisation, similarity and longest text.

    Args:
        encoder: any; its weights are saved as they are.
        folder: made if it is missing.
    """
    encoder.save(folder)
    settings, modules = encoder.settings, [{"idx": 0, "name": "0", "path": "", "type": f"{MODULES}Transformer"}]
    for place, step in enumerate(steps_of(encoder), 1):
        name = f"{place}_{step.kind}"
        modules.append({"idx": place, "name": str(place), "path": name, "type": MODULES + step.kind})
        write_json(folder / name / "config.json", step.config)  # an empty folder would not survive a repository
        if step.weights:
            save_file(step.weights, folder / name / "model.safetensors")
    write_json(folder / "modules.json", modules)
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": settings.passage_length, "do_lower_case": False}
    )
    similarity = "cosine" if settings.normalise else "dot"
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": similarity},
    )
    _finish_tokenizer(folder, settings.passage_length)


def steps_of(encoder: DenseEncoder) -> list[Step]:
    """Pooling, the two parts of a projection where there is one, and normalisation where vectors have length 1."""
    settings, hidden = encoder.settings, encoder.encoder.config.hidden_size
    pooled = {"cls": "cls_token", "mean": "mean_tokens"}[settings.pooling]
    modes = {f"pooling_mode_{name}": name == pooled for name in POOLINGS}
    steps = [Step("Pooling", {"word_embedding_dimension": hidden, "include_prompt": True} | modes)]
    if settings.projection:
        linear, norm = encoder.projection.linear, encoder.projection.norm
        shape = {"in_features": hidden, "out_features": hidden, "bias": True, "activation_function": IDENTITY}
        steps.append(Step("Dense", shape, linear.state_dict(prefix="linear.")))
        steps.append(Step("LayerNorm", {"dimension": hidden}, norm.state_dict(prefix="norm.")))
    return [*steps, Step("Normalize", {})] if settings.normalise else steps


def save_cross_encoder(cross_encoder: CrossEncoder, folder: Path) -> None:
    """Write a cross-encoder whose scores are raw logits in `CrossEncoder` of sentence-transformers too.

    Args:
        cross_encoder: any; its weights are saved as they are.
        folder: made if it is missing.
    """
    cross_encoder.save(folder)
    _update(folder / "config.json", sentence_transformers={"activation_fn": IDENTITY})
    _finish_tokenizer(folder, cross_encoder.settings.length)


def _finish_tokenizer(folder: Path, longest: int) -> None:
    """Let the tokenizer cut where the model was trained to, and give the types that tell a title from its text."""
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    _update(folder / "tokenizer_config.json", model_max_length=longest, model_input_names=inputs)


def _update(path: Path, **values: Any) -> None:
    write_json(path, read_json(path) | values)
