"""The stages of a recipe and their inputs, for every kind of recipe in the notebooks.

`python -m tests.golden.keys --write` records again (seconds; nothing is built). `keys.json` has
each distinct stage once, under its kind and a number, with everything in its key except digests of
code and data: stages, models and collections by name, settings by a digest of their values. Then
follows each recipe with its final stages, by role. Two pipelines with the same file give stages the
same keys.
"""

import argparse
import inspect
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dr_lib import lab
from dr_lib.files import json_digest
from tests.golden import golden

RECORDED = golden.HERE / "keys.json"
GOLDEN = str(golden.HERE / "collection")
MASKED: dict[str, Any] = {"objective": "mlm"}


def changes(work: Path) -> dict[str, dict[str, Any]]:
    """Label -> changes of the recipe, besides the runs of the golden scores."""
    posts, dialogues, log = (work / name for name in ("posts.jsonl", "talks.jsonl", "log.jsonl"))
    for file in (posts, dialogues, log):
        file.write_text(f'{{"text": "{file.stem}"}}\n', encoding="utf-8")
    answered = golden.make_dialogues(work / "talks")
    talk = {"kind": "dialogue", "dialogue": {"folder": str(answered), "context_length": 24}}
    general = {"name": GOLDEN, "passages": 200}
    reddit = {"objective": "reddit", "auxiliary__reddit_pairs__file": str(posts)}
    paired = {"objective": "pair", "finetuning__pseudo_labels": True}
    distilled, reranker = MASKED | {"final": "distilled"}, MASKED | {"final": "reranker"}
    looks = {"every": 2, "queries": 8, "per_query": 5}
    return {
        "BM25, cut": {"objective": "none", "evaluation__kind": "bm25", "evaluation__cut": True},
        "BM25 elsewhere": MASKED | {"evaluation__kind": "bm25", "evaluation__on": general},
        "not trained at all": {"objective": "none", "final": "pretrained"},
        "vectors of a contrastive method": {"objective": "cocondenser", "final": "pretrained"},
        "ict, cosine": {"objective": "ict", "objective__normalise": True, "final": "pretrained"},
        "searched elsewhere": MASKED | {"evaluation__on": general},
        "similarity elsewhere": MASKED
        | {"evaluation__on": general, "evaluation__kind": "similarity"},
        "titles left out": MASKED | {"title": "none", "final": "retriever2"},
        "float16 vectors": MASKED | {"evaluation__vector_type": "float16"},
        "no hard negatives": MASKED | {"finetuning__negatives": 0},
        "held out": MASKED | {"negatives__held_out": "drop"},
        "mined, held out": MASKED | {"final": "retriever2", "mining__held_out": "drop"},
        "own fine-tuning of retriever 2": MASKED
        | {"final": "retriever2", "finetuning2": {"steps": 6, "batch_queries": 8}},
        "validation of retriever 2": MASKED
        | {"final": "retriever2", "finetuning2": {"batch_queries": 8, "validation": looks}},
        "pre-trained elsewhere": MASKED | {"pretraining__collection": general},
        "pre-trained elsewhere, with pairs": {
            "objective": "paq",
            "pretraining__collection": general,
            "auxiliary__paq_pairs__filter_by": "dense",
        },
        "general text first": MASKED | {"pretraining__first": general},
        "general text first, by mlm": {
            "objective": "simlm",
            "pretraining__first": general,
            "pretraining__first_by": "mlm",
        },
        "few shot, with pairs": {"objective": "pair", "few_shot": 0.5},
        "few shot, distilled": distilled | {"few_shot": 0.5},
        "another generator": {"objective": "simlm", "generator": "embedded"},
        "few teacher negatives": distilled | {"distillation__teacher_negatives": None},
        "distilled, two rounds, with BM25": distilled
        | {"mining__rounds": 2, "mining__with_bm25": True, "distillation__teacher_negatives": None},
        "late interaction re-ranks": reranker
        | {"reranking__by": "late_interaction", "finetuning__normalise": True},
        "late interaction teaches": distilled
        | {"reranking__by": "late_interaction", "finetuning__normalise": True},
        "BM25 teaches": distilled | {"reranking__by": "bm25"},
        "re-ranked by a weighted sum": reranker | {"reranking__weighted": True},
        "re-ranked and fused by rank": reranker | {"evaluation__fusion": "rank"},
        "re-ranked and fused by weight": reranker | {"evaluation__fusion": "weight"},
        "fused by rank": MASKED | {"evaluation__fusion": "rank"},
        "fused by weight, elsewhere": MASKED
        | {"evaluation__fusion": "weight", "evaluation__on": general},
        "cross-encoder from the retriever": reranker
        | {"auxiliary__cross_encoder__start": "retriever"},
        "cross-encoder from the base": reranker | {"auxiliary__cross_encoder__start": "none"},
        "cross-encoder from a method": reranker | {"auxiliary__cross_encoder__start": "simlm"},
        "cross-encoder of its own model": reranker
        | {"auxiliary__cross_encoder__model": "embedded"},
        "cross-encoder of its own seed": reranker | {"auxiliary__cross_encoder__seed": 3},
        "pseudo-labels, dense candidates": paired | {"auxiliary__pseudo_labels__first": "dense"},
        "pseudo-labels of questions": {
            "objective": "pair",
            "auxiliary__pseudo_labels__pool": "questions",
            "auxiliary__pseudo_labels__first": "dense",
        },
        "pseudo-labels of a log": {
            "objective": "pair",
            "auxiliary__pseudo_labels__pool": "file",
            "auxiliary__pseudo_labels__file": str(log),
            "auxiliary__cross_encoder__model": "embedded",
        },
        "given labels": paired | {"auxiliary__pseudo_labels__labels": "given"},
        "pairs without a filter": {
            "objective": "paq",
            "auxiliary__paq_pairs__filter": "none",
            "auxiliary__paq_pairs__negatives": "none",
        },
        "pairs of a file": {
            "objective": "paq",
            "auxiliary__paq_pairs__file": str(posts),
            "auxiliary__paq_pairs__limit": 10,
        },
        "questions of the book's generator": {
            "objective": "master",
            "auxiliary__questions__model": "embedded",
        },
        "posts": reddit,
        "posts, then dialogues": reddit
        | {
            "auxiliary__reddit_pairs__file": str(dialogues),
            "auxiliary__reddit_pairs__first": str(posts),
            "auxiliary__reddit_pairs__limit": 5,
            "evaluation": talk,
        },
        "next sentences, then dialogues": reddit
        | {
            "auxiliary__reddit_pairs__file": str(dialogues),
            "auxiliary__reddit_pairs__first": str(posts),
            "auxiliary__reddit_pairs__first_by": "nsp",
        },
        "dialogues re-ranked": reddit
        | {"auxiliary__reddit_pairs__first": str(posts), "final": "reranker", "evaluation": talk},
    }


def recipes(work: Path) -> Iterator[tuple[str, lab.Recipe]]:
    """Label and recipe: the runs of the golden scores, and those above."""
    recipe = golden.recipe_on(golden.make_base(work / "base"))
    yield from golden.runs(recipe, work)
    for label, changed in changes(work).items():
        yield label, recipe.with_(**changed)


def described(value: Any, names: dict[str, str]) -> Any:
    """An argument of a stage in the file's format; `names`: key of a stage -> its name."""
    if isinstance(value, lab.Stage):
        return names[value.key]
    if isinstance(value, lab.Part):
        return f"{names[value.stage.key]} / {value.path}"
    if isinstance(value, lab.Data):
        return f"data {Path(value.place).name}"
    if isinstance(value, BaseModel):
        values = value.model_dump(
            mode="json", exclude_none=True, exclude=set(getattr(value, "unkeyed", ()))
        )
        return f"{type(value).__name__} {json_digest(values)[:8]}"
    if isinstance(value, type) or inspect.isfunction(value):
        return f"code {value.__module__}.{value.__qualname__}"
    if isinstance(value, dict):
        return {name: described(part, names) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [described(part, names) for part in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return f"collection {value.name} of {len(value.passages)}"


def graphs(work: Path) -> dict[str, dict[str, Any]]:
    """The content of `keys.json`: `stages` and `recipes`."""
    names: dict[str, str] = {}
    stages: dict[str, dict[str, Any]] = {}
    ends: dict[str, dict[str, str]] = {}
    numbers: Counter[str] = Counter()
    for label, recipe in recipes(work):
        made = lab.pipeline(recipe)
        for stage in made.end.walk():
            if stage.key in names:
                continue
            numbers[stage.kind] += 1
            names[stage.key] = name = f"{stage.kind} {numbers[stage.kind]}"
            stages[name] = {
                argument: described(value, names) for argument, value in stage.arguments.items()
            }
        ends[label] = {role: names[stage.key] for role, stage in made.stages().items()}
    return {"stages": stages, "recipes": ends}


def dumped(found: dict[str, dict[str, Any]]) -> str:
    """JSON with one stage or recipe per line."""
    parts = []
    for title, entries in found.items():
        lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
        parts.append(f'"{title}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Record again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", required=True, help="record anew")
    parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        RECORDED.write_text(dumped(graphs(Path(work))), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
