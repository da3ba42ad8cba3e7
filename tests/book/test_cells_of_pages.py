"""Computations in the cells of three pages: which runs the page on trust treats as one row, the
zero-shot page's average over collections, and the runs that the page of cases pairs. Also: every
figure outside the lessons names its source, and the dots on the lessons' matrices are visible.
"""

import ast
import inspect
import json
import re
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from check_pages import ROOT
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from scipy.stats import binomtest, t

from dr_book import figures, measured, papers, statistics
from dr_lib.evaluation import Clusters, Scores
from dr_lib.lab import Recipe
from tests.dr_book.conftest import Facts

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
    """They were one row, represented by the last record read."""
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


@pytest.fixture(scope="module")
def orders() -> dict[str, Any]:
    cells = nbformat.read(ROOT / "notebooks/methods/trust.ipynb", as_version=4).cells
    (source,) = (cell.source for cell in cells if "def surviving" in cell.source)
    space: dict[str, Any] = {"np": np, "statistics": statistics, "changes": {("steps", 1, 2): []}}
    exec(source, space)
    return space


FIFTEEN = [*combinations(range(6), 2)]


def own(number: int) -> tuple[int, int]:
    """Two rows, or settings, that occur in no other pair."""
    return 2 * number, 2 * number + 1


UP, DOWN = (statistics.Interval(mean, mean - 0.5, mean + 0.5) for mean in (1.0, -1.0))


def test_a_share_of_orders_has_an_exact_interval_over_settings_where_all_agree(orders):
    """It had none: 100 % of many pairs, all on a few settings, looked certain."""
    pairs = [(both, own(20 * n + k), UP, UP) for n, both in enumerate(FIFTEEN) for k in range(20)]
    share, exact = orders["surviving"](pairs), binomtest(5, 5).proportion_ci()
    assert (share.mean, share.high) == (100, 100) and share.low == pytest.approx(100 * exact.low)
    turned = orders["surviving"]([*pairs, ((0, 5), own(300), UP, DOWN)])
    assert turned.low < turned.mean == pytest.approx(100 * 300 / 301) and turned.high == 100


def test_a_setting_that_turns_all_orders_counts_as_one_on_whichever_side_it_stands(orders):
    """A setting's pairs were grouped only if it was the second one."""
    surviving, settings = orders["surviving"], range(12)
    every = [*enumerate(combinations(settings, 2))]
    by_place = [
        surviving([(both, own(n), UP, DOWN if odd in both else UP) for n, both in every])
        for odd in settings
    ]
    assert by_place[0] == by_place[-1] and by_place[0].mean == pytest.approx(100 * 55 / 66)
    without = 100 * np.array([1.0, *11 * [45 / 55]])
    error = np.sqrt(11 * without.var())
    assert by_place[0].low == pytest.approx(by_place[0].mean - t.ppf(0.975, 11) * error)
    # a row does the same with its trainings, in whatever settings
    by_row = surviving([(own(n), both, UP, DOWN if 0 in both else UP) for n, both in every])
    assert by_row == by_place[0]
    agreed = [surviving([(own(n), both, UP, UP) for n, both in every])]
    assert agreed == [surviving([(both, own(n), UP, UP) for n, both in every])]


def test_of_two_collections_each_comes_first_once(orders):
    """Names decided: a pair that is certain only on the later name was not counted."""
    unsure = statistics.Interval(-1.0, -3.0, 1.0)
    gaps = [(unsure, UP), (UP, unsure), (UP, UP)]
    pairs = [(("a", "b"), ("simlm", "mlm"), *both) for both in gaps]
    assert len(orders["certain_at_first"]("collection", pairs)) == 4
    assert orders["certain_at_first"]("pre-training steps", pairs) == pairs[1:]
    assert orders["certain_at_first"]("labels", pairs) == pairs[1:]


def test_a_paper_s_number_is_that_of_the_stage_whose_row_it_stands_in():
    """SimLM's first retriever was compared with the recall of the distilled one, RetroMAE with
    mined negatives with RetroMAE distilled.
    """
    printed: dict[str, Any] = {}

    def compared(study: str, live: object, measure: str, paper: Any, **_: object) -> Any:
        printed[measure] = paper
        return SimpleNamespace(runs={}, table=shown, figure=shown)

    def shown(*_: object, **more: object) -> None:
        """Replaces the page's display function."""

    space = {"papers": papers, "comparison": SimpleNamespace(Comparison=compared)}
    space |= {"study": "", "live": {}, "display": shown}
    for cell in nbformat.read(ROOT / "notebooks/methods/main_results.ipynb", as_version=4).cells:
        if "at_stage" in cell.source:
            exec(cell.source, space)
    found = {
        row: [printed[measure][row] for measure in ("MRR@10", "R@50", "R@1000")]
        for row in ("BM25", "RetroMAE", "SimLM", "SimLM, distilled")
    }
    assert found == {
        "BM25": [18.5, 58.5, 85.7],
        "RetroMAE": [39.3, None, 98.5],
        "SimLM": [38.0, None, 98.3],
        "SimLM, distilled": [41.1, 87.8, 98.7],
    }


CELLS = {
    cell.id: cell.source
    for cell in nbformat.read(ROOT / "notebooks/evaluation/zero_shot.ipynb", as_version=4).cells
}


@pytest.fixture(scope="module")
def average() -> Any:
    space: dict[str, Any] = {"measured": measured, "measure": "nDCG@10"}
    exec(CELLS["average"], space)
    return space["average"]


def record(place: str, values: np.ndarray) -> Any:
    """The part of a record that the cell reads, of a ready-made model."""
    ids = [f"{place}{number}" for number in range(len(values))]
    scores = Scores(ids, {"nDCG@10": values})
    return Facts(
        label="a",
        study="s",
        seed=0,
        scale="laptop",
        keys={"evaluation": place},
        recipe={"retriever": "public"},
        data={"collection": {"name": place, "digest": place}},
        measured=scores,
        means={"nDCG@10": scores.mean("nDCG@10")},
        query_ids=ids,
        clusters=Clusters.alone(len(ids)),
        epoch=None,
        per_query=scores.per_query,
    )


def test_an_average_varies_as_its_collections_do(average):
    rng = np.random.default_rng(1)
    values = {name: rng.random(n) for name, n in zip("abc", (400, 100, 50), strict=True)}
    mean, each, without = average(
        {name: [(1.0, [record(name, own)])] for name, own in values.items()}
    )
    errors = {name: 100 * own.std(ddof=1) / np.sqrt(len(own)) for name, own in values.items()}
    together = np.sqrt(sum(error**2 for error in errors.values())) / 3
    assert mean.mean == pytest.approx(100 * np.mean([own.mean() for own in values.values()]))
    assert (mean.high - mean.low) == pytest.approx(2 * 1.96 * together, rel=0.05)
    rest = np.sqrt(errors["a"] ** 2 + errors["c"] ** 2) / 2
    assert (without["b"].high - without["b"].low) == pytest.approx(2 * 1.96 * rest, rel=0.05)
    assert each["b"].mean == pytest.approx(100 * values["b"].mean())


def test_differences_are_paired_in_each_collection(average):
    rng = np.random.default_rng(2)
    base = rng.random(60)
    pair = [(1.0, [record("a", base)]), (-1.0, [record("a", base - 0.1)])]
    mean, each, without = average({"a": pair})
    assert without == {} and mean == each["a"]
    assert (mean.mean, mean.low, mean.high) == pytest.approx((10.0, 10.0, 10.0), abs=1e-4)


def test_two_trainings_are_alike_where_seed_code_precision_and_device_are_the_same():
    """Counts of won and lost queries must not compare seed 0 with seed 1, or bf16 with fp32."""

    def trained(label, seed, precision="fp32", gpu="NVIDIA H100", epoch=5):
        return SimpleNamespace(
            label=label,
            seed=seed,
            epoch=epoch,
            training={"retriever1": {"precision": precision}},
            machine={"gpus": [gpu]},
        )

    cells = nbformat.read(ROOT / "notebooks/simlm/table09_cases.ipynb", as_version=4).cells
    (source,) = (cell.source for cell in cells if "def trained_alike" in cell.source)
    space: dict[str, Any] = {"measured": measured}
    exec(source.partition("\n\n\n")[0], space)
    trained_alike = space["trained_alike"]
    first = [trained("a", 2), trained("a", 0), trained("a", 1), trained("a", 3, "bf16")]
    second = [trained("b", 1), trained("b", 0), trained("b", 0), trained("b", 3)]
    second += [trained("b", 2, gpu="NVIDIA A100"), trained("b", 2, epoch=4), trained("b", 4)]
    pairs = trained_alike(first, second)
    assert [(one.label, one.seed, other.label, other.seed) for one, other in pairs] == [
        ("a", 0, "b", 0),
        ("a", 1, "b", 1),
    ]
    assert pairs[0][1] is second[1]  # the first of two
    assert trained_alike(first, []) == []


DRAWN = {
    name
    for name, function in vars(figures).items()
    if callable(function) and "source" in inspect.signature(function).parameters
}


def unsourced(code: str) -> list[str]:
    """Names of the functions of `figures` that a cell calls without a source."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    return [
        call.func.attr
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and (call.func.value.id, call.func.attr in DRAWN) == ("figures", True)
        and "source" not in [keyword.arg for keyword in call.keywords]
    ]


def test_every_figure_outside_the_lessons_names_its_source():
    assert {"show", "curves", "growth", "heat_map", "intervals"} <= DRAWN
    assert unsourced("figures.curves(lines, alt=told)\nfigures.show(draw, source=s)") == ["curves"]
    lacking = {
        f"{path.stem}, {cell.id}": names
        for path in sorted((ROOT / "notebooks").glob("*/*.ipynb"))
        if path.parent.name not in ("lessons", "teaching")
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code" and (names := unsourced(cell.source))
    }
    assert not lacking, f"figures without a line of provenance: {lacking}"


def luminance(colour: Any) -> float:
    """Relative luminance by WCAG 2.1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))


def contrast(one: Any, other: Any) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def dark() -> tuple[figures.Palette, str]:
    """The palette of dark pages, and their background, from the style sheet."""
    css = (ROOT / "book/_static/book.css").read_text(encoding="utf-8")
    colour = dict(re.findall(r"--dr-figure-([\w-]+): (#\w{6});", css))
    series = tuple(colour[f"series-{n}"] for n in range(1, 9))
    return figures.Palette(colour["text"], colour["grid"], colour["paper"], series), colour[
        "ground"
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("lesson", ["1_retriever", "6_passage_centric"])
def test_dots_on_a_matrix_can_be_seen_on_every_cell(lesson, theme):
    """Amber on the brightest blue had a contrast of 1.1 to 1 on dark pages."""
    palette, ground = dark() if theme == "dark" else (figures.PALETTE, figures.GROUND)
    cells = nbformat.read(ROOT / f"notebooks/lessons/{lesson}.ipynb", as_version=4).cells
    (source,) = (cell.source for cell in cells if '"o"' in cell.source)
    drawn = []
    space = {
        "np": np,
        "torch": torch,
        "LinearSegmentedColormap": LinearSegmentedColormap,
        "figures": SimpleNamespace(show=lambda draw, alt: drawn.append(draw(palette))),
        "S": torch.linspace(0, 1, 64).reshape(8, 8),
        "scores": {name: torch.linspace(0, 1, 72).reshape(6, 12) for name in ("query", "passage")},
        "B": 6,
    }
    exec(source, space)
    drawn[0].draw_without_rendering()
    panels = [
        axes for axes in drawn[0].axes if any(line.get_marker() == "o" for line in axes.lines)
    ]
    assert panels
    for axes in panels:
        (mesh,) = (one for one in axes.collections if isinstance(one, QuadMesh))
        (dots,) = (line for line in axes.lines if line.get_marker() == "o")
        shown = {
            tuple(alpha * np.array(rgb) + (1 - alpha) * np.array(to_rgb(ground)))
            for *rgb, alpha in mesh.get_facecolors()
        }
        assert len(shown) == 10  # every shade
        assert min(contrast(dots.get_color(), cell) for cell in shown) > 3
