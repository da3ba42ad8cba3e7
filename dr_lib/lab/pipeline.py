"""From a recipe to its stages, read downwards: SimLM's Figure 2 in code, and what CDMAE (section
3.4) and MASTER (section 4.3) share::

    passages -> pre-trained -> retriever 1 -> mined -> retriever 2 -> re-ranker -> teacher scores
             |-> BM25's negatives ->|                                            -> distilled

Every retriever starts from the same pre-trained encoder; only what it learns from changes. Each
training is one function in `trainings.py`. Nothing is built here. Page of the book: ideas/pipeline.
"""

from dataclasses import dataclass
from inspect import signature
from itertools import chain, count

from dr_lib import evaluation, retrieval
from dr_lib.lab.checks import check
from dr_lib.lab.inputs import TUNING, Inputs
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.trainings import (
    dense_run,
    dialogue_cross_encoder,
    first_negatives,
    mined,
    pretrained,
    reranker,
    retriever,
    teacher_scores,
    untuned,
    vectors,
)
from dr_lib.stages import Data, Part, Stage


@dataclass
class Plan:
    """The stages of a recipe by their roles, in the order in which they are built; None for a role
    that the recipe does not need.

    Attributes:
        inputs: the collections and models, opened.
        pretrained: the base model after pre-training.
        start: the encoder that every retriever starts from.
        retriever1: trained with BM25's negatives.
        mined: hard negatives found by the last retriever before `retriever2`.
        retriever2: trained, from the same start, with the negatives of the retriever before it.
        reranker: a cross-encoder, or late interaction.
        teacher_negatives: the negatives that the teacher scores and the distilled retriever learns
            from.
        teacher_scores: the teacher's scores of all positives and negatives of the training queries.
        retriever: the encoder that searches; with a re-ranker, the one that proposes its
            candidates.
        run: the ranking that is evaluated, where a retriever searches.
        end: the stage whose `scores.json` a record holds.
    """

    inputs: Inputs
    pretrained: Stage | None = None
    start: Stage | Data | Part | None = None
    retriever1: Stage | None = None
    mined: Stage | None = None
    retriever2: Stage | None = None
    reranker: Stage | None = None
    teacher_negatives: Stage | None = None
    teacher_scores: Stage | None = None
    retriever: Stage | Data | None = None
    run: Stage | None = None
    end: Stage | None = None

    def stages(self) -> dict[str, Stage]:
        """Every stage that the end depends on, by its role (`pretrained`, `retriever`, `run`,
        `evaluation`), else by its kind.

        If several stages share a name, the last one gets it; those before it are called
        `earlier NAME`, `earlier NAME 2`, and so on.
        """
        walked = {stage.key: stage for stage in self.end.walk()}
        roles = {
            "pretrained": self.pretrained,
            "retriever": self.retriever,
            "run": self.run,
            "evaluation": self.end,
        }
        named = {
            role: stage
            for role, stage in roles.items()
            if isinstance(stage, Stage) and stage.key in walked
        }
        known = {stage.key for stage in named.values()}
        for stage in [stage for stage in reversed(walked.values()) if stage.key not in known]:
            before = (f"earlier {_kind(stage)}" + (f" {n}" if n > 1 else "") for n in count(1))
            names = chain([_kind(stage)], before)
            named[next(name for name in names if name not in named)] = stage
        return named


def _kind(stage: Stage) -> str:
    """The kind of a stage, with its rows if it is a shard other than the first."""
    first, end = stage.arguments.get("rows") or (0, 0)
    return f"{stage.kind}, rows {first} to {end}" if first else stage.kind


def pipeline(recipe: Recipe) -> Plan:
    """The stages of a recipe, up to what it measures.

    Args:
        recipe: the configuration.

    Raises:
        InputError: a collection or model cannot be opened, a split is missing, or sizes do not fit
            together.
    """
    inputs, kind, final = Inputs(recipe), recipe.evaluation.kind, recipe.final
    reads = evaluation.KINDS[kind].of
    check(inputs)
    plan = Plan(inputs)

    # Nothing is trained for BM25, for word statistics, or for an encoder that is used as it comes.
    if recipe.retriever:
        plan.retriever = retrieval.given(recipe.retriever)
    if reads == "texts":
        return measured(plan)
    if reads == "bm25":
        options, searched = recipe.evaluation, inputs.searched
        cut, weights = bool(options.cut), options.weights
        run = inputs.bm25_run(options.split, options.depth, searched, cut=cut, weights=weights)
        return measured(plan, run)
    if recipe.retriever:
        return searched_with(plan, plan.retriever)

    # A cross-encoder of dialogues takes the place of everything below.
    if kind == "dialogue" and final == "reranker":
        scorer, dialogues = dialogue_cross_encoder(inputs), recipe.evaluation.task
        plan.end = evaluation.cross_encoded_dialogue(scorer, **dialogues.arguments())
        return plan

    # Pre-training.
    plan.pretrained = pretrained(inputs)
    plan.start = plan.pretrained or inputs.base.model
    if reads == "start":
        return measured(plan)
    if final == "pretrained":
        return searched_with(plan, untuned(inputs, plan.start))

    # Retriever 1 learns from BM25's negatives.
    plan.retriever1 = retriever(inputs, plan.start, first_negatives(inputs))
    if final == "retriever1":
        return searched_with(plan, plan.retriever1)

    # Retriever 2 learns, from the same start, from what the retriever before it confuses.
    plan.retriever2 = plan.retriever1
    for _ in range(recipe.mining.rounds):
        plan.mined = mined(inputs, plan.retriever2)
        plan.retriever2 = retriever(inputs, plan.start, plan.mined, recipe.finetuning2)
    if final == "retriever2":
        return searched_with(plan, plan.retriever2)

    # The re-ranker reads queries and passages together.
    if recipe.reranking.by != "bm25":
        plan.reranker = reranker(inputs, plan.retriever2)
    if final == "reranker":
        return searched_with(plan, plan.retriever2)

    # The distilled retriever learns, from the same start, from the re-ranker's scores.
    keep = recipe.distillation.teacher_negatives
    plan.teacher_negatives = mined(inputs, plan.retriever2, keep)
    plan.teacher_scores = teacher_scores(inputs, plan.reranker, plan.teacher_negatives)
    distilled = retriever(
        inputs, plan.start, plan.teacher_negatives, recipe.distillation, teacher=plan.teacher_scores
    )
    return searched_with(plan, distilled)


# The ends: what is measured -----------------------------------------------------------------------


def searched_with(plan: Plan, encoder: Stage | Data) -> Plan:
    """The plan that ends with the numbers of a retriever, re-ranked and fused as the recipe
    says.
    """
    plan.retriever, inputs, recipe = encoder, plan.inputs, plan.inputs.recipe
    options, searched = recipe.evaluation, inputs.searched
    if evaluation.KINDS[options.kind].of == "retriever":
        return measured(plan)
    plan.run = ranked(plan, options.split)
    if options.fusion:
        splits = (options.split, TUNING) if options.fusion == "weight" else (options.split,)
        # below the re-ranked passages there are ranks but no scores to weigh
        rest = options.fusion == "rank"
        both = [
            [inputs.bm25_run(split, options.depth, searched), ranked(plan, split, rest=rest)]
            for split in splits
        ]
        plan.run = fused(inputs, both)
    return measured(plan, plan.run)


def measured(plan: Plan, run: Stage | None = None) -> Plan:
    """The plan that ends with the stage that computes the recipe's measures, of a ranking if one is
    given. The stage receives those of the values below that its parameters name.
    """
    inputs, recipe, options = plan.inputs, plan.inputs.recipe, plan.inputs.recipe.evaluation
    searched, stage = inputs.searched, evaluation.KINDS[options.kind].stage
    wanted = signature(stage).parameters
    arguments = {
        "start": plan.start,
        "retriever": plan.retriever,
        "run": run,
        "collection": searched,
        "split": options.split,
        "measures": list(options.measures),
        "grade": options.grade,
        "title": recipe.title != "none",
        **inputs.reading,
    }
    if "passages" in wanted:
        arguments["passages"] = inputs.passages(searched)
    if "vectors" in wanted:
        arguments["vectors"] = vectors(inputs, plan.retriever, searched)
    task = options.task.arguments() if options.task else {}
    plan.end = stage(**{name: arguments[name] for name in arguments if name in wanted}, **task)
    return plan


def ranked(plan: Plan, split: str, *, rest: bool = True) -> Stage:
    """The retriever's ranking of a split; where the recipe re-ranks, the first passages are in the
    re-ranker's order and the others follow (`rest`) or are left out.
    """
    inputs, recipe = plan.inputs, plan.inputs.recipe
    depth, searched = recipe.evaluation.depth, inputs.searched
    run = dense_run(inputs, plan.retriever, split, depth, searched)
    if recipe.final != "reranker":
        return run
    if not recipe.reranking.weighted:
        return reranked(plan, run, split, rest=rest)
    tuning = dense_run(inputs, plan.retriever, TUNING, depth, searched)
    pairs = ((run, split), (tuning, TUNING))
    return fused(inputs, [[each, reranked(plan, each, of, rest=False)] for each, of in pairs])


def reranked(plan: Plan, run: Stage, split: str, *, rest: bool) -> Stage:
    """A run with its first passages in the re-ranker's order."""
    inputs, options = plan.inputs, plan.inputs.recipe.reranking
    texts = inputs.pairs(split, inputs.searched, options.by)
    made = retrieval.reranked(run, plan.reranker, *texts, depth=options.depth, rest=rest)
    return made.costs(inputs.scoring_work(options.depth * len(inputs.searched.qrels(split))))


def fused(inputs: Inputs, pairs: list[list[Stage]]) -> Stage:
    """The first pair of runs, fused by a weight chosen on the second pair if there is one, else by
    rank.
    """
    options, (runs, *tuning) = inputs.recipe.evaluation, pairs
    weighed = (
        {"tuning_split": TUNING, "measure": options.measures[0], "grade": options.grade}
        if tuning
        else {}
    )
    return evaluation.fused(runs, inputs.searched, *tuning, depth=options.depth, **weighed)
