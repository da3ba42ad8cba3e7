"""Materials that some methods need besides the passages: word statistics, questions, continuations,
pairs.
"""

from dr_lib.materials.continuations import continuation_model, continuations
from dr_lib.materials.ngrams import (
    NgramCounts,
    WordBlock,
    count_ngrams,
    importances,
    keyword_weights,
    look_up,
    ngrams,
    word_blocks,
    write_importances,
)
from dr_lib.materials.pairs import file_pairs, title_pairs
from dr_lib.materials.pseudo_labels import (
    bm25_candidates,
    given_labels,
    pseudo_labels,
    unlabelled_queries,
)
from dr_lib.materials.questions import generated_pairs, question_generator, questions
from dr_lib.materials.texts import Texts, text_tokens
