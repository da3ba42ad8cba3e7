"""The dual encoder in training, and the stage that trains it: SimLM section 3.2 (eq. 3) and Figure
2.

Queries and passages are encoded and compared by the contrastive loss, or by distillation (KL
divergence from a re-ranker's raw scores + 0.2 x contrastive). One encoder serves both sides, as in
the released code, or there are two. Every retriever of a pipeline is this stage with other training
data. Book: ideas/dual-encoders, ideas/distillation, ideas/pipeline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from dr_lib import losses
from dr_lib.collections import Collection
from dr_lib.files import open_array
from dr_lib.models import DenseEncoder, encode_by_length, encode_in_chunks
from dr_lib.stages import stage
from dr_lib.tokens import Layout, TokenBatch, TokenStore, plan_by_length
from dr_lib.training import machine
from dr_lib.training.batches import RetrievalBatch, RetrievalBatches, gather_batch
from dr_lib.training.examples import Examples, TeacherScores
from dr_lib.training.launch import on_processes
from dr_lib.training.loop import Validation, train
from dr_lib.training.schedule import Distillation, Finetuning, TrainSettings, warm_temperature

VALIDATION_DRAW = 0x1D  # sets the draw of dev queries apart from others with the same seed


class BiEncoder(nn.Module):
    """An encoder and its contrastive loss, in the form that `train` takes.

    Args:
        encoder: `encoder(batch)` -> `[batch, hidden]`, not normalised.
        settings: how vectors are compared, see `Finetuning`, whose defaults are SimLM's. PAIR
            leaves the passage-centric part (`alpha`) to pre-training (its Table 3, "w/ PSR FT").
        passage_encoder: a second encoder for passages; None shares the first.

    Attributes:
        temperature: divides the scores of the next update.
    """

    def __init__(
        self,
        encoder: nn.Module,
        settings: Finetuning | None = None,
        passage_encoder: nn.Module | None = None,
    ):
        super().__init__()
        self.encoder = encoder
        self.passage_encoder = passage_encoder
        self.settings = settings or Finetuning()
        self.temperature = self.settings.temperature

    def before_update(self, settings: TrainSettings, step: int) -> None:
        """Set the temperature of an update."""
        if self.settings.temperature_warmup:
            self.temperature = warm_temperature(self.settings.temperature, settings, step)

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, and the share of queries whose own positive scores highest among its
        passages.

        With several processes, each compares the queries and passages of all (`losses.gather`).

        Args:
            batch: `B` queries and `B * n` passages on the encoder's device.
            generator: not used; the loop hands it to every module.
        """
        loss, accuracy = self.contrastive(gather_batch(batch, *self.vectors(batch)))
        return {"loss": loss, "in_batch_accuracy": accuracy}

    def vectors(self, batch: RetrievalBatch) -> tuple[Tensor, Tensor]:
        """Vectors of the queries `[B, hidden]` and passages `[B * n, hidden]`, float32."""
        queries = self._encode(self.encoder, batch.queries)
        return queries, self._encode(self.passage_encoder or self.encoder, batch.passages)

    def _encode(self, encoder: nn.Module, texts: TokenBatch) -> Tensor:
        return encode_in_chunks(
            partial(encode_by_length, encoder), texts, self.settings.chunk
        ).float()

    def contrastive(
        self, compared: dict[str, Tensor | None], *, own_negatives: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The contrastive loss of what `gather_batch` returns, with a passage-centric part if
        `alpha` is above 0; and the share of queries whose positive scores highest.
        """
        chosen = self.settings
        return losses.pair_and_accuracy(
            **compared,
            alpha=chosen.alpha or 0.0,
            temperature=self.temperature,
            normalise=chosen.normalise,
            blocks=chosen.blocks,
            own_negatives=own_negatives,
            mask_positives=chosen.mask_positives,
        )


class DistilledBiEncoder(BiEncoder):
    """A `BiEncoder` that learns from a teacher's scores besides the labels; `settings` are a
    `Distillation`.
    """

    settings: Distillation

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, its two parts, and the share of queries whose positive scores highest.

        Args:
            batch: with `teacher_scores`; passages that the teacher has not scored are left out of
                the KL divergence.
            generator: not used; the loop hands it to every module.
        """
        queries, passages = self.vectors(batch)
        # In float32: divided by a small temperature, scores are large, and bf16 keeps less than
        # three digits.
        with torch.autocast(queries.device.type, enabled=False):
            divergence = self.divergence(queries, passages, batch.teacher_scores)
        contrastive, accuracy = self.contrastive(
            gather_batch(batch, queries, passages), own_negatives=self.settings.own_negatives
        )
        return {
            "loss": divergence + self.settings.contrastive_weight * contrastive,
            "divergence_loss": divergence.detach(),
            "contrastive_loss": contrastive.detach(),
            "in_batch_accuracy": accuracy,
        }

    def divergence(self, queries: Tensor, passages: Tensor, teacher_scores: Tensor) -> Tensor:
        """KL divergence from the teacher's distribution over each query's own passages."""
        if self.settings.normalise:
            queries, passages = normalize(queries), normalize(passages)
        candidates = passages.unflatten(0, (len(queries), -1))
        return losses.distillation(
            (queries[:, None] * candidates).sum(2),
            teacher_scores.nan_to_num(0.0),
            student_temperature=self.temperature,
            teacher_temperature=self.settings.teacher_temperature,
            mean=self.settings.mean,
            present=~teacher_scores.isnan(),
        )


@stage(resumable=True, gpu=True)
@on_processes
def retriever(
    folder: Path,
    start: Path,
    passages: Path,
    queries: Path,
    examples: Path,
    teacher: Path | None = None,
    validation: Sequence[Any] = (),
    *,
    training: Finetuning,
    layout: Layout,
    pooling: str,
    dropout: float | None,
    seed: int,
    distil: type[BiEncoder] | None = None,
) -> None:
    """`model/` (and `passage_model/` if there are two encoders): the retriever; `log.json`.

    Args:
        folder: where to write.
        start: a pre-trained encoder's stage, or a masked LM.
        passages, queries: their tokens (`store/`).
        examples: training queries with their positives and negatives, as `Examples.save` left them.
        teacher: scores of these examples, for a `Distillation`.
        validation: the collection, tokens of its dev queries and BM25's ranking for them.
        training: how it is trained.
        layout, pooling, dropout: how texts become vectors.
        seed: of order, draws and fresh weights.
        distil: the module that learns a teacher's scores (`DistilledBiEncoder`); passed by the
            caller, so that its code is part of the key only if there is a teacher.
    """
    encoders = start_encoders(
        start,
        not training.shared,
        layout=layout,
        pooling=pooling,
        dropout=dropout,
        training=training,
        seed=seed,
    )
    encoder, passage_encoder = encoders
    module = (distil or BiEncoder)(encoder, training, passage_encoder)
    scores = TeacherScores.open(teacher) if teacher else None
    batches = batches_of(
        training, queries, passages, examples, layout=layout, seed=seed, teacher=scores
    )
    look = None
    if training.validation:
        collection, dev_queries, run = validation
        sides = (
            dev_pool(collection, run, training),
            TokenStore.open(dev_queries / "store"),
            batches.passage_store,
        )
        options = {
            "layout": layout,
            "normalise": training.normalise,
            "precision": training.precision,
        }
        look = Validation(
            lambda _: pool_mrr(*sides, *encoders, **options).mean(),
            training.validation.every,
            training.validation.keep,
        )
    numbers = training.with_seed(seed)
    train(
        module, batches.batch, numbers, folder, title="fine-tuning", validation=look, together=True
    )
    save_encoders(folder, *encoders)


@stage()
def untuned(
    folder: Path, start: Path, *, training: Finetuning, layout: Layout, pooling: str, seed: int
) -> None:
    """`model/` (and `passage_model/`): the starting encoder itself as a retriever (DPR-PAQ Table 4,
    "w/o FT").
    """
    encoders = start_encoders(
        start,
        (start / "passage_model").is_dir(),
        layout=layout,
        pooling=pooling,
        dropout=None,
        training=training,
        seed=seed,
    )
    save_encoders(folder, *encoders)


def batches_of(
    training: Finetuning, queries: Path, passages: Path, examples: Path, **options: Any
) -> RetrievalBatches:
    """Batches from the results of stages; `options` are further arguments of `RetrievalBatches`."""
    stores = (TokenStore.open(side / "store") for side in (queries, passages))
    sizes = {"batch_queries": training.batch_queries, "passages_per_query": training.negatives + 1}
    return RetrievalBatches(
        *stores, Examples.open(examples), **sizes, positive=training.positive, **options
    )


def start_encoders(
    start: Path,
    two: bool,
    *,
    layout: Layout,
    pooling: str,
    dropout: float | None,
    training: Finetuning,
    seed: int,
) -> tuple[DenseEncoder, DenseEncoder | None]:
    """The encoder that a retriever starts from and, if `two`, the passage encoder, which starts
    from other weights only if pre-training had two.
    """

    def opened(*names: str) -> DenseEncoder:
        saved = [start / name for name in names if (start / name).is_dir()]
        return DenseEncoder.from_pretrained(
            saved[0] if saved else start,
            dropout=dropout,
            device=machine.device(),
            pooling=pooling,
            normalise=training.normalise,
            temperature=training.temperature,
            **layout.model_dump(),
            projection=bool(training.projection),
            seed=seed,
        )

    return opened("model"), opened("passage_model", "model") if two else None


def save_encoders(
    folder: Path, encoder: DenseEncoder, passage_encoder: DenseEncoder | None
) -> None:
    """`model/`, and `passage_model/` if there are two encoders."""
    encoder.save(folder / "model")
    if passage_encoder is not None:
        passage_encoder.save(folder / "passage_model")


# Validation during training, without an index (DPR-PAQ, section 3.3) ------------------------------
# The pool holds the relevant passages of some dev queries and hard negatives of each. The paper
# finds that MRR over it tracks that of the full search, which loss and in-batch accuracy often do
# not. It takes seconds and is never below the full MRR: it selects checkpoints and is not reported.
# A rank is found by counting the scores above the best relevant passage, so nothing is sorted.
# Order and rounding are those of `retrieval.search`: on the whole collection the ranks are those of
# the search. The released code (dpr-scale) keeps a passage that several queries bring as often as
# they bring it, and its twin is then a wrong answer; it ranks the first relevant passage only. Here
# each passage stands once, and the first relevant one that is found counts. Page of the book:
# ideas/evaluation.


SCORE_BYTES = 1 << 28  # of float64 scores in memory together


@dataclass(frozen=True, eq=False)
class ValidationPool:
    """Queries, the passages they are compared with, and which of those are relevant.

    Attributes:
        query_rows: `[queries]` int64, rows of the query store.
        passage_rows: `[pool]` int64, rows of the passage store, ascending, each once.
        places: `[relevant ones of all queries]` int64, places in the pool.
        offsets: `[queries + 1]` int64; those of query i are `places[offsets[i]:offsets[i + 1]]`, at
            least one.
        itself: `[queries]` int64, place of the passage that is the query itself and is not ranked,
            -1 for none; None where no query is a passage.

    Example:
        >>> pool = ValidationPool.of(
        ...     [0, 3], positives=[[7], [2, 9]], negatives=np.array([[2, 5], [8, -1]])
        ... )
        >>> pool.passage_rows.tolist(), pool.places.tolist(), pool.offsets.tolist()
        ([2, 5, 7, 8, 9], [2, 0, 4], [0, 1, 3])
    """

    query_rows: np.ndarray
    passage_rows: np.ndarray
    places: np.ndarray
    offsets: np.ndarray
    itself: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        query_rows: Sequence[int] | np.ndarray,
        positives: Sequence[Sequence[int] | np.ndarray],
        negatives: np.ndarray,
        itself: np.ndarray | None = None,
    ) -> "ValidationPool":
        """Collect the passages of some queries; a passage that is relevant to one is a negative of
        the others.

        Args:
            query_rows: rows of the query store, a few hundred.
            positives: rows of the relevant passages of each, at least one.
            negatives: `[queries, depth]`, rows of hard negatives, best first, -1 for none. For a
                pool of the whole collection: one line of all its rows.
            itself: `[queries]` row of the passage that is the query itself, -1 for none.
        """
        counts = [len(rows) for rows in positives]
        relevant = np.concatenate([np.asarray(rows, np.int64) for rows in positives])
        others = np.asarray(negatives, np.int64).ravel()
        rows = np.unique(np.concatenate([relevant, others[others >= 0]]))
        offsets, places = np.cumsum([0, *counts]), np.searchsorted(rows, relevant)
        if itself is not None:
            at = np.minimum(np.searchsorted(rows, itself), len(rows) - 1)
            itself = np.where(rows[at] == itself, at, -1)
        return cls(np.asarray(query_rows, np.int64), rows, places, offsets, itself)

    def __len__(self) -> int:
        return len(self.passage_rows)


def dev_pool(collection: Collection, run: Path, training: Finetuning) -> ValidationPool:
    """Some queries of the validation split, with their relevant passages and BM25's results."""
    options = training.validation
    relevant, same = collection.positives(options.split), collection.same_text
    usable = np.flatnonzero([len(rows) > 0 for rows in relevant])
    # By the validation's own seed: runs of a study are compared on the same dev queries.
    drawn = np.random.default_rng([options.seed, VALIDATION_DRAW]).permutation(usable)[
        : options.queries
    ]
    chosen = np.sort(drawn)
    # [queries of the split, per_query]
    ranked = np.asarray(open_array(run / "ranking" / "rows.npy"))[chosen]
    ranked = ranked if same is None else np.where(ranked >= 0, same[ranked], -1)
    itself = collection.own_texts(options.split)
    itself = None if itself is None else itself[chosen]
    return ValidationPool.of(chosen, [relevant[row] for row in chosen], ranked, itself)


@torch.inference_mode()
def pool_ranks(queries: Tensor, passages: Tensor, pool: ValidationPool) -> np.ndarray:
    """Rank of the first relevant passage in the pool, from 1: score descending, then row ascending.

    Scores are inner products in float64 rounded to float32, some queries at a time.

    Args:
        queries: `[queries, hidden]`, in the pool's order.
        passages: `[pool, hidden]`, in the pool's order, on the same device.
        pool: which passages are relevant to which query.

    Returns:
        `[queries]` int64.
    """
    if queries.device.type == "mps":  # Apple's GPUs lack float64
        queries, passages = queries.cpu(), passages.cpu()
    wide, at_once = passages.double(), max(1, SCORE_BYTES // (8 * len(passages)))
    scores = (line for part in queries.split(at_once) for line in (part.double() @ wide.T).float())
    ranks = []
    excluded = [-1] * len(pool.query_rows) if pool.itself is None else pool.itself.tolist()
    relevant = np.split(pool.places, pool.offsets[1:-1])
    for line, places, row in zip(scores, relevant, excluded, strict=True):
        if row >= 0:
            line[row] = -torch.inf
        of_own = line[torch.from_numpy(places).to(line.device)]
        best = of_own.max()
        first = places[(of_own == best).cpu().numpy()].min()
        ranks.append(1 + (line > best).sum() + (line[:first] == best).sum())
    return torch.stack(ranks).cpu().numpy()


@torch.inference_mode()
def pool_mrr(
    pool: ValidationPool,
    query_store: TokenStore,
    passage_store: TokenStore,
    encoder: nn.Module,
    passage_encoder: nn.Module | None = None,
    *,
    layout: Layout,
    normalise: bool = True,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
) -> np.ndarray:
    """Encode a pool and score it, without side effects on a training in progress.

    Args:
        pool: queries and passages.
        query_store, passage_store: where their tokens are.
        encoder: `encoder(batch)` -> `[batch, hidden]`; of queries, and of passages without
            `passage_encoder`.
        passage_encoder: a second encoder, for passages.
        layout: how queries and passages become sequences.
        normalise: compare by cosine in place of the inner product.
        precision: of the forward pass.

    Returns:
        MRR of each query, `[queries]` float64.
    """
    queries = _encode(encoder, query_store, pool.query_rows, layout.queries, precision)
    passages = _encode(
        passage_encoder or encoder, passage_store, pool.passage_rows, layout.passages, precision
    )
    if normalise:
        queries, passages = normalize(queries), normalize(passages)
    return 1 / pool_ranks(queries, passages, pool)


def _encode(
    encoder: nn.Module, store: TokenStore, rows: np.ndarray, layout: dict[str, Any], precision: str
) -> Tensor:
    """Vectors `[rows, hidden]` float32 of some rows of a store; every module keeps its mode."""
    device = next(encoder.parameters()).device
    # Sorted by length, batches have little padding; afterwards the vectors are put back in order.
    plan = plan_by_length(
        store.lengths(**layout)[rows], machine.encoding_budget(), layout["max_length"]
    )
    with machine.evaluating(encoder, machine.precision(precision, device)) as forward:
        vectors = [forward(store.batch(rows[part], **layout).to(device)).float() for part in plan]
    return torch.cat(vectors)[torch.from_numpy(np.argsort(np.concatenate(plan))).to(device)]
