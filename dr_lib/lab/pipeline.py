"""The stages after pre-training: retriever 1, mining, retriever 2, re-ranker, teacher scores, distilled retriever.

SimLM Figure 2, CDMAE section 3.4, MASTER section 4.3. Every retriever starts from the same pre-trained encoder; only
what it learns from changes. Page of the book: ideas/pipeline.
"""

from dataclasses import dataclass
from functools import cached_property, partial

from dr_lib.errors import InputError
from dr_lib.lab import pipeline_builds, reranking, stages
from dr_lib.lab.material_pseudo_labels import pseudo_labels
from dr_lib.lab.means import Means
from dr_lib.lab.pipeline_specs import Final
from dr_lib.lab.specs import Finetuning
from dr_lib.lab.stage import Stage


@dataclass(frozen=True)
class Pipeline:
    """The stages of one recipe, each made when it is asked for.

    Attributes:
        means: recipe, collection, base model and tokens.
        pretrained: where every retriever starts; None for the base model.
        searched: the same of the collection that is evaluated on; `means` where that is the one trained on.
    """

    means: Means
    pretrained: Stage | None
    searched: Means

    @cached_property
    def untuned(self) -> Stage:
        """The pre-trained encoder as a retriever, without any fine-tuning (DPR-PAQ Table 4, "w/o FT")."""
        return stages.untuned(self.means.recipe, self.means.base, self.pretrained)

    @cached_property
    def retriever1(self) -> Stage:
        """Trained with BM25 negatives."""
        return self._finetuned(self.means.negatives)

    @cached_property
    def mined(self) -> Stage:
        """Hard negatives of the last retriever before retriever 2."""
        return self._rounds[0]

    @cached_property
    def retriever2(self) -> Stage:
        """Trained, from the same start, with the negatives of the retriever before it."""
        return self._rounds[1]

    @cached_property
    def _rounds(self) -> tuple[Stage, Stage]:
        retriever = self.retriever1
        for _ in range(self.means.recipe.mining.rounds):
            negatives = self._negatives_of(retriever)
            retriever = self._finetuned(negatives, self.means.recipe.second)
        return negatives, retriever

    @cached_property
    def candidates(self) -> Stage:
        """Hard negatives of retriever 2, which the re-ranker learns to put below the positive."""
        return self._negatives_of(self.retriever2)

    @cached_property
    def reranker(self) -> Stage:
        """The cross-encoder trained on retriever 2's candidates."""
        return reranking.cross_encoder(self.means, self.candidates, self.retriever2)

    @cached_property
    def taught(self) -> Stage:
        """The negatives that the teacher reads and the distilled retriever learns from."""
        return self._negatives_of(self.retriever2, self.means.recipe.distillation.listed)

    @cached_property
    def distilled(self) -> Stage:
        """A retriever that learns the re-ranker's scores, from the same start as the others."""
        teacher = reranking.teacher_scores(self.means, self.reranker, self.taught)
        return self._finetuned(self.taught, self.means.recipe.distillation, teacher)

    def last(self, final: Final) -> tuple[Stage, Stage | None]:
        """The retriever that the pipeline ends with (under a re-ranker: whose candidates it reads), its negatives."""
        if final == "pretrained":
            return self.untuned, None
        if final == "retriever1":
            return self.retriever1, self.means.negatives
        return (self.distilled, self.taught) if final == "distilled" else (self.retriever2, self.mined)

    def final_run(self, final: Final, queries: Stage) -> Stage:
        """What is evaluated: the last retriever's ranking, or the re-ranked one."""
        options, where = self.means.recipe.evaluation, self.searched
        run = run_of(where, self.last(final)[0], queries, options.split, options.depth)
        if final != "reranker":
            return run
        return reranking.reranked(where, self.reranker, run, options.split, self.means.recipe.reranking.depth)

    def _negatives_of(self, retriever: Stage, keep: int | None = None) -> Stage:
        mining, collection = self.means.recipe.mining, self.means.collection
        most = max(len(grades) for grades in collection.qrels("train").values())
        ranking = run_of(self.means, retriever, self.means.train_queries, "train", mining.depth + most)
        options = mining.model_dump(mode="json", include={"depth", "random_negatives", "seed"})
        if keep is not None:
            options |= {"keep": keep, "random_negatives": 0}
        params = {"split": "train", **options, "answers": mining.answers}
        inputs = {"ranking": ranking}
        if mining.with_bm25 and self.means.negatives:
            inputs["also"] = self.means.negatives
        build = partial(pipeline_builds.build_mined, collection=collection, options=options, answers=mining.answers)
        return Stage("mined", 1, params, build, inputs)

    def _finetuned(
        self, negatives: Stage | None, options: Finetuning | None = None, teacher: Stage | None = None
    ) -> Stage:
        means = self.means
        labels = self._pseudo_labels if (options or means.recipe.finetuning).pseudo_labels else None
        return stages.finetuning(
            means.recipe, means.collection, means.base, self.pretrained, means.passages, means.train_queries,
            negatives, options, teacher, labels,
        )  # fmt: skip

    @cached_property
    def _pseudo_labels(self) -> Stage:
        pool = self.means.recipe.makers.pseudo_labels.pool
        if pool != "train":
            fix = 'Set makers.pseudo_labels.pool to "train", or leave finetuning.pseudo_labels out.'
            raise InputError(f"fine-tuning reads no pseudo-labels of pool {pool!r}", where="pseudo_labels", fix=fix)
        return pseudo_labels(self.means)


def vectors_of(means: Means, retriever: Stage) -> Stage:
    """The passages of a collection as vectors of a retriever."""
    return stages.passage_vectors(means.recipe, means.collection, means.base, retriever, means.passages)


def run_of(means: Means, retriever: Stage, queries: Stage, split: str, depth: int) -> Stage:
    """What a retriever finds in a collection for the queries of a split."""
    vectors = vectors_of(means, retriever)
    return stages.dense_run(means.recipe, means.collection, retriever, vectors, queries, split, depth)
