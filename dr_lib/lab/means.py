"""What materials are made from: one recipe's collection, base model and first retriever, as stages.

Page of the book: practice/adding-an-objective.
"""

from dataclasses import dataclass
from functools import cached_property

from dr_lib.collections import Collection
from dr_lib.lab import stages
from dr_lib.lab.opening import Origin
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage


@dataclass(frozen=True)
class Means:
    """What a material may be made from.

    Attributes:
        recipe: the whole recipe; a material's stage takes only what it depends on into its parameters.
        collection: the passages, and the queries of the split train.
        base: the masked LM that every training starts from.
        passages, train_queries: their tokens.
    """

    recipe: Recipe
    collection: Collection
    base: Origin
    passages: Stage
    train_queries: Stage

    @cached_property
    def negatives(self) -> Stage | None:
        """BM25 negatives of the training queries; None where the recipe uses none."""
        return stages.bm25_negatives(self.recipe, self.collection) if self.recipe.finetuning.negatives else None

    @cached_property
    def first_retriever(self) -> Stage:
        """The base model fine-tuned without any pre-training: the same stage as of objective "none"."""
        return stages.finetuning(
            self.recipe, self.collection, self.base, None, self.passages, self.train_queries, self.negatives
        )

    @cached_property
    def first_vectors(self) -> Stage:
        """The passages as vectors of the first retriever."""
        return stages.passage_vectors(self.recipe, self.collection, self.base, self.first_retriever, self.passages)
