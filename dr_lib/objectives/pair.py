"""PAIR: pre-training on pseudo-labelled pairs with a query-centric and a passage-centric loss (Ren
et al. 2021).

A cross-encoder decides which passages answer a query and which do not (section 3.3). The joint
loss, eq. 6, belongs to this stage; fine-tuning keeps only the query-centric part (section 3.4).
Page: ideas/passage-centric.
"""

from typing import Any

from pydantic import NonNegativeInt, model_validator
from torch import Tensor

from dr_lib import losses
from dr_lib.losses import Candidates
from dr_lib.objectives.contrastive import Contrastive, ContrastiveSettings
from dr_lib.settings import Share


class PairSettings(ContrastiveSettings):
    """Parameters of PAIR. Where paper and released code differ, `paper` and `released` are the two
    values.

    Attributes:
        alpha: weight of the passage-centric loss; 0 leaves only the query-centric one.
        candidates: what a positive passage is compared with besides its own query: all other
            queries and all hard negatives (released), hard negatives only (paper, eq. 5), or the
            released ones and the other positives.
        negatives: hard negatives per positive. A row of the released data has one; the paper's four
            per positive are rows that repeat the pair; here they are other ones in each epoch.
    """

    alpha: Share = 0.1
    candidates: Candidates = "released"
    negatives: NonNegativeInt = 1

    @model_validator(mode="after")
    def _has_candidates(self) -> "PairSettings":
        if self.candidates == "paper" and self.alpha and not self.negatives:
            raise ValueError('candidates "paper" are hard negatives alone, and negatives is 0')
        return self

    def materials(self) -> dict[str, dict[str, Any]]:
        """Queries with positives and negatives of which a cross-encoder is confident."""
        return {"pseudo_labels": {}}


class Pair(Contrastive):
    """Find a query's passage, and a passage's query."""

    cites = ("pair",)
    title, family = "PAIR", "pairs of texts"
    settings: PairSettings

    def compare(self, compared: dict[str, Tensor | None]) -> tuple[Tensor, Tensor]:
        """Both views joined, eq. 6; the accuracy is of queries."""
        views = self.settings.model_dump(include={"alpha", "candidates"})
        return losses.pair_and_accuracy(**compared, **self.scale, **views, blocks="query_passage")
