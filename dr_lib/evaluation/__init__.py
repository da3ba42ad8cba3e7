"""From rankings to verdicts: measures, answer accuracy, intervals and tests, and the papers' claims."""

from dr_lib.evaluation.answers import answer_accuracy
from dr_lib.evaluation.candidates import candidate_scores, evaluate_candidates, rank_candidates
from dr_lib.evaluation.cases import Case, flips
from dr_lib.evaluation.index_cost import IndexCost
from dr_lib.evaluation.ledger import PAPERS, load_paper, load_papers
from dr_lib.evaluation.measures import evaluate
from dr_lib.evaluation.nlu import NluBatch, NluResult, SentenceClassifier, finetune_nlu, steps_for
from dr_lib.evaluation.nlu_tasks import NluSplit, NluTask, load_nlu
from dr_lib.evaluation.pages import page_ids, page_qrels, page_ranking, r_precision
from dr_lib.evaluation.papers import Claim, Compare, Paper, Table, number, row_label
from dr_lib.evaluation.proxy import ProxyPool, ProxyValidation, proxy_ranks
from dr_lib.evaluation.question_overlap import NearestQuestions, Stratum, nearest_questions, stratify
from dr_lib.evaluation.scores import Scores, paired_difference
from dr_lib.evaluation.similarity import passage_similarities
from dr_lib.evaluation.split import evaluate_split
from dr_lib.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    bootstrap_intervals,
    holm,
    randomisation_test,
    randomisation_tests,
    smallest_detectable_difference,
)
from dr_lib.evaluation.verdicts import PairResult, SpreadResult, Verdict, verdict
from dr_lib.evaluation.zero_shot import Average, AverageInterval, average, average_interval, search_all

__all__ = [
    "PAPERS",
    "Average",
    "AverageInterval",
    "Case",
    "Claim",
    "Compare",
    "IndexCost",
    "Interval",
    "NearestQuestions",
    "NluBatch",
    "NluResult",
    "NluSplit",
    "NluTask",
    "PairResult",
    "Paper",
    "ProxyPool",
    "ProxyValidation",
    "Scores",
    "SentenceClassifier",
    "SpreadResult",
    "Stratum",
    "Table",
    "Verdict",
    "answer_accuracy",
    "average",
    "average_interval",
    "bootstrap_interval",
    "bootstrap_intervals",
    "candidate_scores",
    "evaluate",
    "evaluate_candidates",
    "evaluate_split",
    "finetune_nlu",
    "flips",
    "holm",
    "load_nlu",
    "load_paper",
    "load_papers",
    "nearest_questions",
    "number",
    "page_ids",
    "page_qrels",
    "page_ranking",
    "paired_difference",
    "passage_similarities",
    "proxy_ranks",
    "r_precision",
    "randomisation_test",
    "randomisation_tests",
    "rank_candidates",
    "row_label",
    "search_all",
    "smallest_detectable_difference",
    "steps_for",
    "stratify",
    "verdict",
]
