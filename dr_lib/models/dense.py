"""The dense encoder: a text becomes one vector (defaults as SimLM section 3.2). Page: ideas/dual-encoders.

What a vector means depends on pooling, lengths and title handling, so these are saved with the weights and a mismatch
is refused: feeding a checkpoint differently from how it was trained costs points and shows no error anywhere else.
"""

from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.files import write_json
from dr_lib.models.first_state import first_states
from dr_lib.models.masked_lm import load_extra, read_masked_lm, save_extra
from dr_lib.models.pretrained import locate, refuse_missing
from dr_lib.models.projection import Projection
from dr_lib.models.quiet import quiet_transformers
from dr_lib.models.saved_settings import settings_for
from dr_lib.models.states import hidden_states
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.layout import Side
from dr_lib.tokens.tokenizer import load_tokenizer

SETTINGS_FILE = "dense.json"
PROJECTION = "projection."  # how its weights are named in the file beside the model's


class DenseSettings(BaseModel):
    """How texts become vectors and how vectors are compared.

    Attributes:
        pooling: last-layer state of position 0, or the mean over all tokens.
        normalise: vectors are compared at length 1 (cosine), or as they are (inner product).
        temperature: scores are divided by this in training.
        query_length, passage_length: longest input in tokens, special tokens included.
        title: how a title joins its passage, as in `TokenStore.batch`.
        query_side: the end that a long query loses; "left" keeps the last turns of a dialogue (DPR-PAQ, section 3.3).
        projection: Linear and LayerNorm over the pooled state (DPR-PAQ for RoBERTa).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pooling: Literal["cls", "mean"] = "cls"
    normalise: bool = True
    temperature: float = Field(0.02, gt=0)
    query_length: int = Field(32, ge=3)
    passage_length: int = Field(144, ge=3)
    title: Literal["pair", "joined", "none"] = "pair"
    query_side: Side = "right"
    projection: bool = False

    def identity(self) -> dict[str, Any]:
        """All fields but those that are younger than the first saved encoders and not used."""
        younger = {"query_side": "right", "projection": False}
        return {name: value for name, value in self.model_dump().items() if younger.get(name) != value}


class DenseEncoder(nn.Module):
    """One encoder for queries and passages.

    Args:
        encoder: the model without any head.
        settings: how its vectors are made and compared.
        tokenizer: saved beside the weights.
        seed: of a fresh projection.

    Attributes:
        projection: over the vectors, or nothing.
    """

    def __init__(
        self, encoder: PreTrainedModel, settings: DenseSettings, tokenizer: PreTrainedTokenizerFast, *, seed: int = 0
    ):  # fmt: skip
        super().__init__()
        self.encoder, self.settings, self.tokenizer = encoder, settings, tokenizer
        self.projection: nn.Module = nn.Identity()
        if settings.projection:
            self.projection = Projection(encoder.config.hidden_size, seed).to(encoder.device)

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
        """Open a saved dense encoder, or start one from a masked LM (whose head is dropped) or any BERT or ELECTRA.

        Args:
            name_or_path: ``"embedded"``, a local folder, or a hub name.
            dropout: in [0, 1]; None keeps the checkpoint's.
            seed: of a projection that the checkpoint does not bring.
            values: fields of `DenseSettings`. Where the folder already has settings, these must agree with them.

        Raises:
            InputError: no such model, weights missing, or a value that contradicts the saved settings.
        """
        settings = settings_for(DenseSettings, Path(locate(name_or_path)) / SETTINGS_FILE, values)
        model, missing = read_masked_lm(name_or_path, dropout=dropout, device=device)
        inside = f"{model.base_model_prefix}."
        lost = [name for name in missing if name.startswith(inside)]
        refuse_missing(lost, name_or_path, "Name a checkpoint of this architecture.")
        made = cls(model.base_model, settings, load_tokenizer(name_or_path), seed=seed)
        beside = load_extra(Path(locate(name_or_path))) if settings.projection else {}
        kept = {name.removeprefix(PROJECTION): one for name, one in beside.items() if name.startswith(PROJECTION)}
        if kept:
            made.projection.load_state_dict(kept)
        return made

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors `[batch, hidden]` float32, not normalised."""
        return self.projection(self.pooled(batch)).float()

    def pooled(self, batch: TokenBatch) -> Tensor:
        """The state or the mean of states `[batch, hidden]` float32 that stands for a text, before any projection."""
        if self.settings.pooling == "cls":
            return first_states(self.encoder, batch).float()
        hidden = hidden_states(self.encoder, batch)
        weights = batch.attention_mask[:, :, None].float()
        return (hidden.float() * weights).sum(1) / weights.sum(1).clamp(min=1)

    def save(self, folder: Path) -> None:
        """Write configuration, weights (safetensors), tokenizer and ``dense.json``, which other tools can open too.

        A projection stands in a file beside the weights, which other tools do not read.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with quiet_transformers():
            self.encoder.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        save_extra({f"{PROJECTION}{name}": one for name, one in self.projection.state_dict().items()}, folder)
        write_json(folder / SETTINGS_FILE, self.settings.identity())
