"""Training curves of many methods side by side, and what each training cost. Page: methods/reference_curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from IPython.display import HTML
from matplotlib.figure import Figure

from dr_lib.lab.records import Record
from dr_lib.report.figures import smoothed
from dr_lib.report.measured import Runs
from dr_lib.report.tables import Cell, table
from dr_lib.report.theme import Palette, show

COLUMNS = 3
CHECKPOINTS = (0.02, 0.1, 0.25, 0.5, 1.0)


def curve_of(records: Sequence[Record], stage: str = "pretrained") -> Mapping[str, Sequence[float]]:
    """The logged columns of a configuration's first seed by name, `step` among them; empty without that stage."""
    return records[0].training.get(stage, {}).get("curve", {}) if records else {}


def parts_of(curve: Mapping[str, Any], ending: str) -> list[str]:
    """Names of the logged scalars that end in `ending`, such as "loss".

    Example:
        >>> parts_of({"step": [1], "loss": [2.0], "encoder_loss": [1.0], "lr": [0.1]}, "loss")
        ['loss', 'encoder_loss']
    """
    return sorted((name for name in curve if name == ending or name.endswith(f"_{ending}")), key=lambda n: n != ending)


def training_curves(runs: Runs, *, ending: str, unit: str, stage: str = "pretrained", smooth: int = 5) -> HTML:
    """A panel a method, with every logged scalar of one kind over the training.

    Args:
        runs: label -> records; those without that stage or such scalars get no panel.
        ending: which scalars: "loss", "accuracy".
        unit: label of the vertical axes.
        stage: "pretrained" or "retriever".
        smooth: width of the running mean, in logged points.
    """
    chosen = {label: curve_of(records, stage) for label, records in runs.items()}
    panels = {label: curve for label, curve in chosen.items() if parts_of(curve, ending)}
    if not panels:
        return HTML("<p>No training of this kind is recorded yet.</p>")

    def draw(palette: Palette) -> Figure:
        height = -(-len(panels) // COLUMNS)
        figure = Figure(figsize=(7.6, 0.4 + 1.75 * height), layout="constrained")
        axes = figure.subplots(height, COLUMNS, squeeze=False).flatten()
        for place, (label, curve) in zip(axes, panels.items(), strict=False):
            for color, name in zip(palette.series, parts_of(curve, ending), strict=False):
                shown = smoothed(np.asarray(curve[name], float), smooth)
                spoken = name.removesuffix(f"_{ending}").replace("_", " ")
                told = spoken if name != ending else "total"
                place.plot(curve["step"], shown, color=color, linewidth=1.3, label=told)
            place.set_title(label, loc="left", fontsize=9)
            place.tick_params(labelsize=8)
            place.legend(fontsize=7)
        for empty in axes[len(panels) :]:
            empty.set_visible(False)
        figure.supxlabel("training step", fontsize=9)
        figure.supylabel(unit, fontsize=9)
        return figure

    ends = "; ".join(f"{label} ends at {curve[parts_of(curve, ending)[0]][-1]:.2f}" for label, curve in panels.items())
    return show(draw, f"{ending} over training for each method: {ends}.")


def milestones_table(runs: Runs, *, caption: str, stage: str = "pretrained") -> HTML:
    """The loss of each method at a few points of its training: what to hold one's own log against.

    Args:
        runs: label -> records.
        caption: what the table shows.
        stage: "pretrained" or "retriever".
    """
    rows: list[list[Cell]] = []
    for label, records in runs.items():
        curve = curve_of(records, stage)
        for name in parts_of(curve, "loss"):
            last = len(curve[name]) - 1
            places = [min(last, round(share * last)) for share in CHECKPOINTS]
            rows.append([label, name.replace("_", " "), *(float(curve[name][place]) for place in places)])
    columns = ["method", "part", *(f"at {share:.0%}" for share in CHECKPOINTS)]
    return table(columns, rows, caption=caption, digits=2)


def costs_table(runs: Runs, *, against: str, caption: str) -> HTML:
    """What pre-training cost: seconds, tokens a second, peak memory, and the seconds relative to one method.

    Args:
        runs: label -> records.
        against: label of the method that counts as 1.
        caption: what the table shows.
    """
    facts = {label: records[0].training.get("pretrained") for label, records in runs.items() if records}
    known = {label: one for label, one in facts.items() if one}
    unit = known[against]["wall_seconds"] if against in known else None
    rows: list[list[Cell]] = []
    for label, one in known.items():
        memory = max(one.get("peak_memory", {}).values(), default=0) / 2**30
        share = one["wall_seconds"] / unit if unit else None
        rows.append([label, round(one["wall_seconds"]), share, round(one["tokens_per_second"]), memory])
    columns = ["method", "seconds", f"times {against}", "tokens/s", "peak memory, GiB"]
    return table(columns, rows, caption=caption)
