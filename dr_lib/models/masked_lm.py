"""Masked language models on disk and fresh: load, make, save. Page: ideas/bottleneck.

Every pre-training method of the book starts from a masked LM with its head and leaves one behind: continuing with a
fresh head is known to harm the backbone, and without the released decoder and head pre-training cannot be continued.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.models.pretrained import attention_for, dropout_settings, read_pretrained, refuse_missing
from dr_lib.models.quiet import quiet_transformers

EXTRA_FILE = "extra.safetensors"


def load_masked_lm(
    name_or_path: str | Path, *, dropout: float | None = None, device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """Load a masked language model with its head, in float32, in eval mode, on `device`.

    Args:
        name_or_path: ``"embedded"`` (the book's own base), a local folder, or a name on the Hugging Face hub.
        dropout: dropout of hidden states and attention, in [0, 1]; None keeps what the checkpoint says.
        device: attention is computed eagerly on a CPU (faster there) and by ``sdpa`` elsewhere.

    Raises:
        InputError: nothing to load under that name, or a checkpoint without a masked-LM head.
    """
    model, missing = read_masked_lm(name_or_path, dropout=dropout, device=device)
    refuse_missing(missing, name_or_path, "Name a checkpoint that was saved with its masked-LM head.")
    return model


def new_bert(
    vocab_size: int,
    *,
    layers: int = 2,
    hidden: int = 128,
    heads: int | None = None,
    max_positions: int = 512,
    dropout: float = 0.0,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> BertForMaskedLM:
    """Make a BERT with masked-LM head, freshly drawn from `seed`; the global random state is left as it was.

    Args:
        vocab_size: number of pieces of the tokenizer it will read.
        layers, hidden: size; the feed-forward part has 4 x `hidden` units.
        heads: attention heads, by default one for every 64 units of `hidden`.
        max_positions: longest sequence in tokens, special tokens included.
        dropout: of hidden states and attention; 0 is fastest and right for small models on much text.

    Example:
        >>> new_bert(100, layers=1, hidden=64, max_positions=32).num_parameters()
        63076
    """
    config = BertConfig(
        vocab_size=vocab_size, hidden_size=hidden, num_hidden_layers=layers, intermediate_size=4 * hidden,
        num_attention_heads=heads or max(1, hidden // 64), max_position_embeddings=max_positions, pad_token_id=0,
        attn_implementation=attention_for(device), **dropout_settings(dropout),
    )  # fmt: skip
    if hidden % config.num_attention_heads:
        raise InputError(
            f"hidden size {hidden} cannot be shared by {config.num_attention_heads} heads", where="heads",
            fix="Give a number of heads that divides the hidden size.",
        )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertForMaskedLM(config).to(device).eval()


def save_masked_lm(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path, extra: Mapping[str, Tensor] | None = None
) -> None:
    """Save a masked LM and its tokenizer as safetensors and JSON, `extra` tensors (a decoder) in a file beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    save_extra(extra or {}, folder)


def save_extra(extra: Mapping[str, Tensor], folder: Path) -> None:
    """Write tensors beside a model, for `load_extra`; nothing where there are none."""
    if extra:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in extra.items()}, folder / EXTRA_FILE)


def load_extra(folder: Path) -> dict[str, Tensor]:
    """The `extra` tensors saved beside a masked LM; empty where there were none."""
    path = folder / EXTRA_FILE
    return load_file(path) if path.exists() else {}


def read_masked_lm(
    name_or_path: str | Path, *, dropout: float | None, device: torch.device | str
) -> tuple[PreTrainedModel, list[str]]:
    """Read a checkpoint into a masked LM of its kind; also name the weights that it lacks and that were drawn anew."""
    changes, attention = dropout_settings(dropout), attention_for(device)
    model, missing = read_pretrained(
        AutoModelForMaskedLM, name_or_path, changes=changes, attn_implementation=attention
    )  # fmt: skip
    return model.to(device).eval(), missing
