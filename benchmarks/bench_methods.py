"""Cost of a training step of each pre-training method, relative to plain masked LM, all in one run.

Every method starts from the embedded base model and reads batches of the same token budget from the
same passages; steps of the methods alternate, and medians are compared. One CPU thread is timed in
processor seconds, so that other programs matter little. Materials are made at smoke scale first
(and kept); they are not timed.

    python benchmarks/bench_methods.py [--collection primer --rounds 12 --tokens 4096 --save
    FILE.json]
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from material import default_collection
from tqdm import tqdm

from dr_lib import lab, objectives, places
from dr_lib.files import read_yaml, write_json
from dr_lib.lab import commit
from dr_lib.models import load_masked_lm
from dr_lib.tokens import TokenStore, load_tokenizer
from dr_lib.training import TrainSettings, machine
from dr_lib.training.checkpoint import trained_parameters
from dr_lib.training.loop import make_optimizer, real_tokens, to_device
from dr_lib.training.schedule import seed_step

AGAINST = "mlm"


class Stepper:
    """One method in training, step by step, as in the training loop."""

    def __init__(self, recipe: lab.Recipe, cache: lab.Cache):
        given = cache.inputs(lab.pipeline(recipe).pretrained)
        tokenizer = load_tokenizer(given["start"])
        model = load_masked_lm(given["start"], dropout=given["dropout"])
        helper = load_masked_lm(given["generator"]) if given["generator"] else None
        self.objective = objectives.assemble(
            given["method"], given["settings"], model, tokenizer, helper
        )
        store = TokenStore.open(given["passages"] / "store")
        budget = given["training"].tokens_per_batch
        order = given["collection"].documents()
        source = objectives.Source(
            store, given["layout"], budget, given["seed"], *order, given["materials"], tokenizer
        )
        self.batches = self.objective.batches(given["settings"], source)
        settings = TrainSettings(steps=1000, learning_rate=1e-4)
        self.device = machine.device()
        self.precision = machine.precision("auto", self.device)
        self.objective.to(self.device).train()
        self.optimizer = make_optimizer(trained_parameters(self.objective), settings)
        self.generator = torch.Generator(self.device)
        self.one_thread = self.device.type == "cpu" and torch.get_num_threads() == 1
        self.seconds: list[float] = []
        self.tokens: list[int] = []

    def step(self, index: int) -> None:
        """One update, timed without building its batch."""
        batch = self.batches(index)
        tokens = real_tokens(batch)
        clock = time.process_time if self.one_thread else time.perf_counter
        start = clock()
        seed_step(0, index, self.generator)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.objective(to_device(batch, self.device), self.generator)["loss"]
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds.append(clock() - start)
        self.tokens.append(tokens)

    def facts(self, warm: int) -> dict[str, float]:
        """Median seconds per step and tokens per second, without the first steps."""
        seconds, tokens = self.seconds[warm:], self.tokens[warm:]
        return {
            "seconds_per_step": median(seconds),
            "tokens_per_second": sum(tokens) / sum(seconds),
        }


def measure(
    collection: str, tokens: int, rounds: int, warm: int = 2
) -> dict[str, dict[str, float]]:
    """Facts of every method by name."""
    smoke: dict[str, Any] = read_yaml(
        places.project_root() / "notebooks" / "scales" / "smoke.yaml"
    )["recipe"]
    smoke["collection"] |= {"passages": 2_000, "train_queries": 500}
    start = lab.Recipe(**smoke).with_(
        collection=str(collection),
        passage_length=128,
        query_length=32,
        pretraining__tokens_per_batch=tokens,
    )
    cache = lab.Cache(announce=tqdm.write)
    names = [name for name in objectives.names() if name != "none"]
    steppers = {name: Stepper(start.with_(objective=name), cache) for name in names}
    for index in tqdm(range(rounds + warm), unit="round"):
        for stepper in steppers.values():
            stepper.step(index)
    found = {name: stepper.facts(warm) for name, stepper in steppers.items()}
    unit = found[AGAINST]["seconds_per_step"]
    return {
        name: facts | {"times_mlm": facts["seconds_per_step"] / unit}
        for name, facts in found.items()
    }


def main() -> None:
    """Measure, print, and save the result on request."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--collection", default=default_collection())
    options.add_argument(
        "--tokens", type=int, default=4_096, help="padded tokens of a batch (default: 4096)"
    )
    options.add_argument(
        "--rounds", type=int, default=12, help="timed steps of each method (default: 12)"
    )
    options.add_argument(
        "--save", type=Path, help="also write the result, with machine and commit, to this file"
    )
    chosen = options.parse_args()
    torch.set_num_threads(machine.threads())
    found = measure(chosen.collection, chosen.tokens, chosen.rounds)
    print(f"{'method':<14}{'ms a step':>12}{'tokens/s':>12}{'x ' + AGAINST:>10}")
    for name, facts in sorted(found.items(), key=lambda item: item[1]["times_mlm"]):
        ms, speed = 1000 * facts["seconds_per_step"], facts["tokens_per_second"]
        print(f"{name:<14}{ms:>12.0f}{speed:>12,.0f}{facts['times_mlm']:>10.2f}")
    if chosen.save:
        facts = {name: fact for name, fact in machine.machine_facts().items() if name != "versions"}
        size = {"collection": chosen.collection, "tokens": chosen.tokens, "rounds": chosen.rounds}
        write_json(
            chosen.save, {"methods": found, "size": size, "machine": facts, "commit": commit()}
        )


if __name__ == "__main__":
    main()
