"""From rankings to verdicts: measures, answer accuracy, intervals and tests, and the papers' claims."""

from dr_lib.evaluation.dialogue import DialogueSettings, cross_encoded_dialogue, dialogue
from dr_lib.evaluation.fusion import fuse, fused
from dr_lib.evaluation.measures import (
    Scores,
    check_measures,
    cut_of,
    evaluate,
    evaluate_split,
    page_ids,
    page_qrels,
    page_ranking,
    r_precision,
    scores,
    unit_of,
)
from dr_lib.evaluation.nlu import TASKS, NluSettings, NluTask, measure_difference, measure_interval, nlu, nlu_file, task_of
from dr_lib.evaluation.papers import AnsweredBy, Check, Claim, Compare, Paper, Table, load_paper, load_papers
from dr_lib.evaluation.pipeline_checks import pipeline_checks
from dr_lib.evaluation.question_overlap import NearestQuestions, nearest_questions, templated
from dr_lib.evaluation.similarity import similarities
from dr_lib.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    bootstrap_intervals,
    equivalence_test,
    holm,
    paired_difference,
    randomisation_tests,
    smallest_detectable_difference,
)
from dr_lib.evaluation.verdicts import STATES, Case, PairResult, Verdict, flips, verdict
