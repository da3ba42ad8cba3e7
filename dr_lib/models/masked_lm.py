"""Masked language models on disk and fresh: load, make, save. Page: ideas/bottleneck.

Every pre-training method of the book starts from a masked LM with its head and leaves one behind: continuing with a
fresh head is known to harm the backbone, and without the released decoder and head pre-training cannot be continued.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from dr_lib.errors import InputError, check_share
from dr_lib.models.quiet import quiet_transformers
from dr_lib.places import embedded_base

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
    source = locate(name_or_path)
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(source, **({} if dropout is None else dropout_settings(dropout)))
            model, info = AutoModelForMaskedLM.from_pretrained(
                source, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True,
                attn_implementation=attention_for(device),
            )  # fmt: skip
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise unreadable(name_or_path, error) from error
    missing = [str(name) for name in [*info["missing_keys"], *info["mismatched_keys"]]]
    return model.to(device).eval(), sorted(missing)


def refuse_missing(missing: list[str], where: object, fix: str) -> None:
    """Raise `InputError` that names the first weights a checkpoint lacks, if it lacks any."""
    if missing:
        more = ", ..." if len(missing) > 3 else ""
        raise InputError(
            f"the checkpoint lacks {len(missing)} weights ({', '.join(missing[:3])}{more})", where=where, fix=fix
        )


def locate(name_or_path: str | Path) -> str:
    """The folder or hub name behind `name_or_path`; a local path that is not there raises `InputError`."""
    if str(name_or_path) == "embedded":
        name_or_path = embedded_base()
    path = Path(name_or_path).expanduser()
    looks_local = path.is_absolute() or str(name_or_path).startswith((".", "~")) or len(path.parts) > 2
    if (looks_local or path.is_dir()) and not (path / "config.json").is_file():
        raise InputError("no model here (config.json is missing)", where=path, fix="Check the path, or make the base.")
    return str(path) if path.is_dir() else str(name_or_path)


def unreadable(name_or_path: str | Path, error: Exception) -> InputError:
    """The error for a model that could not be read, with the first line of the reason."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return InputError(
        f"cannot be loaded ({reason})", where=name_or_path,
        fix='Give a folder with config.json and model.safetensors, a hub name (needs the network), or "embedded".',
    )  # fmt: skip


def attention_for(device: torch.device | str) -> str:
    """The attention implementation that is fastest on `device`."""
    return "eager" if torch.device(device).type == "cpu" else "sdpa"


def dropout_settings(dropout: float) -> dict[str, float]:
    """Both dropout entries of a BERT-like configuration."""
    check_share(dropout, "dropout")
    return {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
