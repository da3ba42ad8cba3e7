"""DPR-PAQ: contrastive pre-training on questions with the passages they were generated from, or on
posts (Oguz et al. 2022).

Hard negatives come from a first retriever (section 3.3). For dialogue, `reddit` reads posts and
their comments (section 3.1.2), or other natural pairs such as title and body. Questions, negatives
and pairs are materials, made beforehand. Page: ideas/pairs.
"""

from typing import Any, ClassVar

from pydantic import NonNegativeInt
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.models import Projection
from dr_lib.objectives.contrastive import Contrastive, ContrastiveSettings


class PaqSettings(ContrastiveSettings):
    """Parameters of DPR-PAQ.

    Attributes:
        negatives: hard negatives per positive (the published file has one per question).
        projection: Linear and LayerNorm over [CLS] (the paper for RoBERTa; its released
            configurations have none). It is saved with the model; fine-tuning continues with it if
            `Finetuning.projection` is set.
        init_seed: of the projection; None takes the recipe's seed.
    """

    negatives: NonNegativeInt = 1
    projection: bool = False
    init_seed: NonNegativeInt | None = None

    def materials(self) -> dict[str, dict[str, Any]]:
        """Generated questions, each with its passage and hard negatives."""
        return {"paq_pairs": {}}


class Paq(Contrastive):
    """Find the passage that a question was generated from.

    One encoder serves both sides, or there are two (`separate`), as for the paper's BERT; they may
    also be separated in fine-tuning only (`Finetuning.shared`).

    Attributes:
        projection: over the vectors, or the identity.
    """

    cites = ("dpr_paq", "lewis2021")
    title, family = "generated questions (PAQ)", "pairs of texts"
    saved_beside = ("projection",)
    settings: PaqSettings

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: PaqSettings
    ):
        super().__init__(model, tokenizer, settings)
        hidden = model.config.hidden_size
        self.projection = (
            Projection(hidden, settings.init_seed) if settings.projection else nn.Identity()
        )

    def project(self, vectors: Tensor) -> Tensor:
        """The vectors, projected if the settings say so; one projection for both sides."""
        return self.projection(vectors)


class RedditSettings(ContrastiveSettings):
    """Parameters of pre-training on natural pairs: those of `ContrastiveSettings`."""

    negatives: ClassVar[int] = 0

    def materials(self) -> dict[str, dict[str, Any]]:
        """The pairs, which may bring passages of their own."""
        return {"reddit_pairs": {}}


class Reddit(Contrastive):
    """Find the comment that answers a post; without hard negatives, since 200 million were too many
    to index.
    """

    cites = ("dpr_paq",)
    title, family = "posts (Reddit)", "pairs of texts"
    settings: RedditSettings
