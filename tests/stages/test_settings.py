"""Settings are frozen, refuse unknown keys, and name the place of a mistake."""

import pytest
from pydantic import Field, ValidationError

from dr_lib.errors import InputError
from dr_lib.settings import Settings, keys_at


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
