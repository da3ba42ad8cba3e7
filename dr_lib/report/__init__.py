"""From records to what people see: tables, figures and models with their cards, readable in light and dark, without network."""

from dr_lib.report.comparison import NOT_YET, Comparison, nearest, notice, title_of
from dr_lib.report.export import card, export, export_run
from dr_lib.report.figures import WIDTH, Palette, Series, curves, intervals, logged, show, tick, training_curves
from dr_lib.report.findings import Advice, advice, next_steps
from dr_lib.report.measured import (
    corrected_tests,
    differences,
    mean_intervals,
    on_processors,
    paired,
    per_query,
    presentable,
    recorded,
    recorded_by_collection,
    recorded_collections,
    recorded_studies,
)
from dr_lib.report.own_corpus import Compared, Recorded
from dr_lib.report.pretrain import pretrain
from dr_lib.report.tables import (
    Markup,
    badge,
    bullets,
    data_named,
    flips_table,
    folded,
    interval_cell,
    leaning,
    minus,
    named,
    named_in,
    per_cent,
    scientific,
    search_table,
    spell,
    stop_words,
    table,
    typographic,
    verdict_badge,
)

compare = Compared.run
