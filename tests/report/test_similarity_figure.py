"""The similarity figure: drawn for both backgrounds, with its values in words."""

import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.report import similarity_figure

MEASURES = [f"{kind} {how}" for kind in ("s(p+, q)", "s(p+, p-)") for how in ("mean", "median")]


def scores(*values: float) -> Scores:
    return Scores(["a", "b"], {name: [value - 0.1, value + 0.1] for name, value in zip(MEASURES, values, strict=True)})


def test_figure_says_mean_and_deviation_of_each_system():
    html = similarity_figure(
        {"with": scores(0.8, 0.7, 0.4, 0.3), "<without>": scores(0.5, 0, 0.6, 0)}, unit="cosine"
    ).data
    assert html.count("<img") == 2 and "only-dark" in html and "<without>" not in html
    assert "with: s(p+, q) 0.80 ± 0.10, s(p+, p-) 0.40 ± 0.10" in html
    assert "&lt;without&gt;: s(p+, q) 0.50 ± 0.10, s(p+, p-) 0.60 ± 0.10" in html


def test_figure_can_show_medians():
    assert (
        "s(p+, q) 0.70 ± 0.10, s(p+, p-) 0.30"
        in similarity_figure({"x": scores(0.8, 0.7, 0.4, 0.3)}, how="median").data
    )


def test_other_scores_are_refused():
    with pytest.raises(InputError, match="no measure"):
        similarity_figure({"x": Scores(["a"], {"R@1": [1.0]})})
