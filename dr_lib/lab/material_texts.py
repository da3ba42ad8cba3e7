"""Stages that write texts about passages: generated questions, continuations, and the models that write them.

Page of the book: ideas/generators. Their seed is a parameter of its own, as that of mined negatives: the runs of a
study read the same texts whatever their seed.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from dr_lib import materials as made
from dr_lib import models
from dr_lib.collections import Collection
from dr_lib.files import write_json
from dr_lib.lab.builds import Inputs, document_order, examples
from dr_lib.lab.cost import bert_work
from dr_lib.lab.maker_specs import GeneratorTraining
from dr_lib.lab.means import Means
from dr_lib.lab.opening import Origin, open_writer
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.materials import Counts, PackedText, Texts, Writer, write_all
from dr_lib.models import Sampling, load_causal_lm, load_seq2seq, new_causal_lm, new_seq2seq
from dr_lib.tokens import TokenStore, load_tokenizer, special_ids
from dr_lib.training import RetrievalBatches, machine, train

ROWS_AT_ONCE = {"cpu": 512, "cuda": 8192}
"""Texts written side by side; what is written does not depend on it."""


def questions(means: Means, *, per_passage: int = 10, top_k: int = 10, seed: int = 0) -> Stage:
    """Questions about every passage, by the collection's own generator.

    Args:
        means: the recipe's `makers.questions` names a public generator, or says how one is trained here.
        per_passage: questions drawn a passage (MASTER's public sample: 10).
        top_k: each token is drawn among so many.
        seed: of the generator's fresh weights, its training and the draws.
    """
    return questions_by(
        question_generator(means, seed), means.recipe, means.collection, means.base, means.passages,
        per_passage=per_passage, top_k=top_k, seed=seed,
    )  # fmt: skip


def questions_by(
    writer: Origin, recipe: Recipe, collection: Collection, base: Origin, passages: Stage, *,
    per_passage: int, top_k: int, seed: int,
) -> Stage:  # fmt: skip
    """Questions about every passage by any generator: at most `per_passage` distinct ones, of `query_length` tokens."""
    params = {
        "per_passage": per_passage, "top_k": top_k, "seed": seed, "title": recipe.title,
        "lengths": [recipe.passage_length, recipe.query_length], **writer.params("writer"),
    }  # fmt: skip
    build = partial(
        build_questions, recipe=recipe, collection=collection, base=base, writer=writer, per_passage=per_passage,
        top_k=top_k, seed=seed,
    )  # fmt: skip
    inputs = {"passages": passages, **base.inputs("base"), **writer.inputs("writer")}
    cost = len(collection.passages) * per_passage * recipe.query_length * work_per_token(recipe, base) / 3
    return Stage("questions", 1, params, build, inputs, resumable=True, cost=cost)


def continuations(
    means: Means, *, new_tokens: int = 128, prompt_tokens: int = 256, top_p: float = 0.9, seed: int = 0
) -> Stage:
    """One continuation of every passage.

    Args:
        means: the recipe's `makers.continuations` names a public causal LM, or says how one is trained here.
        new_tokens: tokens of a continuation, but not more than the recipe's `passage_length`: a decoder reads no more.
        prompt_tokens: tokens of the passage that are read, from its beginning; not more than twice `passage_length`.
        top_p: each token is drawn among the likeliest ones whose chances sum to this.
        seed: of the model's fresh weights, its training and the draws.
    """
    longest = means.recipe.passage_length
    new_tokens, prompt_tokens = min(new_tokens, longest), min(prompt_tokens, 2 * longest)
    writer = continuation_model(means, prompt_tokens + new_tokens + 1, seed)
    options = {"new_tokens": new_tokens, "prompt_tokens": prompt_tokens, "top_p": top_p, "seed": seed}
    build = partial(build_continuations, collection=means.collection, base=means.base, writer=writer, options=options)
    inputs = {"passages": means.passages, **means.base.inputs("base"), **writer.inputs("writer")}
    cost = len(means.collection.passages) * new_tokens * work_per_token(means.recipe, means.base) / 3
    return Stage("continuations", 1, options | writer.params("writer"), build, inputs, resumable=True, cost=cost)


def question_generator(means: Means, seed: int) -> Origin:
    """The model that asks: a public one by name, or one trained on the collection's own queries of the split train."""
    recipe, settings = means.recipe, means.recipe.makers.questions
    if settings.model:
        return open_writer(settings.model)
    params = {"lengths": [recipe.passage_length, recipe.query_length], "title": recipe.title}
    build = partial(build_question_generator, recipe=recipe, collection=means.collection, base=means.base, seed=seed)
    inputs = {"queries": means.train_queries}
    return trained(means, "question_generator", settings, params, build, inputs, seed, version=2)


def continuation_model(means: Means, positions: int, seed: int) -> Origin:
    """The model that goes on: a public one by name, or one trained on the collection's own passages."""
    settings = means.recipe.makers.continuations
    if settings.model:
        return open_writer(settings.model)
    build = partial(
        build_continuation_model, recipe=means.recipe, collection=means.collection, base=means.base,
        positions=positions, seed=seed,
    )  # fmt: skip
    return trained(means, "continuation_model", settings, {"positions": positions}, build, {}, seed)


def trained(
    means: Means, kind: str, settings: GeneratorTraining, params: dict[str, Any], build: partial,
    inputs: dict[str, Stage], seed: int, version: int = 1,
) -> Origin:  # fmt: skip
    """The stage that trains a writer from the base model, as the origin of what it writes."""
    recipe, base = means.recipe, means.base
    identity = {name: value for name, value in settings.identity().items() if name != "model"}
    params = {"training": identity, "dropout": recipe.dropout, "seed": seed, **params, **base.params("base")}
    inputs = {"passages": means.passages, **inputs, **base.inputs("base")}
    cost = settings.steps * settings.accumulation * settings.tokens_per_batch * work_per_token(recipe, base)
    family = f"{base.shape.layers}x{base.shape.hidden}"
    stage = Stage(kind, version, params, build, inputs, resumable=True, cost=cost, family=family)
    return Origin(kind, base.shape, stage=stage)


def work_per_token(recipe: Recipe, base: Origin) -> float:
    """Operations of a training step for one token of a model of the base's size."""
    return bert_work(*base.shape[:3], length=recipe.passage_length)


def build_question_generator(
    folder: Path, inputs: Inputs, *, recipe: Recipe, collection: Collection, base: Origin, seed: int
) -> None:
    """`model/`: the question generator with the base model's tokenizer; `log.json`."""
    settings, start = recipe.makers.questions, base.path(inputs, "base")
    tokenizer = load_tokenizer(start)
    masked = models.load_masked_lm(start, dropout=recipe.dropout, device=machine.device())
    model = new_seq2seq(masked, special_ids(tokenizer))
    pairs = examples(collection, {})
    fitting = settings.tokens_per_batch // (recipe.passage_length + recipe.query_length)
    batches = RetrievalBatches(
        TokenStore.open(inputs["queries"] / "store"), TokenStore.open(inputs["passages"] / "store"), pairs,
        batch_queries=max(1, min(len(pairs), fitting)), passages_per_query=1, query_length=recipe.query_length,
        passage_length=recipe.passage_length, title=recipe.title, seed=seed,
    )  # fmt: skip
    train(made.QuestionTraining(model), batches.batch, settings.settings(seed), folder, title="question generator")
    models.save_masked_lm(model, tokenizer, folder / "model")


def build_continuation_model(
    folder: Path, inputs: Inputs, *, recipe: Recipe, collection: Collection, base: Origin, positions: int, seed: int
) -> None:
    """`model/`: the causal LM with the base model's tokenizer; `log.json`."""
    settings, start = recipe.makers.continuations, base.path(inputs, "base")
    tokenizer = load_tokenizer(start)
    masked = models.load_masked_lm(start, dropout=recipe.dropout, device=machine.device())
    model = new_causal_lm(masked, special_ids(tokenizer), positions=positions, seed=seed)
    text = PackedText(
        TokenStore.open(inputs["passages"] / "store"), *document_order(collection), length=positions,
        tokens_per_batch=settings.tokens_per_batch, seed=seed,
    )  # fmt: skip
    module = made.ContinuationTraining(model)
    train(module, text.batch, settings.settings(seed), folder, title="continuation model")
    models.save_masked_lm(model, tokenizer, folder / "model")


def build_questions(
    folder: Path, inputs: Inputs, *, recipe: Recipe, collection: Collection, base: Origin, writer: Origin,
    per_passage: int, top_k: int, seed: int,
) -> None:  # fmt: skip
    """The questions about each passage as texts (see `materials.texts`); `counts.json`."""
    place, store = writer.path(inputs, "writer"), TokenStore.open(inputs["passages"] / "store")
    model = ready(load_seq2seq(place, device=machine.device()))
    tokenizer = writer_tokenizer(writer, place)
    if writer.stage:
        read = made.stored_inputs(store, recipe.passage_length, recipe.title)
    else:
        read = made.tokenised_inputs(collection.passages, tokenizer, recipe.passage_length, recipe.title)
    write = made.QuestionWriter(
        model, tokenizer, read, copies=per_passage, longest=recipe.query_length, choice=Sampling(top_k=top_k), seed=seed
    )
    save_texts(folder, inputs, base, write, store, per_passage, "questions")


def build_continuations(
    folder: Path, inputs: Inputs, *, collection: Collection, base: Origin, writer: Origin, options: dict[str, Any]
) -> None:
    """The continuation of each passage as texts (see `materials.texts`); `counts.json`."""
    place, store = writer.path(inputs, "writer"), TokenStore.open(inputs["passages"] / "store")
    model = ready(load_causal_lm(place, device=machine.device()))
    tokenizer, prompt = writer_tokenizer(writer, place), options["prompt_tokens"]
    made.check_room(model, prompt, options["new_tokens"])
    if writer.stage:
        prompts = made.stored_prompts(store, prompt)
    else:
        prompts = made.tokenised_prompts(collection.passages, tokenizer, prompt)
    write = made.ContinuationWriter(
        model, tokenizer, prompts, new_tokens=options["new_tokens"], choice=Sampling(top_p=options["top_p"]),
        seed=options["seed"],
    )  # fmt: skip
    save_texts(folder, inputs, base, write, store, 1, "continuations")


def save_texts(
    folder: Path, inputs: Inputs, base: Origin, write: Writer, store: TokenStore, copies: int, title: str
) -> None:
    """Write about every passage, drop empty and repeated texts, and keep the rest with its counts."""
    counts, lengths = Counts(), store.text_offsets[1:] - store.text_offsets[:-1]
    at_once = max(1, ROWS_AT_ONCE[machine.device().type] // copies)
    written = write_all(folder, lengths, write, at_once=at_once, title=title)
    kept = ([counts.clean(own) for own in block] for block in written)
    Texts.write(folder, kept, load_tokenizer(base.path(inputs, "base")))
    write_json(folder / "counts.json", vars(counts))


def ready(model: PreTrainedModel) -> PreTrainedModel:
    """A model that only writes: without gradients, its weights in bfloat16 where the machine computes that natively."""
    torch.set_num_threads(machine.threads())
    bf16 = machine.precision("auto", model.device) == "bf16"
    return model.requires_grad_(False).to(torch.bfloat16 if bf16 else torch.float32)


def writer_tokenizer(writer: Origin, place: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model trained here, or that of a public one, of whatever kind."""
    return load_tokenizer(place) if writer.stage else AutoTokenizer.from_pretrained(place)
