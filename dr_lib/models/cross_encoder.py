"""The cross-encoder: query and passage read together, one score (SimLM section 3.2, PAIR's teacher).

The layout is that of Hugging Face's sequence classification with one label, so that a saved one opens there and in
sentence-transformers, and public re-rankers open here. Page: ideas/distillation.
"""

from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    ElectraForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from dr_lib.errors import InputError
from dr_lib.files import write_json
from dr_lib.models.bert import (
    IDENTITY,
    attention_bias,
    attention_for,
    dropout_settings,
    finish_tokenizer,
    first_states,
    locate,
    quiet_transformers,
    read_pretrained,
    refuse_missing,
    settings_for,
    update_json,
)
from dr_lib.tokens import QueryPassagePairs, TokenBatch, TokenStore, load_tokenizer

SETTINGS_FILE = "cross_encoder.json"


class CrossEncoderSettings(BaseModel):
    """How query and passage become one sequence.

    Attributes:
        length: longest pair in tokens, special tokens included (SimLM: 192, for NQ 224).
        title: put "title: " before the passage where it has one (SimLM's released code).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    length: int = Field(192, ge=4)
    title: bool = True


class CrossEncoder(nn.Module):
    """An encoder with a head of one logit.

    Args:
        model: a BERT or ELECTRA for sequence classification with one label.
        settings: how pairs are laid out.
        tokenizer: saved beside the weights.
    """

    def __init__(self, model: PreTrainedModel, settings: CrossEncoderSettings, tokenizer: PreTrainedTokenizerFast):
        super().__init__()
        positions = model.config.max_position_embeddings
        if settings.length > positions:
            raise InputError(
                f"pairs of {settings.length} tokens are more than the model's {positions} positions", where="length",
                fix="Shorten the pairs, or use a model with more positions.",
            )  # fmt: skip
        self.model, self.settings, self.tokenizer = model, settings, tokenizer

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
        """Open a saved cross-encoder, or start one from any BERT or ELECTRA with a fresh head; in eval mode.

        Args:
            name_or_path: ``"embedded"``, a local folder, or a hub name.
            dropout: in [0, 1]; None keeps the checkpoint's.
            seed: of a fresh head.
            values: fields of `CrossEncoderSettings`. Where the folder already has settings, these must agree with them.

        Raises:
            InputError: no such model, weights missing, or a value that contradicts the saved settings.
        """
        file = Path(locate(name_or_path)) / SETTINGS_FILE
        settings = settings_for(CrossEncoderSettings, file, values)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, missing = read_pretrained(
                AutoModelForSequenceClassification, name_or_path, changes={"num_labels": 1} | dropout_settings(dropout),
                attn_implementation=attention_for(device),
            )  # fmt: skip
        fresh = set() if file.is_file() else set(head_weights(model))
        refuse_missing(sorted(set(missing) - fresh), name_or_path, "Name a checkpoint of this architecture.")
        return cls(model.to(device), settings, load_tokenizer(name_or_path)).eval()

    def forward(self, batch: TokenBatch) -> Tensor:
        """Scores `[pairs]` float32 of pairs from `QueryPassagePairs`: logits, higher for a better passage."""
        if isinstance(self.model, BertForSequenceClassification):
            pooled = self.model.bert.pooler(first_states(self.model, batch)[:, None])
            logits = self.model.classifier(self.model.dropout(pooled))
        elif isinstance(self.model, ElectraForSequenceClassification):
            logits = self.model.classifier(first_states(self.model, batch)[:, None])
        else:
            logits = self.model(
                input_ids=batch.input_ids, attention_mask=attention_bias(batch), token_type_ids=batch.token_type_ids
            ).logits
        return logits[:, 0].float()

    def crossing(self, queries: TokenStore, passages: TokenStore) -> QueryPassagePairs:
        """The pairs of two stores, laid out as this cross-encoder reads them."""
        return QueryPassagePairs(
            queries, passages, self.tokenizer, max_length=self.settings.length, title=self.settings.title
        )  # fmt: skip

    def save(self, folder: Path) -> None:
        """Write configuration, weights (safetensors), tokenizer and ``cross_encoder.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        with quiet_transformers():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        write_json(folder / SETTINGS_FILE, self.settings.model_dump())

    def export(self, folder: Path) -> None:
        """Save as a folder whose scores are raw logits in `CrossEncoder` of sentence-transformers too."""
        self.save(folder)
        update_json(folder / "config.json", sentence_transformers={"activation_fn": IDENTITY})
        finish_tokenizer(folder, self.settings.length)


def head_weights(model: PreTrainedModel) -> list[str]:
    """Names of the weights that a checkpoint without a ranking head lacks: the head, and BERT's pooler below it."""
    inside = f"{model.base_model_prefix}."
    return [name for name in model.state_dict() if not name.startswith(inside) or name.startswith(f"{inside}pooler.")]
