"""Which runs the page on trust takes for one row, as its own cell tells them apart."""

import json
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from check_pages import ROOT

from dr_lib.lab import Recipe

(CELL,) = (
    cell.source
    for cell in nbformat.read(ROOT / "notebooks/methods/trust.ipynb", as_version=4).cells
    if "def row_of" in cell.source
)


@pytest.fixture(scope="module")
def row_of() -> Any:
    space: dict[str, Any] = {"json": json}
    exec(CELL, space)
    return lambda **changes: space["row_of"](
        SimpleNamespace(recipe=Recipe().with_(**changes).portable())
    )


def test_another_seed_of_fresh_weights_is_the_same_row(row_of):
    assert row_of() == row_of(objective__init_seed=0) == row_of(seed=1) == row_of(objective="simlm")


def test_runs_that_learned_from_something_else_are_other_rows(row_of):
    """They were one, and the record that was read last stood for all."""
    assert row_of() != row_of(pretraining__collection="squad") != row_of(pretraining__first="squad")
    assert row_of() != row_of(finetuning__pseudo_labels=True)
    assert row_of(objective="pair") != row_of(objective="pair", auxiliary__pseudo_labels__s_pos=0.8)
    assert row_of(objective="paq") != row_of(objective="paq", auxiliary__paq_pairs__limit=3000)
    assert row_of(final="retriever2") != row_of(final="retriever2", mining__rounds=2)


def test_what_a_run_does_not_read_makes_no_other_row(row_of):
    assert (
        row_of()
        == row_of(auxiliary__pseudo_labels__s_pos=0.8)
        == row_of(mining__rounds=2)
        == row_of(evaluation__depth=5)
    )
