"""`try` killed at random, and several at once: the user's files stay, and the page is complete or
absent. `make test-faults`, which keeps the counts.
"""

import os
import random
import re
import shutil
import time
from pathlib import Path

import pytest
import yaml

from dr_book.commands import main
from dr_lib import places
from dr_lib.files import file_digest
from dr_lib.training import machine
from tests.child import Child, silence

pytestmark = pytest.mark.faults
KILLS = int(os.environ.get("DR_KILLS", "200"))


def tried(place: Path, cache: Path, name: str = "tiny") -> int:
    """`dr-lib try NAME` in a folder, at the scale in it."""
    os.environ["DR_CACHE"] = str(cache)
    os.chdir(place)
    places.scale_file = lambda name: place / f"{name}.yaml"
    machine.has_bf16 = lambda where: False
    silence()
    return main(["try", name, "--scale", "mini", "--system", "none", "--ask", "what carries it"])


def trial(place: Path, cache: Path, name: str = "tiny") -> Child:
    """A `try` in a separate process."""
    return Child(tried, place, cache, name)


@pytest.fixture
def place(own_recipe, tmp_path) -> Path:
    """A folder with the small collection, a scale of its recipe and a file of the user's."""
    values = {"recipe": own_recipe.model_dump(mode="json")}
    (tmp_path / "mini.yaml").write_text(yaml.safe_dump(values))
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def state(folder: Path) -> dict[str, str]:
    """Digest of every file of a folder."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in paths}


def result(folder: Path) -> dict[str, str]:
    """The output of a finished `try`, with its page without times."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    files = {name: digest for name, digest in state(folder).items() if name.endswith("tensors")}
    return files | {
        "page": re.sub(r"[\d.,]+ (s|min|h|days|seconds|minutes)\b", "", page),
        "to judge": (folder / "to-judge.csv").read_text(encoding="utf-8"),
    }


def test_a_try_that_is_killed_at_random_ends_as_if_it_had_not_been(place, counted):
    rng, target, mine = random.Random(0), place / "tiny-tried", state(place / "tiny")
    started = time.monotonic()
    assert trial(place, place / "whole").result() == 0
    longest, whole = time.monotonic() - started, result(target)
    kills = 0
    while kills < max(3, KILLS // 10):
        shutil.rmtree(target / "retriever")
        (target / "index.html").unlink()
        (target / "to-judge.csv").unlink()
        cache, patience = place / f"cache{kills}", 0.0
        while (child := trial(place, cache)).killed_after(rng.uniform(0, longest / 2) + patience):
            kills, patience = kills + 1, patience + longest / 10
            assert (place / "notes.txt").read_text() == "mine"
            assert state(place / "tiny") == mine
            if (page := target / "index.html").is_file():
                assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")
        assert child.result() == 0
        assert result(target) == whole
        # half a page or table that a kill left is hidden
        names = {path.name for path in target.iterdir() if path.name[0] != "."}
        assert names == {"index.html", "retriever", "to-judge.csv"}
    counted("kills of a try at random moments", kills)


@pytest.mark.parametrize("kills", [0, 2])
def test_tries_of_neighbouring_folders_on_one_cache_agree_with_each_alone(place, kills, counted):
    """They reuse vectors from each other's stages, which are removed at the same time."""
    names = ["tiny", "more", "less"]
    for name, lines in (("more", None), ("less", -4)):
        shutil.copytree(place / "tiny", place / name)
        corpus = place / name / "corpus.jsonl"
        kept = corpus.read_text().splitlines()[:lines]
        if name == "more":
            kept.append('{"_id": "p99", "title": "more", "text": "a passage that is beside them"}')
        corpus.write_text("\n".join(kept) + "\n")
    alone = {}
    for name in names:
        assert trial(place, place / f"cache-{name}", name).result() == 0
        alone[name] = result(place / f"{name}-tried")
        shutil.rmtree(place / f"{name}-tried" / "retriever")
    rng, cache = random.Random(kills), place / "shared"
    for _ in range(max(1, KILLS // 100)):
        trials = {name: trial(place, cache, name) for name in names}
        for _ in range(kills):
            name = rng.choice(names)
            if trials[name].killed_after(rng.uniform(0.2, 2)):
                trials[name] = trial(place, cache, name)
        assert [child.result() for child in trials.values()] == [0, 0, 0]
        for name in names:
            assert result(place / f"{name}-tried") == alone[name], name
        shutil.rmtree(cache)
        counted("tries of neighbouring folders on one cache", len(names))
