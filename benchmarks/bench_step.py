"""A contrastive training step against that of sentence-transformers' trainer, in one run.

Same weights, same batches in the same order, same loss (`MultipleNegativesRankingLoss` is only the
block of queries and passages), AdamW, gradient clipping and a linear learning rate on both sides;
the losses of the first steps are checked to agree. Each side runs its whole training loop: ours
builds batches from the token store, theirs tokenises in its collator, as in normal use. Theirs runs
in float32 and under bf16 autocast, each with both kinds of attention; the fastest counts. A step is
timed from one request for a batch to the next.

    python benchmarks/bench_step.py [--queries 16 --passages-per-query 4 --steps 6 --rounds 2
    --layers 4 --hidden 256]
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import datasets
import numpy as np
import peers
from accelerate.state import AcceleratorState
from material import PASSAGE_LENGTH, QUERY_LENGTH, Material, material
from timing import Timing, clock, encoder_work, keep, multiply_adds, quickest_of, show, start

from dr_lib.models import DenseEncoder
from dr_lib.tokens import Layout
from dr_lib.training import BiEncoder, Examples, Finetuning, RetrievalBatches, TrainSettings, train

LIMIT = 1 / 1.2
WARM = 2
RATE = 1e-4
THEIRS = "MultipleNegativesRankingLoss, "
Losses = list[float]


class Marks:
    """The times at which batches were requested."""

    def __init__(self, make: Callable):
        self.make, self.times, self.now = make, [], clock()

    def __call__(self, asked: object) -> object:
        self.times.append(self.now())
        return self.make(asked)

    def seconds(self) -> list[float]:
        """Seconds of each complete step, without the first ones."""
        return np.diff(self.times)[WARM:].tolist()


def batches_of(found: Material, queries: int, n: int) -> RetrievalBatches:
    """Batches of queries with their passage and `n - 1` others, drawn at random."""
    examples = Examples.of(
        range(len(found.queries)), found.positives[:, None], passages=len(found.passages)
    )
    layout = Layout(query_length=QUERY_LENGTH, passage_length=PASSAGE_LENGTH, title="none")
    options = {"batch_queries": queries, "passages_per_query": n, "layout": layout}
    return RetrievalBatches(found.query_store, found.passage_store, examples, **options)


def as_texts(found: Material, batches: RetrievalBatches, steps: int) -> datasets.Dataset:
    """The same batches as texts, one after the other."""
    drawn = [batches.drawn(step) for step in range(steps)]
    queries, n = np.concatenate([chosen for chosen, _ in drawn]), batches.passages_per_query
    rows = np.concatenate([rows for _, rows in drawn]).reshape(-1, n)
    asked, texts = np.array(found.queries, object), np.array(found.passages, object)
    names = ["positive", *(f"negative_{i}" for i in range(1, n))]
    columns = {name: texts[rows[:, i]].tolist() for i, name in enumerate(names)}
    return datasets.Dataset.from_dict({"anchor": asked[queries].tolist(), **columns})


def ours(
    found: Material, batches: RetrievalBatches, steps: int, precision: str
) -> tuple[list[float], Losses]:
    """Seconds per step and losses of a short training by this project."""
    encoder = DenseEncoder.from_pretrained(found.model)
    settings = TrainSettings(
        steps=steps, learning_rate=RATE, precision=precision, log_every=1, checkpoint_every=10**6
    )
    marks = Marks(batches.batch)
    with tempfile.TemporaryDirectory(dir=found.folder) as name:
        log = train(
            BiEncoder(encoder, Finetuning(blocks="query_passage")),
            marks,
            settings,
            Path(name),
            title="",
            progress=False,
        )
    return marks.seconds(), [row["loss"] for row in log.rows]


def theirs(
    found: Material, texts: datasets.Dataset, queries: int, precision: str, attention: str
) -> tuple[list[float], Losses]:
    """The same for their trainer."""
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from torch.utils.data import SequentialSampler
    from transformers import PrinterCallback

    class InOrder(DefaultBatchSampler):
        def __init__(
            self, dataset: datasets.Dataset, batch_size: int, drop_last: bool, **_: object
        ):
            super().__init__(SequentialSampler(dataset), batch_size=batch_size, drop_last=drop_last)

    model = peers.sentence_model(found, attention=attention)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(found.folder / "theirs"),
        per_device_train_batch_size=queries,
        num_train_epochs=1,
        learning_rate=RATE,
        warmup_steps=0.1,
        weight_decay=0.01,
        max_grad_norm=1.0,
        bf16=precision == "bf16",
        use_cpu=True,
        batch_sampler=InOrder,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
        log_level="error",
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=texts,
        loss=MultipleNegativesRankingLoss(model, scale=50.0),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.data_collator = marks = Marks(trainer.data_collator)
    marks.valid_label_columns = marks.make.valid_label_columns
    trainer.train()
    # it fixes one precision for the lifetime of a process
    AcceleratorState._reset_state(reset_partial_state=True)
    return marks.seconds(), [row["loss"] for row in trainer.state.log_history if "loss" in row]


def main() -> None:
    """Run both loops in turn, print the times of their steps and keep the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = {
        "queries": 16,
        "passages-per-query": 4,
        "steps": 6,
        "rounds": 2,
        "passages": 3000,
        "threads": 1,
    }
    for name, default in (sizes | {"hidden": 128}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--layers", type=int, help="a fresh BERT with this many layers, not the embedded base model"
    )
    parser.add_argument("--collection", help="by default SQuAD or Primer")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    start(chosen.threads)
    queries, n, steps = chosen.queries, chosen.passages_per_query, chosen.steps + WARM + 1
    with material(
        chosen.passages, queries * steps, chosen.layers, chosen.hidden, chosen.collection
    ) as found:
        batches = batches_of(found, queries, n)
        ways = {
            f"this project, {kind}": partial(ours, found, batches, steps, kind)
            for kind in ("bf16", "fp32")
        }
        if peers.at_hand():
            texts = as_texts(found, batches, steps)
            for kind, attention in itertools.product(("bf16", "fp32"), ("eager", "sdpa")):
                ways[f"{THEIRS}{kind} {attention}"] = partial(
                    theirs, found, texts, queries, kind, attention
                )
        timings, losses = run(ways, chosen.rounds)
        for name, found_losses in losses.items():
            assert abs(found_losses[0] / losses["this project, fp32"][0] - 1) < 0.02, (
                f"{name} starts with another loss"
            )
        mine = quickest_of(timings, "this project")
        peer = quickest_of(timings, THEIRS) if len(ways) > 2 else mine
        size = f"{chosen.layers or 2} x {chosen.hidden}"
        show(f"contrastive step, {queries} queries x {n} passages, {size}", timings, peer)
        if peer != mine:
            batch = batches.batch(0)
            lengths = [
                *batch.queries.attention_mask.sum(1).tolist(),
                *batch.passages.attention_mask.sum(1).tolist(),
            ]
            # backwards is twice forwards
            work = 3 * encoder_work(chosen.layers or 2, chosen.hidden, lengths, one_position=True)
            keep(
                chosen.save,
                f"contrastive step, {size}",
                LIMIT,
                timings,
                mine,
                peer,
                ways[mine],
                work / multiply_adds(),
            )


def run(ways: dict[str, Callable], rounds: int) -> tuple[dict[str, Timing], dict[str, Losses]]:
    """Seconds per step and losses of each variant, over several rounds of a short training each.

    A warm-up round comes first: in bf16 a processor builds a kernel for each shape, which takes
    most of the time of a few steps and is negligible in a training.
    """
    seconds, losses = {name: [] for name in ways}, {}
    for number, (name, way) in itertools.product(range(rounds + 1), ways.items()):
        spent, losses[name] = way()
        seconds[name] += spent if number else []
    return {name: Timing.of(spent) for name, spent in seconds.items()}, losses


if __name__ == "__main__":
    main()
