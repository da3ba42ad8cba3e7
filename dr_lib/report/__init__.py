"""From records to what people see: tables, figures and generated pages, readable in light and dark, without network."""

from dr_lib.report.asked import asked_examples, asked_steps
from dr_lib.report.cases import cases_table, flips_table
from dr_lib.report.collection_facts import collection_table
from dr_lib.report.comparison import (
    differences_figure,
    differences_table,
    loss_curves,
    spell,
    values_figure,
    values_table,
)
from dr_lib.report.export import export
from dr_lib.report.figures import Series, curves, intervals
from dr_lib.report.findings import findings, measures_table, next_steps
from dr_lib.report.masked_words import BatchWords, hidden_share_figure, is_plain, mean_share, top_words_figure
from dr_lib.report.material_counts import counts_table, labels_table
from dr_lib.report.measured import differences, mean_intervals, recorded, recorded_studies
from dr_lib.report.search_table import search_table, search_text
from dr_lib.report.similarity import similarity_figure, similarity_table
from dr_lib.report.stage_checks import checks_table
from dr_lib.report.tables import Markup, badge, link, table
from dr_lib.report.theme import Palette, show
from dr_lib.report.training_curves import costs_table, milestones_table, training_curves
from dr_lib.report.understanding import understanding_table
from dr_lib.report.verdicts import verdicts_table
from dr_lib.report.zero_shot import everywhere_table, recorded_everywhere, without_each_table

__all__ = [
    "BatchWords",
    "Markup",
    "Palette",
    "Series",
    "asked_examples",
    "asked_steps",
    "badge",
    "cases_table",
    "checks_table",
    "collection_table",
    "costs_table",
    "counts_table",
    "curves",
    "differences",
    "differences_figure",
    "differences_table",
    "everywhere_table",
    "export",
    "findings",
    "flips_table",
    "hidden_share_figure",
    "intervals",
    "is_plain",
    "labels_table",
    "link",
    "loss_curves",
    "mean_intervals",
    "mean_share",
    "measures_table",
    "milestones_table",
    "next_steps",
    "recorded",
    "recorded_everywhere",
    "recorded_studies",
    "search_table",
    "search_text",
    "show",
    "similarity_figure",
    "similarity_table",
    "spell",
    "table",
    "top_words_figure",
    "training_curves",
    "understanding_table",
    "values_figure",
    "values_table",
    "verdicts_table",
    "without_each_table",
]
