"""CDMAE: a masked auto-encoder that hides the most informative words from its decoder (Li et al.
2023, sections 3.1 to 3.3).

Encoder and decoder predict the masked tokens of one passage from two independent masks: 30 % of it
at random, and 50 % by importance, the average mutual information of each word with its neighbours.
They are connected by one vector behind a linear projection (eq. 4), which fine-tuning drops. Page:
ideas/masking.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from dr_lib import masking
from dr_lib.objectives.base import Source, predict_tokens, report
from dr_lib.objectives.bottleneck import EncoderDecoder, EncoderDecoderSettings
from dr_lib.settings import Share
from dr_lib.tokens import TokenBatch, TokenValues


class CdmaeSettings(EncoderDecoderSettings):
    """Parameters of CDMAE, which has no public code: what the paper leaves open is a parameter
    here.

    Attributes:
        encoder_rate, decoder_rate: share of tokens masked on each side.
        decoder_masking: by importance; "rarity", by -ln p(word) alone, without n-grams (not in the
            paper: an ablation of mutual information); or uniform, like the encoder's (the paper's
            baseline).
        noise, noise_scale: standard deviation of the noise added to importances before the highest
            are masked; absolute (the paper: variance 1), or in units of the standard deviation of
            the passage's importances.
        window: length of the longest n-grams, L in eq. 8.
        pmi, edges, floor, ppmi: the information of an n-gram, also at the ends of a text and for
            rare n-grams; see `materials.ngrams.average_mutual_information`.
        min_count: n-grams that occur less often count as `floor`; None decides by the size of the
            collection.
        unit: masks and importances are for whole words (as in the equations), or for pieces (as in
            the algorithm).
        mask_policy: BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged, drawn for each side;
            or always [MASK].
        projection: the linear map between encoder and decoder (eq. 4, Table 4).

    The decoder's parameters are those of `EncoderDecoderSettings`.
    """

    encoder_rate: Share = 0.3
    decoder_rate: Share = 0.5
    decoder_masking: Literal["importance", "rarity", "uniform"] = "importance"
    noise: NonNegativeFloat = 1.0
    noise_scale: Literal["absolute", "relative"] = "absolute"
    window: int = Field(4, ge=2)
    pmi: Literal["naive", "minseg"] = "naive"
    edges: Literal["renorm", "zero"] = "renorm"
    floor: PositiveFloat = 1.0
    ppmi: bool = False
    min_count: PositiveInt | None = None
    unit: Literal["word", "piece"] = "word"
    mask_policy: masking.MaskPolicy = "80_10_10"
    projection: bool = True
    decoder_init: Literal["copy_last", "random"] = "random"

    def materials(self) -> dict[str, dict[str, Any]]:
        """The material for the decoder's mask: importances, word counts, or nothing."""
        if self.decoder_masking == "uniform":
            return {}
        if self.decoder_masking == "rarity":
            return {"keyword_weights": {"weighting": "inverse_count"}}
        named = {"window", "pmi", "edges", "floor", "ppmi", "min_count", "unit"}
        return {"importances": self.model_dump(include=named)}


class Cdmae(EncoderDecoder):
    """Predict masked tokens: the encoder from its own input, the decoder from the least informative
    words and one vector.
    """

    cites = ("cdmae",)
    title, family = "CDMAE", "one vector for a decoder"
    settings: CdmaeSettings

    @classmethod
    def batches(cls, settings: CdmaeSettings, source: Source) -> Callable[[int], TokenBatch]:
        """Passages, with the importance of each piece in `values`."""
        names = tuple(settings.materials())
        values = TokenValues(source.materials[names[0]] / "values", source.store) if names else None
        return source.stream(values=values).batch

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Encoder loss + decoder loss (eq. 9), each the mean over its masked tokens."""
        batch = self.maskable(batch)
        policy = self.settings.mask_policy
        rates = (self.settings.encoder_rate, self.settings.decoder_rate)
        masks = self.random_mask(batch, rates[0], generator), self.decoder_mask(batch, generator)
        # one draw per side
        encoder_ids, decoder_ids = (self.hide(batch, mask, generator, policy) for mask in masks)
        encoded, decoded = self.states(batch, encoder_ids, decoder_ids)
        encoder = predict_tokens(self.model, encoded, batch.input_ids, masks[0], rates[0])
        decoder = predict_tokens(self.model, decoded, batch.input_ids, masks[1], rates[1])
        return report(encoder.loss + decoder.loss, encoder=encoder, decoder=decoder)

    def random_mask(self, batch: TokenBatch, rate: float, generator: torch.Generator) -> Tensor:
        """`[batch, length]` bool, words (or pieces) hidden uniformly at random."""
        draw = masking.whole_word if self.settings.unit == "word" else masking.uniform
        return draw(batch, rate, generator)

    def decoder_mask(self, batch: TokenBatch, generator: torch.Generator) -> Tensor:
        """`[batch, length]` bool, the decoder's mask, drawn independently of the encoder's."""
        chosen = self.settings
        if chosen.decoder_masking == "uniform":
            return self.random_mask(batch, chosen.decoder_rate, generator)
        # 1 / count is 1 / p(word) up to a factor, which only shifts the logarithms
        values = batch.values if chosen.decoder_masking == "importance" else batch.values.log()
        how = {"noise": chosen.noise, "noise_scale": chosen.noise_scale, "unit": chosen.unit}
        return masking.importance(batch, values, chosen.decoder_rate, generator, **how)
