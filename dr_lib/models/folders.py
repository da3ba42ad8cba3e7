"""Folders of models from elsewhere: what is looked at before a library opens one, and after; and
which kinds of encoders are taken.

The libraries run no code of a folder (`trust_remote_code=False`) and read no pickle. What is left
is refused here: a configuration that names code of a hub, weights that lie elsewhere, sizes that no
file of the folder has, numbers that are none. Models of kinds that are not tested here may open and
compute without complaint, and wrongly: they take an attention bias for a mask, or call their
dropout otherwise. They are refused in words.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PretrainedConfig

from dr_lib.errors import InputError, visible
from dr_lib.files import read_json

LARGEST = 2**24  # bytes of a configuration or a list of weights
MOST_LABELS = 50_000  # for each of which the library makes a name
FIX = "Save the model again with sentence-transformers or transformers, or give another."
# keys of a configuration whose value, with a slash in it, is fetched from a hub and run
CODE_KEYS = ("attn_implementation", "experts_implementation", "kernel_config", "use_kernels")


def check_model_folder(folder: Path) -> None:
    """Look at a folder before a library opens it.

    Raises:
        InputError: a configuration or list of weights is broken or too large, names code of a hub,
            files that are not beside it, or more layers than the weights have tensors or absurdly
            many labels; or the folder is an adapter, whose model lies elsewhere.
    """
    if (folder / "adapter_config.json").is_file():
        problem = "is an adapter, whose model lies elsewhere"
        raise InputError(problem, where=folder, fix="Merge it into its model and save that.")
    for path in _modules(folder):
        inside = folder / path
        if (inside / "config.json").is_file():
            _check_configuration(inside)
        for index in inside.glob("*.index.json"):
            _check_index(index)


def check_finite(tensors: Iterable[tuple[str, Tensor]], where: object) -> None:
    """Raise `InputError` that names the first weight with NaN or an infinite number."""
    for name, tensor in tensors:
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise InputError(f"not every number of {name} is finite", where=where, fix=FIX)


def _modules(folder: Path) -> list[str]:
    """The places of a model's parts in its folder: itself, and those that modules.json lists."""
    if not (folder / "modules.json").is_file():
        return [""]
    modules = read_json(folder / "modules.json", FIX, LARGEST)
    try:
        paths = [str(module["path"]) for module in modules]
    except (TypeError, KeyError):
        raise InputError("no list of modules", where=folder / "modules.json", fix=FIX) from None
    for path in paths:
        parts = PurePosixPath(path.replace("\\", "/")).parts
        if any(part.startswith(".") for part in parts) or parts[:1] == ("/",):
            problem = f"names a hidden place or one outside: {visible(path)}"
            raise InputError(problem, where=folder / "modules.json", fix=FIX)
    return ["", *paths]


def _check_configuration(folder: Path) -> None:
    """Refuse code of a hub, and more layers than the folder's weights have tensors."""
    path, tensors = folder / "config.json", _count_tensors(folder)
    for key, value in _entries(read_json(path, FIX, LARGEST)):
        strings = [value] if isinstance(value, str) else [one for _, one in _entries(value)]
        if any(name in key for name in CODE_KEYS) and any("/" in str(one) for one in strings):
            problem = f"{visible(key)} names code of a hub: {visible(str(value)[:80])}"
            raise InputError(problem, where=path, fix=f"Remove the key {visible(key)}.")
        if key == "num_labels" and isinstance(value, int) and value > MOST_LABELS:
            problem = f"num_labels is {value:,}, more than {MOST_LABELS:,}"
            raise InputError(problem, where=path, fix=FIX)
        if "layer" in key and isinstance(value, int) and tensors and value > tensors:
            problem = f"{visible(key)} is {value:,}, but its weights have {tensors:,} tensors"
            raise InputError(problem, where=path, fix=FIX)


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value of nested mappings and lists."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict | list):
            pairs = inner.items() if isinstance(inner, dict) else [("", one) for one in inner]
            for key, part in pairs:
                yield key, part
                waiting.append(part)


def _count_tensors(folder: Path) -> int:
    """How many tensors the weights of a folder have; 0 where none can be read, which the library
    says.
    """
    count = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, "pt") as weights:
                count += len(weights.keys())
        except (OSError, SafetensorError):
            return 0
    return count


def _check_index(path: Path) -> None:
    """Refuse a list of weights that names anything but safetensors beside it, which no digest of
    the folder would cover.
    """
    index = read_json(path, FIX, LARGEST)
    names = index.get("weight_map") if isinstance(index, dict) else None
    for name in {str(value) for value in names.values()} if isinstance(names, dict) else {"?"}:
        strange = any(sign in name for sign in "/\\\0") or name.startswith(".")
        if strange or not name.endswith(".safetensors"):
            problem = f"names weights that are no safetensors beside it: {visible(name)}"
            raise InputError(problem, where=path, fix=FIX)


# Kinds of encoders --------------------------------------------------------------------------------


class Kind(NamedTuple):
    """What differs between kinds of encoders.

    Attributes:
        dropout: the entries of its configuration that hold a dropout rate of hidden states,
            attention or a classifier.
        skipped: rows of positions that are never read: a number, or None for one more than the
            padding id.
    """

    dropout: tuple[str, ...] = (
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
    )
    skipped: int | None = 0


KINDS = {
    "bert": Kind(),
    "electra": Kind(),
    "mobilebert": Kind(),
    "albert": Kind((*Kind().dropout[:2], "classifier_dropout_prob")),
    "distilbert": Kind(("dropout", "attention_dropout", "seq_classif_dropout")),
    "modernbert": Kind(
        ("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout")
    ),
    "mpnet": Kind(skipped=2),
    "roberta": Kind(skipped=None),
}
"""Kinds by the `model_type` of a configuration; tests compare each with transformers."""


def check_kind(config: PretrainedConfig, where: object) -> None:
    """Raise `InputError` for a kind of encoder that is not in `KINDS`."""
    if config.model_type not in KINDS:
        problem = f"an encoder of the kind {config.model_type!r}, which is not tested here"
        fix = f"Take one of: {', '.join(KINDS)}; or use it as it comes (key retriever)."
        raise InputError(problem, where=where, fix=fix)


def set_dropout(config: PretrainedConfig, dropout: float | None) -> None:
    """Set every dropout rate of a configuration; None, or a rate that it leaves out, stays."""
    for name in KINDS[config.model_type].dropout if dropout is not None else ():
        if getattr(config, name, None) is not None:
            setattr(config, name, dropout)


def longest(config: PretrainedConfig) -> int:
    """The longest sequence of tokens that a model reads, special tokens included.

    Example:
        >>> from transformers import BertConfig, RobertaConfig
        >>> longest(BertConfig()), longest(RobertaConfig(max_position_embeddings=514))
        (512, 512)
    """
    skipped = KINDS.get(config.model_type, Kind()).skipped
    skipped = (config.pad_token_id or 0) + 1 if skipped is None else skipped
    return config.max_position_embeddings - skipped
