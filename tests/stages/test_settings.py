"""Settings are frozen, refuse unknown keys, and name the place of a mistake."""

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
        ("vitamin", [str], "'vitamin' is no list of texts"),
        (["is vitamin D good", " "], [str], "is no list of texts"),
        (1, [int], "1 is no list of whole numbers"),
        ([0, "1"], [int], "is no list of whole numbers"),
        ([-1], [int], "is no list of whole numbers"),
        ([True], [int], "is no list of whole numbers"),
        ([1, "2"], [float], "is no list of numbers"),
        ([15, 30], [list], "is no list of lists"),
        ("x", dict, "'x' is no mapping"),
        (None, [str], "None is no list"),
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
