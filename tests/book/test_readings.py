"""Statements on pages agree with the book's records: their numbers, and the orders in prose."""

import ast
import operator
import re
from collections.abc import Collection
from functools import cache
from itertools import pairwise
from pathlib import Path

import nbformat
import numpy as np
import pytest
import scipy
from check_pages import ROOT
from measured_numbers import differing, measured, seeds, trained_rows
from test_measured_numbers import typed

from dr_book import plan, tables
from dr_book.ledger import answer
from dr_book.measured import (
    Side,
    all_recorded,
    all_runs,
    by_configuration,
    compared,
    corrected_tests,
    difference,
    differences,
    mean_intervals,
    per_query,
    recorded,
    recorded_by_collection,
)
from dr_book.papers import load_papers
from dr_book.statistics import Estimate, holm
from dr_book.tables import seeds_in
from dr_lib import collections
from dr_lib.evaluation import Clusters, Scores
from dr_lib.objectives import method
from dr_lib.retrieval import Bm25

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*/*.ipynb"))
BEST_PUPIL = "taught by late interaction, full labels, temperature 3"
CONTROL = "retriever 2 on a pupil's negatives"
FUSED = ("BM25 + ", ", by rank")
SAID = {
    "simlm/table06_stages": [
        [  # its teacher was stopped while it still learned
            f"plan/re-ranker; base, 5e-4, {steps} steps; MRR@10" for steps in ("10,000", "5,000")
        ]
        + ["simlm/table06; Cross-encoder re-ranker; MRR@10"],
        [  # and with the same settings far better teachers do harm
            f"methods/rerankers; {row}; MRR@10"
            for row in ("late interaction", "retriever 2", "taught by late interaction")
        ],
        [
            f"simlm/table06; {row}; MRR@10"
            for row in (
                "SimLM / + mined negatives",
                "SimLM / BM25 negatives",
                "SimLM / + distillation",
                "Cross-encoder re-ranker",
            )
        ],
    ],
    "simlm/table05_rerankers": [
        *(
            [f"simlm/table05; {row}; MRR@10" for row in ("retriever 2", start)]
            for start in ("BERT-base", "ELECTRA-base", "SimLM")
        )
    ],
    "simlm/table08_replace_rates": [
        [
            f"simlm/table08; {row}; MRR@10"
            for row in ("30% / 100%", between, lowest, "masked LM", "no pre-training")
        ]
        for between in ("15% / 30%", "30% / 50%", "40% / 60%")
        for lowest in ("15% / 15%", "30% / 30%")
    ],
    "methods/pipeline": [
        [
            f"methods/pipeline-squad; {row}; MRR@10"
            for row in ("retriever 2", "retriever 1", "distilled", "re-ranker")
        ],
        [
            f"methods/checks-squad; distilled; lists: {who} puts a positive first"
            for who in ("retriever 2", "teacher")
        ],
    ],
    "pair/table03_ablations": [
        [
            "pair/table03; w/o PT; R@5",
            "pair/table03; w/o KD; R@5",
            "pair/table03; Complete (PAIR); R@5",
        ],
        [
            "pair/table03; w/o PT; R@5",
            "pair/table03; w/o PSR; R@5",
            "pair/table03; Complete (PAIR); R@5",
        ],
        ["pair/table03; w/o PT; R@5", "methods/main; none; R@5", "pair/table03; w/o KD; R@5"],
    ],
    "pair/table05_thresholds": [
        [f"pair/table05-labels; {row}; Acc_pos" for row in ("0.8 / 0.2", "0.7 / 0.3", "0.6 / 0.4")],
        ["pair/table05-negatives; 0.6 / 0.4; Acc_neg", "pair/table05-labels; 0.8 / 0.2; Acc_pos"],
        [f"pair/table05; {row}; R@5" for row in ("0.8 / 0.2", "0.7 / 0.3")]
        + ["pair/table03; Complete (PAIR); R@5"],
        ["pair/table03; w/o PT; R@5", "pair/table03; Complete (PAIR); R@5"],
    ],
    "pair/fig4_similarity": [
        *(
            [f"pair/figure04; {row}; s(p+, {other}) mean" for other in ("q", "p-")]
            for row in ("PAIR", "PAIR without PSR")
        ),
        [
            f"pair/figure04; PAIR without PSR, before fine-tuning; s(p+, {other}) mean"
            for other in ("p-", "q")
        ],
        [f"pair/figure04; PAIR, before fine-tuning; s(p+, {other}) mean" for other in ("q", "p-")],
    ],
    "dpr_paq/table01_qa": [
        ["dpr_paq/table01; BM25; accuracy@20", "dpr_paq/table01; DPR (ours); accuracy@20"],
        ["dpr_paq/table01; DPR (ours); MRR@10", "dpr_paq/table01; DPR (ours), first round; MRR@10"],
        ["dpr_paq/table01; DPR-PAQ; MRR@10", "dpr_paq/table01; DPR-PAQ, first round; MRR@10"],
    ],
    "dpr_paq/table04_pretraining_data": [
        [f"dpr_paq/table04; {row}, no fine-tuning; MRR@10" for row in ("PAQ", "ICT", "BFS")]
    ],
    "dpr_paq/table03_tuned": [
        *(
            [
                f"dpr_paq/table03-tuned; {row}, then dialogues; R@1; {where}"
                for row in ("Reddit together", "Reddit")
            ]
            for where in ("topical-chat", "sgd")
        ),
        [
            f"dpr_paq/table03-tuned; {row}, then dialogues; R@1; ubuntu-irc"
            for row in ("Reddit", "Reddit together")
        ],
        *(
            [
                f"dpr_paq/table03-tuned; {row}dialogues; R@1; {where}"
                for row in ("masked LM, then ", "")
            ]
            for where in ("topical-chat", "sgd", "ubuntu-irc")
        ),
        *(
            [
                f"dpr_paq/table03-tuned; {row}, then dialogues; R@1; {where}"
                for row in ("Reddit together", f"masked LM{reddit}")
            ]
            for where in ("topical-chat", "sgd")
            for reddit in ("", ", Reddit")
        ),
    ],
    "dpr_paq/fig2_data_size": [
        [
            f"dpr_paq/figure02; {row}, no fine-tuning; accuracy@20"
            for row in (
                "all pairs",
                "10,000 pairs",
                "3,000 pairs",
                "1,500 pairs",
                "500 pairs",
                "no pairs",
            )
        ],
        [
            f"dpr_paq/figure02; {row} pairs by people, no fine-tuning; accuracy@20"
            for row in ("all", "10,000", "3,000", "1,500", "500")
        ],
        [f"dpr_paq/figure02; {row}; accuracy@20" for row in ("no pairs", "3,000 pairs")],
    ],
    "master/table06_tasks": [
        *(
            [f"master/table06; {row}; MRR@10" for row in (best, "SimLM", "+Shared-Dec", "w/o CPR")]
            for best in ("MASTER", "w/o RPR", "w/o POR")
        ),
        *(
            [f"master/table06-second; {row}; MRR@10" for row in (best, "SimLM", "w/o CPR")]
            for best in ("MASTER", "w/o RPR", "w/o POR")
        ),
    ],
    "master/table08_mask_rates": [
        *(
            [f"master/table08; {row}; MRR@10" for row in (light, "30% / 30%", "50% / 50%")]
            for light in ("15% / 50%", "30% / 50%")
        ),
        *(
            [f"master/table08; {row}, retriever 2; MRR@10" for row in (light, "50% / 50%")]
            for light in ("15% / 50%", "30% / 50%")
        ),
    ],
    "master/fig3_few_shot": [
        *(
            [f"master/figure03; {name}, {share}%; MRR@10" for name in ("MASTER", "SimLM")]
            for share in (5, 10, 20, 50, 100)
        ),
        [f"master/figure03; MASTER, {share}%; MRR@10" for share in (100, 50, 20, 10, 5)],
        [
            f"master/figure03; {row}; MRR@10"
            for row in ("MASTER, 50%", "no pre-training, 100%", "MASTER, 20%")
        ],
    ],
    "cdmae/fig4_hard_negatives": [
        [
            f"cdmae/figure04; {row}; MRR@10"
            for row in (
                "1 hard, batch 64",
                "3 hard, batch 32",
                "7 hard, batch 16",
                "15 hard, batch 8",
            )
        ]
    ],
    "master/table09_cases": [
        [f"master/table09; {row}; MRR@10" for row in ("CPR + RPR + POR", "BERT")]
    ],
    "master/table07_nlu": [
        [f"master/table07; BERT; {kind}; {task}" for kind in ("actual", "accuracy")]
        for task in ("glue-cola", "glue-mrpc")
    ],
    "simlm/table10_corpora": [
        [
            f"simlm/table10; {row}; MRR@10; squad"
            for row in ("target passages", "general text", "none")
        ],
        [
            "simlm/table10; target passages; accuracy@20; wikipedia-nq",
            "simlm/table10; none; accuracy@20; wikipedia-nq",
        ],
    ],
    "simlm/table01_language_models": [
        [f"simlm/table01; BERT; {kind}; glue-mrpc" for kind in ("actual", "accuracy")],
        *(
            [f"simlm/table01; {row}; glue-mrpc" for row in ("BERT; actual", f"{one}; accuracy")]
            for one in ("RoBERTa", "ELECTRA")
        ),
    ],
    "cdmae/table05_general_first": [
        [
            f"cdmae/table05; {row}; nDCG@10; trecdl-mini"
            for row in ("target passages", "general text, then target passages")
        ]
    ],
    "methods/rerankers": [
        *(
            [
                f"methods/rerankers{part}; {row}; MRR@10"
                for row in ("late interaction", "retriever 2")
            ]
            for part in ("", "-dev")
        ),
        ["methods/rerankers; retriever 2; MRR@10", "methods/pipeline-squad; re-ranker; MRR@10"],
        ["methods/pipeline-squad; BM25; MRR@10", "methods/rerankers; retriever 2; MRR@10"],
        *(
            [
                f"methods/rerankers{part}; {row}; MRR@10"
                for row in (f"{BEST_PUPIL}, seven negatives", BEST_PUPIL, "retriever 2")
            ]
            for part in ("", "-dev")
        ),
        *(
            [
                f"methods/rerankers{part}; {row}; MRR@10"
                for row in (f"{BEST_PUPIL}, seven negatives", f"{CONTROL}, seven")
            ]
            for part in ("", "-dev")
        ),
        *(
            [
                f"methods/rerankers{part}; {row}; MRR@10"
                for row in ("retriever 2", "taught by late interaction", "taught by BM25")
            ]
            for part in ("", "-dev")
        ),
        ["methods/rerankers; taught by BM25; MRR@10", "methods/pipeline-squad; distilled; MRR@10"],
        [
            f"methods/rerankers; taught by late interaction{row}; MRR@10"
            for row in (", full labels, temperature 3", ", full labels", "")
        ],
    ],
    "simlm/fig3_steps": [
        [
            f"simlm/figure03; {row}; MRR@10"
            for row in ("AutoEncoder, 1,000 steps", "MLM, 16,000 steps")
        ],
        *(
            [f"simlm/figure03; {name}, {steps} steps; MRR@10" for name in ("SimLM", "MLM")]
            for steps in ("500", "1,000", "2,000", "4,000", "16,000")
        ),
        *(
            [f"simlm/figure03; {name}, {steps} steps; MRR@10" for name in ("AutoEncoder", "SimLM")]
            for steps in ("1,000", "2,000", "16,000")
        ),
        [
            f"simlm/figure03; SimLM, {steps} steps; MRR@10"
            for steps in ("16,000", "4,000", "2,000", "1,000", "500")
        ],
        [
            f"simlm/figure03; {row}; MRR@10"
            for row in (
                "MLM, 16,000 steps",
                "MLM, 4,000 steps",
                "MLM, 2,000 steps",
                "no pre-training",
            )
        ],
    ],
    "methods/trust": [
        [
            f"simlm/figure03; {row}; MRR@10"
            for row in (
                *(f"{name}, {steps} steps" for name in ("AutoEncoder", "SimLM", "MLM")),
                "no pre-training",
            )
        ]
        for steps in ("1,000", "16,000")
    ],
    "master/fig3_steps": [
        [
            f"master/figure03-steps; {row}; MRR@10"
            for row in ("MASTER", "SimLM", f"MASTER, {part} of the steps", "no pre-training")
        ]
        for part in ("an eighth", "a quarter", "half")
    ],
    "methods/larger_model": [
        [f"methods/larger-model; {row}; MRR@10" for row in ("BM25", "simlm", "mlm", "none")],
        [f"methods/larger-model; {row}; MRR@10" for row in ("BM25", "retromae", "mlm", "none")],
        [f"methods/equal-budgets; {row}; MRR@10" for row in ("simlm", "mlm", "none")],
    ],
    "methods/equal_budgets": [
        [
            f"methods/equal-budgets; {row}; MRR@10"
            for row in ("BM25", "autoencoder", "master", "retromae", "simlm", "mlm", "none")
        ],
        [
            f"methods/equal-budgets; {row}; MRR@10"
            for row in ("simlm", "cdmae", "condenser", "mlm", "none")
        ],
        *(
            [f"methods/equal-budgets; {row}; MRR@10" for row in ("mlm", other)]
            for other in ("ict", "bfs", "nsp", "rtd", "encdec_rtd")
        ),
        [f"methods/equal-budgets; {row}; MRR@10" for row in ("none", "pair")],
    ],
    "methods/main_results": [
        [
            f"methods/main; {row}; MRR@10"
            for row in ("BM25", "SimLM", "none", "PAIR", "SimLM, no fine-tuning")
        ],
        [  # reading only passages is not the reason: so does ICT, which compares two texts
            "dpr_paq/table04; ICT, no fine-tuning; MRR@10",
            "methods/main; SimLM, no fine-tuning; MRR@10",
        ],
    ],
    "methods/open_domain": [
        [
            f"methods/open-domain; {row}; accuracy@20"
            for row in ("BM25", f"{best}, retriever 2", bare, "PAIR")
        ]
        for best in ("MASTER", "SimLM")
        for bare in ("none", "none, retriever 2")
    ],
    "methods/stages": [
        [
            f"methods/stages; {row}, retriever 1; MRR@10"
            for row in ("MASTER", "RetroMAE", "SimLM", "CDMAE", "coCondenser")
        ],
        *(
            [f"methods/stages; {one}, {row}; MRR@10" for row in ("retriever 2", "retriever 1")]
            for one in ("SimLM", "MASTER", "CDMAE", "RetroMAE", "coCondenser")
        ),
        [
            f"methods/stages; {row}, retriever 2; MRR@10"
            for row in ("MASTER", "RetroMAE", "SimLM", "CDMAE", "coCondenser")
        ],
        [f"methods/stages; SimLM, {row}; MRR@10" for row in ("retriever 2", "second mining round")],
    ],
    "evaluation/graded_sets": [
        [f"evaluation/graded; {row}; nDCG@10; {where}" for row in ("BM25", "no pre-training")]
        for where in ("trecdl-mini", "liveqa-med")
    ],
    "methods/from_real_model": [
        *(
            [f"methods/from-real-model; {row}; nDCG@10; {where}" for row in order]
            for where, order in {
                "scifact": ("no pre-training", "RetroMAE", "BM25", "as it comes"),
                "medquad": ("no pre-training", "RetroMAE", "as it comes", "BM25"),
                "liveqa-med-questions": ("as it comes", "no pre-training", "RetroMAE", "BM25"),
            }.items()
        ),
        *(
            [
                f"methods/from-real-model; {row}; nDCG@10; scifact"
                for row in ("no pre-training", method, "as it comes")
            ]
            for method in ("MLM", "CDMAE")
        ),
        [
            f"methods/from-real-model; no pre-training{row}; nDCG@10; scifact"
            for row in (", mined negatives", "")
        ],
        [
            f"methods/from-real-model; {row}no pre-training{way}; nDCG@10; medquad"
            for row, way in (("", ""), FUSED)
        ],
        [
            f"methods/from-real-model; {row}no pre-training{way}; nDCG@10; liveqa-med-questions"
            for row, way in (FUSED, ("", ""))
        ],
        [
            f"practice/real-models; {row}; nDCG@10"
            for row in ("BM25 + all-MiniLM-L6-v2, by rank", "BM25")
        ],
    ],
    "simlm/table03_index_size": [
        [f"simlm/table03; {row}; gigabytes" for row in ("ColBERTv2", "SimLM")]
    ],
    "simlm/table09_cases": [[f"methods/equal-budgets; {row}; MRR@10" for row in ("simlm", "none")]],
    "simlm/table07_objectives": [
        [
            f"simlm/table07; {row}; MRR@10"
            for row in ("AutoEncoder", "SimLM", "Enc-Dec MLM", "Condenser", "MLM", "BERT-base")
        ],
        [f"simlm/table07; {row}; MRR@10" for row in ("BERT-base", "Enc-Dec RTD")],
        [f"simlm/table07; SimLM{rates}; MRR@10" for rates in (", 0% / 100%", ", 30% / 100%", "")],
        [
            f"simlm/table07; {row}; MRR@10"
            for row in ("AutoEncoder", "AutoEncoder, 30% masked", "Enc-Dec MLM, 30% / 100%")
        ],
    ],
    "dpr_paq/table05_overlap": [
        [f"dpr_paq/table05; {row}; words" for row in ("both", "none alone", "neither")],
        [f"dpr_paq/table05; {row}; words" for row in ("both", "paq alone", "neither")],
    ],
    "pair/table04_cases": [
        [f"pair/table03; {row}; MRR@10" for row in ("w/o PSR", "Complete (PAIR)")]
    ],
    "cdmae/fig2_fig3_masked_terms": [
        [
            f"cdmae/figure02; {row}, 50 %; stop words and punctuation"
            for row in ("random masking", "importance-aware masking")
        ]
    ],
    "cdmae/table04_projection": [
        [f"cdmae/table04; {row} projection; MRR@10" for row in ("w/o", "w/")]
    ],
    "cdmae/table06_masking_cost": [
        [f"cdmae/table06; {row}; CPU ms" for row in ("RetroMAE", "CDMAE", "MAE")],
        ["cdmae/table06; SimLM; GPU ms", "cdmae/table06; RetroMAE; CPU ms"],
    ],
}
"""Page -> orders that its text states, each from high to low. If a new record breaks one, the prose
has to change.
"""

value = cache(lambda cell: float(measured(cell).replace(",", "")))


def opening(path: Path) -> list[str]:
    """The paragraphs of the first cell of a notebook: title, question, result and reason."""
    return nbformat.read(path, as_version=4).cells[0].source.split("\n\n")


@pytest.mark.parametrize("page", SAID)
def test_orders_that_a_reading_states_are_those_of_the_records(page):
    for order in SAID[page]:
        numbers = [value(cell) for cell in order]
        assert all(one > other for one, other in pairwise(numbers)), dict(
            zip(order, numbers, strict=True)
        )


TABLE_PAGES = [path for path in NOTEBOOKS if path.parent.name in (*load_papers(), "methods")]


@pytest.mark.parametrize("path", TABLE_PAGES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_page_opens_with_its_question_and_then_says_what_is_seen(path):
    title, question, seen, *_ = opening(path)
    assert title.startswith("# ") and re.match(r"\*\*[^*]+\?\*\*", question)
    assert not typed(seen.replace("paper", "")) and not seen.startswith(("#", "|", "-"))
    assert len(seen.split()) < 90 and len(question.split()) < 60, "a few sentences"
    for cell in re.findall(r"\{measured\}`([^`]+)`", seen):
        assert value(cell) > 0


def test_every_cell_in_a_notebook_has_a_record():
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                for one in re.findall(r"\{measured\}`([^`]+)`", cell.source):
                    assert value(one) >= 0


def test_where_the_order_of_bm25_and_dense_retrievers_turns():
    """What notebooks/evaluation/bm25 says of its figure and of its table."""
    (cell,) = [
        cell.source
        for cell in nbformat.read(ROOT / "notebooks/evaluation/bm25.ipynb", as_version=4).cells
        if cell.get("id") == "turns-code"
    ]
    pairs = ast.literal_eval(cell[cell.index("{") : cell.index("}") + 1])
    gaps = {}
    for label, (study, dense, other, place) in pairs.items():
        runs, others = (recorded_by_collection(name)[place] for name in (study, other))
        gaps[label] = difference(runs[dense], others["BM25"], "MRR@10").estimate.interval()
    behind = ["SQuAD, 2 layers", "SQuAD, 6 layers", "Reddit titles, 2 layers"]
    ahead = ["SciFact, MiniLM fine-tuned", "MedQuAD, 2 layers", "MedQuAD, MiniLM fine-tuned"]
    assert all(gaps[label].high < 0 for label in behind)
    assert all(gaps[label].low > 0 for label in ahead)
    level = gaps["SciFact, MiniLM as it comes"]
    assert level.low < 0 < level.high and len(gaps) == 7
    assert gaps["SQuAD, 2 layers"].high < gaps["SQuAD, 6 layers"].low


def test_of_primers_questions_a_vector_surely_answers_more_where_they_share_no_word():
    """What notebooks/evaluation/bm25 says of its table: of paraphrases it may be chance."""
    primer, runs = collections.load("primer"), recorded("primer/again")["simlm"]
    asked, wanted, ids = primer.queries("test"), primer.qrels("test"), primer.passages["id"]
    first = Bm25.build(primer.passages).search(asked["text"], 10, query_ids=asked["id"])
    lexical = [
        any(row >= 0 and ids[row] in wanted[query] for row in rows)
        for query, rows in zip(first.query_ids, first.rows, strict=True)
    ]
    assert first.query_ids == runs[0].query_ids

    def of_kind(kind, run, hits, recipe=None):
        rows = [n for n, query in enumerate(run.query_ids) if query.endswith(f"-{kind}")]
        names = [run.query_ids[row] for row in rows]
        scores = Scores(names, {"Success@10": np.array(hits)[rows]})
        return run.model_copy(
            update={
                "measured": scores,
                "scores": {"queries": names},
                "clusters": Clusters.alone(len(names)),
                "recipe": recipe or run.recipe,
            }
        )

    gaps = {}
    for kind in tables.QUESTION_KINDS:
        dense = [of_kind(kind, run, per_query([run], "Success@10")[0] / 100) for run in runs]
        words = of_kind(kind, runs[0], lexical, {"evaluation": {"kind": "bm25"}})
        gaps[kind] = difference(dense, [words], "Success@10").estimate.interval()
    assert -10 < gaps["words"].mean < 0 < gaps["meaning"].low
    assert gaps["paraphrase"].low < 0 < gaps["paraphrase"].mean
    assert 27 < gaps["meaning"].mean < 33, "three in ten, where BM25 finds none"
    took = [sum(run.seconds.values()) for run in runs]
    assert min(took) > 180 and max(took) < 300, "a few minutes"


RATES = ("15% / 15%", "15% / 30%", "30% / 30%", "30% / 50%")
STAGED = ("MASTER", "SimLM"), ("MASTER", "CDMAE"), ("RetroMAE", "CDMAE")
# before Holm's correction
MINED = ("MASTER, retriever 1", "SimLM, retriever 2", "CDMAE, retriever 2")
SURE = {
    "methods/stages": [
        *(f"{one}, retriever 1 minus {other}, retriever 1" for one, other in STAGED),
        *(f"MASTER, retriever 2 minus {other}" for other in MINED),
    ],
    "methods/equal-budgets": [f"{label} minus none" for label in ("condenser", "mlm", "simlm")],
    "simlm/table07": [
        "Enc-Dec MLM minus MLM",
        "Enc-Dec MLM minus Condenser",
        "MLM minus BERT-base",
        "SimLM minus MLM",
    ],
    "simlm/table08": [
        *(
            f"{unequal} minus {equal}"
            for unequal in ("15% / 30%", "30% / 50%", "30% / 100%")
            for equal in ("15% / 15%", "30% / 30%")
        ),
        "40% / 60% minus 30% / 30%",
    ],
    "master/figure03": [f"MASTER, {share}% minus SimLM, {share}%" for share in (5, 50, 100)],
    "methods/open-domain": [
        *(
            f"{method}, retriever 2 minus {bare}; accuracy@20"
            for method in ("MASTER", "SimLM")
            for bare in ("none", "none, retriever 2")
        ),
        "none minus PAIR; accuracy@20",
    ],
    "simlm/table10": ["target passages minus general text"],
    "cdmae/table04": ["w/o projection minus w/ projection"],
    "pair/table03": [
        *(f"w/o {part} minus Complete (PAIR); R@5" for part in ("PT", "KD")),
        "w/o PSR minus Complete (PAIR); MRR@10",
    ],
    "simlm/figure03": [
        *(
            f"SimLM, {steps} steps minus MLM, {steps} steps"
            for steps in ("2,000", "4,000", "16,000")
        ),
        *(  # at every price that was tried, as methods/budgets says
            f"AutoEncoder, {steps} steps minus {other} steps"
            for steps, others in {
                "1,000": ("MLM, 2,000", "SimLM, 500"),
                "2,000": ("MLM, 4,000", "SimLM, 1,000"),
                "16,000": ("MLM, 16,000", "SimLM, 16,000"),
            }.items()
            for other in others
        ),
    ],
    # before the correction that the page names
    "dpr_paq/table01": [
        *(f"{row} minus {row}, first round; MRR@10" for row in ("DPR (ours)", "DPR-PAQ")),
        "DPR (ours) minus DPR (ours), first round; accuracy@20",
    ],
    "dpr_paq/table04": [
        f"{first}, no fine-tuning minus {second}, no fine-tuning"
        for first, second in (("PAQ", "ICT"), ("ICT", "BFS"))
    ],
    "methods/controls": ["none, mean pooling minus none"],
    "master/table06": ["MASTER minus +Shared-Dec"],
}
PERHAPS = {
    "methods/equal-budgets": [
        "condenser minus mlm",
        *(f"{label} minus none" for label in ("cocondenser", "paq", "rtd", "encdec_rtd")),
    ],
    "simlm/table07": ["SimLM minus Enc-Dec MLM", "Condenser minus MLM"],
    "methods/stages": [
        "SimLM, retriever 2 minus SimLM, retriever 1",
        *(f"{one}, retriever 2 minus {other}, retriever 2" for one, other in STAGED[2:]),
    ],
    "simlm/table08": [
        *(f"{rates} minus {other}" for rates, other in pairwise(("15% / 30%", "30% / 50%"))),
        *(f"40% / 60% minus {other}" for other in RATES if other != "30% / 30%"),
        "15% / 15% minus 30% / 30%",
    ],
    "simlm/table01": ["BERT minus RoBERTa"],
    "simlm/table12": [
        f"joint train{way} minus frozen generator" for way in ("", " w/ random init")
    ],
    "pair/table05": ["0.8 / 0.2 minus 0.7 / 0.3; R@5"],
    "methods/rerankers": [
        f"{BEST_PUPIL} minus {CONTROL}",
        f"{BEST_PUPIL}, seven negatives minus {CONTROL}, seven",
    ],
    "dpr_paq/table04": ["PAQ minus None"],
    "simlm/figure03": [
        *(f"SimLM, {steps} steps minus MLM, {steps} steps" for steps in ("500", "1,000")),
        *(  # four steps of masked LM are one of SimLM
            f"SimLM, {steps} steps minus MLM, {as_many} steps"
            for steps, as_many in (("500", "2,000"), ("1,000", "4,000"), ("4,000", "16,000"))
        ),
    ],
    "methods/open-domain": ["MASTER, retriever 2 minus SimLM, retriever 2; accuracy@20"],
    "dpr_paq/table01": ["DPR-PAQ minus DPR-PAQ, first round; accuracy@20"],
}
"""Study -> differences that prose calls certain, or perhaps chance; in MRR@10 by default."""


@pytest.mark.parametrize(
    ("sure", "cell"),
    [
        (sure, f"{study}; {rows}" if "; " in rows else f"{study}; {rows}; MRR@10")
        for sure, cells in ((True, SURE), (False, PERHAPS))
        for study, listed in cells.items()
        for rows in listed
    ],
)
def test_a_difference_that_prose_calls_certain_excludes_zero_and_the_others_do_not(sure, cell):
    study, rows, measure, *_ = (part.strip() for part in cell.split(";"))
    first, second = rows.split(" minus ")
    runs = recorded_by_collection(study)["squad"]
    found = difference(runs[first], runs[second], measure)
    assert (found.estimate.p() < 0.05 and not found.why_open) is sure, found
    assert not sure or found.estimate.value > 0


FINDINGS = {
    "SimLM beats masked LM here, as the paper claims, and a plain auto-encoder beats both.": [
        "simlm/table07; SimLM minus MLM",
        "simlm/table07; AutoEncoder minus SimLM",
    ],
    "Pre-training on the target passages pays.": [
        "simlm/table07; SimLM minus MLM",
        "simlm/table07; MLM minus BERT-base",
    ],
    "Replacing everything the decoder reads is worst in the paper and best here": [
        f"simlm/table08; 30% / 100% minus {rates}"
        for rates in ("15% / 30%", "30% / 50%", "40% / 60%")
    ],
    "The auto-encoder is best; the paper has it below no pre-training.": [
        "simlm/table07; AutoEncoder minus SimLM"
    ],
    "CDMAE beats masked LM here, and gains once more when its linear layer is taken away.": [
        "methods/equal-budgets; cdmae minus mlm",
        "cdmae/table04; w/o projection minus w/ projection",
    ],
    "The retriever is better without the projection": [
        "cdmae/table04; w/o projection minus w/ projection"
    ],
    "Trading in-batch negatives for hard ones does harm here": [
        f"cdmae/figure04; {more} minus {fewer}"
        for more, fewer in pairwise(
            ("1 hard, batch 64", "3 hard, batch 32", "7 hard, batch 16", "15 hard, batch 8")
        )
    ],
    "After further training on the dialogues, posts still help on Topical-Chat.": [
        "dpr_paq/table03-tuned; Reddit, then dialogues minus dialogues; R@1; topical-chat"
    ],
    "MASTER has the highest mean of the five papers' methods here, and a plain auto-encoder is far"
    " ahead of it.": ["methods/equal-budgets; autoencoder minus master"],
    "Recovering the passage is the task that counts.": [
        "master/table06; MASTER minus w/o CPR",
        "master/table06; SimLM minus w/o CPR",
    ],
    "Few steps are too few here.": [
        "master/figure03-steps; SimLM minus MASTER, an eighth of the steps",
        "master/figure03-steps; SimLM minus MASTER, a quarter of the steps",
    ],
    "It helps more where labels are few.": ["master/figure03; MASTER, 5% minus SimLM, 5%"],
    "Zero-shot, on other collections, little is left of the gains, and BM25 is ahead.": [
        "evaluation/zero-shot; BM25 minus SimLM; nDCG@10; scifact"
    ],
    "Skipping the pre-training is better than the whole method here": [
        "pair/table03; w/o PT minus Complete (PAIR)"
    ],
}
"""Bold finding of a paper's page -> the differences that support it, as in `SURE`."""

UNTRAINED = {
    "Generated questions help before fine-tuning; after it their gain is too small to see.",
    "Before fine-tuning, generated questions put the answer among the first 20 for a third more of"
    " all questions.",
}
"""Findings against the untrained base model, which has no seeds."""

HEDGES = re.compile(r"\b(may|probably|open|close)\b|\?$")


def test_a_bold_finding_of_a_papers_page_is_certain_or_says_that_it_may_be_chance():
    bold = re.compile(r"^(?:- )?\*\*([^*]+)\*\*", re.MULTILINE)
    pages = [(ROOT / "book" / "papers" / f"{name}.md").read_text("utf-8") for name in load_papers()]
    findings = {text for page in pages for text in bold.findall(page) if len(text.split()) > 5}
    unsaid = {text for text in findings - {*FINDINGS, *UNTRAINED} if not HEDGES.search(text)}
    assert not unsaid, "each names its differences here, or hedges"
    assert {*FINDINGS, *UNTRAINED} <= findings, "no entry outlives its sentence"


@pytest.mark.parametrize("cell", sorted({cell for cells in FINDINGS.values() for cell in cells}))
def test_what_carries_a_bold_finding_is_certain(cell):
    study, rows, measure, where = (cell if cell.count(";") > 1 else f"{cell}; MRR@10; squad").split(
        "; "
    )
    first, second = rows.split(" minus ")
    runs = recorded_by_collection(study)[where]
    found = difference(runs[first], runs[second], measure)
    assert found.certain and found.estimate.value > 0, found


@pytest.mark.parametrize("paper", sorted(load_papers()))
def test_a_papers_page_opens_with_as_many_seeds_as_the_rows_of_its_finding_have(paper):
    text = (ROOT / "book" / "papers" / f"{paper}.md").read_text("utf-8")
    opening = next(part for part in text.split("\n\n") if part.startswith("**"))
    (said,) = re.findall(r"\{seeds\}`([^`]+)`", opening)
    cells = [
        *re.findall(r"\{measured\}`([^`]+)`", opening),
        *FINDINGS.get(opening.split("**")[1], ()),
    ]
    rows = [
        f"{study}; {row}"
        for study, names in (cell.split("; ")[:2] for cell in cells)
        for row in names.split(" minus ")
    ]
    named = [seeds_in(runs) for row in rows for runs in trained_rows(row)]
    assert seeds([*map(seeds_in, trained_rows(said))]) == seeds(named)


def test_generated_questions_help_the_base_model_before_fine_tuning():
    runs = recorded_by_collection("dpr_paq/figure02")["squad"]
    rows = (runs[f"{pairs} pairs, no fine-tuning"] for pairs in ("all", "no"))
    gain = difference(*rows, "accuracy@20").estimate.interval()
    assert gain.low > 28 and gain.high < 40, "a third of all questions"
    bare = {
        number: [one.means["accuracy@20"] for one in runs[f"{number} pairs, no fine-tuning"]]
        for number in ("no", "500", "1,500", "all")
    }
    none, few, some, every = (np.mean(bare[number]) for number in ("no", "500", "1,500", "all"))
    assert 0.8 < (some - none) / (every - none) < 0.87, "five sixths"
    assert 0.6 < (few - none) / (every - none) < 0.65, "five eighths"
    for more, fewer, side in (("all", "10,000", 0), ("10,000", "3,000", 1), ("1,500", "500", 1)):
        rows = (runs[f"{number} pairs, no fine-tuning"] for number in (more, fewer))
        assert difference(*rows, "accuracy@20").estimate.side() == side, "grows up to 10,000"


def test_peoples_questions_teach_as_much_as_generated_ones_and_all_of_them_more():
    runs = recorded_by_collection("dpr_paq/figure02")["squad"]
    numbers = ("500", "1,500", "3,000", "10,000", "all")
    people = {number: runs[f"{number} pairs by people, no fine-tuning"] for number in numbers}
    more = {
        number: difference(
            people[number], runs[f"{number} pairs, no fine-tuning"], "accuracy@20"
        ).estimate
        for number in numbers
    }
    assert (holm([one.p() for one in more.values()]) < 0.05).tolist() == 4 * [False] + [True]
    assert 3.5 < more["all"].value < 4, "almost four points"
    for larger, smaller in zip(numbers[1:], numbers, strict=False):
        rows = people[larger], people[smaller]
        assert difference(*rows, "accuracy@20").estimate.side() == 1, "from every further part"


def test_no_weight_of_the_passages_side_pays():
    runs = recorded_by_collection("pair/alpha")["squad"]
    given = ", given labels, no fine-tuning"
    means = {label: one.mean for label, one in mean_intervals(runs, "MRR@10").items()}
    for kind, weights in (("", ("0.1",)), (given, ("0.1", "0.3", "0.5", "1"))):
        assert means[f"0{kind}"] > max(means[f"{weight}{kind}"] for weight in weights)
    costs = [
        difference(runs[f"{weight}{given}"], runs[f"0{given}"], "MRR@10").estimate
        for weight in ("0.1", "0.3", "0.5", "1")
    ]
    assert {one.side() for one in costs} == {-1}
    assert max(holm([one.p() for one in costs])) < 0.05
    assert 2 < -costs[0].value < 3 and 3.5 < -costs[2].value < 4
    assert difference(runs["0.1"], runs["0"], "MRR@10").estimate.side() == -1
    assert -0.7 < means["0.1"] - means["0"] < -0.4, "half a point"
    assert means[f"1{given}"] < 4, "hardly teaches to rank"


def test_after_fine_tuning_no_number_of_generated_questions_helps():
    runs = {
        label: [one for one in own if "accuracy@20" in one.means]
        for label, own in recorded_by_collection("dpr_paq/figure02")["squad"].items()
    }
    costs = {
        number: difference(runs[f"{number} pairs"], runs["no pairs"], "accuracy@20").estimate
        for number in ("500", "1,500", "3,000", "10,000", "all")
    }
    assert min(holm([one.p() for one in costs.values()])) > 0.1


def test_what_reading_posts_together_changes_may_be_chance_after_holms_correction():
    """As dpr_paq/table03_tuned says: on one set the interval alone excludes zero."""
    rows = "Reddit together, then dialogues", "Reddit, then dialogues"
    gaps = {
        name: difference(runs[rows[0]], runs[rows[1]], "R@1").estimate
        for name, runs in recorded_by_collection("dpr_paq/table03-tuned").items()
    }
    p = {name: gap.p() for name, gap in gaps.items()}
    assert p["topical-chat"] < 0.05 < min(p["ubuntu-irc"], p["sgd"])
    assert min(holm(list(p.values()))) > 0.05


def test_posts_help_with_certainty_on_one_of_three_sets_of_dialogues():
    """As dpr_paq/table03_tuned says of what Reddit adds."""
    recorded = recorded_by_collection("dpr_paq/table03-tuned")
    p = {
        name: difference(runs["Reddit, then dialogues"], runs["dialogues"], "R@1").estimate.p()
        for name, runs in recorded.items()
    }
    assert p["topical-chat"] < 0.05 < min(p["ubuntu-irc"], p["sgd"])


def test_which_step_to_the_auto_encoder_gains_more_than_which():
    """As simlm/table07_objectives says of the first: more than the last two, perhaps than the
    second.
    """
    runs = recorded_by_collection("simlm/table07")["squad"]
    rows = ["SimLM", "SimLM, 30% / 100%", "Enc-Dec MLM, 30% / 100%", "AutoEncoder, 30% masked"]
    sides = [Side(runs[row], "MRR@10") for row in (*rows, "AutoEncoder")]
    first, *later = [((1.0, end), (-1.0, start)) for start, end in pairwise(sides)]
    more = []
    for step in later:
        terms: dict[Side, float] = {}
        for weight, side in (*first, *((-weight, side) for weight, side in step)):
            terms[side] = terms.get(side, 0.0) + weight
        more.append(compared([(weight, side) for side, weight in terms.items()]))
    assert all(gap.estimate.value > 0 for gap in more)
    assert [gap.certain for gap in more] == [False, True, True]


def test_masters_lead_is_larger_with_few_labels_than_with_all():
    """As master/fig3_few_shot and the paper's page say."""
    runs = recorded_by_collection("master/figure03")["squad"]
    few, whole = (
        [Side(runs[f"{name}, {share}%"], "MRR@10") for name in ("MASTER", "SimLM")]
        for share in (5, 100)
    )
    more = compared([*zip((1.0, -1.0), few, strict=True), *zip((-1.0, 1.0), whole, strict=True)])
    assert more.certain and more.estimate.value > 0


def test_masters_questions_come_from_all_labels_at_every_share_of_them():
    """As master/fig3_few_shot and the paper's page say."""
    runs = recorded_by_collection("master/figure03")["squad"]
    shares = [record for label, own in runs.items() for record in own if "MASTER" in label]
    few = [record for record in shares if record.recipe.get("few_shot")]
    steps = recorded_by_collection("master/figure03-steps")["squad"]["MASTER"]
    whole = {
        record.keys["question_generator"]
        for record in (*shares, *steps)
        if not record.recipe.get("few_shot")
    }
    assert few and {record.keys["question_generator"] for record in few} <= whole


def test_the_page_of_the_larger_model_names_all_that_changed_with_the_size():
    sizes = [
        recorded_by_collection(study)["squad"]["simlm"][0].recipe
        for study in ("methods/larger-model", "methods/equal-budgets")
    ]
    unlike = {"checkpoint_every", "compile"}  # how it was run

    def settings(recipe):
        parts = {name: recipe[name] for name in ("pretraining", "finetuning", "negatives")}
        whole = {name: {"": recipe[name]} for name in ("base", "passage_length", "query_length")}
        return {
            (part, name): value
            for part, values in (parts | whole).items()
            for name, value in values.items()
            if name not in unlike
        }

    large, small = map(settings, sizes)
    assert {key for key in large.keys() | small.keys() if large.get(key) != small.get(key)} == {
        ("base", ""),
        ("passage_length", ""),
        *(("pretraining", name) for name in ("steps", "learning_rate", "tokens_per_batch")),
        *(
            ("finetuning", name)
            for name in ("steps", "learning_rate", "batch_queries", "negatives")
        ),
        ("negatives", "depth"),
    }
    batch = [large["finetuning", "batch_queries"], small["finetuning", "batch_queries"]]
    steps = [large["finetuning", "steps"], small["finetuning", "steps"]]
    assert batch[0] == 2 * batch[1] and 2 * steps[0] == steps[1]
    read = [
        size["pretraining", "steps"] * size["pretraining", "tokens_per_batch"]
        for size in (large, small)
    ]
    assert 11.5 < read[0] / read[1] < 12.5


def test_every_difference_that_a_page_names_is_there():
    pages = [*NOTEBOOKS, *(ROOT / "book").glob("*.md"), *(ROOT / "book").glob("*/*.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    cells = re.findall(r"\{difference\}`([^`]+)`", text)
    assert len(cells) > 10
    for cell in cells:
        assert re.search(r"\d", differing(cell)[0]), cell


def test_no_page_says_which_way_a_claim_leans():
    pages = [*NOTEBOOKS, *(ROOT / "book").glob("*.md"), *(ROOT / "book").glob("*/*.md")]
    sources = [
        *pages,
        *(ROOT / "book" / "dr_book").glob("*.py"),
        *(ROOT / "book" / "_ext").glob("*.py"),
    ]
    words = re.compile(r"\blean(s|ing)\b|\b(held in part|one seed only)\b")
    assert not [path.name for path in sources if words.search(path.read_text(encoding="utf-8"))]


def test_few_steps_of_master_are_too_few():
    """As master/fig3_steps says."""
    runs = recorded("master/figure03-steps")
    few = [f"MASTER, {part} of the steps" for part in ("an eighth", "a quarter", "half")]
    *means, whole, none = (
        per_query(runs[label], "MRR@10").mean() for label in (*few, "MASTER", "no pre-training")
    )
    _, quarter, half = ((mean - none) / (whole - none) for mean in means)
    assert 0.2 < quarter < 0.3 and 0.5 < half < 0.65, "a quarter; more than half"
    pairs = [(label, "SimLM") for label in (*few, "MASTER")]
    pairs += [("MASTER", few[0]), (few[0], "no pre-training"), ("MASTER", "no pre-training")]
    p, gaps = (find(pairs, runs, "MRR@10") for find in (corrected_tests, differences))
    assert all(p[pair] < 0.05 and gaps[pair].high < 0 for pair in pairs[:2])
    assert p[few[2], "SimLM"] > 0.4
    assert gaps["MASTER", "SimLM"].low > 0 and p["MASTER", "SimLM"] > 0.05, "ahead before Holm"
    assert p[few[0], "no pre-training"] > 0.4
    assert {seeds_in(runs[label]) for label in (*few, "MASTER", "no pre-training")} == {2}


def test_of_masters_second_retrievers_only_the_loss_without_the_passage_tasks_is_certain():
    """As master/table06_tasks says."""
    runs = recorded("master/table06-second")
    variants = ("w/o CPR", "w/o RPR", "w/o POR")
    pairs = [("MASTER", row) for row in variants] + [(row, "SimLM") for row in variants]
    gaps = differences(pairs, runs, "MRR@10")
    assert [pair for pair in pairs if gaps[pair].low * gaps[pair].high > 0] == pairs[:1]
    assert gaps[pairs[0]].low > 0 and {seeds_in(runs[row]) for row in variants} == {1}


def test_nearly_half_of_the_records_were_made_on_a_gpu_and_most_of_the_plans():
    """As practice/gpu says."""

    def share(records: list) -> float:
        return np.mean([bool(record.machine.get("gpus")) for record in records])

    every = all_recorded()
    assert 0.42 < share(every) < 0.5
    assert share([record for record in every if record.study.startswith("plan/")]) > 0.5
    assert share([record for record in every if record.scale == "gpu"]) == 1


def test_the_page_of_the_plan_counts_the_contrasts_that_wait_and_names_the_contradicted_one():
    blocks, overlaps = plan.recorded()
    judged = plan.verdicts(blocks, overlaps)
    words = {verdict.contrast["id"]: verdict.word for verdict in judged}
    assert plan.opened_by_holm(judged) == [
        "autoencoder-leads-on-titles",
        "autoencoder-leads-elsewhere",
        "bottleneck-over-masking",
        "masking-over-none",
        "false-words",
        "bottleneck-over-masking-at-best-rates",
        "decoder-unneeded-unread",
    ], "of those on SQuAD alone the last three, as the page says"
    assert words["masking-over-none"] == words["bottleneck-over-masking"] == "supported"
    waiting = sum(word in ("waits", "not run") for word in words.values())
    assert (waiting, len(words)) == (4, 33), "says the opening: four of 33"
    unread = blocks["squad, unread"]
    read, not_read, of_simlm = (
        unread.difference(label, "none", "MRR@10")
        for label in ("autoencoder", "autoencoder, unread", "simlm")
    )
    assert words["gain-without-reading-the-test"] == "supported"
    of_gain, over_simlm, over_cdmae, over_master, simlm_gain, over_mlm = (
        unread.share((f"{first}, unread", second + end), (first, second), "MRR@10")
        for first, second, end in (
            ("autoencoder", "none", ""),
            *(("autoencoder", paper, ", unread") for paper in ("simlm", "cdmae", "master")),
            ("simlm", "none", ""),
            ("simlm", "mlm", ", unread"),
        )
    )
    lost = 100 - of_gain.high, 100 - of_gain.low
    assert 47.5 < lost[0] < 52.5 and 64 < lost[1] < 70, (
        "half to two thirds, say home page and README"
    )
    assert 55 < 100 - simlm_gain.mean < 80 and simlm_gain.high < 60, "probably more than half"
    lost = 100 - over_simlm.high, 100 - over_simlm.low
    assert 30 < lost[0] < 40 and 64 < lost[1] < 70, "a third to two thirds of the lead"
    for smaller in (over_simlm, over_cdmae, over_master):
        assert smaller.low > 25 and smaller.high < 90, "ahead of the papers' three by less"
    assert over_mlm.low > 25, "a lead that stays, says the paper's page"
    assert 1.5 < not_read.value < 2.5 < 4.5 < read.value < 5.5, "two points in place of five"
    simlm_not_read = unread.difference("simlm, unread", "none", "MRR@10")
    assert simlm_not_read.side() > 0 and 0.55 < simlm_not_read.value < 0.8, "two thirds of a point"
    assert 1.5 < of_simlm.value < 2.5, "in place of two"
    assert words["autoencoder-leads-unread"] == "supported"
    leads, led = (
        unread.difference(f"autoencoder{end}", f"simlm{end}", "MRR@10") for end in (", unread", "")
    )
    assert leads.side() > 0 and 1.25 < leads.value < 1.75 < 2.75 < led.value < 3.25
    masked = unread.difference("mlm, unread", "none", "MRR@10")
    assert not masked.side() and masked.value < 0.2, "nothing that shows"
    assert 0.8 < unread.difference("mlm", "none", "MRR@10").value < 1.2, "in place of one"
    assert words["words-alone-unread"] == words["decoder-unneeded-unread"] == "supported"
    of_cdmae = unread.difference("cdmae, unread", "none", "MRR@10")
    assert not of_cdmae.side() and of_cdmae.value < 0.3, "nothing that shows"
    assert words["autoencoder-over-cdmae-unread"] == "supported"
    of_master, before = (
        unread.difference(f"master{end}", "none", "MRR@10") for end in (", unread", "")
    )
    assert of_master.side() > 0 and 0.75 < of_master.value < 0.95, "less than a point"
    assert 2.75 < before.value < 3.25, "in place of three"
    assert words["autoencoder-over-master-unread"] == "supported"
    assert unread.difference("autoencoder, unread", "master, unread", "MRR@10").value > 1
    bag, alone = (
        unread.difference("bow, 0, binary, unread", other, "MRR@10")
        for other in ("none", "autoencoder, unread")
    )
    assert 2.5 < bag.value < 2.9 and bag.side() > 0, "over two and a half points"
    assert alone.side() > 0 and 0.4 < alone.value < 0.7, "ahead, by about half a point"
    pure = blocks["squad, decoder"].difference("bow, 0, binary", "none", "MRR@10")
    assert 4.5 < pure.value < 5.5 and bag.value / pure.value < 0.6, "in place of five"
    level = blocks["squad, decoder"].difference("bow, 0, binary", "autoencoder", "MRR@10")
    assert not level.side() and level.p_within(1.0) < 0.05, "level where all was read"
    asked = ("read-and-asked", "read-and-asked-words", "fewer-passages")
    assert [words[name] for name in asked] == ["supported"] * 3
    for label in ("autoencoder", "bow, 0, binary"):
        others = unread.difference(f"{label}, others unread", label, "MRR@10")
        assert others.value > 0 and others.interval().low > -0.5, "no less than with all"
        whole = f"{label}, others unread"
        of_asked = unread.share((whole, f"{label}, unread"), (whole, "none"), "MRR@10")
        assert 35 < of_asked.low < 55 < of_asked.high < 72, "about half of it"
    assert words["autoencoder-over-masking-unread"] == "supported"
    assert words["bottleneck-over-masking-unread"] == "supported"
    assert unread.difference("simlm, unread", "mlm, unread", "MRR@10").side() > 0, "stays ahead"
    assert words["bottleneck-over-masking-at-best-rates"] == "supported", "as its bullet says"
    shown = {verdict.contrast["id"]: verdict.shown for verdict in judged}
    best = shown["bottleneck-over-masking-at-best-rates"]["squad, rates"]
    on_test = plan.Block.load("plan/core").difference("simlm", "mlm", "MRR@10")
    assert 0 < best.value < on_test.value, "by less"
    leads = shown["autoencoder-leads-at-best-rates"]["squad, rates"]
    shared = plan.Block.load("plan/core").difference("autoencoder", "simlm", "MRR@10")
    assert leads.side() > 0 and leads.value > shared.value, "by no less"
    assert words["autoencoder-leads-elsewhere"] == "supported"
    others = plan.deciding(plan.elsewhere())
    assert len(others) == 9 and "medquad" not in others
    rows = ("autoencoder", "simlm", "nDCG@10")
    whole, without = (
        plan.together([block for name, block in others.items() if name != left_out], *rows)
        for left_out in ("", "medline")
    )
    assert without.value < 0.6 * whole.value and without.interval().low < 0, "half is Medline's"
    assert [name for name, word in words.items() if word == "contradicted"] == [
        "decoder-unneeded",
        "coverage-predicts-gain",
    ]
    both, decoders, reddit = (
        blocks[name] for name in ("squad", "squad, decoder", "reddit-retrieval")
    )
    assert words["more-than-an-idle-state"] == "supported"
    pooled, mean = blocks["squad, pooling"], "mlm, mean pooling"
    ahead = {
        label: pooled.difference(label, mean, "MRR@10")
        for label in ("mlm", "simlm", "retromae", "bow", "autoencoder")
    }
    assert [gap.side() for gap in ahead.values()] == [-1, 0, 1, 1, 1]
    assert 0 < ahead["simlm"].value < 0.5 < -ahead["mlm"].value, "near, by more than half the lead"
    assert 0.6 < -ahead["mlm"].value < 0.75 and 2.6 < ahead["autoencoder"].value < 3.5
    assert 0.5 < ahead["retromae"].value < ahead["bow"].value < 1.5, "about a point"
    level, below = (
        both.difference("bow", other, "MRR@10") for other in ("retromae", "autoencoder")
    )
    assert level.p_within(1.0) < 0.05 and below.side() < 0, "about as much, and clearly more"
    fresh = decoders.difference("autoencoder, 2 layers, random", "bow", "MRR@10")
    assert fresh.p_within(1.0) < 0.05, "level with bag of words"
    gained = {
        label: decoders.difference(label, "none", "MRR@10").value
        for label in ("autoencoder", "bow", "bow, 0, binary", "autoencoder, 2 layers, random")
    }
    half = gained["bow"], gained["autoencoder, 2 layers, random"]
    assert all(0.45 < gain / gained["autoencoder"] < 0.6 for gain in half), "half, hidden or fresh"
    for part in ("", "-dev"):
        core, rows = (plan.Block.load(f"plan/{name}{part}").runs for name in ("core", "decoder"))
        gap = plan.Block({**core, **rows}).difference("bow, 0, binary", "autoencoder", "MRR@10")
        assert gap.p_within(1.0) < 0.05, "with nothing hidden level, on test and on dev"
    gap = decoders.difference("bow, 0, binary", "autoencoder", "MRR@10")
    assert gap.p_within(1.0) < 0.05, "and on both together"
    for counted, once in (("bow, 0, count", "bow, 0, binary"), ("bow, 30, count", "bow")):
        gap = decoders.difference(counted, once, "MRR@10")
        assert gap.p_within(1.0) < 0.05, "counts change little at either rate"
    reading, masked = blocks["squad, reading"], "autoencoder, 30 masked"
    hidden = reading.difference("autoencoder", masked, "MRR@10")
    assert hidden.side() == 0 and hidden.p_within(1.0) < 0.05, "hidden words cost little"
    assert words["reading-everything"] == "open" and words["false-words"] == "supported"
    assert 0.15 < hidden.value < 0.35, "a quarter"
    masks = "encdec_mlm, 30/100 masked"
    for more, less in ((masks, "simlm, 2 layers, 30/100"), (masked, masks)):
        step = reading.difference(more, less, "MRR@10")
        assert step.side() == 1 and 0.55 < step.value < 0.75, "two thirds, twice"
    for label in ("simlm, 2 layers, 30/100", "bow"):
        assert reading.difference(masked, label, "MRR@10").side() == 1, "a loss there costs"
    clean = decoders.difference("bow, 0, binary", "bow", "MRR@10")
    assert clean.side() == 1 and 1.8 < clean.value < 2.5, "two points"
    shallow = decoders.difference(
        "autoencoder, 1 layer, random", "autoencoder, 2 layers, random", "MRR@10"
    )
    assert shallow.side() == 0 and -1.2 < shallow.value < -0.8, "a point, which may be chance"
    assert decoders.difference("autoencoder, 1 layer, random", "simlm", "MRR@10").side() == 0
    means = reddit.means("MRR@10")
    titles = [np.mean(means[label]) for label in ("autoencoder", "simlm", "mlm", "none")]
    assert titles == sorted(titles, reverse=True), "the same order"
    for label in ("autoencoder", "bow", "simlm", "mlm"):
        gains = (block.difference(label, "none", "MRR@10").value for block in (reddit, decoders))
        assert operator.lt(*gains), "smaller gaps"
    assert reddit.difference("bow", "autoencoder", "MRR@10").p_within(1.0) < 0.05, "level there"
    orders = ("bow", "autoencoder"), ("master", "retromae"), ("retromae", "cdmae")
    orders += ("cdmae", "simlm"), ("simlm", "condenser"), ("condenser", "mlm")
    gains = {
        label: reddit.difference(label, "none", "MRR@10").value
        for label in reddit.runs.keys() - {"none"}
    }
    assert all(gains[first] > gains[second] for first, second in orders)
    assert min(gains["bow"], gains["autoencoder"]) > gains["master"]
    settings = {
        "30/50": ("simlm", "simlm, 1 layer, 30/50"),
        "30/100": ("simlm, 2 layers, 30/100", "simlm, 1 layer, 30/100"),
        "0/100": ("simlm, 2 layers, 0/100", "simlm, 1 layer, 0/100"),
    }
    for deep, shallow in (*settings.values(), ("autoencoder", "autoencoder, 1 layer, trained")):
        assert decoders.difference(shallow, deep, "MRR@10").p_within(1.0) < 0.05, "within a point"
    two, more, all_hidden = (
        decoders.difference(deep, "none", "MRR@10").value for deep, _ in settings.values()
    )
    assert 1.8 < two < 2.2 and 3.3 < more < 3.7 and 4.8 < all_hidden < 5.3, "2, 3.5 and 5 points"
    names = [deep for deep, _ in settings.values()]
    for less, hides_less in pairwise(names):
        gap = decoders.difference(hides_less, less, "MRR@10")
        assert gap.side() == 1 and 1.4 < gap.value < 1.7, "a point and a half, twice"
    assert decoders.difference(names[-1], "autoencoder", "MRR@10").p_within(1.0) < 0.05, "level"


def test_the_page_on_the_bottleneck_leads_with_what_it_says_first():
    """Its leading figure: the rows of its third paragraph, whose gains are tested above."""
    page = ROOT / "notebooks" / "methods" / "what_the_bottleneck_buys.ipynb"
    cells = [cell.source for cell in nbformat.read(page, as_version=4).cells]
    (source,) = (source for source in cells if "leading=True" in source)
    assigned = {
        ast.unparse(node.targets[0]): node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
    }
    rows = [two_layers for two_layers, _ in ast.literal_eval(assigned["built"]).values()]
    changes = ["simlm", "simlm, 2 layers, 30/100", "encdec_mlm, 30/100 masked"]
    changes += ["autoencoder, 30 masked", "autoencoder"]
    unread = ["bow, 0, binary, unread", "autoencoder, unread", "simlm, unread"]
    assert rows == [*changes, "simlm, 2 layers, 0/100", "bow, 0, binary", *unread]
    (led,) = (line for line in source.splitlines() if "leading=True" in line)
    assert "panels(gained, [*built], " in led, "no others"


def test_the_page_on_the_bottleneck_is_read_in_five_minutes():
    """And links to the page with the rest."""
    page = ROOT / "notebooks" / "methods" / "what_the_bottleneck_buys.ipynb"
    cells = nbformat.read(page, as_version=4).cells
    words = sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")
    assert words < 5 * 300, "with addresses and marks, which nobody reads"
    assert "{doc}`words_and_cost`" in opening(page)[3]


def test_away_from_home_only_the_auto_encoder_gains_for_certain_and_on_scifact():
    """As evaluation/zero_shot says."""
    runs = recorded_by_collection("evaluation/zero-shot")
    again = recorded_by_collection("plan/core-elsewhere")
    rows = {
        place: own | {"auto-encoder": again[place]["autoencoder"]} for place, own in runs.items()
    }

    def gain(label: str, places: Collection[str]) -> Estimate:
        signed = ((1, label), (-1, "no pre-training"))
        return compared(
            [
                (sign / len(places), Side(rows[place][row], "nDCG@10"))
                for place in places
                for sign, row in signed
            ]
        ).estimate

    methods = {label for own in rows.values() for label in own} - {"BM25", "no pre-training"}
    assert {label for label in methods if gain(label, [*rows]).side()} == {"auto-encoder"}
    best = gain("auto-encoder", [*rows])
    assert best.side() == 1 and 10 < gain("BM25", [*rows]).value / best.value < 16
    assert gain("auto-encoder", [place for place in rows if place != "scifact"]).side() == 0


def test_what_equal_budgets_says_of_masked_lm_holds_among_all_its_comparisons():
    runs = recorded_by_collection("methods/equal-budgets")["squad"]
    runs = {**runs, "bow": recorded_by_collection("plan/core")["squad"]["bow"]}
    pairs = [(label, "mlm") for label in runs if label not in ("mlm", "BM25")]
    p, gaps = (find(pairs, runs, "MRR@10") for find in (corrected_tests, differences))
    sides = {
        label: np.sign(gaps[label, "mlm"].mean) * (p[label, "mlm"] < 0.05) for label, _ in pairs
    }
    ahead = {label for label, side in sides.items() if side > 0}
    assert len(ahead) > 5 and all("one vector" in method(label).family for label in ahead)
    assert (sides["rtd"], sides["encdec_rtd"]) == (-1, 0), "ELECTRA's form alone is below"
    assert {sides[label] for label in ("ict", "bfs", "nsp", "paq")} == {0}


def test_what_mining_changes_may_be_chance_after_holms_correction():
    """As methods/stages says of its two tables."""
    runs = recorded_by_collection("methods/stages")["squad"]
    names = ("MASTER", "RetroMAE", "SimLM", "CDMAE", "coCondenser")
    mined = [(f"{name}, retriever 2", f"{name}, retriever 1") for name in names]
    mined.append(("SimLM, second mining round", "SimLM, retriever 2"))
    both = [(one, two) for one in ("CDMAE", "MASTER") for two in names if two not in (one, "CDMAE")]
    later = [(f"{one}, retriever 2", f"{two}, retriever 2") for one, two in both]
    earlier = [(f"{one}, retriever 1", f"{two}, retriever 1") for one, two in both]
    assert min(corrected_tests(mined, runs, "MRR@10").values()) > 0.05
    p = corrected_tests(earlier + later, runs, "MRR@10")
    sure = {pair for pair in later if p[pair] < 0.05}
    assert sure == {("MASTER, retriever 2", "coCondenser, retriever 2")}
    gaps = differences(later, runs, "MRR@10")
    assert {pair for pair in later if gaps[pair].low > 0} == sure | {
        ("MASTER, retriever 2", "SimLM, retriever 2"),
        ("CDMAE, retriever 2", "coCondenser, retriever 2"),
    }


def reading(name: str) -> str:
    """The text of a page about its result."""
    return opening(ROOT / "notebooks" / f"{name}.ipynb")[2]


def test_what_a_teacher_that_was_stopped_early_did_is_blamed_on_that_and_nothing_is_ranked_by_it():
    for name in ("simlm/table06_stages", "methods/pipeline", "simlm/table05_rerankers"):
        assert "stopped while" in reading(name), name
    claim = load_papers()["simlm"].claim("simlm-reranker-init")
    assert answer(claim)[0].verdict == "not testable here"
    assert reading("simlm/table05_rerankers").startswith("Which start is best is not testable here")
    pages = [*(ROOT / "book").glob("*/*.md"), *NOTEBOOKS]
    words = re.compile(r"distillation (harms|does harm|hurts)|better start for that re-ranker")
    assert not [path.name for path in pages if words.search(path.read_text(encoding="utf-8"))]


def test_the_mean_of_its_states_brings_masked_lm_nearer_to_simlm_and_is_not_shown_to_be_level():
    """As papers/simlm says: a margin of a point would be as wide as the whole lead."""
    for part, ahead in (({"both": True}, 0), ({}, 1)):
        core, pooled = (
            plan.Block.load(f"plan/{name}", **part).runs for name in ("core", "pooling")
        )
        block = plan.Block({**core, **pooled})
        gap = block.difference("simlm", "mlm, mean pooling", "MRR@10")
        assert gap.side() == ahead and gap.p_within(0.5) > 0.05, gap
        assert 0 < gap.value < block.difference("simlm", "mlm", "MRR@10").value


def test_the_generators_means_lie_within_a_tenth_of_a_point():
    rows = ("frozen generator", "joint train", "joint train w/ random init")
    numbers = [value(f"simlm/table12; {row}; MRR@10") for row in rows]
    assert max(numbers) - min(numbers) <= 0.1


def test_the_auto_encoders_long_time_is_the_machines():
    """As ideas/choosing-a-method says: as many operations as Enc-Dec MLM, and as much work."""
    runs, times = recorded_by_collection("methods/equal-budgets")["squad"], {}
    for label in ("autoencoder", "encdec_mlm"):
        logs = [run.training["pretrained"] for run in runs[label]]
        (times[label],) = (log for log in logs if log["device"] == "cpu")
    long, short = times.values()
    assert long["wall_seconds"] > 4 * short["wall_seconds"]
    assert long["processor_seconds"] < 1.3 * short["processor_seconds"]


def test_gains_by_shared_words_are_read_from_one_column():
    """What methods/words_and_cost says of the fifths: highest minus lowest."""
    both = plan.Block.load("plan/core", both=True)
    overlaps = [plan.Block.load(study).first for study in ("plan/overlap", "plan/overlap-dev")]
    groups = plan.fifths(both, overlaps)
    # every bottleneck of the plan, two that the figure leaves out among them, and masked LM
    labels = ("autoencoder", "bow", "retromae", "simlm", "cdmae", "master", "mlm")
    grown = {
        label: both.between_groups(label, "none", "MRR@10", groups).interval() for label in labels
    }
    first, *grow, perhaps = grown.values()
    assert first.low > max(gap.high for gap in grow), "the auto-encoder's grows by far the most"
    assert all(gap.low > 0 for gap in grow) and perhaps.low <= 0 <= perhaps.high
    shares = {label: both.shares_gained(label, "none", "MRR@10", groups)[-1] for label in labels}
    first, *flat = (share.interval() for share in shares.values())
    assert first.low > 0, "only the auto-encoder's grows as a share too"
    assert all(gap.low < 0 < gap.high and abs(gap.mean) < 2 for gap in flat)
    level = both.values("none", "MRR@10").mean(axis=0)
    assert 1.6 < level[groups == 4].mean() / level[groups == 0].mean() < 1.75, "two thirds more"
    for label in labels[:-1]:
        assert both.by_group(label, "none", "MRR@10", groups)[0].interval().low > 0


def test_coverage_orders_the_methods_on_squad_but_for_master_and_less_on_titles():
    """As methods/words_and_cost says."""
    order = {}
    for name in ("squad", "reddit-retrieval"):
        shares = plan.coverage(name)
        means = plan.Block.load("plan/core", name, both=True).means("MRR@10")
        assert all(len(own) == plan.seeds_of(1) for own in means.values())
        for left_out in ("", "master"):
            rows = [label for label in means if label != left_out]
            pairs = [(shares[label], np.mean(means[label])) for label in rows]
            order[name, left_out] = scipy.stats.spearmanr(pairs).statistic
    assert order["squad", ""] > plan.ENOUGH > order["reddit-retrieval", ""]
    assert order["squad", "master"] - order["squad", ""] == pytest.approx(0.2, abs=0.05)
    assert order["reddit-retrieval", "master"] - order["reddit-retrieval", ""] > 0.2
    squad, titles = plan.coverage(), plan.coverage("reddit-retrieval")
    assert squad["master"] < squad["bow"] / 2 and titles["master"] < titles["none"]
    assert titles["mlm"] == pytest.approx(titles["simlm"], abs=0.01)


def test_few_labels_raise_simlms_gain_and_leave_that_of_generated_questions_small():
    """As methods/words_and_cost says of 2,000 and 5,000 labelled questions."""
    measure, whole = "MRR@10", plan.Block.load("plan/core", both=True)
    few = plan.Block.load("plan/few-labels", both=True)
    for count in ("2,000", "5,000"):
        rows = {
            label: f"{label}, {count} labelled queries"
            for label in ("none", "mlm", "simlm", "autoencoder", "paq")
        }
        gains = {
            label: few.difference(row, rows["none"], measure)
            for label, row in rows.items()
            if label != "none"
        }
        seeds = {label: few.seed_count(row) for label, row in rows.items()}
        assert {*seeds.values()} == {3}
        simlm, best = (
            whole.difference(label, "none", measure) for label in ("simlm", "autoencoder")
        )
        assert 1.7 < gains["simlm"].value / simlm.value < 2.1, "nearly twice"
        assert gains["simlm"].interval().low > simlm.value
        assert gains["autoencoder"].value > best.value
        order = few.difference(rows["autoencoder"], rows["simlm"], measure)
        assert order.side() == 1
        certain = count == "5,000"
        assert gains["mlm"].side() == gains["paq"].side() == certain
        assert gains["paq"].interval().low < 0.1, "just excludes zero"


def test_bag_of_words_gains_about_as_much_as_retromae():
    """As the first page says: less than a point either way, which is what the plan calls level."""
    gap = plan.Block.load("plan/core").difference("bow", "retromae", "MRR@10").interval()
    assert gap.low > -1 and gap.high < 1


def test_a_seed_that_is_trained_again_stays_about_half_as_far_away_as_another_seed():
    told = (ROOT / "book" / "ideas" / "statistics.md").read_text(encoding="utf-8")
    assert "about half as far apart as two seeds" in told
    again, others = [], []
    for records in by_configuration().values():
        side = Side(all_runs(records), "MRR@10")
        place = side.runs[0] if side.runs else None
        if place is None or not side.trained or place.data["collection"]["name"] != "squad":
            continue
        if place.recipe.get("final") not in (None, "retriever1") or place.data.get("trained_on"):
            continue
        if place.recipe["evaluation"].get("split") not in (None, "test"):
            continue
        if place.recipe["collection"].get("train_queries"):
            continue  # few labels spread seeds wider; none of these was trained again
        means = [[100 * run.means["MRR@10"] for run in runs] for runs in side.seeds.values()]
        again += [(np.var(own, ddof=1), len(own) - 1) for own in means if len(own) > 1]
        if len(means) > 1:
            others.append((np.var([own[0] for own in means], ddof=1), len(means) - 1))
    within, between = (
        np.sqrt(
            np.average([own for own, _ in spreads], weights=[freedom for _, freedom in spreads])
        )
        for spreads in (again, others)
    )
    assert 0.35 < within / between < 0.65, (within, between)


def test_three_trainings_of_one_method_lie_up_to_half_a_point_apart():
    """As methods/seed_noise begins, and that they scatter alike."""
    assert "a little more than half a point" in reading("methods/seed_noise")
    core = plan.Block.load("plan/core")
    means = [own for own in core.means("MRR@10").values() if len(own) == 3]
    assert len(means) == 10 and 0.5 < max(np.ptp(own) for own in means) < 0.7
    assert core.seeds("MRR@10").alike
