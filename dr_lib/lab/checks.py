"""Checks before anything is built: what would otherwise fail after hours, or train on the wrong
thing; how much GPU memory a training step takes; and fitting a recipe to a GPU with smaller
micro-batches and gradient caches, for the same updates.

Nearly all memory of a step is activations for the backward pass: a constant number of bytes per
position, layer and hidden unit, whatever the model (`UNIT`). A test counts them step by step on the
meta device. Page of the book: practice/gpu.
"""

import math
import warnings
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dr_lib import evaluation, objectives
from dr_lib.errors import InputError
from dr_lib.lab.inputs import TUNING, Checkpoint, Inputs
from dr_lib.lab.recipe import Recipe, open_sample
from dr_lib.training import Finetuning, machine

TRAININGS = ("finetuning", "finetuning2", "distillation")
RUN_BY = {
    "pretrained": ("pretraining",),
    "retriever1": ("pretraining", "finetuning"),
    "retriever2": ("pretraining", "finetuning", "finetuning2"),
    "reranker": ("pretraining", "finetuning", "finetuning2", "cross_encoder"),
    "distilled": ("pretraining", "finetuning", "finetuning2", "cross_encoder", "distillation"),
}
"""`final` -> the trainings that the pipeline runs, by the keys of their settings."""


def trainings_of(recipe: Recipe) -> tuple[str, ...]:
    """The trainings that a recipe runs, by the keys of their settings, as in `RUN_BY`."""
    reads = evaluation.KINDS[recipe.evaluation.kind].of
    if recipe.retriever or reads in ("bm25", "texts"):
        return ()
    if reads == "start":
        return ("pretraining",)
    if recipe.evaluation.dialogue and recipe.final == "reranker":  # no retriever is trained
        return ("pretraining", "cross_encoder")
    return RUN_BY[recipe.final]


def check(inputs: Inputs) -> None:
    """Refuse a recipe that cannot be run, or would be evaluated on its training data.

    Raises:
        InputError: a split is missing, sizes do not fit, or queries are both learned from and
            reported.
    """
    check_search(inputs)
    trainings = trainings_of(inputs.recipe)
    if trainings:
        check_models(inputs)
    if "finetuning" in trainings:
        check_finetuning(inputs)


def check_search(inputs: Inputs) -> None:
    """Refuse measures that are impossible with the collection, depth or installation, and weights
    chosen on the reported split.
    """
    recipe, searched, options = inputs.recipe, inputs.searched, inputs.recipe.evaluation
    measured = evaluation.KINDS[options.kind]
    if measured.of == "run" and machine.device().type == "cpu" and not find_spec("faiss"):
        fix = "pip install faiss-cpu; it comes with the extra `cpu` of dr_lib."
        raise InputError("faiss is not installed, which searches", where="evaluation", fix=fix)
    reported = searched.qrels(options.split).keys()
    evaluation.check_measures(options.measures, searched, options.split)
    for name in options.measures if measured.stage is evaluation.scores else ():
        if options.depth < min(evaluation.cut_of(name) or 0, len(searched.passages)):
            raise InputError(
                f"{name} of a ranking of {options.depth} passages",
                where="evaluation.depth",
                fix="Search deeper, or take a smaller cut.",
            )
    if options.own_passage is None and "own_passage" not in searched.info:
        itself = searched.own_rows(options.split)
        if itself is not None:
            warnings.warn(
                f"{(itself >= 0).sum()} of {len(itself)} queries of {searched.name} are passages of"
                " it; no ranking holds them. Set evaluation.own_passage to"
                ' "drop" or "keep", and this is not said.',
                stacklevel=2,
            )
    weighted = {
        "evaluation.fusion": ('Fuse by "rank".', options.fusion == "weight"),
        "reranking.weighted": (
            "Leave it out.",
            recipe.final == "reranker" and recipe.reranking.weighted,
        ),
    }
    for where, (fix, chosen) in weighted.items():
        if chosen and not searched.qrels(TUNING).keys().isdisjoint(reported):
            problem = f"its weight would be chosen by queries of the split {options.split!r}"
            raise InputError(f"{problem}, which is reported", where=where, fix=fix)


def check_models(inputs: Inputs) -> None:
    """Check the recipe against base model, pre-training and GPU memory."""
    recipe, base = inputs.recipe, inputs.base
    if base.pooling not in (None, recipe.pooling):
        problem = (
            f"{base.name} makes its vectors by {base.pooling!r}, the recipe by {recipe.pooling!r}"
        )
        raise InputError(
            problem,
            where="pooling",
            fix=f"Set pooling to {base.pooling!r}, and what the model has learned is kept.",
        )
    check_pretraining(inputs)
    check_length(max(recipe.passage_length, recipe.query_length), base, "passage_length")
    if task := recipe.evaluation.task:
        where = f"evaluation.{recipe.evaluation.kind}.{task.longest}"
        check_length(getattr(task, task.longest), base, where)
    check_memory(inputs, machine.gpu_memory())


def check_finetuning(inputs: Inputs) -> None:
    """Check that fine-tuning fits the training queries and the pre-training."""
    recipe, collection = inputs.recipe, inputs.collection
    collection.qrels("train")
    for name in TRAININGS:
        if chosen := getattr(recipe, name):
            check_validation(name, chosen, inputs)
            two = name in trainings_of(recipe) and recipe.objective.params.get("separate")
            if two and chosen.shared:
                problem = "pre-training makes two encoders, fine-tuning would start from one"
                raise InputError(problem, where=f"{name}.shared", fix="Set it to false.")
    check_batch(inputs, recipe.finetuning.batch_queries, "finetuning.batch_queries")
    for name in ("negatives",) if recipe.final == "retriever1" else ("negatives", "mining"):
        if getattr(recipe, name).answers != "keep" and not any(
            collection.queries("train")["answers"]
        ):
            raise InputError(
                "no training query has an answer to look for",
                where=f"{name}.answers",
                fix="Leave it out, or give the queries their answers (queries.jsonl).",
            )


def check_pretraining(inputs: Inputs) -> None:
    """Refuse passages that the method cannot learn from, and an untrained generator."""
    recipe = inputs.recipe
    check_generator(inputs)
    if recipe.objective.name == "none" and recipe.pretraining.first:
        raise InputError(
            'objective "none" pre-trains on nothing, first or last',
            where="pretraining.first",
            fix="Take the method that is to pre-train, or leave it out.",
        )
    readers = {
        "collection": recipe.objective.name,
        "first": recipe.pretraining.first_by or recipe.objective.name,
    }
    judged = {"pair", "paq"} if recipe.auxiliary.paq_pairs.labels else {"pair"}
    for key, name in [(key, name) for key, name in readers.items() if name in judged]:
        texts = getattr(recipe.pretraining, key)
        if texts and open_sample(texts).digest != open_sample(recipe.collection).digest:
            problem = f"{name} learns from judged passages of the recipe's collection"
            raise InputError(
                f"{problem}, and this names another one",
                where=f"pretraining.{key}",
                fix="Leave it out, or take a method that reads no labels.",
            )
    if recipe.objective.name in judged and recipe.pretraining.without_documents_of:
        raise InputError(
            f"{recipe.objective.name} learns from judged pairs and reads no other passages",
            where="pretraining.without_documents_of",
            fix="Leave it out, or take a method that reads passages.",
        )


def check_generator(inputs: Inputs) -> None:
    """Refuse a generator with an untrained masked-LM head."""
    if inputs.generator and inputs.generator.fresh_head:
        problem = (
            f"{inputs.recipe.objective.name} replaces words by the guesses of a masked LM, and"
            f" {inputs.base.name} came without its head"
        )
        fix = (
            "Name a masked LM of the same vocabulary as `generator`, or take a method without one"
            " (mlm, retromae)."
        )
        raise InputError(problem, where="objective", fix=fix)


def check_documents(inputs: Inputs) -> None:
    """Refuse single-passage documents for a method that reads two passages of a document."""
    name, every = inputs.recipe.objective.name, np.ones(len(inputs.corpus.passages), bool)
    if issubclass(objectives.method(name), (objectives.Bfs, objectives.Cocondenser)):
        try:
            objectives.Documents.of(*inputs.corpus.documents(), every)
        except InputError as error:
            # name the method, since a study has many rows
            raise error.at(f"{name} on {inputs.corpus.name}") from None


def check_batch(inputs: Inputs, batch: int, where: str) -> None:
    """Refuse batches that the training queries cannot fill."""
    if inputs.labelled_queries < batch:
        raise InputError(
            f"{inputs.labelled_queries} training queries cannot fill a batch of {batch}",
            where=where,
            fix="Make batches smaller or take more training queries.",
        )


def check_length(length: int, model: Checkpoint, where: str) -> None:
    """Refuse sequences longer than a model's maximum."""
    if length > model.shape.positions:
        raise InputError(
            f"sequences of {length} pieces, but {model.name} reads {model.shape.positions}",
            where=where,
            fix="Shorten the sequences or take another base model.",
        )


def check_validation(name: str, options: Finetuning, inputs: Inputs) -> None:
    """Refuse to select weights by queries that are trained on or reported."""
    if options.validation is None:
        return
    collection, reported = inputs.collection, inputs.recipe.evaluation.split
    chosen_by = collection.qrels(options.validation.split).keys()
    for split in ("train", *([reported] if inputs.searched is collection else [])):
        if not chosen_by.isdisjoint(collection.qrels(split)):
            use = "trained on" if split == "train" else "reported"
            raise InputError(
                f"weights would be chosen by queries that are {use}",
                where=f"{name}.validation.split",
                fix=f"Name a split that shares no query with {split!r}.",
            )


UNIT = 33.5
"""Bytes per position, layer and hidden unit of a BERT under bfloat16 autocast, dropout included;
the embedding counts as a layer.
"""
STATE = 18.0
"""Bytes per weight: weight, gradient and two moments in float32, and a copy in bfloat16."""
CHUNK = 2.0**30
"""Bytes of vocabulary logits in memory at a time, with their gradients."""
RESERVED = 0.06
"""Share of a GPU's memory for CUDA itself and fragmentation."""


class Step(NamedTuple):
    """The memory of a training step.

    Attributes:
        positions: padded tokens whose activations are in memory together.
        layers: Transformer layers with gradient, a decoder's included.
        hidden: units of a layer.
        weights: trained parameters.
    """

    positions: int
    layers: int
    hidden: int
    weights: int

    def bytes(self) -> float:
        """Memory of the step, in bytes.

        Example:
            >>> base = Step(59_392, 14, 768, 110_000_000)
            >>> f"{base.bytes() / 2**30:.0f} GiB"
            '24 GiB'
        """
        activations = UNIT * self.positions * (self.layers + 1) * self.hidden
        return activations + STATE * self.weights + CHUNK

    def fitting(self, memory: float) -> int:
        """Positions that fit into `memory` bytes of a device; 0 where not even the weights do."""
        room = memory * (1 - RESERVED) - STATE * self.weights - CHUNK
        return max(0, int(room / (UNIT * (self.layers + 1) * self.hidden)))


def bert_weights(layers: int, hidden: int, vocabulary: int, positions: int = 512) -> int:
    """Parameters of a BERT with its head, without biases and norms.

    Example:
        >>> f"{bert_weights(12, 768, 30522):,}"
        '109,358,592'
    """
    return 12 * layers * hidden**2 + hidden**2 + hidden * (vocabulary + positions)


def steps_of(inputs: Inputs) -> dict[str, Step]:
    """The training step of each training of a recipe, by the key of its settings.

    Sequences are counted at maximum length, gradient caches as one chunk. In pre-training the depth
    depends on the method.
    """
    recipe, wanted = inputs.recipe, trainings_of(inputs.recipe)
    if not wanted:  # then the base model need not be there
        return {}
    layers, hidden, vocabulary, positions = inputs.base.shape
    weights = bert_weights(layers, hidden, vocabulary, positions)
    steps = {}
    if "pretraining" in wanted and recipe.objective.name != "none":
        settings = objectives.parameters(recipe.objective.name, **recipe.objective.params)
        tokens = recipe.pretraining.tokens_per_batch
        depth = settings.depth(layers)
        if chunk := getattr(settings, "chunk", None):
            tokens = min(tokens, chunk * recipe.passage_length)
        extra = 12 * max(0, depth - layers) * hidden**2
        steps["pretraining"] = Step(tokens, depth, hidden, weights + extra)
    for name in TRAININGS:
        if name in wanted and (options := getattr(recipe, name)):
            passages = options.batch_queries * (options.negatives + 1)
            chunk = options.chunk or passages
            at_once = min(passages, chunk) * recipe.passage_length
            if options.chunk is None:
                at_once += options.batch_queries * recipe.query_length
            steps[name] = Step(at_once, layers, hidden, weights * (1 if options.shared else 2))
    if "cross_encoder" in wanted and not recipe.reranking.by:
        options = recipe.auxiliary.cross_encoder
        pairs = options.batch_queries * (options.negatives + 1) * (2 if options.r_drop else 1)
        layers, hidden, vocabulary, positions = inputs.reader.shape
        weights = bert_weights(layers, hidden, vocabulary, positions)
        at_once = min(pairs, options.chunk or pairs) * options.length
        steps["auxiliary.cross_encoder"] = Step(at_once, layers, hidden, weights)
    return steps


def processes_of(inputs: Inputs, trainings: Iterable[str], numbers: Iterable[int]) -> list[int]:
    """Which of some numbers of processes all trainings of a recipe can run on."""
    recipe = inputs.recipe
    able = []
    for number in numbers:
        shared = []
        for name in trainings:
            if name == "pretraining":
                if objectives.method(recipe.objective.name).shares_batches:
                    continue  # its number of pairs is known only with its texts
                shared.append(recipe.pretraining.accumulation % number == 0)
            elif name in TRAININGS:
                shared.append(getattr(recipe, name).batch_queries % number == 0)
            else:
                options = recipe.auxiliary.cross_encoder
                parts = (options.batch_queries, options.accumulation)
                shared.append(any(part % number == 0 for part in parts))
        if all(shared):
            able.append(number)
    return able


def check_memory(inputs: Inputs, memory: int | None) -> None:
    """Refuse a training that would run out of GPU memory, perhaps after hours of others.

    Args:
        inputs: the recipe with its models.
        memory: bytes of the GPU; None where there is none, and nothing is refused.
    """
    for name, step in steps_of(inputs).items() if memory else ():
        if step.positions > (fitting := step.fitting(memory)):
            problem = (
                f"a step would keep {step.positions:,} positions, about"
                f" {step.bytes() / 2**30:.0f} GiB; this GPU of {memory / 2**30:.0f} GiB holds"
                f" {fitting:,}"
            )
            keys = smaller(inputs.recipe, name, fitting).items()
            fix = f"Set {' and '.join(f'{key} to {value}' for key, value in keys)}, or less."
            raise InputError(problem, where=name, fix=fix)


def smaller(recipe: Recipe, name: str, fitting: int) -> dict[str, int]:
    """Keys of a recipe with values that limit a training to `fitting` positions at a time.

    Pre-training by token prediction gets more, smaller micro-batches per update. Contrastive
    trainings keep their batch and get a gradient cache (`chunk`).
    """
    settings: Any = recipe
    for part in name.split("."):
        settings = getattr(settings, part)
    length = getattr(settings, "length", recipe.passage_length)
    rows = max(1, fitting // length)
    if name != "pretraining":
        return {f"{name}.chunk": rows}
    if "chunk" in recipe.objective.params:
        return {"objective.chunk": rows}
    times = math.ceil(settings.tokens_per_batch / max(fitting, length))
    tokens = math.ceil(settings.tokens_per_batch / times)
    return {
        f"{name}.tokens_per_batch": tokens,
        f"{name}.accumulation": settings.accumulation * times,
    }


def fitted(recipe: Recipe, memory: int | None = None) -> Recipe:
    """The recipe, with every training fitted to the memory of a GPU (`smaller`); what fits already
    is unchanged.

    Args:
        recipe: any recipe whose models are available.
        memory: bytes; None takes this machine's GPU, and without one returns the recipe.

    Returns:
        A recipe with another key, and the same results up to rounding.

    Example: ``lab.Study("mine/rates", {"paper": lab.fitted(recipe)}, scale="paper").run()``
    """
    changes: dict[str, int] = {}
    if memory := memory or machine.gpu_memory():
        for name, step in steps_of(Inputs(recipe)).items():
            if step.positions > (fitting := step.fitting(memory)):
                changes |= smaller(recipe, name, fitting)
    return recipe.with_(**{key.replace(".", "__"): value for key, value in changes.items()})
