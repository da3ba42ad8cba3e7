"""Evaluation of one run: ranking measures, answer accuracy, dialogue, sentence tasks, similarity,
fusion, word overlap.

A new kind of measure is a stage in a file of this folder and a line of `KINDS`.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal

from dr_lib import stages
from dr_lib.evaluation.clusters import Clusters, TaskSettings, clusters_of, documents_of
from dr_lib.evaluation.dialogue import (
    CandidateSet,
    DialogueSettings,
    Exchange,
    cross_encoded_dialogue,
    dialogue,
    dialogue_file,
    dialogues_of,
    load_candidates,
    read_exchanges,
)
from dr_lib.evaluation.fusion import fuse, fused
from dr_lib.evaluation.lexical import coverage, covered, overlap, shared_words
from dr_lib.evaluation.measures import (
    Scores,
    check_measures,
    cut_of,
    evaluate,
    evaluate_split,
    scores,
    similarities,
)
from dr_lib.evaluation.nlu import TASKS, NluSettings, NluTask, nlu, nlu_file


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a recipe may measure (key `evaluation.kind`).

    Attributes:
        stage: writes `scores.json`; it receives the arguments that its parameters name, see
            `lab.pipeline.measured`.
        of: what it evaluates: the "texts" alone, a run of "bm25", the pre-trained "start", the
            "retriever" itself, or a retriever's "run".
        settings: class of its own settings, a key of `evaluation` with its name; None if it has
            none and uses the collection.
        scored: what each score belongs to.
    """

    stage: Callable[..., stages.Stage]
    of: Literal["texts", "bm25", "start", "retriever", "run"]
    settings: type[TaskSettings] | None = None
    scored: Literal["queries", "passages"] = "queries"


KINDS = {
    "search": Kind(scores, "run"),
    "bm25": Kind(scores, "bm25"),
    "similarity": Kind(similarities, "run"),
    "overlap": Kind(shared_words, "texts"),
    "coverage": Kind(coverage, "start", scored="passages"),
    "nlu": Kind(nlu, "start", NluSettings),
    "dialogue": Kind(dialogue, "retriever", DialogueSettings),
}
"""Name -> kind of evaluation."""
