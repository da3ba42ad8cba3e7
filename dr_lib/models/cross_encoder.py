"""The cross-encoder: query and passage read together, one score (SimLM section 3.2, PAIR's teacher).

The layout is that of Hugging Face's sequence classification with one label, so that a saved one opens there and in
sentence-transformers, and public re-rankers open here. Page: ideas/distillation.
"""

from pathlib import Path
from typing import Any, Self

import torch
from pydantic import Field
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
from dr_lib.models.bert import attention_bias, first_states, locate, read_pretrained, save_masked_lm, settings_for
from dr_lib.settings import Settings
from dr_lib.tokens import QueryPassagePairs, TokenBatch, TokenStore, load_tokenizer

SETTINGS_FILE = "cross_encoder.json"


class CrossEncoderSettings(Settings):
    """How query and passage become one sequence.

    Args:
        length: longest pair in tokens, special tokens included (SimLM: 192, for NQ 224).
        title: put "title: " before the passage where it has one (SimLM's released code).
    """

    length: int = Field(default=192, ge=4)
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
            problem = f"pairs of {settings.length} tokens are more than the model's {positions} positions"
            raise InputError(problem, where="length", fix="Shorten the pairs, or use a model with more positions.")
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
            device: where to load it.
            seed: of a fresh head.
            values: fields of `CrossEncoderSettings`. Where the folder already has settings, these must agree with them.

        Raises:
            InputError: no such model, weights missing, or a value that contradicts the saved settings.
        """
        file = Path(locate(name_or_path)) / SETTINGS_FILE
        settings, is_saved = settings_for(CrossEncoderSettings, file, values), file.is_file()

        def is_head(model: PreTrainedModel, name: str) -> bool:
            """The head, and BERT's pooler below it, which a checkpoint without a ranking head may lack."""
            inside = f"{model.base_model_prefix}."
            return not is_saved and (not name.startswith(inside) or name.startswith(f"{inside}pooler."))

        options = {"dropout": dropout, "device": device, "seed": seed, "fresh": is_head, "num_labels": 1}
        model = read_pretrained(AutoModelForSequenceClassification, name_or_path, **options)
        return cls(model, settings, load_tokenizer(name_or_path)).eval()

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
        layout = {"max_length": self.settings.length, "title": self.settings.title}
        return QueryPassagePairs(queries, passages, self.tokenizer, **layout)

    def save(self, folder: Path) -> None:
        """Write configuration, weights (safetensors), tokenizer and ``cross_encoder.json``."""
        save_masked_lm(self.model, self.tokenizer, folder)
        write_json(folder / SETTINGS_FILE, self.settings.model_dump())
