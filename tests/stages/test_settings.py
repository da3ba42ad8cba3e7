"""Settings are frozen, refuse unknown keys, and name the place of a mistake."""

from types import SimpleNamespace

import IPython
import pytest
from pydantic import Field, ValidationError

from dr_lib.errors import InputError
from dr_lib.settings import Settings, check_parameters, keys_at


class Inner(Settings):
    steps: int = Field(default=1, gt=0)


class Outer(Settings):
    inner: Inner = Field(default_factory=Inner)
    other: Inner | None = None


def test_a_nested_mistake_is_named_with_its_whole_path():
    with pytest.raises(InputError, match=r"inner\.steps: Input should be greater than 0 \(got 0\)"):
        Outer(inner={"steps": 0})


def test_an_unknown_key_lists_the_valid_ones_also_below_an_optional_part():
    with pytest.raises(InputError, match=r"other\.step: unknown key\. Valid keys here: steps"):
        Outer(other={"step": 2})
    assert keys_at(Outer, ["inner", "steps"]) == []


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        Outer().inner = Inner()


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        ("vitamin", [str], "'vitamin' is not a list of texts"),
        (["is vitamin D good", " "], [str], "is not a list of texts"),
        (1, [int], "1 is not a list of whole numbers"),
        ([0, "1"], [int], "is not a list of whole numbers"),
        ([-1], [int], "is not a list of whole numbers"),
        ([True], [int], "is not a list of whole numbers"),
        ([1, "2"], [float], "is not a list of numbers"),
        ([15, 30], [list], "is not a list of lists"),
        ("x", dict, "'x' is not a mapping"),
        (None, [str], "None is not a list"),
    ],
)
def test_a_parameter_of_another_kind_is_refused_with_the_way_to_give_it(value, kind, told):
    with pytest.raises(InputError) as caught:
        check_parameters(good=([], [str]), ask=(value, kind))
    assert caught.value.where == "ask" and told in caught.value.problem
    assert caught.value.fix.startswith('Give it as -y "ask: ')


def test_parameters_of_their_kind_pass():
    check_parameters(
        seeds=([0, 2], [int]), rates=([[15, 30]], [list]), shares=([0.5, 1], [float]),
        ask=((), [str]), recipe=({"a": 1}, dict),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("collectoin = 'squad'", "collectoin: .* Did you mean collection"),
        ("scale = 'smoke'\nstep = 3", "step: .* It has: collection, scale, seeds"),
        ("scale = 'smoke'\nrecipe = {'scales': 3}", "recipe: the notebook has no such"),
        ("seeds = [3]", None),
    ],
)
def test_a_notebook_refuses_a_parameter_that_it_does_not_have(monkeypatch, given, said):
    stated = "scale = 'laptop'  # one\ncollection = 'primer'\nseeds = [0]"
    cells = ["", stated, f"# Parameters\n{given}\n", "lab.check_parameters()"]
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(user_ns={"In": cells}))
    if said:
        with pytest.raises(InputError, match=said):
            check_parameters()
    else:
        check_parameters()
    cells.append("check_parameters()  # called again, by hand")
    check_parameters()


def test_a_key_of_a_recipe_is_told_where_it_goes(monkeypatch):
    cells = ["", "recipe = {}", "# Parameters\npretraining__steps = 9\n", "lab.check_parameters()"]
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(user_ns={"In": cells}))
    with pytest.raises(InputError, match=r'by -y "recipe: \{pretraining: \{steps: \.\.\.\}\}"'):
        check_parameters()
