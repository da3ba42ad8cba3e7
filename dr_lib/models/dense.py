"""The dense encoder: a text becomes one vector (defaults as SimLM section 3.2). Page: ideas/dual-encoders.

What a vector means depends on pooling, lengths and title handling, so these are saved with the weights and a mismatch
is refused: feeding a checkpoint differently from how it was trained costs points and shows no error anywhere else.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.files import write_json
from dr_lib.models.bert import (
    IDENTITY,
    finish_tokenizer,
    first_states,
    hidden_states,
    load_extra,
    locate,
    quiet_transformers,
    read_masked_lm,
    refuse_missing,
    save_extra,
    settings_for,
)
from dr_lib.tokens import Side, TokenBatch, load_tokenizer

WEIGHT_SPREAD = 0.02
"""Standard deviation of fresh weights, as in BERT."""


class Projection(nn.Module):
    """Linear layer of the vectors' own size, N(0, 0.02) with biases of zero, then LayerNorm.

    Args:
        hidden: width of the vectors.
        seed: of the weights; the global random state is left as it was.

    Example:
        >>> Projection(8)(torch.ones(2, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(self, hidden: int, seed: int = 0):
        super().__init__()
        self.linear, self.norm = nn.utils.skip_init(nn.Linear, hidden, hidden), nn.LayerNorm(hidden)
        nn.init.normal_(self.linear.weight, std=WEIGHT_SPREAD, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors `[batch, hidden]` of the same shape."""
        return self.norm(self.linear(vectors))


SETTINGS_FILE = "dense.json"
MODULES = "sentence_transformers.models."
POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
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

    def export(self, folder: Path) -> None:
        """Save as a folder that sentence-transformers opens unchanged, as `from_pretrained` does.

        To what `save` writes it adds `modules.json` and what that names (pooling, projection, normalisation), how
        vectors are compared, and how long a text may be, in the names that sentence-transformers has always had.
        """
        self.save(folder)
        modules = [{"idx": 0, "name": "0", "path": "", "type": f"{MODULES}Transformer"}]
        for place, step in enumerate(steps_of(self), 1):
            name = f"{place}_{step.kind}"
            modules.append({"idx": place, "name": str(place), "path": name, "type": MODULES + step.kind})
            write_json(folder / name / "config.json", step.config)  # an empty folder would not survive a repository
            if step.weights:
                save_file(step.weights, folder / name / "model.safetensors")
        longest = self.settings.passage_length
        write_json(folder / "modules.json", modules)
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
        similarity = "cosine" if self.settings.normalise else "dot"
        write_json(
            folder / "config_sentence_transformers.json",
            {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": similarity},
        )
        finish_tokenizer(folder, longest)


class Step(NamedTuple):
    """One thing that is done to the states on their way to a vector: a module's name, its settings, its weights."""

    kind: str
    config: dict[str, Any]
    weights: Mapping[str, Tensor] = MappingProxyType({})


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
