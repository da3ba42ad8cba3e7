"""One step of every kind of fine-tuning, with the batches, loop and modules of the stages; several
processes share the queries of a batch.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dr_lib.models import Pieces
from dr_lib.models.cross_encoder import LateInteractionSettings
from dr_lib.tokens import Layout, TokenBatch
from dr_lib.training import (
    BiEncoder,
    CrossEncoderTraining,
    Distillation,
    DistilledBiEncoder,
    Examples,
    Finetuning,
    LateInteractionTrainer,
    Reranker,
    RetrievalBatches,
    TeacherScores,
    TrainSettings,
    train,
)
from dr_lib.training.batches import PairBatches

SETTINGS = TrainSettings(steps=1, learning_rate=1e-3, warmup=0, clip=None, precision="fp32")
KINDS = {
    "blocks of the paper": lambda: BiEncoder(Bag(1), Finetuning(temperature=0.2, blocks="paper")),
    "gradient cache": lambda: BiEncoder(Bag(1), Finetuning(temperature=0.2, chunk=3)),
    "two encoders, passage-centric": lambda: BiEncoder(
        Bag(1), Finetuning(temperature=0.2, alpha=0.3), passage_encoder=Bag(2)
    ),
    "distilled": lambda: DistilledBiEncoder(Bag(1), Distillation(temperature=0.2)),
}


RERANKERS = {
    "cross-encoder": lambda: Reranker(Scorer(), CrossEncoderTraining(negatives=2)),
    "cross-encoder, gradient cache": lambda: Reranker(
        Scorer(), CrossEncoderTraining(negatives=2, chunk=5)
    ),
    "cross-encoder, micro-batches": lambda: Reranker(Scorer(), CrossEncoderTraining(negatives=2)),
    "late interaction": lambda: LateInteractionTrainer(Words()),
    "late interaction, gradient cache": lambda: LateInteractionTrainer(Words(), chunk=5),
}


class Bag(nn.Module):
    """Mean of word vectors: a minimal encoder."""

    def __init__(self, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(64, 16)

    def forward(self, batch) -> Tensor:
        mask = batch.attention_mask[..., None].float()
        return (self.table(batch.input_ids) * mask).sum(1) / mask.sum(1)


class Scorer(nn.Module):
    """A score for each pair."""

    def __init__(self):
        super().__init__()
        self.bag = Bag(3)

    def forward(self, batch) -> Tensor:
        return self.bag(batch).square().sum(1)


class Words(nn.Module):
    """A vector for each piece."""

    settings = LateInteractionSettings(temperature=0.2)

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.table = nn.Embedding(64, 16)

    def forward(self, batch) -> Pieces:
        return Pieces(nn.functional.normalize(self.table(batch.input_ids), dim=2), ~batch.special)


class Pairs(NamedTuple):
    """Another text of the store for each pair of query and passage."""

    queries: Any
    passages: Any

    def batch(self, query_rows: np.ndarray, rows: np.ndarray) -> TokenBatch:
        return self.passages.batch((7 * query_rows + rows) % 40, **Layout().passages)


def shared() -> ModuleType:
    """The fixtures' file, which a separate process has to import itself."""
    spec = importlib.util.spec_from_file_location(
        "shared", Path(__file__).parents[1] / "conftest.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder: Path, queries: int) -> dict[str, Tensor]:
    """Train each kind for a step; return its gradient, from AdamW's first moment."""
    rng, store = np.random.default_rng(0), shared().CountedStore(40, 40)
    negatives = np.array(
        [rng.choice(np.delete(np.arange(40), query), 6, replace=False) for query in range(40)]
    )
    examples = Examples.of(np.arange(40), [[query] for query in range(40)], negatives, passages=40)
    teacher = TeacherScores(rng.normal(size=40).astype("f4"), rng.normal(size=(40, 6)).astype("f4"))
    batches = RetrievalBatches(
        store, store, examples, batch_queries=queries, passages_per_query=3, teacher=teacher
    )
    sizes = {"batch_queries": queries, "passages_per_query": 3}
    pairs = PairBatches(Pairs(store, store), examples, **sizes)
    halves = PairBatches(
        Pairs(store, store), examples, **sizes | {"batch_queries": queries // 2}, shared=False
    )
    for kind, make in (KINDS | RERANKERS).items():
        of_kind, settings = pairs if "cross" in kind else batches, SETTINGS
        together = "micro" not in kind
        if not together:
            of_kind, settings = halves, SETTINGS.model_copy(update={"accumulation": 2})
        show = {"title": kind, "progress": False}
        train(make(), of_kind.batch, settings, folder / kind, **show, together=together)
    return {kind: gradient_of(folder / kind) for kind in KINDS | RERANKERS}


def gradient_of(folder: Path) -> Tensor:
    saved = load_file(folder / "checkpoint-1" / "optimizer.safetensors")
    return torch.cat(
        [saved[name].flatten() for name in sorted(saved) if name.startswith("exp_avg.")]
    )
