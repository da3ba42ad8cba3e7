"""From vectors and words to ranked passages: BM25, encoding, exact search, mined negatives, run
files.
"""

from typing import TYPE_CHECKING

from dr_lib.stages import lazily

if TYPE_CHECKING:  # BM25 needs no torch
    from dr_lib.retrieval.bm25 import Bm25, bm25_index, bm25_run, cut_texts, weighted_bm25_index
    from dr_lib.retrieval.encoding import (
        dense_run,
        encode,
        encode_queries,
        given,
        given_run,
        given_vectors,
        open_vectors,
        vectors,
    )
    from dr_lib.retrieval.exact import exact_scores, search, vectors_at
    from dr_lib.retrieval.mining import mine_negatives, negatives
    from dr_lib.retrieval.ranking import Ranking, holds_answer, normal_form, one_word, write_run
    from dr_lib.retrieval.reranking import (
        bm25_teacher_scores,
        candidate_scores,
        load_scorer,
        rerank,
        reranked,
        score_candidates,
        teacher_scores,
    )

__getattr__, __dir__ = lazily(__name__)
