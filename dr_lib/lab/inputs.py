"""What a recipe starts from: its collections and models, opened, and their texts as stages.

Nothing is built here. Page of the book: ideas/pipeline.
"""

import json
from functools import cached_property, lru_cache
from typing import Any

from dr_lib import collections, objectives, retrieval, tokens
from dr_lib.collections import Collection
from dr_lib.lab.base import Checkpoint, open_checkpoint, open_sample
from dr_lib.lab.recipe import Recipe
from dr_lib.stages import Stage
from dr_lib.training import Training

TUNING = "dev"  # the split that the weight of a fusion is chosen on
TOKENISING, BM25_INDEX, BM25_SEARCH = 3.1e-4, 1.0e-4, 7.9e-9
"""Seconds of a core: a passage in pieces, a passage in BM25's index, a passage for each query that
BM25 searches (`benchmarks/growth.py`)."""


class Inputs:
    """The collections and models of a recipe.

    Args:
        recipe: the configuration.

    Attributes:
        collection: what the recipe trains on.
        searched: what it is evaluated on: the same one but for zero-shot runs.
        corpus: what is pre-trained on, and what pairs for it are made of: the same one unless
            `pretraining.collection` is set.
        base: the masked LM that every training starts from.

    Raises:
        InputError: a collection or model that cannot be opened.
    """

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        check_within_reach(recipe)
        elsewhere, corpus = recipe.evaluation.on, recipe.pretraining.collection
        itself = recipe.evaluation.own_passage
        self.collection = open_sample(recipe.collection).with_own_passage(itself)
        self.searched = self.collection
        if elsewhere:
            self.searched = open_sample(elsewhere).with_own_passage(itself)
        self.corpus = open_sample(corpus) if corpus else self.collection
        self.base = open_checkpoint(recipe.base)

    @cached_property
    def generator(self) -> Checkpoint | None:
        """The masked LM that proposes replacements, for methods that need one."""
        needed = objectives.method(self.recipe.objective.name).needs_generator
        return open_checkpoint(self.recipe.generator or self.recipe.base) if needed else None

    @cached_property
    def reader(self) -> Checkpoint:
        """What the cross-encoder starts from: a model of its own, or the recipe's base."""
        name = self.recipe.auxiliary.cross_encoder.model
        return open_checkpoint(name) if name else self.base

    @cached_property
    def most_relevant(self) -> int:
        """The largest number of passages judged for a training query: a ranking to draw negatives
        from must be deeper by this number.
        """
        return max(len(grades) for grades in self.collection.qrels("train").values())

    @property
    def labelled_queries(self) -> int:
        """The number of training queries that the recipe may learn from."""
        return round(len(self.collection.qrels("train")) * (self.recipe.few_shot or 1))

    @property
    def reading(self) -> dict[str, Any]:
        """How sequences are made in every training, and its random draws."""
        recipe = self.recipe
        return {"layout": recipe.layout, "dropout": recipe.dropout, "seed": recipe.seed}

    # Texts ----------------------------------------------------------------------------------------

    def passages(self, collection: Collection | None = None, by: Checkpoint | None = None) -> Stage:
        """The passages of a collection (default the recipe's) in the tokens of a model (default the
        base).
        """
        read = collection or self.collection
        made = tokens.passage_tokens(read, (by or self.base).tokenizer)
        return made.costs(core_seconds=TOKENISING * len(read.passages))

    def queries(
        self, split: str, collection: Collection | None = None, by: Checkpoint | None = None
    ) -> Stage:
        """The queries of a split of a collection (default the recipe's) in the tokens of a model
        (default the base).
        """
        collection, by = collection or self.collection, by or self.base
        return tokens.query_tokens(collection, by.tokenizer, split=split)

    def pairs(
        self, split: str, collection: Collection, other: str | None = None
    ) -> tuple[Stage, Stage]:
        """Queries and passages in the cross-encoder's tokens; the base model's where both
        tokenizers agree.

        What scores in the cross-encoder's place (`other`, as in `reranking.by`) starts from the
        base model.
        """
        by = self.base if other or self.reader.tokenizer == self.base.tokenizer else self.reader
        return self.queries(split, collection, by), self.passages(collection, by)

    def bm25_index(
        self,
        collection: Collection | None = None,
        *,
        cut: bool = False,
        weights: tuple[float, float] | None = None,
    ) -> Stage:
        """BM25 over the passages, titles included where the recipe reads them; whole, or cut as the
        encoder reads them; with the usual weights, or with other k1 and b.
        """
        limits = {"tokenizer": self.base.tokenizer, "layout": self.recipe.layout} if cut else {}
        searched, title = collection or self.collection, self.recipe.title != "none"
        if weights:
            k1, b = weights
            made = retrieval.weighted_bm25_index(searched, title=title, k1=k1, b=b)
        else:
            made = retrieval.bm25_index(searched, title=title, **limits)
        return made.costs(core_seconds=BM25_INDEX * len(searched.passages))

    def bm25_run(
        self,
        split: str,
        depth: int,
        collection: Collection | None = None,
        *,
        cut: bool = False,
        weights: tuple[float, float] | None = None,
    ) -> Stage:
        """BM25's ranking for the queries of a split."""
        collection = collection or self.collection
        index = self.bm25_index(collection, cut=cut, weights=weights)
        made = retrieval.bm25_run(index, collection, split=split, depth=depth)
        pairs = len(collection.passages) * len(collection.qrels(split))
        return made.costs(core_seconds=BM25_SEARCH * pairs)

    # Work, in operations: what a run costs, told beforehand ---------------------------------------

    def work_a_token(self) -> float:
        """Of a training step for one token of a model of the base's size that predicts at all
        positions.
        """
        return self.base.shape.work(self.recipe.passage_length, predicted=1.0)

    def writing_work(self, options: Training) -> float:
        """Of a whole training of such a model."""
        read = options.steps * options.accumulation * options.tokens_per_batch
        return read * self.work_a_token()

    def scoring_work(self, pairs: int) -> float:
        """Of the cross-encoder's scores of so many pairs."""
        length = self.recipe.auxiliary.cross_encoder.length
        return pairs * length * self.reader.shape.work(length) / 3


def check_within_reach(recipe: Recipe) -> None:
    """Refuse, before anything is fetched, collections of which something cannot be had."""
    options, trains = recipe.evaluation, not recipe.retriever and recipe.final != "pretrained"
    trainings = (recipe.finetuning, recipe.finetuning2, recipe.distillation)
    read = {options.split} if options.on is None else set()
    if trains and options.kind != "bm25":
        read |= {"train"}
        read |= {chosen.validation.split for chosen in trainings if chosen and chosen.validation}
    for settings, splits in ((recipe.collection, read), (options.on, {options.split})):
        if settings:
            _reached(settings.name, tuple(sorted(splits)), json.dumps(settings.splits))


@lru_cache(maxsize=64)
def _reached(name: str, splits: tuple[str, ...], named: str) -> None:
    collections.check_within_reach(name, splits, json.loads(named))
