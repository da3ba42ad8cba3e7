"""Training of cross-encoders and late interaction: scores of a query's passages, and losses that
rank the positive first.

SimLM section 3.2, eq. 4, and what its released code adds; PAIR's teacher scores pairs independently
instead. Book: ideas/distillation. For dialogues, whose responses have no hard negatives, see
`dialogue_cross_encoder`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, distributed, nn

from dr_lib import losses
from dr_lib.models import (
    CrossEncoder,
    LateInteraction,
    Pieces,
    best_matches,
    encode_by_length,
    encode_in_chunks,
    response_pairs,
)
from dr_lib.stages import stage
from dr_lib.tokens import Layout, QueryPassagePairs, Side, TokenBatch, TokenStore
from dr_lib.training import machine
from dr_lib.training.batches import PairBatches, RetrievalBatch
from dr_lib.training.bi_encoder import batches_of
from dr_lib.training.examples import Examples
from dr_lib.training.launch import on_processes
from dr_lib.training.loop import train
from dr_lib.training.schedule import CrossEncoderTraining, Finetuning

RerankerLoss = Literal["listwise", "pointwise"]
KEEP_ONE_IN = 4  # share of passages with gradient in the released code


class Reranker(nn.Module):
    """A cross-encoder and its loss, as `train` expects it.

    Args:
        cross_encoder: `cross_encoder(batch)` -> `[pairs]` scores.
        settings: how many passages a query has (the positive first, then `negatives`), and which of
            them have a gradient: all (paper), or only the positive and the hardest others, a
            quarter in all. In that case all are scored without gradient or dropout first, and the
            hardest again (released: 64 and 16).
        loss: "listwise" (SimLM) or "pointwise" (RocketQA and PAIR: a probability per pair).
    """

    def __init__(
        self,
        cross_encoder: nn.Module,
        settings: CrossEncoderTraining,
        loss: RerankerLoss = "listwise",
    ):
        super().__init__()
        self.cross_encoder, self.settings, self.loss = cross_encoder, settings, loss
        self.passages_per_query = settings.negatives + 1

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, and the share of queries whose positive scores highest among the
        passages with gradient.

        Args:
            batch: `B * n` pairs, pair i * n with the positive of query i.
            generator: not used; the loop hands it to every module.
        """
        n = self.passages_per_query
        count = max(2, n // KEEP_ONE_IN)
        if self.settings.gradient == "released" and count < n:
            batch, n = batch.take(self.hardest(batch, count)), count
        passes = 2 if self.settings.r_drop else 1
        # R-drop's two passes are one batch of two copies, with independent dropout.
        copies = (
            batch
            if passes == 1
            else batch.take(torch.arange(len(batch), device=batch.rows.device).repeat(2))
        )
        score = partial(encode_by_length, self.cross_encoder)
        lists = encode_in_chunks(score, copies, self.settings.chunk).view(passes, -1, n)
        with torch.autocast(lists.device.type, enabled=False):
            loss = {"listwise": losses.listwise, "pointwise": losses.pointwise}[self.loss]
            means = torch.stack([loss(scores) for scores in lists])
            first = torch.zeros(len(lists[0]), dtype=torch.int64, device=lists.device)
            result = {"loss": means.mean(), "accuracy": losses.share_first(lists[0], first)}
            if self.settings.r_drop:
                apart = losses.r_drop(lists[0], lists[1])
                result |= {"loss": result["loss"] + apart, "r_drop_loss": apart.detach()}
        return result

    @torch.no_grad()
    def hardest(self, batch: TokenBatch, count: int) -> Tensor:
        """Indices `[B * count]` of the pairs of each query with its positive and its highest-scored
        negatives.
        """
        # Without dropout, so that the choice of the hardest negatives is not random.
        training = self.cross_encoder.training
        scores = encode_by_length(self.cross_encoder.eval(), batch)
        scores = scores.view(-1, self.passages_per_query)
        self.cross_encoder.train(training)
        negatives = scores[:, 1:].topk(count - 1).indices + 1
        columns = torch.cat([torch.zeros_like(negatives[:, :1]), negatives], 1)
        first = torch.arange(len(scores), device=scores.device)[:, None] * self.passages_per_query
        return (first + columns).flatten()


@stage(resumable=True, gpu=True)
@on_processes
def cross_encoder(
    folder: Path,
    start: Path,
    passages: Path,
    queries: Path,
    examples: Path,
    *,
    training: CrossEncoderTraining,
    loss: RerankerLoss,
    title: bool,
    dropout: float | None,
    seed: int,
) -> None:
    """`model/`: a cross-encoder trained on the training queries; `log.json`.

    Args:
        folder: where to write.
        start: the encoder it starts from.
        passages, queries: their tokens in its own vocabulary (`store/`).
        examples: training queries with their positives and negatives, as `Examples.save` left them.
        training: how it is trained.
        loss: "listwise" for a re-ranker and teacher, "pointwise" where scores must be
            probabilities.
        title: whether it reads titles.
        dropout: None keeps that of the start.
        seed: of head and training.
    """
    stores = [TokenStore.open(side / "store") for side in (queries, passages)]
    _learn(
        folder,
        start,
        lambda encoder: encoder.crossing(*stores),
        examples,
        training=training,
        loss=loss,
        title=title,
        dropout=dropout,
        seed=seed,
    )


@stage(resumable=True, gpu=True)
@on_processes
def dialogue_cross_encoder(
    folder: Path,
    start: Path,
    pairs: Path,
    *,
    training: CrossEncoderTraining,
    context_length: int,
    side: Side,
    dropout: float | None,
    seed: int,
) -> None:
    """`model/`: a cross-encoder trained to tell a context's response from random ones; `log.json`.

    So do the cross-encoders with which DPR-PAQ's Table 3 compares its dual encoder (Humeau et al.
    2019).

    Args:
        folder: where to write.
        start: the encoder it starts from.
        pairs: contexts and responses (`queries/`, `passages/`, `examples/`), in the tokens of the
            start. A response is never a negative of its own context: equal texts are one passage
            there.
        training: how it is trained, with `negatives` random responses besides the right one.
        context_length, side: as in `response_pairs`.
        dropout: None keeps what the start says.
        seed: of head and training.
    """
    stores = [TokenStore.open(pairs / name) for name in ("queries", "passages")]
    cut = {"context_length": context_length, "side": side}
    _learn(
        folder,
        start,
        lambda encoder: response_pairs(encoder, *stores, **cut),
        pairs / "examples",
        training=training,
        loss="listwise",
        title=False,
        dropout=dropout,
        seed=seed,
    )


def _learn(
    folder: Path,
    start: Path,
    pairs_of: Callable[[CrossEncoder], QueryPassagePairs],
    examples: Path,
    *,
    training: CrossEncoderTraining,
    loss: RerankerLoss,
    title: bool,
    dropout: float | None,
    seed: int,
) -> None:
    """Train a cross-encoder on pairs, and save it."""
    encoder = CrossEncoder.from_pretrained(
        start,
        dropout=dropout,
        device=machine.device(),
        seed=seed,
        length=training.length,
        title=title,
    )
    sizes = {"batch_queries": training.batch_queries, "passages_per_query": training.negatives + 1}
    # queries are not compared with each other, so processes may take whole micro-batches
    together = training.accumulation % losses.world_size() > 0
    batches = PairBatches(
        pairs_of(encoder), Examples.open(examples), **sizes, seed=seed, shared=together
    )
    train(
        Reranker(encoder, training, loss),
        batches.batch,
        training.with_seed(seed),
        folder,
        title="cross-encoder",
        together=together,
    )
    encoder.save(folder / "model")


class LateInteractionTrainer(nn.Module):
    """A late-interaction model and its loss, as `train` expects it.

    Args:
        model: makes the token vectors.
        chunk: texts encoded at a time (`encode_in_chunks`); None encodes all at once.
    """

    def __init__(self, model: LateInteraction, chunk: int | None = None):
        super().__init__()
        self.model, self.chunk = model, chunk

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Cross-entropy of each query's positive among all passages of the batch, over all
        processes, except other known positives.

        Args:
            batch: `B` queries and `B * n` passages on the model's device.
            generator: not used; the loop hands it to every module.
        """
        queries, passages = self.pieces(batch.queries), self.pieces(batch.passages)
        rows, n, first = batch.passage_rows, len(batch.passage_rows) // len(batch), 0
        if losses.world_size() > 1:
            # padded to the same length in all processes
            room = self.model.settings.passage_length - passages.read.shape[1]
            vectors = nn.functional.pad(passages.vectors, (0, 0, 0, room))
            read = nn.functional.pad(passages.read, (0, room))
            passages, first = Pieces(losses.gather(vectors), losses.gather(read)), len(rows)
            rows, first = losses.gather(rows), first * distributed.get_rank()
        with torch.autocast(rows.device.type, enabled=False):
            scores = best_matches(queries, passages) / self.model.settings.temperature
        target = torch.arange(first, first + len(batch) * n, n, device=scores.device)
        relevant = rows[target, None] == rows
        if batch.known_positives is not None:
            relevant |= batch.known_positives
        others = scores.masked_fill(relevant.scatter(1, target[:, None], False), -torch.inf)
        accuracy = losses.share_first(others, target)
        return {"loss": nn.functional.cross_entropy(others, target), "in_batch_accuracy": accuracy}

    def pieces(self, texts: TokenBatch) -> Pieces:
        """The vectors of some texts."""
        length = texts.special.shape[1]

        def read(part: TokenBatch) -> Tensor:
            vectors = self.model(part).vectors
            return nn.functional.pad(vectors, (0, 0, 0, length - vectors.shape[1]))

        return Pieces(encode_in_chunks(read, texts, self.chunk), ~texts.special)


@stage(resumable=True, gpu=True)
@on_processes
def late_interaction(
    folder: Path,
    start: Path,
    passages: Path,
    queries: Path,
    examples: Path,
    *,
    training: Finetuning,
    layout: Layout,
    dropout: float | None,
    seed: int,
) -> None:
    """`model/`: a late-interaction model trained on the training queries; `log.json`.

    Args:
        folder: where to write.
        start: the masked LM it starts from.
        passages, queries: their tokens (`store/`).
        examples: training queries with their positives and negatives, as `Examples.save` left them.
        training: as for a retriever; only steps, batch, rate, negatives, positive, temperature and
            chunk are used.
        layout, dropout: how texts become vectors.
        seed: of head, order and draws.
    """
    options = {**layout.model_dump(), "temperature": training.temperature}
    model = LateInteraction.from_pretrained(
        start, dropout=dropout, device=machine.device(), seed=seed, **options
    )
    batches = batches_of(training, queries, passages, examples, layout=layout, seed=seed)
    train(
        LateInteractionTrainer(model, training.chunk),
        batches.batch,
        training.with_seed(seed),
        folder,
        title="late interaction",
        together=True,
    )
    model.save(folder / "model")
