"""Fine-tune an encoder on a task of language understanding and measure it (MASTER, Table 7).

As BERT does it: the sentence, or both as a pair in one sequence, the state of [CLS], a small head, cross-entropy for
classes and squared error for a score; usually batches of 32, three epochs, and a peak rate of 2e-5 to 5e-5. Heads made
for next-sentence prediction are not used, since pre-training for retrieval leaves none: the head is RoBERTa's
(dense layer, tanh, dropout, output). Training is the one loop of the book. Page of the book: ideas/evaluation.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.evaluation.nlu_measures import measure
from dr_lib.evaluation.nlu_tasks import NluSplit, NluTask
from dr_lib.models.first_state import first_states
from dr_lib.retrieval.encode import plan
from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.store import TokenStore
from dr_lib.training import TrainSettings, train

TOKENS_AT_ONCE = 16_384


@dataclass(frozen=True)
class NluBatch:
    """Sentences and their answers, on one device.

    Attributes:
        tokens: `batch` sequences.
        targets: `[batch]`, int64 class or float32 score brought to [0, 1].
    """

    tokens: TokenBatch
    targets: Tensor

    def to(self, device: torch.device | str) -> "NluBatch":
        """The same batch on another device."""
        return NluBatch(self.tokens.to(device), self.targets.to(device, non_blocking=True))


class SentenceClassifier(nn.Module):
    """An encoder and the head of one task, in the form that `train` takes.

    Args:
        encoder: a masked LM or bare encoder; a copy of it is trained, without its own head.
        task: decides the number of outputs and the loss.
        dropout: before the output, in [0, 1].
        seed: of the head's first weights.
    """

    def __init__(self, encoder: PreTrainedModel, task: NluTask, *, dropout: float = 0.1, seed: int = 0):
        super().__init__()
        self.encoder, self.task = copy.deepcopy(encoder.base_model), task
        hidden = encoder.config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.dense, self.output = nn.Linear(hidden, hidden), nn.Linear(hidden, max(1, len(task.classes)))
            for layer in (self.dense, self.output):
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.dropout = nn.Dropout(dropout)

    def logits(self, batch: TokenBatch) -> Tensor:
        """Output `[batch, classes]` (or `[batch, 1]`) float32."""
        state = torch.tanh(self.dense(first_states(self.encoder, batch)))
        return self.output(self.dropout(state)).float()

    def forward(self, batch: NluBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Loss of a batch, and for classes the share of right ones.

        Args:
            batch: sentences and answers.
            generator: not used; the loop hands it to every module.
        """
        logits = self.logits(batch.tokens)
        if not self.task.classes:
            return {"loss": functional.mse_loss(logits[:, 0], batch.targets)}
        right = (logits.detach().argmax(dim=1) == batch.targets).float().mean()
        return {"loss": functional.cross_entropy(logits, batch.targets), "accuracy": right}


@dataclass(frozen=True, eq=False)
class NluResult:
    """What a fine-tuned encoder scored on a split.

    Attributes:
        task: the task's name.
        measures: name -> value between -1 and 1.
        predicted, actual: `[rows]`, numbers of classes, or scores in the task's own scale.
    """

    task: str
    measures: dict[str, float]
    predicted: np.ndarray
    actual: np.ndarray


def finetune_nlu(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    train_split: NluSplit,
    test_split: NluSplit,
    settings: TrainSettings,
    folder: Path,
    *,
    batch_rows: int = 32,
    max_length: int = 128,
    dropout: float = 0.1,
    progress: bool = True,
) -> NluResult:
    """Fine-tune a copy of `encoder` on one split of a task and measure it on another.

    Args:
        encoder: a masked LM or bare encoder, left as it is.
        tokenizer: its own.
        train_split, test_split: of one task, see `load_nlu`.
        settings: of the training; `steps_for` turns epochs into steps.
        folder: of token stores, checkpoints and log; a run that was cut off continues there.
        batch_rows: rows of a batch.
        max_length: longest sequence in tokens, special tokens included.
        dropout: of the head.
        progress: show bars.

    Returns:
        The task's measures on `test_split`, with every prediction.

    Raises:
        InputError: splits of different tasks, a batch larger than the training split, or a model that is too short.
    """
    if train_split.task != test_split.task or batch_rows > len(train_split):
        problem = f"{len(train_split)} rows of {train_split.task.name}, tested on {test_split.task.name}"
        raise InputError(problem, where="nlu", fix="Give splits of one task and a batch that the rows can fill.")
    task, stores = train_split.task, {}
    for name, split in (("train", train_split), ("test", test_split)):
        columns = tuple(split.texts.column_names)
        stores[name] = TokenStore.build(split.texts, tokenizer, folder / f"{name}-tokens", columns, progress=progress)
    classifier = SentenceClassifier(encoder, task, dropout=dropout, seed=settings.seed)
    batches = _batches(stores["train"], train_split, batch_rows, max_length, settings.seed)
    train(classifier, batches, settings, folder / "training", title=task.name, progress=progress)
    predicted = predict(classifier, stores["test"], max_length)
    return NluResult(task.name, measure(predicted, test_split.targets, task.measures), predicted, test_split.targets)


def steps_for(rows: int, batch_rows: int, epochs: float) -> int:
    """Updates that `epochs` passes over the rows take, full batches only, at least 1.

    Example:
        >>> steps_for(rows=100, batch_rows=32, epochs=3)
        9
    """
    return max(1, round(epochs * (rows // batch_rows)))


@torch.inference_mode()
def predict(classifier: SentenceClassifier, store: TokenStore, max_length: int) -> np.ndarray:
    """The class number, or the score in the task's own scale, of every row of a store: `[rows]`."""
    outputs = torch.empty(len(store), classifier.output.out_features)
    device = classifier.output.weight.device
    classifier.eval()
    for rows in plan(store.lengths(max_length, "pair"), TOKENS_AT_ONCE, max_length):
        batch = store.batch(rows, max_length=max_length, title="pair").to(device)
        outputs[torch.from_numpy(rows)] = classifier.logits(batch).cpu()
    if classifier.task.classes:
        return outputs.argmax(dim=1).numpy()
    low, high = classifier.task.scale
    return (low + (high - low) * outputs[:, 0]).numpy()


def _batches(
    store: TokenStore, split: NluSplit, batch_rows: int, max_length: int, seed: int
) -> Callable[[int], NluBatch]:
    """Micro-step -> batch; every epoch has an order of its own, and rows that do not fill a batch wait for the next."""
    low, high = split.task.scale
    targets = split.targets if split.task.classes else (split.targets - np.float32(low)) / np.float32(high - low)
    per_epoch = len(split) // batch_rows
    order = lru_cache(maxsize=2)(lambda epoch: np.random.default_rng([seed, epoch]).permutation(len(split)))

    def batch(step: int) -> NluBatch:
        epoch, within = divmod(step, per_epoch)
        rows = order(epoch)[within * batch_rows :][:batch_rows]
        return NluBatch(store.batch(rows, max_length=max_length, title="pair"), torch.from_numpy(targets[rows]))

    return batch
