"""The stage that fine-tunes a retriever, and the one that takes an encoder as it is.

SimLM section 3.2 and Figure 2; every retriever of a pipeline is this stage, and only what it learns from changes. Pages
of the book: ideas/dual-encoders, ideas/pipeline.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from torch import nn

from dr_lib.collections import Collection
from dr_lib.models import DenseEncoder
from dr_lib.stages import stage
from dr_lib.tokens import Layout, TokenStore
from dr_lib.training import machine
from dr_lib.training.batches import RetrievalBatches
from dr_lib.training.bi_encoder import BiEncoder
from dr_lib.training.checkpoint import load_weights, newest_checkpoint
from dr_lib.training.examples import Examples, TeacherScores, merge_examples
from dr_lib.training.loop import Validation, train
from dr_lib.training.stage_settings import Finetuning
from dr_lib.training.validation import PoolValidation, ValidationPool

VALIDATION_DRAW = 0x1D  # sets the draw of dev queries apart from others with the same seed
FEW_SHOT_DRAW = 0x5A  # sets the draw of training queries apart from others with the same seed


@stage(resumable=True)
def retriever(
    folder: Path,
    start: Path,
    passages: Path,
    queries: Path,
    collection: Collection,
    negatives: Path | None = None,
    pseudo_labels: Path | None = None,
    teacher: Path | None = None,
    validation_queries: Path | None = None,
    validation_run: Path | None = None,
    *,
    training: Finetuning,
    layout: Layout,
    pooling: str,
    dropout: float | None,
    seed: int,
    distil: Callable[..., nn.Module] | None = None,
    share: float | None = None,
    share_seed: int = 0,
) -> None:
    """`model/` (and `passage_model/` where the encoders are two): the retriever; `log.json`.

    Where the best weights are kept, those of the last update lie in `last/` as they do here.

    Args:
        folder: where to write.
        start: a pre-trained encoder's stage, or a masked LM.
        passages, queries: their tokens (`store/`).
        collection: whose training queries are learned.
        negatives: `negatives.npy` of the training queries; None draws passages at random.
        pseudo_labels: further examples.
        teacher: scores of positives and negatives, for a `Distillation`.
        validation_queries, validation_run: tokens of dev queries and BM25's ranking for them, for a validation.
        training: how it is trained.
        layout, pooling, dropout: how texts become vectors.
        seed: of order, draws and fresh weights.
        distil: how a teacher's scores are learned (`DistilledBiEncoder`); named by the caller alone, so that its code
            counts only where there is a teacher.
        share, share_seed: share of the training queries to learn from, and the seed of its draw.
    """
    options = {"layout": layout, "pooling": pooling, "dropout": dropout, "training": training, "seed": seed}
    encoder = start_encoder(start, **options)
    passage_encoder = None if training.shared else start_encoder(start, of="passage_model", **options)
    module = BiEncoder(
        encoder,
        temperature=training.temperature,
        blocks=training.blocks,
        normalise=training.normalise,
        passage_encoder=passage_encoder,
        chunk=training.chunk,
        alpha=training.alpha or 0.0,
        mask_positives=training.mask_positives,
        temperature_warmup=training.temperature_warmup,
    )
    query_store, passage_store = TokenStore.open(queries / "store"), TokenStore.open(passages / "store")
    batches = RetrievalBatches(
        query_store,
        passage_store,
        training_examples(collection, negatives, pseudo_labels, share=share, share_seed=share_seed),
        batch_queries=training.batch_queries,
        passages_per_query=training.negatives + 1,
        layout=layout,
        seed=seed,
        positive=training.positive,
        teacher=TeacherScores.open(teacher) if teacher else None,
    )
    if distil:
        module = distil(
            module,
            contrastive_weight=training.contrastive_weight,
            teacher_temperature=training.teacher_temperature,
            mean=training.mean,
            own_negatives=training.own_negatives,
        )
    validation = None
    if training.validation:
        pool = dev_pool(collection, validation_run, training)
        score = PoolValidation(
            pool,
            TokenStore.open(validation_queries / "store"),
            passage_store,
            layout=layout,
            normalise=training.normalise,
            tokens_per_batch=machine.encoding_budget(),
            precision=training.precision,
        )
        validation = Validation(
            lambda _: score(encoder, passage_encoder)["MRR"].mean(), training.validation.every, training.validation.keep
        )
    train(module, batches.batch, training.with_seed(seed), folder, title="fine-tuning", validation=validation)
    save_encoders(folder, encoder, passage_encoder)
    if training.validation and training.validation.keep == "best":
        load_weights(newest_checkpoint(folder), module)
        save_encoders(folder / "last", encoder, passage_encoder)


@stage()
def untuned(folder: Path, start: Path, *, training: Finetuning, layout: Layout, pooling: str, seed: int) -> None:
    """`model/` (and `passage_model/`): the starting encoder as a retriever, as it is (DPR-PAQ Table 4, "w/o FT")."""
    options = {"layout": layout, "pooling": pooling, "dropout": None, "training": training, "seed": seed}
    second = start_encoder(start, of="passage_model", **options) if (start / "passage_model").is_dir() else None
    save_encoders(folder, start_encoder(start, **options), second)


def start_encoder(
    start: Path | str,
    *,
    of: str = "model",
    layout: Layout,
    pooling: str,
    dropout: float | None,
    training: Finetuning,
    seed: int,
) -> DenseEncoder:
    """The encoder that a retriever starts from; `of="passage_model"` is another one only where pre-training had two."""
    saved = [Path(start) / name for name in (of, "model") if (Path(start) / name).is_dir()]
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


def save_encoders(folder: Path, encoder: DenseEncoder, passage_encoder: DenseEncoder | None) -> None:
    """`model/`, and `passage_model/` where the encoders are two."""
    encoder.save(folder / "model")
    if passage_encoder is not None:
        passage_encoder.save(folder / "passage_model")


def dev_pool(collection: Collection, run: Path, training: Finetuning) -> ValidationPool:
    """Some queries of the validation split, with their relevant passages and what BM25 finds for them."""
    options = training.validation
    relevant = collection.relevant_rows(options.split)
    usable = np.array([row for row, rows in enumerate(relevant) if len(rows)])
    drawn = np.random.default_rng([options.seed, VALIDATION_DRAW]).permutation(usable)[: options.queries]
    chosen = np.sort(drawn)
    ranking = np.load(run / "ranking" / "rows.npy", mmap_mode="r")  # [queries of the split, per_query]
    return ValidationPool.of(chosen, [relevant[row] for row in chosen], np.asarray(ranking)[chosen])


def training_examples(
    collection: Collection,
    negatives: Path | None = None,
    pseudo_labels: Path | None = None,
    *,
    share: float | None = None,
    share_seed: int = 0,
) -> Examples:
    """The training queries that have a positive (or a share of them), with their negatives.

    Args:
        collection: its split train.
        negatives: folder with `negatives.npy` `[train queries, depth]`, and perhaps `positives.npy` `[pairs, 2]`: rows
            of queries and of passages that are positives too; None lists none.
        pseudo_labels: folder with `examples/` to add.
        share, share_seed: of the usable queries, as in `nested_share`; None takes all.
    """
    relevant = collection.relevant_rows("train")
    if negatives and (negatives / "positives.npy").is_file():  # passages that hold an answer, behind the judged ones
        queries, rows = np.load(negatives / "positives.npy").T
        bounds = np.searchsorted(queries, np.arange(len(relevant) + 1))
        relevant = [np.append(own, rows[slice(*ends)]) for own, ends in zip(relevant, pairwise(bounds), strict=True)]
    usable = np.array([row for row, rows in enumerate(relevant) if len(rows)])
    if share is not None:
        usable = nested_share(usable, share, share_seed)
    listed = np.load(negatives / "negatives.npy")[usable] if negatives else None
    given = Examples.of(usable, [relevant[row] for row in usable], listed, passages=len(collection.passages))
    return merge_examples(given, Examples.open(pseudo_labels / "examples")) if pseudo_labels else given


def nested_share(rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    """A share of some rows, in order and at least one: of the same seed, a larger share contains a smaller one.

    Example:
        >>> nested_share(np.arange(8), 0.25, seed=0).tolist(), nested_share(np.arange(8), 0.5, seed=0).tolist()
        ([1, 2], [0, 1, 2, 5])
    """
    drawn = np.random.default_rng([seed, FEW_SHOT_DRAW]).permutation(rows)
    return np.sort(drawn[: max(1, round(share * len(rows)))])
