"""Checkpoints as `transformers` has them: found, read in float32, and refused where weights are missing.

Page: ideas/bottleneck.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedModel

from dr_lib.errors import InputError, check_share
from dr_lib.models.quiet import quiet_transformers
from dr_lib.places import embedded_base


def read_pretrained(
    kind: Any, name_or_path: str | Path, *, changes: Mapping[str, Any] | None = None, **options: Any
) -> tuple[PreTrainedModel, list[str]]:
    """Read a checkpoint into a model of some kind; also name the weights that it lacks and that were drawn anew.

    Args:
        kind: one of the `AutoModel...` classes.
        name_or_path: ``"embedded"``, a local folder, or a name on the Hugging Face hub.
        changes: entries of the configuration that differ from the checkpoint's.
        options: further arguments of `from_pretrained`.

    Raises:
        InputError: nothing to read under that name.
    """
    source = locate(name_or_path)
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(source, **(changes or {}))
            model, info = kind.from_pretrained(
                source, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **options
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise unreadable(name_or_path, error) from error
    return model, sorted(str(name) for name in [*info["missing_keys"], *info["mismatched_keys"]])


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


def dropout_settings(dropout: float | None) -> dict[str, float]:
    """Both dropout entries of a BERT-like configuration; none where the checkpoint's are kept."""
    if dropout is None:
        return {}
    check_share(dropout, "dropout")
    return {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
