"""Late interaction in training: the contrastive loss of the dual encoder, with piece-by-piece scores. Book: ideas/distillation.

It learns from given labels and BM25's negatives alone, from the base model: one for all pre-training methods, so that
none of them has a teacher of its own.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from dr_lib.collections import Collection
from dr_lib.losses import relevant_passages
from dr_lib.models import LateInteraction, best_matches
from dr_lib.stages import stage
from dr_lib.tokens import Layout
from dr_lib.training import machine
from dr_lib.training.batches import RetrievalBatch
from dr_lib.training.bi_encoder import batches_of
from dr_lib.training.examples import training_examples
from dr_lib.training.loop import train
from dr_lib.training.stage_settings import Finetuning


class LateInteractionTrainer(nn.Module):
    """A late-interaction model and its loss, in the form that `train` takes."""

    def __init__(self, model: LateInteraction):
        super().__init__()
        self.model = model

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Cross-entropy of each query's positive among all passages of the batch that are not known to be relevant.

        Args:
            batch: `B` queries and `B * n` passages on the model's device.
            generator: not used; the loop hands it to every module.
        """
        queries, passages = self.model(batch.queries), self.model(batch.passages)
        with torch.autocast(batch.passage_rows.device.type, enabled=False):
            scores = best_matches(queries, passages) / self.model.settings.temperature
        n = len(batch.passage_rows) // len(batch)
        target = torch.arange(0, scores.shape[1], n, device=scores.device)
        relevant = relevant_passages(len(batch), n, batch.passage_rows, batch.known_positives, scores.device)
        others = scores.masked_fill(relevant.scatter(1, target[:, None], False), -torch.inf)
        accuracy = (others.detach().argmax(1) == target).float().mean()
        return {"loss": nn.functional.cross_entropy(others, target), "in_batch_accuracy": accuracy}


@stage(resumable=True)
def late_interaction(
    folder: Path,
    start: Path,
    passages: Path,
    queries: Path,
    collection: Collection,
    negatives: Path | None = None,
    *,
    training: Finetuning,
    layout: Layout,
    dropout: float | None,
    seed: int,
    share: float | None = None,
    share_seed: int = 0,
) -> None:
    """`model/`: a late-interaction model trained on the training queries; `log.json`.

    Args:
        folder: where to write.
        start: the masked LM it starts from.
        passages, queries: their tokens (`store/`).
        collection: whose training queries are learned.
        negatives: `negatives.npy` of the training queries; None draws passages at random.
        training: steps, batch, rate, negatives, positive and temperature, as a retriever has them; the rest is not read.
        layout, dropout: how texts become vectors.
        seed: of head, order and draws.
        share, share_seed: share of the training queries, as in `training_examples`.
    """
    options = {**layout.model_dump(), "temperature": training.temperature}
    model = LateInteraction.from_pretrained(start, dropout=dropout, device=machine.device(), seed=seed, **options)
    examples = training_examples(collection, negatives, share=share, share_seed=share_seed)
    batches = batches_of(training, queries, passages, examples, layout=layout, seed=seed)
    train(LateInteractionTrainer(model), batches.batch, training.with_seed(seed), folder, title="late interaction")
    model.save(folder / "model")
