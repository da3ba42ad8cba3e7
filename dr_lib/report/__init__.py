"""From records to what people see: tables, figures and generated pages, readable in light and dark, without network."""

from dr_lib.report.comparison import differences_figure, differences_table, loss_curves, values_figure, values_table
from dr_lib.report.figures import Series, curves, intervals
from dr_lib.report.measured import differences, mean_intervals, recorded
from dr_lib.report.tables import Markup, badge, link, table
from dr_lib.report.theme import Palette, show
from dr_lib.report.training_curves import costs_table, milestones_table, training_curves
from dr_lib.report.verdicts import verdicts_table

__all__ = [
    "Markup",
    "Palette",
    "Series",
    "badge",
    "costs_table",
    "curves",
    "differences",
    "differences_figure",
    "differences_table",
    "intervals",
    "link",
    "loss_curves",
    "mean_intervals",
    "milestones_table",
    "recorded",
    "show",
    "table",
    "training_curves",
    "values_figure",
    "values_table",
    "verdicts_table",
]
