"""From records to what people see: tables, figures and generated pages, readable in light and dark, without network."""

from dr_lib.report.comparison import differences_figure, differences_table, loss_curves, values_figure, values_table
from dr_lib.report.figures import Series, curves, intervals
from dr_lib.report.measured import differences, mean_intervals, recorded
from dr_lib.report.tables import Markup, badge, link, table
from dr_lib.report.theme import Palette, show
from dr_lib.report.verdicts import verdicts_table

__all__ = [
    "Markup",
    "Palette",
    "Series",
    "badge",
    "curves",
    "differences",
    "differences_figure",
    "differences_table",
    "intervals",
    "link",
    "loss_curves",
    "mean_intervals",
    "recorded",
    "show",
    "table",
    "values_figure",
    "values_table",
    "verdicts_table",
]
