"""A stage that counts how often it was built, and a recipe that needs no data."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dr_lib.lab.cache import Cache
from dr_lib.lab.stage import Stage


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "stages", announce=lambda line: None)


@pytest.fixture
def counting() -> Callable[..., Stage]:
    """`counting(kind, inputs, **params)`: a stage that joins its inputs' words; `counting.builds` lists the builds."""
    builds: list[str] = []

    def make(kind: str, inputs: dict[str, Stage] | None = None, version: int = 1, cost: float = 0.0, **params) -> Stage:
        def build(folder: Path, found: dict[str, Path]) -> None:
            builds.append(kind)
            words = [(path / "words.txt").read_text() for path in found.values()]
            (folder / "words.txt").write_text(" ".join([*words, f"{kind}:{sorted(params.items())}"]))

        return Stage(kind, version, params, build, inputs or {}, cost=cost)

    make.builds = builds
    return make
