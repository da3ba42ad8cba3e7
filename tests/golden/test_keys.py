"""Every kind of recipe in the notebooks has the recorded stages, of the recorded arguments."""

import json

import pytest

from tests.golden import keys


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, dict]:
    with pytest.MonkeyPatch.context() as places:
        places.setenv("DR_CACHE", str(tmp_path_factory.mktemp("cache")))
        return json.loads(keys.dumped(keys.graphs(tmp_path_factory.mktemp("keys"))))


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict]:
    return json.loads(keys.RECORDED.read_text(encoding="utf-8"))


def test_every_stage_is_made_from_what_is_recorded(found, recorded):
    for name, arguments in recorded["stages"].items():
        assert found["stages"].get(name) == arguments, name
    assert found["stages"].keys() == recorded["stages"].keys()


def test_every_recipe_ends_with_the_recorded_stages(found, recorded):
    for label, stages in recorded["recipes"].items():
        assert found["recipes"].get(label) == stages, label
    assert found["recipes"].keys() == recorded["recipes"].keys()
