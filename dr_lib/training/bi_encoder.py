"""The dual encoder under training: queries and passages to vectors, vectors to the contrastive loss or a teacher's.

SimLM section 3.2, eq. 3; one encoder serves both sides, as in the released code (others use two). Distilled: KL
divergence from a re-ranker's raw scores + 0.2 x contrastive. Book: ideas/dual_encoders, ideas/distillation.
"""

from functools import partial

import torch
from torch import Tensor, nn

from dr_lib import losses
from dr_lib.errors import InputError
from dr_lib.losses import Block, Mean, Preset
from dr_lib.models import encode_by_length, encode_in_chunks
from dr_lib.tokens import TokenBatch
from dr_lib.training.batches import RetrievalBatch, gather_batch
from dr_lib.training.schedule import TrainSettings, warm_temperature


class BiEncoder(nn.Module):
    """An encoder and its contrastive loss, in the form that `train` takes.

    Args:
        encoder: `encoder(batch)` -> `[batch, hidden]`, not normalised.
        temperature: scores are divided by it (SimLM: 0.02).
        temperature_warmup: 1 / temperature grows to its value while the learning rate does (`warm_temperature`).
        blocks: terms of the denominator, a preset or names, see `losses.contrastive`.
        normalise: cosine (SimLM, True) or inner product (MASTER, DPR-PAQ and others, False).
        passage_encoder: a second encoder for passages; None shares the first.
        chunk: texts encoded at a time (the gradient cache, see `models.encode_in_chunks`); None encodes all at once.
        alpha: weight of PAIR's passage-centric loss, in [0, 1]; the contrastive one keeps the rest. PAIR itself leaves
            it to pre-training (its Table 3, "w/ PSR FT").
        mask_positives: what is known to be relevant for a query is no negative of it; False contrasts copies of a
            positive and further positives like any other passage, as the released codes do.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        temperature: float = 0.02,
        temperature_warmup: bool = False,
        blocks: Preset | tuple[Block, ...] = "released",
        normalise: bool = True,
        passage_encoder: nn.Module | None = None,
        chunk: int | None = None,
        alpha: float = 0.0,
        mask_positives: bool = True,
    ):
        super().__init__()
        self.encoder, self.passage_encoder = encoder, passage_encoder
        self.temperature, self.blocks, self.normalise, self.chunk = temperature, blocks, normalise, chunk
        self.alpha, self.mask_positives, self.final_temperature = alpha, mask_positives, temperature
        self.temperature_warmup = temperature_warmup

    def before_update(self, settings: TrainSettings, step: int) -> None:
        """Set the temperature of an update."""
        if self.temperature_warmup:
            self.temperature = warm_temperature(self.final_temperature, settings, step)

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, and the share of queries whose own positive scores highest among its passages.

        With several processes the queries and passages of all of them are compared, in each (`losses.gather`).

        Args:
            batch: `B` queries and `B * n` passages on the encoder's device.
            generator: not used; the loop hands it to every module.
        """
        compared = gather_batch(batch, *self.vectors(batch))
        accuracy = losses.in_batch_accuracy(**compared, normalise=self.normalise)
        return {"loss": self.contrastive(compared), "in_batch_accuracy": accuracy}

    def vectors(self, batch: RetrievalBatch) -> tuple[Tensor, Tensor]:
        """Vectors of the queries `[B, hidden]` and passages `[B * n, hidden]`, float32."""
        queries = self._encode(self.encoder, batch.queries)
        return queries, self._encode(self.passage_encoder or self.encoder, batch.passages)

    def _encode(self, encoder: nn.Module, texts: TokenBatch) -> Tensor:
        return encode_in_chunks(partial(encode_by_length, encoder), texts, self.chunk).float()

    def contrastive(self, compared: dict[str, Tensor | None], *, own_negatives: bool = True) -> Tensor:
        """The contrastive loss of what `gather_batch` gives, with its passage-centric part where `alpha` is above 0."""
        if not self.mask_positives:
            compared = compared | {"passage_ids": None, "known_positives": None}
        scale = {"temperature": self.temperature, "normalise": self.normalise}
        about_queries = losses.contrastive(**compared, **scale, blocks=self.blocks, own_negatives=own_negatives)
        if self.alpha == 0:
            return about_queries
        return (1 - self.alpha) * about_queries + self.alpha * losses.passage_centric(**compared, **scale)


class DistilledBiEncoder(nn.Module):
    """A `BiEncoder` and its teacher's scores, in the form that `train` takes.

    Args:
        student: the dual encoder, its temperature and its contrastive loss.
        contrastive_weight: weight of the contrastive loss beside the KL divergence; 0 leaves it out.
        teacher_temperature: teacher scores are divided by it.
        mean: reduction of the KL divergence, see `losses.distillation`.
        own_negatives: False leaves a query's own hard negatives out of its contrastive loss: the teacher judges them.
    """

    def __init__(
        self,
        student: BiEncoder,
        *,
        contrastive_weight: float = 0.2,
        teacher_temperature: float = 1.0,
        mean: Mean = "query",
        own_negatives: bool = True,
    ):
        super().__init__()
        self.student, self.own_negatives = student, own_negatives
        self.contrastive_weight, self.teacher_temperature, self.mean = contrastive_weight, teacher_temperature, mean
        self.before_update = student.before_update

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, its two parts, and the share of queries whose positive scores highest.

        Args:
            batch: with `teacher_scores`; passages that the teacher has not read take no part in the KL divergence.
            generator: not used; the loop hands it to every module.
        """
        if batch.teacher_scores is None:
            raise InputError("no teacher scores", where="batch", fix="Give `RetrievalBatches` a teacher.")
        queries, passages = self.student.vectors(batch)
        with torch.autocast(queries.device.type, enabled=False):
            divergence = self.divergence(queries, passages, batch.teacher_scores)
        compared = gather_batch(batch, queries, passages)
        contrastive = self.student.contrastive(compared, own_negatives=self.own_negatives)
        return {
            "loss": divergence + self.contrastive_weight * contrastive,
            "divergence_loss": divergence.detach(),
            "contrastive_loss": contrastive.detach(),
            "in_batch_accuracy": losses.in_batch_accuracy(**compared, normalise=self.student.normalise),
        }

    def divergence(self, queries: Tensor, passages: Tensor, teacher_scores: Tensor) -> Tensor:
        """KL divergence from the teacher's distribution over each query's own passages."""
        if self.student.normalise:
            queries, passages = nn.functional.normalize(queries, dim=1), nn.functional.normalize(passages, dim=1)
        own = passages.unflatten(0, (len(queries), -1))
        return losses.distillation(
            (queries[:, None] * own).sum(2),
            teacher_scores.nan_to_num(0.0),
            student_temperature=self.student.temperature,
            teacher_temperature=self.teacher_temperature,
            mean=self.mean,
            present=~teacher_scores.isnan(),
        )
