"""From vectors and words to ranked passages: BM25, encoding, exact search, mined negatives, run files."""

from dr_lib.collections import judged_rows, rows_of
from dr_lib.retrieval.bm25 import Bm25
from dr_lib.retrieval.encode import encode, weights_digest
from dr_lib.retrieval.mining import mine_negatives
from dr_lib.retrieval.ranking import Ranking
from dr_lib.retrieval.rerank import rerank, score_candidates, score_examples, score_pairs
from dr_lib.retrieval.search import exact_scores, search

__all__ = [
    "Bm25",
    "Ranking",
    "encode",
    "exact_scores",
    "judged_rows",
    "mine_negatives",
    "rerank",
    "rows_of",
    "score_candidates",
    "score_examples",
    "score_pairs",
    "search",
    "weights_digest",
]
