"""A recipe unfolded: the stages between a collection and its scores. Page of the book: practice/own-corpus."""

from dataclasses import dataclass, replace

from dr_lib import objectives
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import check_measures
from dr_lib.lab import protocols, stages
from dr_lib.lab.materials import needed
from dr_lib.lab.means import Means
from dr_lib.lab.opening import Origin, open_origin, open_sample
from dr_lib.lab.pipeline import Pipeline, vectors_of
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.specs import Finetuning
from dr_lib.lab.stage import Stage


@dataclass(frozen=True)
class Way:
    """The stages of one recipe; `pretrained` is None for objective "none", `negatives` where none are used.

    `collection` is what the recipe trains on, `searched` what it is evaluated on: the same one but for zero-shot runs.
    """

    recipe: Recipe
    collection: Collection
    searched: Collection
    base: Origin
    generator: Origin | None
    passages: Stage
    train_queries: Stage
    queries: Stage
    pretrained: Stage | None
    negatives: Stage | None
    retriever: Stage
    vectors: Stage
    run: Stage
    evaluation: Stage

    def stages(self) -> dict[str, Stage]:
        """Every stage that the evaluation rests on by a name, those that are only inputs of others under their kind."""
        walked = {stage.key: stage for stage in self.evaluation.walk()}
        named = {name: stage for name, stage in vars(self).items() if isinstance(stage, Stage)}
        own = {name: stage for name, stage in named.items() if stage.key in walked}
        known = {stage.key for stage in own.values()}
        return {stage.kind: stage for stage in walked.values() if stage.key not in known} | own


def unfold(recipe: Recipe) -> Way:
    """Make the stages of a recipe; nothing is built, but all that can be checked beforehand is checked.

    Raises:
        InputError: a collection or model that cannot be opened, a split it does not have, sizes that do not fit.
    """
    collection, base, options = open_sample(recipe.collection), open_origin(recipe.base), recipe.evaluation
    searched = open_searched(recipe)
    needs_generator = objectives.method(recipe.objective.name).needs_generator
    generator = open_origin(recipe.generator or recipe.base) if needs_generator else None
    check_fits(recipe, collection, searched, base)
    means = open_means(recipe, collection, base)
    queries = stages.query_tokens(searched, base, options.split)
    there = Means(recipe, searched, base, stages.passage_tokens(searched, base), queries) if options.on else means
    pretrained = pretraining(means, generator) if recipe.objective.name != "none" else None
    pipeline = Pipeline(means, pretrained, there)
    retriever, negatives = pipeline.last(recipe.final)
    run = pipeline.final_run(recipe.final, queries)
    scores = protocols.measured(recipe, base, pretrained, retriever)
    scores = scores or stages.evaluation(searched, options.split, options.measures, run)
    return Way(
        recipe, collection, searched, base, generator, there.passages, means.train_queries, queries, pretrained,
        negatives, retriever, vectors_of(there, retriever), run, scores,
    )  # fmt: skip


def open_searched(recipe: Recipe) -> Collection:
    """The collection that a recipe is evaluated on."""
    return open_sample(recipe.evaluation.on or recipe.collection)


def open_means(recipe: Recipe, collection: Collection | None = None, base: Origin | None = None) -> Means:
    """What the materials of a recipe are made from, for pre-training and for pages that show a material alone."""
    collection, base = collection or open_sample(recipe.collection), base or open_origin(recipe.base)
    passages = stages.passage_tokens(collection, base)
    return Means(recipe, collection, base, passages, stages.query_tokens(collection, base, "train"))


def pretraining(means: Means, generator: Origin | None) -> Stage:
    """The stage of pre-training, with all the materials that its method needs; few-shot or not, it is the same."""
    materials = needed(replace(means, recipe=means.recipe.with_(few_shot=None)))
    return stages.pretraining(means.recipe, means.collection, means.base, generator, means.passages, materials)


def check_fits(recipe: Recipe, collection: Collection, searched: Collection, base: Origin) -> None:
    """Refuse what would fail only after hours."""
    collection.qrels("train")
    searched.qrels(recipe.evaluation.split)
    check_measures(recipe.evaluation.measures, searched, recipe.evaluation.split)
    for options in filter(None, (recipe.finetuning, recipe.second, recipe.distillation)):
        check_looks(options, collection, recipe.evaluation.split if searched is collection else None)
    check_encoders(recipe)
    check_answers(recipe, collection)
    longest = max(recipe.passage_length, recipe.query_length)
    if longest > base.shape.positions:
        raise InputError(
            f"sequences of {longest} pieces, but {base.name} reads {base.shape.positions}",
            where="passage_length",
            fix="Shorten the sequences or take another base model.",
        )
    queries, batch = stages.labelled_queries(recipe, collection), recipe.finetuning.batch_queries
    if queries < batch:
        raise InputError(
            f"{queries} training queries cannot fill a batch of {batch}",
            where="finetuning.batch_queries",
            fix="Make batches smaller or take more training queries.",
        )


def check_answers(recipe: Recipe, collection: Collection) -> None:
    """Refuse to drop negatives that hold an answer where no training query has any: nothing would be dropped."""
    mines = recipe.final not in ("pretrained", "retriever1")
    for name, part in (("negatives", recipe.negatives), *([("mining", recipe.mining)] if mines else [])):
        if part.answers == "drop" and not any(collection.queries("train")["answers"]):
            fix = "Leave it out, or give the queries their answers (queries.jsonl)."
            raise InputError("no training query has an answer to look for", where=f"{name}.answers", fix=fix)


def check_encoders(recipe: Recipe) -> None:
    """Refuse to fine-tune one encoder where pre-training makes two."""
    stages_of = {"finetuning": recipe.finetuning, "second": recipe.second, "distillation": recipe.distillation}
    ends = {"pretrained": (), "distilled": tuple(stages_of)}.get(recipe.final, ("finetuning", "second"))
    for name in ends if recipe.objective.params.get("separate") else ():
        if stages_of[name] and stages_of[name].shared:
            problem = "pre-training makes two encoders, fine-tuning would start from one"
            raise InputError(problem, where=f"{name}.shared", fix="Set it to false.")


def check_looks(options: Finetuning, collection: Collection, reported: str | None) -> None:
    """Refuse to choose weights by queries that are trained on or reported (`reported` is None: on another collection).

    Raises:
        InputError: names the split that shares queries with the one of the validation.
    """
    if options.validation is None:
        return
    asked = collection.qrels(options.validation.split).keys()
    for split in filter(None, ("train", reported)):
        if not asked.isdisjoint(collection.qrels(split)):
            problem = f"weights would be chosen by queries that are {'trained on' if split == 'train' else 'reported'}"
            fix = f"Name a split that shares no query with {split!r}."
            raise InputError(problem, where="validation.split", fix=fix)


def unfold_bm25(recipe: Recipe) -> Way:
    """The way that ends with what BM25 alone scores on the queries of a recipe: the baseline of every table."""
    way, options = unfold(recipe), recipe.evaluation
    ranking = stages.bm25_ranking(way.searched, options.split, options.depth, title=recipe.title != "none")
    return replace(way, evaluation=stages.evaluation(way.searched, options.split, options.measures, ranking))
