"""Scores of every method and every final stage of the pipeline on a small collection that never
changes.

`python -m tests.golden.golden --check` runs all of it (about a minute on one core) and prints every
number that differs from the recorded one in any digit: for use before and after a change, on one
machine. `--write` records again; if a number has changed, it requires `--epoch REASON` and raises
the epoch, which every record of a run contains: numbers of one epoch are comparable. The test
beside this file compares within a tolerance, since processors round differently. Everything is
drawn from seeds: the base model from numpy's generator, so that it is the same everywhere.

Only `measure` and the functions under "The lab" know how a recipe is run.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

from dr_book import corpus_study
from dr_lib import lab, objectives
from dr_lib.models import load_masked_lm
from dr_lib.tokens import TokenStore, load_tokenizer
from dr_lib.training.schedule import seed_step

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "golden.json"
DROPOUT_LABELS = ("simlm, dropout", "r_drop, hardest")
"""Runs with dropout. Its draws differ between kinds of processors, and with the order of rows;
measures on so small a collection then change by up to three quarters, mean losses hardly
(`DROPOUT_LOSSES`). Other draws do not make another epoch.
"""
DROPOUT_LOSSES = {"rel": 0.25}
"""Tolerance for means of a curve. Three other draws changed the contrastive loss by at most 0.10,
R-Drop's by 0.24, all others by 0.013.
"""

SPREADS = {"word_embeddings": 0.3, "embeddings": 0.03, "query": 0.15, "key": 0.15}
"""Standard deviations of the base model's weights; its vectors then find one passage in eight
before any training.
"""

LOUD = 0.1
"""Standard deviation to which the smaller weights of a method are raised for its first loss: every
rate, mask and weight of the method then affects it.
"""
FIRST_LOSS = "first loss, "

Numbers = dict[str, list[float]]


# Inputs of the runs.


def make_base(folder: Path, layers: int = 2, hidden: int = 64) -> Path:
    """A small BERT with weights drawn by numpy, large enough for its first state to depend on the
    words.
    """
    words = (HERE / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1]
    tokenizer = BertTokenizerFast(
        vocab={word: row for row, word in enumerate(words)}, do_lower_case=True
    )
    tokenizer.model_max_length = 128
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=128,
        pad_token_id=0,
    )
    model, rng = BertForMaskedLM(config), np.random.default_rng(0)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.dim() == 2:
                spread = next((value for part, value in SPREADS.items() if part in name), 0.2)
                weight.copy_(
                    torch.from_numpy(rng.normal(0, spread, weight.shape).astype(np.float32))
                )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_sentences(folder: Path) -> Path:
    """A folder in CoLA's format: a sentence is acceptable if it mentions a value."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for split, rows in (("train", 48), ("dev", 24)):
        answers = rng.integers(0, 2, rows)
        lines = [
            f"x\t{answer}\t\tthe {('file', 'value')[answer]} {rng.choice(['set', 'list'])}"
            for answer in answers
        ]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def make_dialogues(folder: Path) -> Path:
    """Thirty contexts, each with six candidates, in the plain format."""
    rng, words = (
        np.random.default_rng(1),
        ["value", "file", "list", "array", "string", "object", "class", "number"],
    )
    (folder / "pairs").mkdir(parents=True)
    lines = []
    for _ in range(30):
        texts = [" ".join(rng.choice(words, 3)) for _ in range(6)]
        context = [f"{texts[2].split()[0]} of the {texts[2].split()[1]}", "and?"]
        lines.append(json.dumps({"context": context, "response": texts[2], "candidates": texts}))
    (folder / "pairs" / "test.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


# The lab: everything that depends on how a recipe is written and run.


def recipe_on(base: Path) -> Any:
    """The recipe that all runs modify: a few steps of everything, in float32, without dropout."""
    common = {"precision": "fp32", "checkpoint_every": 100, "log_every": 1}
    tuning = common | {"steps": 8, "learning_rate": 5e-4, "batch_queries": 8, "negatives": 2}
    writer = common | {"steps": 3, "learning_rate": 5e-4, "tokens_per_batch": 512}
    return lab.Recipe(
        collection=str(HERE / "collection"),
        base=str(base),
        passage_length=48,
        query_length=16,
        dropout=0.0,
        pretraining=common | {"steps": 8, "learning_rate": 5e-4, "tokens_per_batch": 768},
        finetuning=tuning,
        finetuning2=tuning,
        distillation=tuning | {"teacher_negatives": 4},
        negatives={"depth": 20, "random_negatives": 2},
        mining={"depth": 20, "random_negatives": 2},
        reranking={"depth": 10},
        evaluation={"depth": 100, "measures": ["MRR@10", "R@50", "nDCG@10"]},
        auxiliary={
            "questions": writer,
            "continuations": writer,
            "cross_encoder": tuning | {"length": 64},
            "pseudo_labels": {"depth": 5, "s_pos": 0.4, "s_neg": 0.35},
            "paq_pairs": {"per_passage": 2, "top_k": 50, "depth": 5},
        },
    )


def runs(recipe: Any, work: Path) -> Iterator[tuple[str, Any]]:
    """Label and recipe of each run."""
    yield "BM25", recipe.with_(objective="none", evaluation__kind="bm25")
    for name in objectives.names():
        yield name, recipe.with_(objective=name)
    for label, changes in METHOD_VARIANTS.items():
        yield label, recipe.with_(**changes, final="pretrained")
    cola = {
        "task": "cola",
        "folder": str(make_sentences(work / "cola")),
        "epochs": 1,
        "batch_rows": 8,
        "dropout": 0.0,
    }
    talk = {"folder": str(make_dialogues(work / "talk")), "context_length": 24}
    masked = recipe.with_(objective="mlm")
    for label, changes in PIPELINE_VARIANTS.items():
        yield label, masked.with_(**changes)
    yield "similarity", masked.with_(evaluation__kind="similarity")
    yield "coverage", masked.with_(evaluation__kind="coverage")
    nlu = {"kind": "nlu", "nlu": cola | {"learning_rate": 1e-3, "length": 16}}
    yield "nlu", masked.with_(evaluation={**masked.evaluation.model_dump(mode="json"), **nlu})
    dialogue = {"kind": "dialogue", "dialogue": talk}
    yield (
        "dialogue",
        masked.with_(evaluation={**masked.evaluation.model_dump(mode="json"), **dialogue}),
    )


METHOD_VARIANTS: dict[str, dict[str, Any]] = {
    "simlm, dropout": {"dropout": 0.1},
    "simlm, seed 1": {"seed": 1},
    "simlm, released": {
        "objective__budget": "all",
        "objective__decoder_token_types": "released",
        "objective__forbid_special_samples": False,
        "objective__mask_policy": "80_10_10",
    },
    "simlm, joint": {"objective__generator": "joint", "objective__loss_mean": "paper"},
    "cdmae, letter": {
        "objective": "cdmae",
        "objective__unit": "piece",
        "objective__pmi": "minseg",
        "objective__edges": "zero",
        "objective__noise_scale": "relative",
    },
    "mlm, unknown words": {"objective": "mlm", "objective__mask_unknown": True},
    "mlm, pieces": {
        "objective": "mlm",
        "objective__unit": "piece",
        "objective__mask_policy": "mask",
    },
    "condenser, early": {
        "objective": "condenser",
        "objective__skip_from": 1,
        "objective__late_mlm": False,
    },
    "cocondenser, chunks": {
        "objective": "cocondenser",
        "objective__batch_pairs": 8,
        "objective__chunk": 4,
    },
    "retromae, released": {
        "objective": "retromae",
        "objective__draws": "released",
        "objective__bag_weight": 0.1,
    },
    "encdec_mlm, all": {
        "objective": "encdec_mlm",
        "objective__decoder_mask": "independent",
        "objective__targets": "all",
    },
    "bow, linear, count": {
        "objective": "bow",
        "objective__encoder_rate": 0.0,
        "objective__targets": "count",
        "objective__head": "linear",
    },
    "master, paper": {
        "objective": "master",
        "objective__complement": "paper",
        "objective__neighbour": "released",
        "objective__weighting": "tfidf",
        "objective__shared_decoder": True,
    },
    "ict, always in": {"objective": "ict", "objective__keep": 1.0},
    "paq, projection": {"objective": "paq", "objective__projection": True},
    "pair, paper": {
        "objective": "pair",
        "objective__candidates": "paper",
        "auxiliary__pseudo_labels__probability": "softmax",
        "auxiliary__pseudo_labels__s_pos": 0.205,
        "auxiliary__pseudo_labels__s_neg": 0.2,
    },
}
PIPELINE_VARIANTS: dict[str, dict[str, Any]] = {
    "pretrained": {"final": "pretrained"},
    "retriever2": {"final": "retriever2"},
    "reranker": {"final": "reranker"},
    "distilled": {"final": "distilled"},
    "two rounds with BM25": {"final": "retriever2", "mining__rounds": 2, "mining__with_bm25": True},
    "r_drop, hardest": {
        "final": "reranker",
        "dropout": 0.1,
        "auxiliary__cross_encoder__r_drop": True,
        "auxiliary__cross_encoder__gradient": "released",
    },
    "eq. 3, joined title, mean": {
        "finetuning__blocks": "paper",
        "title": "joined",
        "pooling": "mean",
    },
    "two encoders, projection": {
        "finetuning__shared": False,
        "finetuning__projection": True,
        "finetuning__blocks": "query_passage",
        "finetuning__normalise": False,
        "finetuning__temperature": 1.0,
    },
    "several epochs": {
        "pretraining__steps": 24,
        "finetuning__batch_queries": 32,
        "finetuning__steps": 12,
    },
    "validation": {"finetuning__validation": {"every": 2, "queries": 8, "per_query": 5}},
    "few shot": {"few_shot": 0.3},
    "pseudo-labels, alpha": {"finetuning__pseudo_labels": True, "finetuning__alpha": 0.1},
}


def measure(label: str, recipe: Any, cache: Any) -> Numbers:
    """Run one recipe; return its means, and the curve of every loss."""
    record = lab.execute(lab.Run("golden", label, "smoke", recipe), cache)
    numbers = {name: [mean] for name, mean in record.means.items()}
    for stage, facts in record.training.items():
        for name, column in facts["curve"].items():
            if name.endswith("loss"):
                numbers[f"{stage}: {name}"] = column
    return numbers


def measure_first_loss(recipe: Any, cache: Any) -> Numbers:
    """All losses of a method's first step, before any update, with weights large enough for a wrong
    rate to show.
    """
    given = cache.inputs(lab.pipeline(recipe).pretrained)
    tokenizer, model = load_tokenizer(given["start"]), load_masked_lm(given["start"], dropout=0.0)
    helper = load_masked_lm(given["generator"]) if given["generator"] else None
    method, settings, seed = given["method"], given["settings"], given["seed"]
    objective = objectives.assemble(method, settings, model, tokenizer, helper, seed=seed).train()
    source = objectives.Source(
        TokenStore.open(given["passages"] / "store"),
        given["layout"],
        given["training"].tokens_per_batch,
        seed,
        *given["collection"].documents(),
        given["materials"],
        tokenizer,
    )
    batch, draws = objective.batches(settings, source)(0), torch.Generator()
    with torch.no_grad():
        for weight in objective.parameters():
            if weight.dim() == 2 and 0 < weight.std() < LOUD:
                weight *= LOUD / weight.std()
        seed_step(seed, 0, draws)
        parts = objective(batch, draws)
    return {name: [float(value)] for name, value in parts.items() if name.endswith("loss")}


def measure_zero_shot(recipe: Any, work: Path, cache: Any) -> Iterator[tuple[str, Numbers]]:
    """One retriever over two collections, and BM25 over them."""
    name = str(HERE / "collection")
    collections = {"whole": name, "fewer": {"name": name, "passages": 200}}
    options = {"scale": "smoke", "cache": cache, "records": work / "records"}
    for shown, labelled in (
        lab.zero_shot(recipe.with_(objective="mlm"), collections, **options).by_collection().items()
    ):
        for label, (record,) in labelled.items():
            yield (
                f"zero-shot, {shown}, {label}",
                {name: [mean] for name, mean in record.means.items()},
            )


def measure_questions(recipe: Any, cache: Any) -> Iterator[tuple[str, Numbers]]:
    """Generated questions: their number after each step, and a run on the new collection."""
    options = {"learn_from": str(HERE / "collection"), "use_judgements": False, "per_passage": 2}
    written = corpus_study.generate_queries(recipe, **options, cache=cache)
    counts = {
        name: count for name, count in written.counts.items() if isinstance(count, int | float)
    }
    yield "generated questions", {name: [count] for name, count in counts.items()}
    yield (
        "run on generated questions",
        measure("asked", written.recipe.with_(objective="none"), cache),
    )


def run_all(work: Path) -> Iterator[tuple[str, Numbers]]:
    """Label -> every run, in a fresh cache in `work`."""
    os.environ["DR_CACHE"] = str(work / "cache")
    with mock.patch("dr_lib.training.machine.has_bf16", lambda where: False):
        recipe, cache = (
            recipe_on(make_base(work / "base")),
            lab.Cache(work / "stages", announce=lambda line: None),
        )
        for label, changed in runs(recipe, work):
            yield label, measure(label, changed, cache)
        for name in objectives.names():
            if name != "none":
                yield FIRST_LOSS + name, measure_first_loss(recipe.with_(objective=name), cache)
        for label, changes in METHOD_VARIANTS.items():
            if label not in DROPOUT_LABELS:
                yield FIRST_LOSS + label, measure_first_loss(recipe.with_(**changes), cache)
        yield from measure_zero_shot(recipe, work, cache)
        yield from measure_questions(recipe, cache)


# Comparing.


def moved(expected: dict[str, Numbers], found: dict[str, Numbers]) -> bool:
    """Whether a recorded number has changed; new runs and draws of dropout do not count."""
    return any(
        found[label].get(name) != values
        for label, numbers in expected.items()
        for name, values in numbers.items()
        if label in found and label not in DROPOUT_LABELS
    )


def differences(expected: dict[str, Numbers], found: dict[str, Numbers]) -> list[str]:
    """Every number that differs from the recorded one, one per line."""
    lines = []
    for label in [*expected, *(label for label in found if label not in expected)]:
        old, new = expected.get(label, {}), found.get(label, {})
        for name in [*old, *(name for name in new if name not in old)]:
            if old.get(name) != new.get(name):
                lines.append(f"{label}: {name}: {old.get(name)} -> {new.get(name)}")
    return lines


def main() -> int:
    """Check or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="print every number that differs")
    what.add_argument("--write", action="store_true", help="record anew")
    parser.add_argument("--times", action="store_true", help="print the seconds of each run")
    parser.add_argument(
        "--epoch", metavar="REASON", help="with --write: which numbers moved, and why"
    )
    options, found = parser.parse_args(), {}
    with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(sys.stderr):
        before = time.monotonic()
        for label, numbers in run_all(Path(work)):
            found[label], now = numbers, time.monotonic()
            if options.times:
                print(f"{now - before:6.1f} s  {label}", file=sys.stderr)
            before = now
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    lines = differences(recorded["runs"], found)
    if options.write:
        if moved(recorded["runs"], found):
            if not options.epoch:
                parser.error("\n".join([*lines, "numbers moved: say why with --epoch REASON"]))
            recorded["epoch"] += 1
            recorded["epochs"][str(recorded["epoch"])] = options.epoch
        content = json.dumps(recorded | {"runs": found}, indent=1, ensure_ascii=False)
        RECORDED.write_text(content + "\n", encoding="utf-8")
        return 0
    print("\n".join(lines) or f"{len(found)} runs: every number is the recorded one")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
