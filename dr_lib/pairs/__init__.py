"""Queries paired with passages: what contrastive training learns from, and its batches."""

from dr_lib.pairs.batches import RetrievalBatch, RetrievalBatches
from dr_lib.pairs.crossed import CrossedBatches
from dr_lib.pairs.examples import Examples
from dr_lib.pairs.teacher import TeacherScores

__all__ = ["CrossedBatches", "Examples", "RetrievalBatch", "RetrievalBatches", "TeacherScores"]
