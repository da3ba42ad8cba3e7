"""The numbers of one run: measures of rankings, answer accuracy, dialogue, sentence tasks,
similarity, fusion, words.
"""

from dr_lib.evaluation.clusters import Clusters, clusters_of, dialogues_of, documents_of
from dr_lib.evaluation.dialogue import (
    CandidateSet,
    DialogueSettings,
    Exchange,
    cross_encoded_dialogue,
    dialogue,
    dialogue_file,
    load_candidates,
    read_exchanges,
)
from dr_lib.evaluation.fusion import fuse, fused
from dr_lib.evaluation.lexical import coverage, covered, overlap, shared_words, templated
from dr_lib.evaluation.measures import (
    Scores,
    check_measures,
    cut_of,
    evaluate,
    evaluate_split,
    scores,
    similarities,
    unit_of,
)
from dr_lib.evaluation.nlu import TASKS, NluSettings, NluTask, nlu, nlu_file, task_of
