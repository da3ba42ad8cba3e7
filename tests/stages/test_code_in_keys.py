"""After an edit of code, the stages that depend on it, and no others, get new numbers.

A copy of the package is edited in one place after the other, and the keys of two methods, of BM25
and of a whole pipeline are compared with those before. Nothing is trained. One process does it all
(run as a script, this file is that process), since importing the package takes far longer than
computing keys, which reads its source files.
"""

import ast
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("keys")  # one process makes them all
ROOT = Path(__file__).parents[2]
RETRIEVERS = [
    "simlm: retriever",
    "cdmae: retriever",
    *(f"whole: {name}" for name in ("retriever1", "retriever2")),
]
PRETRAINED = ["simlm: pretrained", "cdmae: pretrained"]
EVALUATIONS = [f"{recipe}: evaluation" for recipe in ("simlm", "cdmae", "bm25", "whole")]

# Edited function -> stages whose own code it is. Only these and the stages that depend on them
# change.
OWN_CODE = {
    "losses.distillation": ["whole: distilled"],
    "losses.contrastive_and_accuracy": [*RETRIEVERS, "whole: distilled"],
    "losses.listwise": ["whole: cross_encoder"],
    "masking.nested": ["simlm: pretrained"],
    "masking.importance": ["cdmae: pretrained"],
    "masking.whole_word": ["cdmae: pretrained"],
    "objectives.Simlm.forward": ["simlm: pretrained"],
    "objectives.Cdmae.decoder_mask": ["cdmae: pretrained"],
    "objectives.Mlm.forward": [],
    "models.Generator.sample": ["simlm: pretrained"],
    "models.Decoder.forward": PRETRAINED,
    "models.hidden_states": [*PRETRAINED, *RETRIEVERS, "whole: cross_encoder"],
    "models.CrossEncoder.forward": ["whole: cross_encoder"],
    "models.DenseEncoder.forward": RETRIEVERS,
    "training.train": [*PRETRAINED, *RETRIEVERS, "whole: cross_encoder"],
    "tokens.TokenStore.build": ["passages", "queries", "cdmae: importances"],
    "materials.average_mutual_information": ["cdmae: importances"],
    "retrieval.Bm25.search": ["bm25_index", "bm25_run", "bm25: evaluation"],
    "words.words_of": ["bm25_index", "bm25_run", "bm25: evaluation"],
    "retrieval.mine_negatives": ["bm25_negatives", "whole: mined"],
    "retrieval.rerank": [],
    "evaluation.evaluate": EVALUATIONS,
    # the direct inputs of a stage; a collection counts by its content
    "evaluation.read_exchanges": ["dialogue"],
}
# Code that affects no number
ELSEWHERE = [
    "collections.load",
    "lab.Study.run",
    "lab.execute",
    "lab.Plan.stages",
    "retrieval.write_run",
    "settings.explain",
    "training.machine_facts",
    "errors.InputError",
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory, tiny_bert, tiny_tokenizer) -> dict[str, Any]:
    """Edit -> stage -> key, also "before" all edits; and "made from": stage -> itself and its
    inputs.
    """
    from dr_lib.models import save_masked_lm

    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        ROOT / "dr_lib", folder / "dr_lib", ignore=shutil.ignore_patterns("__pycache__")
    )
    save_masked_lm(tiny_bert(), tiny_tokenizer, folder / "base")
    places = {
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DR_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, __file__, folder],
        capture_output=True,
        text=True,
        env={**os.environ, **places},
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def changed(keys: dict[str, Any], edit: str) -> set[str]:
    return {name for name, key in keys["before"].items() if keys[edit][name] != key}


@pytest.mark.parametrize("name", OWN_CODE)
def test_edited_code_changes_its_stages_and_what_follows_from_them(keys, name):
    own = set(OWN_CODE[name])
    assert own <= keys["before"].keys()
    follow = {one for one, made_from in keys["made from"].items() if own & set(made_from)}
    assert changed(keys, name) == follow


@pytest.mark.parametrize("name", ELSEWHERE)
def test_code_that_decides_no_number_changes_no_key(keys, name):
    assert not changed(keys, name)


def test_docstrings_comments_and_functions_that_nobody_calls_change_no_key(keys):
    assert not changed(keys, "words everywhere")
    assert not changed(keys, "nothing")


# The process that edits ---------------------------------------------------------------------------


def stages(base: Path) -> dict[str, Any]:
    """Stages of four recipes by name; what the recipes share has no prefix."""
    from dr_lib import evaluation, lab
    from dr_lib.stages import Data

    recipe = lab.Recipe(
        collection=str(ROOT / "tests" / "golden" / "collection"),
        base=str(base),
        passage_length=32,
        query_length=16,
        finetuning={"batch_queries": 8},
        auxiliary={"cross_encoder": {"batch_queries": 8, "length": 48}},
    )
    changes = (
        {"objective": "cdmae"},
        {"objective": "none", "final": "distilled"},
        {"evaluation__kind": "bm25"},
    )
    simlm, cdmae, whole, bm25 = (lab.pipeline(recipe.with_(**change)) for change in ({}, *changes))
    found = {
        "passages": simlm.inputs.passages(),
        "queries": simlm.inputs.queries("train"),
        "bm25_negatives": lab.trainings.bm25_negatives(simlm.inputs),
    }
    found |= {
        "bm25_index": bm25.inputs.bm25_index(),
        "bm25_run": bm25.end.arguments["run"],
        "bm25: evaluation": bm25.end,
    }
    task = evaluation.DialogueSettings(folder="any")
    found |= {
        "dialogue": evaluation.dialogue(
            simlm.retriever, Data.file(base / "config.json"), settings=task
        )
    }
    found |= {"cdmae: importances": cdmae.pretrained.arguments["materials"]["importances"]}
    first = {name: name for name in ("pretrained", "retriever", "run")} | {"evaluation": "end"}
    later = {name: name for name in ("retriever1", "mined", "retriever2", "teacher_scores", "run")}
    later |= {"cross_encoder": "reranker", "distilled": "retriever", "evaluation": "end"}
    for label, plan, names in (
        ("simlm", simlm, first),
        ("cdmae", cdmae, first),
        ("whole", whole, later),
    ):
        found |= {f"{label}: {name}": getattr(plan, role) for name, role in names.items()}
    return found


def parsed_once() -> None:
    """Files are read again for all keys, and parsed again if their text has changed."""
    from dr_lib import stages as module

    parse, parsed = module.names_in.__wrapped__, {}

    @functools.cache
    def names_in(name: str) -> Any:
        file = module._source(name)
        told = name, file.read_bytes() if file else b""
        if told not in parsed:
            parsed[told] = parse(name)
        return parsed[told]

    module.names_in = names_in


def keys_now(base: Path) -> dict[str, str]:
    """The keys that a fresh process would compute from the current files."""
    from dr_lib import stages as module

    module.names_in.cache_clear()
    module._source.cache_clear()
    module.code_digest.cache_clear()
    return {name: one.key for name, one in stages(base).items()}


def made_from(base: Path) -> dict[str, list[str]]:
    """Stage -> its direct and indirect inputs."""
    found = stages(base)
    names = {one.key: name for name, one in found.items()}
    return {
        name: [names[part.key] for part in one.walk() if part.key in names]
        for name, one in found.items()
    }


def place_of(package: Path, name: str) -> tuple[Path, Any]:
    """File and syntax tree of a function, class or method, named by folder and name, in any file of
    the folder.
    """
    folder, *path = name.split(".")
    place = package / folder
    for file in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
        node = ast.parse(file.read_text(encoding="utf-8"))
        for part in path:
            node = next(
                (one for one in getattr(node, "body", []) if getattr(one, "name", None) == part),
                None,
            )
        if node is not None:
            return file, node
    raise LookupError(name)


@contextmanager
def edited(file: Path, lines: dict[int, str]) -> Iterator[None]:
    """Replace some lines of a file, but keep its time, since code newer than the process is
    refused.
    """
    before, facts = file.read_text(encoding="utf-8"), file.stat()

    def write(text: str) -> None:
        file.write_text(text, encoding="utf-8")
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    old = before.split("\n")
    write("\n".join(lines.get(number, line) for number, line in enumerate(old, 1)))
    try:
        yield
    finally:
        write(before)


def statement(package: Path, name: str) -> tuple[Path, dict[int, str]]:
    """One more statement at the beginning of a body."""
    file, node = place_of(package, name)
    first = node.body[1 if ast.get_docstring(node) else 0]
    line = file.read_text(encoding="utf-8").split("\n")[first.lineno - 1]
    return file, {first.lineno: f"{' ' * first.col_offset}...\n{line}"}


def words(package: Path, name: str) -> tuple[Path, dict[int, str]]:
    """Another docstring, a comment, and an unused function."""
    file, node = place_of(package, name)
    lines = file.read_text(encoding="utf-8").split("\n")
    opening = lines[node.body[0].lineno - 1].replace('"""', '"""In other words. ', 1)
    return file, {
        node.body[0].lineno: opening,
        len(lines): "# why\n\ndef nobody(x):\n    return x\n",
    }


def main(folder: Path) -> dict[str, Any]:
    """Keys before and after each edit."""
    package, base = folder / "dr_lib", folder / "base"
    parsed_once()
    found = {"before": keys_now(base), "made from": made_from(base)}
    for name in [*OWN_CODE, *ELSEWHERE]:
        with edited(*statement(package, name)):
            found[name] = keys_now(base)
    with ExitStack() as all_at_once:
        for name in [*OWN_CODE, *ELSEWHERE]:
            all_at_once.enter_context(edited(*words(package, name)))
        found["words everywhere"] = keys_now(base)
    return found | {"nothing": keys_now(base)}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
