"""A dual encoder that learns a re-ranker's scores: KL divergence and a little of the contrastive loss.

SimLM section 3.2 (KL + 0.2 x contrastive, the teacher's raw scores). Book: ideas/distillation.
"""

import torch
from torch import Tensor, nn

from dr_lib import losses
from dr_lib.errors import InputError
from dr_lib.losses.distillation import Mean
from dr_lib.pairs import RetrievalBatch
from dr_lib.pairs.side_by_side import side_by_side
from dr_lib.training.bi_encoder import BiEncoder


class DistilledBiEncoder(nn.Module):
    """A `BiEncoder` and its teacher's scores, in the form that `train` takes.

    Args:
        student: the dual encoder, its temperature and its contrastive loss.
        contrastive_weight: weight of the contrastive loss beside the KL divergence; 0 leaves it out.
        teacher_temperature: teacher scores are divided by it.
        mean: reduction of the KL divergence, see `losses.distillation`.
    """

    def __init__(
        self,
        student: BiEncoder,
        *,
        contrastive_weight: float = 0.2,
        teacher_temperature: float = 1.0,
        mean: Mean = "query",
    ):
        super().__init__()
        self.student = student
        self.contrastive_weight, self.teacher_temperature, self.mean = contrastive_weight, teacher_temperature, mean

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
        compared = side_by_side(batch, queries, passages)
        contrastive = self.student.contrastive(compared)
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
        scores = (queries[:, None] * own).sum(2)
        return losses.distillation(
            scores, teacher_scores.nan_to_num(0.0), student_temperature=self.student.temperature,
            teacher_temperature=self.teacher_temperature, mean=self.mean, present=~teacher_scores.isnan(),
        )  # fmt: skip
