"""Two parts of `make gpu`: facts and ceilings of the device, and a training that has it alone.

    python benchmarks/gpu_parts.py facts --to FOLDER
    python benchmarks/gpu_parts.py training --to FOLDER [--smoke]

`facts` writes facts.json: card, driver, memory, versions, and two ceilings. `training` pre-trains
by SimLM with 6 layers of 384 from fresh weights, eager, compiled and with CUDA graphs, and writes
training.json (tokens per second, milliseconds per step, memory) and profile.txt (the twenty most
expensive operators of a step, from a separate short training, since profiling slows down other
steps).
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dr_lib import lab, models, places
from dr_lib.files import read_json, write_json, write_text
from dr_lib.lab import open_checkpoint
from dr_lib.stages import Cache
from dr_lib.tokens import load_tokenizer
from dr_lib.training import TrainLog, machine

SMI = ("name", "memory.total", "driver_version", "power.limit", "clocks.max.sm")


def seconds_of(way: Any, device: torch.device, repeats: int = 5) -> float:
    """Median seconds of a call, after two warm-up calls."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    spent = []
    for _ in range(repeats + 2):
        wait()
        start = time.perf_counter()
        way()
        wait()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent[2:])


def ceilings(device: torch.device) -> dict[str, float]:
    """Operations per second of a large bfloat16 product of random matrices (constant ones need less
    power, and run faster), and bytes per second read and written by a copy.
    """
    size, numbers = (8192, 2**30) if device.type == "cuda" else (1024, 2**25)
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(numbers // 4, device=device)
    target = torch.empty_like(source)
    product = seconds_of(lambda: torch.mm(left, right), device)
    copied = seconds_of(lambda: target.copy_(source), device)
    return {
        "bf16 operations a second": 2 * size**3 / product,
        "bytes a second": 2 * numbers / copied,
    }


def facts(folder: Path) -> None:
    """Write facts.json."""
    device = machine.device()
    card = {}
    if device.type == "cuda" and shutil.which("nvidia-smi"):
        asked = ["nvidia-smi", f"--query-gpu={','.join(SMI)}", "--format=csv,noheader"]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout
        card = dict(zip(SMI, told.splitlines()[0].split(", "), strict=False)) if told else {}
    content = {
        "device": machine.device_name(device),
        "card": card,
        "cuda": torch.version.cuda,
        "mps": bool(shutil.which("nvidia-cuda-mps-control")),
        "machine": machine.machine_facts(),
        "commit": lab.commit(),
        "date": time.strftime("%Y-%m-%d"),
        "ceilings": ceilings(device),
    }
    write_json(folder / "facts.json", content)
    for name, value in content["ceilings"].items():
        print(f"{name}: {value:.3g}")


WAYS = {"eager": False, "compiled": True, "graphs": "graphs"}
"""Way to train -> value of `compile` in a recipe."""

PROFILED = 5
"""The profiled step, the last but one of its training."""


def alone(recipe: lab.Recipe, way: str, folder: Path) -> dict[str, Any]:
    """Speed and memory of one pre-training, from its log: the rate is that of the second half, when
    kernels are built.
    """
    cache = Cache(folder / "stages", announce=lambda line: None)
    stage = lab.pipeline(recipe.with_(pretraining__compile=WAYS[way])).pretrained
    for given in stage.inputs:  # tokens are not part of a training
        cache.get(given)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    log = TrainLog.load(cache.get(stage) / "log.json")
    took = time.perf_counter() - start
    rates = [row["tokens_per_second"] for row in log.rows]
    rate = statistics.harmonic_mean(rates[len(rates) // 2 :])
    return {
        "way": way,
        "tokens a second": rate,
        "tokens a second, row by row": rates,
        "seconds a step": log.tokens / log.step / rate,
        "tokens a step": log.tokens / log.step,
        "seconds in all": took,
        "memory, GiB": log.peak_memory.get("gpu", log.peak_memory["host"]) / 2**30,
        "precision": log.precision,
        "loss": log.rows[-1]["loss"],
    }


def training(folder: Path, smoke: bool, ways: Sequence[str]) -> None:
    """Write training.json and profile.txt; ways already timed by an earlier call are skipped."""
    layers, hidden, scale = (2, 32, "smoke") if smoke else (6, 384, "gpu")
    steps = 8 if smoke else 60
    path, profile = folder / "training.json", folder / "profile.txt"
    rows = read_json(path)["rows"] if path.is_file() else []
    timed = {row["way"] for row in rows}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        os.environ["DR_CACHE"] = name
        tokenizer = load_tokenizer("embedded")
        fresh = models.new_bert(len(tokenizer), layers=layers, hidden=hidden)
        models.save_masked_lm(fresh, tokenizer, scratch / "base")
        collection = "squad" if places.find_data("squad") and not smoke else "primer"
        recipe = lab.recipe_at(scale, {"base": str(scratch / "base"), "objective": "simlm"})
        recipe = recipe.with_(
            collection__name=collection, pretraining__steps=steps, pretraining__log_every=steps // 4
        )
        for way in [way for way in ways if way not in timed]:
            rows.append(alone(recipe, way, scratch))
            size = open_checkpoint(recipe.base).shape
            write_json(path, {"size": str(size), "rows": rows})
            print({key: rows[-1][key] for key in ("way", "tokens a second", "memory, GiB")})
            if not profile.is_file():
                write_text(profile, profiled_step(recipe, scratch))


def profiled_step(recipe: lab.Recipe, folder: Path) -> str:
    """The profile of the last but one step of a short training."""
    os.environ["DR_PROFILE"] = f"{PROFILED}:{PROFILED + 1}"
    alone(recipe.with_(pretraining__steps=PROFILED + 1), "eager", folder)
    os.environ.pop("DR_PROFILE")
    (table,) = folder.glob("profiles/*/table.txt")
    return table.read_text(encoding="utf-8")


def main() -> None:
    """Run the named part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("facts", "training"))
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    chosen.to.mkdir(parents=True, exist_ok=True)
    if chosen.part == "facts":
        facts(chosen.to)
    else:
        # a processor's compiler takes minutes, and it has no graphs
        training(chosen.to, chosen.smoke, [*WAYS] if torch.cuda.is_available() else ["eager"])


if __name__ == "__main__":
    main()
