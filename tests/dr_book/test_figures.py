"""Figures: names instead of identifiers, colours by family, shared axes for the same unit, every
value in the alt text.
"""

import re
from dataclasses import replace
from itertools import combinations, pairwise, product
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex

from dr_book import figures
from dr_book.figures import (
    FAMILIES,
    LEAST_SPAN,
    PALETTE,
    PHONE,
    WIDE,
    Series,
    curves,
    distributions,
    family,
    growth,
    heat_map,
    intervals,
    logged,
    slopes,
    tick,
    training_curves,
)
from dr_book.statistics import Interval
from dr_book.tables import named
from dr_lib import objectives, places


@pytest.fixture
def drawn(monkeypatch):
    """The figures made for a wide page, instead of their SVG."""
    made = []

    def keep(draw, palette, salt):
        figure = draw(palette)
        figure.draw_without_rendering()
        if not palette.phone:
            made.append(figure)
        return ""

    monkeypatch.setattr(figures, "_svg", keep)
    return made


@pytest.fixture
def on_a_phone(monkeypatch):
    """The same for a phone."""
    made = []

    def keep(draw, palette, salt):
        if palette.phone:
            made.append(draw(palette))
        return ""

    monkeypatch.setattr(figures, "_svg", keep)
    return made


def names_of(axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def points(**values: float) -> dict[str, Interval]:
    return {label: Interval(value, value - 1, value + 1) for label, value in values.items()}


def test_every_method_has_a_name_and_a_family():
    methods = [objectives.method(name) for name in objectives.names()]
    assert len({method.title for method in methods}) == len(methods)
    assert {method.family for method in methods} == {*FAMILIES}
    assert all(family(method.title) == method.family for method in methods)
    assert all(family(name) for name in objectives.names()) and all(
        map(family, ("BERT-base", "Enc-Dec MLM", "MLM"))
    )
    assert named("my own") == "my own" and family("30% / 50%") is None


def test_panels_of_one_unit_share_their_axis_and_others_do_not(drawn):
    series = [
        Series("paper", "paper", points(a=90, b=80), "accuracy, %"),
        Series("recorded", "recorded", points(a=30, b=20), "MRR@10, %"),
        Series("live", "live", points(a=40, b=10), "MRR@10, %"),
    ]
    intervals(series, ["a", "b"], alt="x")
    paper, kept, live = drawn[0].axes
    assert kept.get_xlim() == live.get_xlim() != paper.get_xlim()
    low, high = kept.get_xlim()
    assert low <= 9 and high >= 41 and paper.get_xlim()[0] > 70


def test_an_axis_of_points_has_a_least_span_so_that_noise_does_not_look_large(drawn):
    close = {label: Interval(*[value] * 3) for label, value in {"a": 38.0, "b": 37.8}.items()}
    series = [
        Series("paper", "paper", close, "MRR@10, %"),
        Series("live", "live", close, "MRR@10, %"),
    ]
    intervals([*series, Series("size", "paper", close, "GB")], ["a", "b"], alt="x")
    paper, live, size = drawn[0].axes
    low, high = paper.get_xlim()
    assert (
        live.get_xlim()
        == (low, high)
        == pytest.approx((37.9 - LEAST_SPAN / 2, 37.9 + LEAST_SPAN / 2))
    )
    assert np.ptp(size.get_xlim()) < 1  # another unit has another noise
    intervals([Series("live", "live", points(a=40, b=10), "%")], ["a", "b"], alt="x")
    assert np.ptp(drawn[1].axes[0].get_xlim()) > 30


def test_methods_of_several_families_are_coloured_and_the_legend_says_how(drawn):
    intervals(
        [Series("recorded", "recorded", points(simlm=30, ict=20, none=10), "%")],
        ["simlm", "ict", "none"],
        alt="x",
    )
    (figure,) = drawn
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == [FAMILIES[0], FAMILIES[1], FAMILIES[-1]]
    assert family("bag of words") == "one vector, no decoder"
    colours = [to_hex(line.get_color()) for line in figure.axes[0].lines]
    assert colours == [PALETTE.series[0], PALETTE.series[1], PALETTE.paper]
    marks = [to_hex(mark.get_color()) for mark in figure.legends[0].legend_handles]
    assert marks == colours, "the legend has the colours of the points"
    assert names_of(figure.axes[0]) == ["SimLM", "ICT", "no pre-training"]


def test_names_stand_left_and_what_has_no_point_is_left_out(drawn):
    intervals(
        [Series("live", "live", points(a=640, c=380), "queries")],
        ["a", "b", "c"],
        alt="x",
        zero=True,
    )
    axes = drawn[0].axes[0]
    # counts, too, begin at the line at zero
    assert names_of(axes) == ["a", "c"] and axes.get_xlim()[0] <= 0
    heights = {line.get_xdata()[0]: line.get_ydata()[0] for line in axes.lines[:2]}
    assert heights == {640: 1, 380: 0}


def test_on_a_phone_names_stand_above_their_points(on_a_phone):
    intervals([Series("live", "live", points(a=640, c=380), "queries")], ["a", "c"], alt="x")
    axes = on_a_phone[0].axes[0]
    names = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert names.keys() == {"a", "c"}
    for name, line in zip("ac", axes.lines, strict=True):
        assert names[name] - 0.5 < line.get_ydata()[0] < names[name]


@pytest.mark.parametrize("rows", [1, 4, 8, 16])
@pytest.mark.parametrize("panels", [1, 2])
def test_on_a_phone_no_line_goes_through_a_name(on_a_phone, panels, rows):
    """Also with a legend, which takes height from the rows."""
    labels = [*objectives.names()][:rows]
    side = points(**{label: value - 1 for value, label in enumerate(labels)})
    sides = [Series(str(panel), "recorded", side, "points") for panel in range(panels)]
    intervals(sides, labels, alt="x", zero=True, rows="minus no pre-training")
    (figure,) = on_a_phone
    figure.draw_without_rendering()
    lines = [
        axes.transData.transform(segment)
        for axes in figure.axes
        for lines in axes.collections
        for segment in lines.get_segments()
    ]
    assert len(lines) > 2 * rows * panels  # of the grid, at zero, and intervals
    for name in figure.axes[0].texts:
        box = name.get_window_extent()
        for (across, bottom), (end, top) in lines:
            if box.x0 <= end and across <= box.x1:
                assert top <= box.y0 or bottom >= box.y1, name.get_text()


def test_long_titles_and_legends_stay_within_a_phone(record):
    """Text that extends beyond the drawing makes it wider, and then a phone shows it smaller."""
    title = "LiveQA-Med, generated training questions: start and training"
    both = intervals([Series("x", "recorded", points(a=1), "%")], ["a"], alt="x", rows=title)
    parts = {"npr_loss": [2.0, 1.0], "complementary_loss": [2.0, 1.0], "mkp_loss": [3.0, 2.0]}
    curve = {"step": [1, 2], "loss": [7.0, 4.0], **parts}
    runs = {"MASTER": [record("MASTER", [1.0], training={"pretrained": {"curve": curve}})]}
    for html in (both, training_curves(runs, ending="loss", unit="loss, nats")):
        width = re.findall(r'width="([\d.]+)pt"', html.data)[1]
        assert float(width) / 72 < 1.2 * PHONE


@pytest.mark.parametrize("drawn_for", ["drawn", "on_a_phone"])
def test_names_at_the_ends_of_curves_do_not_cover_each_other(request, drawn_for):
    made = request.getfixturevalue(drawn_for)
    line = {1: Interval(30, 28, 32), 10: Interval(40, 38, 42), 100: Interval(45, 43, 47)}
    lines = {"MASTER": line, "SimLM": {**line, 100: Interval(44, 42, 46)}}
    level = {"no pre-training, all labels of every kind": Interval(43.8, 42, 46)}
    growth(lines, x="share", y="%", levels=level)
    (figure,) = made
    figure.draw_without_rendering()
    boxes = sorted((text.get_window_extent() for text in figure.axes[0].texts), key=lambda b: b.y0)
    assert len(boxes) == 3
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))


def test_every_figure_is_as_wide_as_its_page_and_once_more_as_a_phone(monkeypatch, record):
    """Several panels, long names and a legend below included."""
    widths = []

    def keep(draw, palette, salt):
        widths.append(draw(palette).get_figwidth())
        return ""

    monkeypatch.setattr(figures, "_svg", keep)
    values = points(**{"a method with a name of forty letters!!": 30, "ict": 20})
    sides = [Series(role, role, values, "MRR@10, %") for role in ("paper", "recorded", "live")]
    curve = {"step": [1, 2], "loss": [2.0, 1.0]}
    intervals(sides, [*values], alt="x")
    curves({"a": ([1, 2], [3.0, 2.0])}, x="x", y="y", alt="x")
    growth({"a": {1: Interval(1, 0, 2)}}, x="x", y="y")
    heat_map({"a": values}, unit="%", alt="x")
    distributions({"a": {"s": np.arange(9.0)}}, x="cosine")
    runs = {
        str(i): [record(str(i), [1.0], training={"pretrained": {"curve": curve}})] for i in range(5)
    }
    training_curves(runs, ending="loss", unit="x")
    assert widths == [WIDE, PHONE] * 6
    sources = "".join(
        path.read_text() for path in (places.project_root() / "notebooks").rglob("*.ipynb")
    )
    assert "figsize" not in sources


def test_growth_has_a_band_a_name_at_each_end_and_a_place_for_nothing(drawn):
    line = {0: Interval(1, 0, 2), 10: Interval(3, 2, 4), 100: Interval(5, 4, 6)}
    level = {"no pre-training": Interval(2, 1, 3)}
    html = growth({"SimLM": line}, x="pairs", y="%", log=True, levels=level, alt="Grows.").data
    axes = drawn[0].axes[0]
    assert [*axes.lines[0].get_xdata()] == [pytest.approx(10 / 3), 10, 100]
    assert [*axes.lines[0].get_ydata()] == [1, 3, 5]
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (0, 6)
    assert {text.get_text() for text in axes.texts} == {"SimLM", "no pre-training"}
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "10", "100"]
    assert "Grows. SimLM: 0 1.0, 10 3.0, 100 5.0; no pre-training: 2.0." in html


def test_growth_draws_bars_and_no_band_where_amounts_are_few(drawn):
    lines = {
        "MASTER": {1: Interval(1, 0, 2), 8: Interval(3, 2, 4)},
        "SimLM": {8: Interval(2, 1, 3)},
        "masked LM": {1: Interval(1, 0, 1), 4: Interval(1, 0, 1), 8: Interval(1, 0, 1)},
    }
    growth(lines, x="steps", y="%", log=True)
    axes = drawn[0].axes[0]
    assert len(axes.collections) == 1  # only the band of masked LM
    # also the points of MASTER, which are two
    ends = [tuple(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) == 2]
    assert ends == [(0, 2), (2, 4), (1, 3), (1, 3)]
    low, high = axes.get_ylim()
    assert low < 0 and high > 4


def test_lines_that_are_no_curves_are_rows_with_a_name_for_each_point(drawn):
    lines = {"MASTER": {250: Interval(1, 0, 2), 2000: Interval(3, 2, 4)}}
    levels = {"no pre-training": Interval(0, 0, 0), "masked LM": Interval(1, 0, 2)}
    html = growth(lines, x="steps", y="points", levels=levels).data
    axes = drawn[0].axes[0]
    assert names_of(axes) == ["masked LM", "MASTER, 250", "MASTER, 2,000"]
    assert axes.get_xlabel() == "points" and "MASTER, 2,000 3.0" in html
    segments = [one for lines in axes.collections for one in lines.get_segments()]
    assert any((segment[:, 0] == 0).all() for segment in segments), "the level at zero is a line"


@pytest.mark.parametrize(
    ("quick", "said"),
    [
        ({500: 1, 1000: 3.3, 2000: 5}, "for 1/16 of the steps"),
        ({500: 1, 3000: 3.3, 9000: 5}, "for about 1/5 of the steps"),
        ({500: 1, 1000: 2.0, 16_000: 5}, ""),
    ],
)
def test_growth_says_at_which_share_one_line_has_what_another_ends_with(drawn, quick, said):
    lines = {"AutoEncoder": quick, "MLM": {500: 0.2, 1000: 0.5, 16_000: 3.0}}
    values = {
        label: {at: Interval(value, value - 1, value + 1) for at, value in line.items()}
        for label, line in lines.items()
    }
    html = growth(values, x="x", y="y", log=True, saving=("AutoEncoder", "MLM", "steps")).data
    title = f"auto-encoder: as much as masked LM {said}" if said else ""
    assert drawn[0].axes[0].get_title() == title and ("as much as" in html) == bool(said)
    levels = [line for line in drawn[0].axes[0].lines if [*line.get_ydata()] == [3.0, 3.0]]
    assert len(levels) == bool(said)


def test_a_range_is_a_band_without_a_line(drawn):
    line = {amount: Interval(1, 0, 2) for amount in (1, 2, 3)}
    growth({"SimLM": line}, x="x", y="y", ranges={"gaps": (0.1, 0.5)})
    axes = drawn[0].axes[0]
    assert [patch.get_bbox().intervaly.tolist() for patch in axes.patches] == [[0.1, 0.5]]
    assert len(axes.lines) == 1 and {text.get_text() for text in axes.texts} == {"SimLM", "gaps"}


def test_differences_whose_interval_holds_zero_are_pale_and_the_line_below_says_so(drawn):
    differences = {"a": Interval(2, 1, 3), "b": Interval(1, -1, 3), "c": Interval(1, 0, 2)}
    sure = Series("recorded", "recorded", {"a": differences["a"]}, "points")
    both = Series("recorded", "recorded", differences, "points")
    said = [
        re.findall(r'<p class="dr-source">(.*?)</p>', html.data)
        for html in (
            intervals([both], [*"abc"], alt="x", zero=True, source="Here."),
            intervals([sure], [*"abc"], alt="x", zero=True, source="Here."),
            intervals([both], [*"abc"], alt="x", source="Here."),
        )
    ]
    assert said == [["Here. Pale: the interval holds zero."], ["Here."], ["Here."]]
    strengths = [[line.get_alpha() for line in figure.axes[0].lines] for figure in drawn]
    assert strengths == [[1, figures.PALE, figures.PALE], [1], [1, 1, 1]]


def test_a_difference_of_too_few_clusters_is_pale_and_one_of_unknown_error_has_no_bar(drawn):
    differences = {
        "a": Interval(2, 1, 3),
        "b": Interval(2, 1, 3, decides=False),
        "c": Interval(1, -np.inf, np.inf),
    }
    series = Series("recorded", "recorded", differences, "points")
    html = intervals([series], [*"abc"], alt="x", zero=True)
    assert "Pale: the interval holds zero, or clusters of queries are too few." in html.data
    axes = drawn[0].axes[0]
    assert [line.get_alpha() for line in axes.lines[:3]] == [1, figures.PALE, figures.PALE]
    assert [bar.has_xerr for bar in axes.containers] == [True, True, False]
    assert np.isfinite(axes.get_xlim()).all()


@pytest.mark.parametrize(
    ("decides", "said"),
    [(True, "one seed."), (False, "one seed, and how far another would move it is not known.")],
)
def test_what_has_one_seed_is_hollow_and_pale_only_where_its_interval_holds_zero(
    drawn, decides, said
):
    once = {"decides": decides, "once": True}
    differences = {"a": Interval(9, 8, 10, **once), "b": Interval(1, -1, 3, **once)}
    differences |= {"c": Interval(9, 8, 10)}
    differences |= {} if decides else {"d": Interval(9, -np.inf, np.inf, **once)}
    series = Series("recorded", "recorded", differences, "points")
    html = intervals([series], [*"abcd"], alt="x", zero=True).data
    dots = [bar[0] for bar in drawn[0].axes[0].containers]
    hollow = [dot.get_markerfacecolor() == figures.GROUND for dot in dots]
    assert hollow == [True, True, False, *[True] * (not decides)]
    assert [dot.get_alpha() for dot in dots][:3] == [1, figures.PALE, 1] and dots[
        -1
    ].get_alpha() == 1
    assert f"Pale: the interval holds zero. Hollow dots: {said}</p>" in html
    several = Series("recorded", "recorded", {"c": differences["c"]}, "points")
    assert "Hollow" not in intervals([several], ["c"], alt="x", zero=True).data


def test_a_line_of_one_seed_has_hollow_points_and_ends_of_slopes_too(drawn):
    once = {amount: Interval(1, 0, 2, once=True) for amount in (1, 2, 3)}
    few = {amount: once[amount] for amount in (1, 3)}  # too few for a line: points with bars
    lines = {"SimLM": few, "MASTER": {**once, 2: Interval(3, 2, 4)}}
    html = growth(lines, x="x", y="y").data
    hollow = [
        line.get_xdata()
        for line in drawn[0].axes[0].lines
        if line.get_markerfacecolor() == figures.GROUND
    ]
    assert hollow == [(1, 3), (1, 3)] and "Hollow dots: one seed." in html
    here = {"a": Interval(4, 3, 5, once=True), "b": Interval(3, 2, 4), "c": Interval(2, 1, 3)}
    html = slopes(CROSSED[0], Series("recorded", "recorded", here, "%"), [*"abc"]).data
    (ends,) = drawn[1].axes[0].collections
    assert ends.get_offsets().tolist() == [[1, 2]] and "Hollow dots: one seed." in html


def test_the_sides_of_zero_say_what_they_mean(drawn):
    series = [Series("recorded", "recorded", points(a=-2, b=3), "points")]
    intervals(series, ["a", "b"], alt="x", zero=True, sides=("BM25 ahead", "vectors ahead"))
    axes = drawn[0].axes[0]
    left, right = axes.texts
    assert (left.get_text(), right.get_text()) == ("BM25 ahead", "vectors ahead")
    zero = axes.transData.transform((0, 0))[0]
    assert left.get_window_extent().x1 < zero < right.get_window_extent().x0
    tops = axes.transData.transform([(0, 1.3)])[0, 1]
    assert tops < left.get_window_extent().y0 < axes.get_window_extent().y1


def test_methods_of_one_family_share_a_colour_and_have_dashes_of_their_own():
    styles = PALETTE.styles(["SimLM", "AutoEncoder", "MLM", "another", "one more"])
    assert styles["SimLM"]["color"] == styles["AutoEncoder"]["color"] == PALETTE.series[0]
    assert styles["SimLM"]["linestyle"] != styles["AutoEncoder"]["linestyle"]
    assert len({tuple(style.values()) for style in styles.values()}) == 5


def test_a_method_has_one_line_in_every_figure():
    """Whatever else is drawn, in any order; its variants differ from it."""
    together = PALETTE.styles(["SimLM, 30% / 100%", "RetroMAE", "simlm", "MASTER", "autoencoder"])
    for method in ("autoencoder", "simlm", "RetroMAE", "MASTER"):
        assert PALETTE.styles(["CDMAE", method])[method] == together[method]
    assert len({style["linestyle"] for style in together.values()}) == 4
    dashes = PALETTE.styles(["SimLM, 30% / 100%", "SimLM"])
    assert (
        dashes["SimLM"]["linestyle"]
        == together["simlm"]["linestyle"]
        != dashes["SimLM, 30% / 100%"]["linestyle"]
    )


def test_a_heat_map_is_pale_where_a_difference_may_be_chance_and_empty_where_nothing_ran(drawn):
    cells = {"15%": {"30%": Interval(2, 1, 3)}, "30%": {"50%": Interval(-1, -2.5, 0.5)}}
    html = heat_map(cells, unit="points", alt="Rates.", centre=0.0).data
    axes = drawn[0].axes[0]
    values = axes.collections[0].get_array()
    assert values.mask.tolist() == [[False, True], [True, False]]
    assert values[0, 0] == 2 and values[1, 1] == pytest.approx(-0.3)
    weights = {text.get_text(): text.get_weight() for text in axes.texts}
    assert weights["+2.0"] == "bold" and weights["\N{MINUS SIGN}1.0"] == "normal"
    one_seed = Interval(1.0, -np.inf, np.inf)  # says nothing of another training
    heat_map(cells | {"40%": {"50%": one_seed}}, unit="points", alt="x", columns=["50%", "30%"])
    assert not any("inf" in text.get_text() for text in drawn[1].axes[0].texts)
    shown = [one.get_text() for one in drawn[1].axes[0].get_xticklabels()]
    assert shown == [tick("50%"), tick("30%")]
    assert '<p class="dr-source">Empty: not run.</p>' in html
    full = heat_map({"15%": cells["15%"]}, unit="points", alt="Rates.", source="Here.").data
    assert '<p class="dr-source">Here.</p>' in full
    assert "Rates. 15 %: 30 % +2.0; 30 %: 50 % -1.0." in html.replace("\N{NO-BREAK SPACE}", " ")


def test_long_names_of_rows_stand_above_them_on_a_phone(on_a_phone):
    columns = {f"column {i}": Interval(i, i, i) for i in range(5)}
    for name in ("a name of a collection", "15%"):
        heat_map({name: columns}, unit="%", alt="x")
    long, short = (figure.axes[0] for figure in on_a_phone)
    assert long.texts[-1].get_text() == "a name of a collection" and not names_of(long)
    assert names_of(short) == [tick("15%")]


def test_distributions_share_one_axis_and_say_their_means(drawn):
    values = {"before": {"s(p+, q)": np.arange(9.0), "s(p+, p-)": np.arange(9.0) + 20}}
    values["after"] = {"s(p+, q)": np.arange(9.0) + 5}
    html = distributions(values, x="cosine").data
    before, after = drawn[0].axes
    assert before.get_xlim() == after.get_xlim() and before.get_title() == "before"
    assert [text.get_text() for text in before.texts] == ["4.00", "24"]
    assert "before: s(p+, q) 4.00 on average, s(p+, p-) 24.00 on average; after" in html


def test_rates_have_the_colour_of_text(drawn):
    labels = ["30% / 50%", "no pre-training", "masked LM"]
    intervals(
        [Series("live", "live", dict.fromkeys(labels, Interval(1, 0, 2)), "%")], labels, alt="x"
    )
    assert {to_hex(line.get_color()) for line in drawn[0].axes[0].lines} == {PALETTE.text}
    assert not drawn[0].legends


def test_the_papers_points_are_hollow(drawn):
    sides = [Series(role, role, points(a=30), "%") for role in ("paper", "recorded")]
    intervals(sides, ["a"], alt="x")
    paper, recorded = (axes.lines[0] for axes in drawn[0].axes)
    assert paper.get_markerfacecolor() == "none" and to_hex(recorded.get_markerfacecolor())


def test_three_panels_of_one_unit_name_it_once_on_a_phone(on_a_phone):
    places = ("SQuAD, test articles", "SQuAD, dev articles", "Reddit titles")
    intervals([Series(place, "live", points(a=30), "%") for place in places], ["a"], alt="x")
    panels = on_a_phone[0].axes
    assert [axes.get_xlabel() for axes in panels] == ["", "%", ""]
    assert "\n" in panels[0].get_title()


def test_slopes_lead_from_a_place_in_the_paper_to_the_place_here(drawn):
    sides = (
        Series("paper", "paper", points(a=90, b=80, c=70), "%"),
        Series("recorded", "recorded", points(a=10, c=30, b=20), "%"),
    )
    html = slopes(*sides, ["a", "b", "c", "unknown"]).data
    lines, rings = lines_and_rings(drawn[0])
    assert [tuple(line.get_ydata()) for line in lines] == [(2, 0), (1, 1), (0, 2)]
    assert "dr-leading" in html and "Circled crossings are certain.</p>" in html
    assert {to_hex(line.get_color()) for line in lines} == {PALETTE.text}
    assert rings == [(0.5, 1)], "crossings at one place have one ring"
    assert "Changed places for certain: a and b; a and c; b and c." in html
    assert "paper (%): a 90.0, b 80.0, c 70.0. recorded (%): c 30.0, b 20.0, a 10.0." in html
    assert slopes(*sides, ["a", "b", "unknown"]).data == ""


def lines_and_rings(figure):
    """The lines of a drawing of slopes, and where it circles their crossings."""
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    rings = [(*line.get_xdata(), *line.get_ydata()) for line in figure.axes[0].lines[len(lines) :]]
    return lines, [tuple(round(float(at), 9) for at in ring) for ring in rings]


CROSSED = (
    Series("paper", "paper", points(a=4, b=3, c=2, d=1), "%"),
    Series("recorded", "recorded", points(b=40, a=30, d=20, c=10), "%"),
)
"""a and b change places, and so do c and d."""


@pytest.mark.parametrize(
    ("ties", "dark", "said"),
    [
        ("", "abcd", "Circled crossings are certain. Here."),
        ("ab", "cd", "A ring holds a crossing that is certain; those outside are not. Here."),
        ("ab cd", "", "No crossing is certain. Here."),
    ],
)
def test_both_lines_of_a_certain_crossing_are_dark_and_the_key_says_what_there_is(
    drawn, ties, dark, said
):
    html = slopes(*CROSSED, [*"abcd"], set(map(frozenset, ties.split())), "Here.").data
    lines, rings = lines_and_rings(drawn[0])
    colours = {label: to_hex(line.get_color()) for label, line in zip("abcd", lines, strict=True)}
    assert {label for label, colour in colours.items() if colour == PALETTE.text} == {*dark}
    places = {"a": (0.5, 2.5), "c": (0.5, 0.5)}
    assert rings == [ring for label, ring in places.items() if label in dark]
    assert f'<p class="dr-source">{said}</p>' in html


def test_a_crossing_of_a_row_with_one_seed_is_not_said_to_be_none():
    """Thirty points away from another row, and the key called it uncertain."""
    once = {**CROSSED[1].points, "a": replace(CROSSED[1].points["a"], once=True)}
    sides = CROSSED[0], Series("recorded", "recorded", once, "%")
    html = slopes(*sides, [*"abcd"], {frozenset("ab")}, "Here.").data
    assert "outside are not, or wait for a second seed. Here. Hollow dots: one seed." in html


def test_a_mark_at_the_end_of_a_narrow_panel_is_whole(drawn):
    sides = [Series(name, "paper", points(a=0.0, b=3.0), "points") for name in "123"]
    intervals(sides, ["a", "b"], alt="", zero=True)
    marks = [line for axes in drawn[-1].axes for line in axes.lines if line.get_marker() == "D"]
    assert marks and not any(line.get_clip_on() for line in marks)


def test_each_certain_crossing_lies_in_a_ring_and_rings_do_not_overlap():
    """A ring for several was not larger: a crossing could be outside it, and seem uncertain."""
    rng = np.random.default_rng(0)
    for least, number in product((0.05, 0.1), (1, 4, 30)):
        places = [*rng.random((number, 2))]
        rings = figures._rings(places, least)
        assert all(radius >= least for _, radius in rings)
        for place in places:
            assert any(np.linalg.norm(place - middle) < radius for middle, radius in rings)
        for (one, first), (other, second) in combinations(rings, 2):
            assert np.linalg.norm(one - other) >= first + second


def test_a_wide_gap_in_slopes_is_wide_and_the_nearest_rows_are_a_row_apart(drawn):
    """A lead of three points looked like one of a tenth."""
    sides = (
        Series("paper", "paper", points(a=4, b=3, c=2, d=1), "%"),
        Series("recorded", "recorded", points(a=47.1, b=44.0, c=43.6, d=43.5), "%"),
    )
    slopes(*sides, [*"abcd"])
    lines, _ = lines_and_rings(drawn[0])
    left, right = (np.array([line.get_ydata()[side] for line in lines]) for side in (0, 1))
    assert np.diff(right[::-1]).tolist() == pytest.approx([1, 1, 2.5], abs=0.05), "no row more"
    assert np.diff(left).tolist() == pytest.approx([-1.5] * 3, abs=0.05), "as high, and even"
    near = figures.pd.Series({"a": 1.0, "b": 1.2, "c": 1.3, "d": 2.5})
    assert figures._heights(near).tolist() == pytest.approx([0, 1, 2, 4.4]), "two rows a point"


def test_an_order_that_stays_has_no_key():
    sides = (CROSSED[0], Series("recorded", "recorded", CROSSED[0].points, "%"))
    assert '<p class="dr-source">Here.</p>' in slopes(*sides, [*"abcd"], source="Here.").data


def test_slopes_fill_a_phone_whatever_the_length_of_their_names():
    for length in (3, 9, 18):
        renamed = {label: f"{label} {'x' * (length - 2)}" for label in "abcd"}
        sides = [
            Series(one.name, one.role, {renamed[k]: v for k, v in one.points.items()}, one.unit)
            for one in CROSSED
        ]
        html = slopes(*sides, [*renamed.values()]).data
        width = float(re.findall(r'width="([\d.]+)pt"', html)[1]) / 72
        assert 0.7 * PHONE < width < 1.2 * PHONE, length
        names = re.findall(rf">[^<]*x{{{length - 2}}}</text>", html.split("<svg")[2])
        assert len(names) == len(renamed) * (1 + (length < 18)), "short ones on both sides"


def test_values_that_look_equal_do_not_change_places(drawn):
    sides = (
        Series("paper", "paper", points(a=37.9, b=38.8, c=38.8), "%"),
        Series("r", "recorded", points(a=43.52, b=43.48, c=43.0), "%"),
    )
    slopes(*sides, ["a", "b", "c"])
    lines, _ = lines_and_rings(drawn[0])
    heights = [tuple(line.get_ydata()) for line in lines]
    assert heights == [(0, 1.5), (1.5, 1.5), (1.5, 0)], "equal as printed: the mean rank"


@pytest.mark.parametrize("drawings", ["drawn", "on_a_phone"])
def test_equal_values_are_printed_once_beside_a_stack_of_their_names(drawings, request):
    labels = [f"some method, named {letter} in many words" for letter in "abcde"]
    sides = [
        Series("s", role, {label: Interval(*[value] * 3) for label, value in values}, "%")
        for role, values in (
            ("paper", zip(labels, (5, 4, 3, 2, 1), strict=True)),
            ("recorded", zip(labels, (44.0, 44.01, 43.99, 7, 7), strict=True)),
        )
    ]
    made = request.getfixturevalue(drawings)
    slopes(*sides, labels)
    axes = made[0].axes[0]
    assert [line.get_ydata()[1] for line in axes.lines] == [3, 3, 3, 0.5, 0.5]
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("44.0") == texts.count("7.0") == 1
    made[0].draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    letter = axes.texts[0].get_fontsize() * made[0].dpi / 72
    overlaps = [
        (first.y0, second.y0)
        for first, second in combinations(boxes, 2)
        if first.x0 < second.x1
        and second.x0 < first.x1
        and abs(first.y0 + first.y1 - second.y0 - second.y1) < 2 * letter
    ]
    assert not overlaps
    right = " ".join(text.get_text() for text in axes.texts if text.get_ha() == "left")
    stacked = ", ".join(labels[:3])
    assert (stacked in right) == (drawings == "drawn")


def test_parts_of_a_loss_have_names_in_words(drawn, record):
    curve = {"step": [1, 2], "loss": [2.0, 1.0], "mkp_loss": [1.0, 0.5], "encoder_loss": [1.0, 0.5]}
    training_curves(
        {"a": [record("a", [1.0], training={"pretrained": {"curve": curve}})]},
        ending="loss",
        unit="x",
    )
    assert [text.get_text() for text in drawn[0].subfigs[0].legends[0].get_texts()] == [
        "encoder",
        "masked keywords",
    ]


def test_one_curve_has_no_legend():
    one = curves({"alone": ([1, 2], [3.0, 2.0])}, x="step", y="loss", alt="x").data
    assert ">loss</text>" in one and "alone" not in one


def test_a_figure_without_points_is_nothing():
    assert intervals([Series("live", "live", {}, "%")], ["a"], alt="x").data == ""


def test_a_figure_is_two_drawings_whose_colours_a_page_can_set_with_its_words_escaped():
    html = curves(
        {"<$a$>": ([1, 2], [3.0, 2.0]), "b": ([1, 2], [2.0, 2.0])}, x="step", y="loss", alt='<b>"'
    ).data
    assert (
        html.count("<svg") == html.count("</svg>") == 2
        and "<b>" not in html
        and 'aria-label="&lt;b&gt;&quot;"' in html
    )
    assert "\n" not in html, (
        "in a Markdown cell every line end would become a break, inside the drawing too"
    )
    assert ">step</text>" in html and "&lt;$a$&gt;" in html, "text is text"
    bare = re.sub(r"var\(--dr-figure-[a-z0-9-]+, #[0-9a-f]{6}\)", "", html)
    assert not re.search(r"#[0-9a-f]{6}\b|metadata|<style", bare)
    assert html.count("var(--dr-figure-series-1, #0a5fb4)") >= 4, (
        "the curve and its mark in the legend"
    )
    ElementTree.fromstring(html.replace("<$a$>", "").replace(" hidden>", ' hidden="">'))
    assert tick("$x$ " + "long" * 20).startswith(r"\$x\$ ") and len(tick("long" * 20)) == 40


def test_drawings_of_one_page_share_no_ids():
    """A reference into a folded drawing shows nothing."""
    lines = {"a": ([1, 2], [3.0, 2.0])}
    one, two = (
        {*re.findall(r' id="([^"]+)"', curves(lines, x="x", y="y", alt=alt).data)} for alt in "ab"
    )
    assert one and not one & two


def test_the_same_figure_has_the_same_bytes():
    lines = {"a": ([1, 2], [3.0, 2.0])}
    assert curves(lines, x="x", y="y", alt="z").data == curves(lines, x="x", y="y", alt="z").data


def test_training_curves_draw_parts_in_one_colour_and_leave_out_their_sum(drawn, record):
    steps = list(range(10))
    curve = {
        "step": steps,
        "loss": np.full(10, 9.0),
        "encoder_loss": np.full(10, 4.0),
        "decoder_loss": np.full(10, 5.0),
    }
    runs = {
        "simlm": [record("simlm", [1.0], training={"pretrained": {"curve": curve}})],
        "ict": [
            record(
                "ict",
                [1.0],
                training={"pretrained": {"curve": {"step": steps, "loss": np.full(10, 3.0)}}},
            )
        ],
        "cdmae": [record("cdmae", [1.0], training={"pretrained": {"curve": curve}})],
        "none": [record("none", [1.0])],
    }
    html = training_curves(runs, ending="loss", unit="nats").data
    assert "SimLM ends at 9.00; ICT ends at 3.00" in html and "no pre-training" not in html
    simlm, ict, cdmae = drawn[0].axes
    assert [len(axes.lines) for axes in (simlm, ict, cdmae)] == [2, 1, 2]
    assert [line.get_color() for line in simlm.lines] == [line.get_color() for line in cdmae.lines]
    assert simlm.get_ylim() == ict.get_ylim()
    assert [text.get_text() for text in drawn[0].subfigs[0].legends[0].get_texts()] == [
        "decoder",
        "encoder",
        "contrastive",
    ]
    training_curves({"none": runs["none"], "ict": runs["ict"]}, ending="loss", unit="nats")
    alone = drawn[1].axes[0].lines[0]
    assert alone.get_color() == ict.lines[0].get_color() != simlm.lines[0].get_color()


@pytest.mark.parametrize("drawings", ["drawn", "on_a_phone"])
def test_a_method_of_many_parts_has_a_wide_panel_with_a_name_at_each_line(
    drawings, request, record
):
    made = request.getfixturevalue(drawings)
    parts = ("encoder", "decoder", "mkp", "cmp", "npr", "dor", "gor")
    curve = {"step": [1, 2]} | {f"{name}_loss": [2.0, 1.0] for name in parts}
    few = {"step": [1, 2], "encoder_loss": [2.0, 1.0], "decoder_loss": [3.0, 2.0]}
    runs = {
        name: [record(name, [1.0], training={"pretrained": {"curve": own}})]
        for name, own in {"master": curve, "simlm": few, "cdmae": few}.items()
    }
    training_curves(runs, ending="loss", unit="nats")
    (figure,) = made
    figure.draw_without_rendering()
    simlm, cdmae, master = figure.axes
    assert not simlm.texts and [
        text.get_text() for text in figure.subfigs[0].legends[0].get_texts()
    ] == ["decoder", "encoder"]
    assert len(master.lines) == len(master.texts) == len(parts)
    assert {"questions", "continuations"} < {text.get_text() for text in master.texts}
    boxes = sorted((text.get_window_extent() for text in master.texts), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))
    assert boxes[-1].y1 < simlm.get_window_extent().y0 and cdmae.get_ylim() == simlm.get_ylim()


def test_a_long_name_above_a_panel_does_not_run_into_the_next_one(drawn, record):
    training = {"pretrained": {"curve": {"step": [1, 2], "loss": [2.0, 1.0]}}}
    names = ("general text, then target passages", "target passages")
    training_curves(
        {name: [record(name, [1.0], training=training)] for name in names},
        ending="loss",
        unit="nats",
    )
    drawn[0].draw_without_rendering()
    left, right = (axes.title.get_window_extent() for axes in drawn[0].axes)
    assert left.x1 < right.x0


def test_without_a_logged_stage_a_sentence_stands_in(record):
    assert logged([record("a", [1.0])], "loss") == {}
    assert (
        "no training of this kind"
        in training_curves({"a": [record("a", [1.0])]}, ending="loss", unit="x").data
    )


def test_on_a_phone_numbers_that_would_touch_are_left_out_and_words_are_turned(on_a_phone):
    points = {steps: Interval(1.0, 0.5, 1.5) for steps in (500, 1000, 2000, 4000, 16000)}
    about = {"x": "steps", "y": "points", "alt": "Points by steps.", "log": True}
    figures.growth({"simlm": points, "mlm": points}, **about)
    words = dict(zip(points, ("none at all", "a few", "some more", "many", "all"), strict=True))
    figures.growth({"simlm": points, "mlm": points}, **about, ticks=words)
    numbers, named = ([*one.axes[0].get_xticklabels()] for one in on_a_phone)
    assert [text.get_text() for text in numbers] == ["500", "", "2,000", "", "16,000"]
    assert {text.get_rotation() for text in numbers} == {0}
    assert [text.get_text() for text in named] == [*words.values()]
    assert {text.get_rotation() for text in named} == {40}


def test_names_stand_clear_of_points_of_each_other_and_of_lines():
    """On 50 sets of eight points: no name overlaps another, a point or the line."""
    rng, met = np.random.default_rng(0), 0
    for _ in range(50):
        figure = PALETTE.figure(4.4)
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(-0.2, 1))
        places = rng.uniform(0.2, 0.8, (8, 2))
        places[0, 1] = 0
        figures.name_points(axes, {f"row {n}": tuple(place) for n, place in enumerate(places)}, [0])
        boxes = [text.get_window_extent() for text in axes.texts]
        assert sorted(text.get_text() for text in axes.texts) == [f"row {n}" for n in range(8)]
        line = axes.transData.transform((0, 0))[1]
        assert not any(box.y0 < line < box.y1 for box in boxes)
        points = axes.transData.transform(places)
        met += sum(one.overlaps(other) for one, other in combinations(boxes, 2))
        met += sum(box.contains(*point) for box in boxes for point in points)
    assert met == 0  # 49 if each is right of its point
