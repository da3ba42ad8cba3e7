"""What dense encoder, cross-encoder and late interaction share: opened by name, saved with the settings of how they read.

A checkpoint that is fed differently from how it was trained costs points and shows no error anywhere else: its settings
lie beside its weights, and what contradicts them is refused. Page of the book: ideas/dual-encoders.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import BaseModel
from torch import nn
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.models.bert import EXTRA_FILE, is_head, load_extra, locate, named_parts, read_pretrained, save_masked_lm
from dr_lib.tokens import load_tokenizer


class TextModel(nn.Module):
    """An encoder, and how texts become what it reads.

    Args:
        encoder: a BERT or ELECTRA.
        settings: how it reads texts, saved beside the weights.
        tokenizer: likewise.
        seed: of what the checkpoint does not bring; nothing here.
    """

    settings_type: ClassVar[type[BaseModel]]
    settings_file: ClassVar[str]
    """Where a saved model has its settings."""
    saved_beside: ClassVar[tuple[str, ...]] = ()
    """Sub-modules whose weights lie in a file beside the encoder's, which other tools do not read."""

    def __init__(self, encoder: PreTrainedModel, settings: BaseModel, tokenizer: PreTrainedTokenizerFast, seed: int = 0):
        super().__init__()
        self.encoder, self.settings, self.tokenizer = encoder, settings, tokenizer

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        dropout: float | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
        **values: Any,
    ) -> Self:
        """Open a saved model, or start one from any BERT or ELECTRA, whose own head is dropped; in eval mode.

        Args:
            name_or_path: ``"embedded"``, a local folder, or a hub name.
            dropout: in [0, 1]; None keeps the checkpoint's.
            device: where to load it.
            seed: of what the checkpoint does not bring.
            values: fields of the settings. Where the folder already has settings, these must agree with them.

        Raises:
            InputError: no such model, weights missing, or a value that contradicts the saved settings.
        """
        place = Path(locate(name_or_path))
        settings = saved_settings(cls.settings_type, place / cls.settings_file, values)
        is_saved = (place / cls.settings_file).is_file()
        encoder = cls.load_encoder(name_or_path, is_saved=is_saved, dropout=dropout, device=device, seed=seed)
        model = cls(encoder, settings, load_tokenizer(name_or_path), seed=seed)
        beside = named_parts(load_extra(place), cls.saved_beside)
        if is_saved and (lost := sorted(named_parts(model.state_dict(), cls.saved_beside).keys() - beside.keys())):
            raise InputError(f"{EXTRA_FILE} lacks {lost[0]}", where=place, fix="Save the model again.")
        model.load_state_dict(beside, strict=False)
        return model.eval()

    @classmethod
    def load_encoder(cls, name_or_path: str | Path, *, is_saved: bool, seed: int, **options: Any) -> PreTrainedModel:
        """The encoder of a checkpoint without its head, if it has one; `options` of `read_pretrained`."""
        return read_pretrained(AutoModelForMaskedLM, name_or_path, fresh=is_head, **options).base_model

    def save(self, folder: Path) -> None:
        """Write configuration, weights (safetensors), tokenizer and settings; other tools open all but the last."""
        save_masked_lm(self.encoder, self.tokenizer, folder, named_parts(self.state_dict(), self.saved_beside))
        write_json(folder / self.settings_file, self.settings.model_dump())


def saved_settings(kind: type[BaseModel], file: Path, values: Mapping[str, Any]) -> Any:
    """The settings in a file, else defaults with `values`, which must agree with the file where there is one.

    Raises:
        InputError: an unknown field or a wrong value, here or in the file, or one that contradicts the file.
    """
    given = kind(**values)
    if not file.is_file():
        return given
    try:
        saved = kind(**read_json(file))
    except TypeError:
        raise InputError("no settings", where=file, fix="Save the model again.") from None
    except InputError as error:
        raise InputError(error.problem, where=f"{file}: {error.where}", fix=error.fix) from None
    for name, value in values.items():
        if getattr(saved, name) != value:
            problem = f"trained with {getattr(saved, name)!r}, asked for {value!r}"
            fix = "Use it as it was trained, or train one with the other setting."
            raise InputError(problem, where=f"{file}: {name}", fix=fix)
    return saved
