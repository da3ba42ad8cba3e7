"""Condenser: the late layers reach the prediction head only through [CLS] (Gao and Callan 2021);
coCondenser (2022).

The encoder is cut in two. A short head, used in pre-training only, predicts the masked tokens from
the early layers' states of all positions and the last layer's state of [CLS]. What the late layers
learn about the passage can reach the head only that way; what the early ones know bypasses the
bottleneck. coCondenser reads two spans of each document and adds a contrastive loss: the last
layer's [CLS] of each span has to identify its sibling in the batch. Pages: ideas/bottleneck,
ideas/pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib import losses, masking
from dr_lib.errors import InputError
from dr_lib.models import Decoder, encode_in_chunks, layer_states
from dr_lib.objectives.base import DrawnSettings, MaskedObjective, Source, predict_tokens
from dr_lib.objectives.spans import Documents, pair_sampler, two_random_ints
from dr_lib.settings import Share
from dr_lib.tokens import COARSE, TokenBatch, Window
from dr_lib.training import hash64

LOGGED = ("decoder_loss", "decoder_accuracy", "encoder_loss", "encoder_accuracy")


class CondenserSettings(DrawnSettings):
    """Parameters of Condenser.

    Attributes:
        rate: share of tokens masked, the same mask for encoder and head (0.3 in SimLM's Table 7).
        budget: the rate counts non-special tokens (as Condenser's code does), or [CLS] and [SEP]
            too.
        mask_policy: BERT's 80 % [MASK], 10 % a random piece, 10 % unchanged; or always [MASK].
        skip_from: layer whose states the head reads at all positions but the first; 0 is the
            embedding, None the middle layer (6 of BERT-base's 12, as published).
        head_layers: depth of the head, N(0, 0.02) weights.
        window: what is read of a passage that is too long: its beginning, or a new random window of
            its body in each epoch (released).
        late_mlm: also predict the masked tokens from the last layer itself, with weight 1 (on in
            the released recipe).
        init_seed: of the head's weights; None takes the recipe's seed.
    """

    rate: Share = 0.15
    budget: masking.Budget = "maskable"
    mask_policy: masking.MaskPolicy = "80_10_10"
    skip_from: NonNegativeInt | None = None
    head_layers: PositiveInt = 2
    window: Window = "first"
    late_mlm: bool = True

    def depth(self, layers: int) -> int:
        """The encoder's layers and the head's."""
        return layers + self.head_layers


class Condenser(MaskedObjective):
    """Predict masked tokens from early states and the late [CLS].

    Attributes:
        head: the layers that read both; discarded after pre-training.
        skip_from: the layer of the early states.
    """

    cites = ("gao2021",)
    title, family = "Condenser", "one vector for a decoder"
    saved_beside = ("head",)
    settings: CondenserSettings

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        settings: CondenserSettings,
    ):
        super().__init__(model, tokenizer, settings)
        depth = model.config.num_hidden_layers
        self.skip_from = depth // 2 if settings.skip_from is None else settings.skip_from
        if self.skip_from >= depth:
            problem = f"layer {self.skip_from} of {depth} leaves no late layer"
            raise InputError(
                problem, where="skip_from", fix=f"Give a number from 0 to {depth - 1}."
            )
        self.head = Decoder(
            model, settings.head_layers, "random", seed=settings.init_seed, key="head_layers"
        )

    @classmethod
    def batches(cls, settings: CondenserSettings, source: Source) -> Callable[[int], TokenBatch]:
        """The passages alone."""
        return source.stream(window=settings.window).batch

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """The head's loss (+ the last layer's)."""
        return self.condense(batch, generator)[0]

    def condense(
        self, batch: TokenBatch, generator: torch.Generator, chunk: int | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The result of `forward`, and the passages' vectors `[batch, hidden]`: the last layer's
        states of [CLS].

        The vectors are of the masked passages and carry gradient (coCondenser compares them). With
        `chunk` passages at a time, losses and gradients are the same (`models.encode_in_chunks`).
        """
        chosen, batch = self.settings, self.maskable(batch)
        mask = masking.whole_word(batch, chosen.rate, generator, budget=chosen.budget)
        ids = self.hide(batch, mask, generator, chosen.mask_policy)
        # Chunks return sums, not means, because they have different numbers of masked tokens.
        vectors, sums = encode_in_chunks(self.read, batch, chunk, ids, mask)
        means = sums / mask.sum().clamp(min=1)
        parts = dict(zip(LOGGED, means.detach(), strict=False))
        return {"loss": means[::2].sum(), **parts}, vectors

    def read(self, batch: TokenBatch, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors `[batch, hidden]`, and for the head (and the last layer) the sums of losses and
        of correct tokens.

        Args:
            batch: clean passages.
            ids: `[batch, length]` the input.
            mask: `[batch, length]` bool, the masked positions.
        """
        states = layer_states(self.model, batch, ids)
        early, late = states[self.skip_from], states[-1]
        # Early states know the local context, the late [CLS] the passage: the head needs both.
        heads = [self.head(early, late[:, 0], batch), *([late] if self.settings.late_mlm else [])]
        rate, ids = self.settings.rate, batch.input_ids
        means = [
            mean for hidden in heads for mean in predict_tokens(self.model, hidden, ids, mask, rate)
        ]
        return late[:, 0], torch.stack(means) * mask.sum()


@dataclass(frozen=True)
class Siblings:
    """Pairs of spans: 2 i and 2 i + 1 are from one document.

    Attributes:
        spans: `2 * pairs` sequences.
        documents: `[2 * pairs]` int64, each span's document.
    """

    spans: TokenBatch
    documents: Tensor

    def __len__(self) -> int:
        return len(self.spans)


class CocondenserSettings(CondenserSettings):
    """Parameters of coCondenser, beside those of Condenser.

    Attributes:
        batch_pairs: documents per micro-batch, two spans of each; None takes as many as the token
            budget holds at full length (published: about 2,000 over all devices).
        chunk: spans encoded at a time, for batches that do not fit in memory
            (`models.encode_in_chunks`). The loss is the same; the released code counts masked LM
            twice in its chunked path.
    """

    batch_pairs: int | None = Field(None, ge=2)
    chunk: PositiveInt | None = None


class Cocondenser(Condenser):
    """Predict masked tokens from early states and the late [CLS], which must also identify its
    document.

    A copy of a span in another document is a negative, as in the released code.
    """

    cites = ("gao2021", "gao2022")
    title, family = "coCondenser", "one vector for a decoder"
    shares_batches = True
    settings: CocondenserSettings

    @classmethod
    def batches(cls, settings: CocondenserSettings, source: Source) -> Callable[[int], Siblings]:
        """Two distinct passages of each of some documents; each document once per epoch.

        Raises:
            InputError: no document has two passages, or the budget holds no two pairs.
        """
        documents = Documents.of(
            source.documents, source.positions, np.ones(len(source.documents), bool)
        )
        every, longest = np.arange(len(documents)), 2 * source.layout.passage_length
        sampler = pair_sampler(every, settings.batch_pairs, source, longest)

        def batch(step: int) -> Siblings:
            epoch, chosen = sampler.of(step)
            random_ints = two_random_ints(source, epoch, chosen)
            rows = np.stack(documents.two(chosen, *random_ints), axis=1).reshape(-1)
            windows = hash64(source.seed, epoch, rows, 2) if settings.window == "random" else None
            spans = source.store.batch(
                rows, **source.layout.passages, pad_to_multiple=COARSE, random_ints=windows
            )
            return Siblings(spans, torch.from_numpy(np.repeat(chosen, 2)))

        return batch

    def forward(self, batch: Siblings, generator: torch.Generator) -> dict[str, Tensor]:
        """Condenser's loss + contrastive loss over the spans of all processes, each with weight 1.

        With several processes each takes the mean over the masked tokens of its own spans, and
        these means count equally.
        """
        parts, vectors = self.condense(batch.spans, generator, self.settings.chunk)
        # Every process compares its spans with those of all others, which hold most of the
        # negatives.
        vectors, documents = losses.gather(vectors.float()), losses.gather(batch.documents)
        apart = losses.siblings(vectors, documents)
        with torch.no_grad():  # with the first spans as queries
            how = {"temperature": 1.0, "normalise": False, "blocks": "query_passage"}
            _, accuracy = losses.contrastive_and_accuracy(
                vectors[::2], vectors[1::2], **how, passage_ids=documents[::2]
            )
        logged = {"contrastive_loss": apart.detach(), "in_batch_accuracy": accuracy}
        return {**parts, "loss": parts["loss"] + apart, **logged}
