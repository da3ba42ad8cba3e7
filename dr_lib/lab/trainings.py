"""The trainings of a recipe as stages, and what each of them learns from: negatives, pairs, labels,
importances.

Each function makes one stage with the recipe's settings; `pipeline.py` says in which order they
follow one another. What a stage does is written in `objectives`, `training`, `retrieval` and
`materials`. Nothing is built here. Page of the book: ideas/pipeline.
"""

from functools import partial
from pathlib import Path
from typing import Any

from dr_lib import materials, objectives, retrieval, training
from dr_lib.collections import Collection
from dr_lib.lab.checks import check_batch, check_documents, check_generator, check_length
from dr_lib.lab.inputs import Checkpoint, Inputs, encoding_work, in_shards, open_writer
from dr_lib.models import EXTRA_FILE
from dr_lib.places import find_file
from dr_lib.stages import Data, Part, Stage
from dr_lib.training import Finetuning

PAPERS_WINDOW = 4  # CDMAE counts n-grams up to four words; shorter windows share these counts
# a sigmoid needs logits that were trained pair by pair
SCORER_LOSS = {"sigmoid": "pointwise", "softmax": "listwise"}
SEED = 0  # of materials: all runs of a study share them
BYTES_A_QUERY = 60  # of a line in a file of queries, roughly; used in estimates only
Start = Stage | Data | Part


# Pre-training -------------------------------------------------------------------------------------


def pretrained(inputs: Inputs) -> Stage | None:
    """The base model pre-trained on the passages; None for objective "none"."""
    recipe, name = inputs.recipe, inputs.recipe.objective.name
    if name == "none":
        return None
    check_generator(inputs)
    check_documents(inputs)
    method = objectives.method(name)
    settings = objectives.parameters(name, **recipe.objective.params)
    # Pre-training and its materials are the same whatever the share of labels (MASTER, Figure 3).
    whole = Inputs(recipe.with_(few_shot=None)) if recipe.few_shot else inputs
    read = {name: MATERIALS[name](whole, **params) for name, params in settings.materials().items()}
    start = learned_before(inputs)
    # where an earlier pre-training left its decoder and heads
    beside = Path(start.place) / EXTRA_FILE if isinstance(start, Data) else None
    # query lengths change nothing if no query is read
    unread = {} if method.reads_queries else {"query_length": 32, "query_side": "right"}
    made = objectives.pretrained(
        start,
        inputs.passages(inputs.corpus),
        inputs.corpus,
        inputs.generator.model if inputs.generator else None,
        read,
        Data.file(beside) if beside and beside.is_file() else None,
        method=method,
        settings=settings,
        training=recipe.pretraining,
        **inputs.reading | {"layout": recipe.layout.model_copy(update=unread)},
    )
    return made.costs(inputs.writing_work(recipe.pretraining))


def learned_before(inputs: Inputs) -> Start:
    """What pre-training starts from: the base model, or the result of pre-training on texts and
    pairs that come `first`.
    """
    recipe, pairs = inputs.recipe, inputs.recipe.auxiliary.reddit_pairs
    passages = recipe.pretraining.first
    if recipe.objective.name == "reddit" and pairs.first:
        before = {
            "objective": pairs.first_by or "reddit",
            "auxiliary__reddit_pairs__file": pairs.first,
            "auxiliary__reddit_pairs__first": None,
            "auxiliary__reddit_pairs__first_by": None,
        }
    elif passages:
        before = {
            "objective": recipe.pretraining.first_by or recipe.objective.name,
            "pretraining__collection": passages.model_dump(mode="json"),
            "pretraining__first": None,
            "pretraining__first_by": None,
            "pretraining__without_documents_of": None,  # splits of the last passages
            "pretraining__others": None,
        }
    else:
        return inputs.base.model
    # Its decoder and heads are dropped: the second training makes its own.
    return pretrained(Inputs(recipe.with_(few_shot=None, **before))) / "model"


# Retrievers ---------------------------------------------------------------------------------------


def bm25_negatives(inputs: Inputs) -> Stage:
    """BM25's hard negatives of the training queries."""
    options = inputs.recipe.negatives
    run = inputs.bm25_run("train", options.depth + inputs.most_relevant)
    collection = judged(inputs, options.held_out)
    return retrieval.negatives(run, collection, **options.model_dump())


def judged(inputs: Inputs, held_out: str | None) -> Collection:
    """The collection by which negatives are drawn: with the training queries, or with all splits
    where those hold passages out.
    """
    return inputs.collection if held_out else inputs.collection.only("train")


def first_negatives(inputs: Inputs) -> Stage | None:
    """What `finetuning` draws its hard negatives from; None where it has none."""
    return bm25_negatives(inputs) if inputs.recipe.finetuning.negatives else None


def examples(inputs: Inputs, negatives: Stage | None, labels: Stage | None = None) -> Part:
    """Examples for all trainings on labels: the training queries, or the share of them that the
    recipe allows, with pseudo-labels if given.
    """
    share = inputs.recipe.few_shot
    few = {} if share is None else {"share": share, "share_seed": inputs.recipe.collection.seed}
    return training.training_set(inputs.collection, negatives, labels, **few) / "examples"


def retriever(
    inputs: Inputs,
    start: Start,
    negatives: Stage | None,
    options: Finetuning | None = None,
    *,
    teacher: Stage | None = None,
) -> Stage:
    """A retriever fine-tuned from `start` on queries, positives and hard negatives, with `options`
    (default `finetuning`).
    """
    recipe, options = inputs.recipe, options or inputs.recipe.finetuning
    looks = options.validation
    made = training.retriever(
        start,
        inputs.passages(),
        inputs.queries("train"),
        examples(inputs, negatives, pseudo_labels(inputs) if options.pseudo_labels else None),
        teacher,
        (
            [
                inputs.collection.only(looks.split),
                inputs.queries(looks.split),
                inputs.bm25_run(looks.split, looks.per_query),
            ]
            if looks
            else []
        ),
        training=options,
        pooling=recipe.pooling,
        distil=training.DistilledBiEncoder if teacher else None,
        **inputs.reading,
    )
    return made.costs(finetuning_work(inputs, options))


def finetuning_work(inputs: Inputs, options: Finetuning) -> float:
    """Operations of a fine-tuning."""
    recipe = inputs.recipe
    per_query = recipe.query_length + (options.negatives + 1) * recipe.passage_length
    read = options.steps * options.accumulation * options.batch_queries * per_query
    return read * inputs.base.shape.work(recipe.passage_length)


def untuned(inputs: Inputs, start: Start) -> Stage:
    """A retriever without fine-tuning: its vectors are compared as in pre-training, else as
    `finetuning` says.
    """
    recipe, learned = inputs.recipe, inputs.recipe.objective.params
    compared, pooling = {}, recipe.pooling
    # a contrastive method has trained the states of [CLS] for one way of comparing them
    if "normalise" in learned:
        compared = {
            "normalise": learned["normalise"],
            "projection": learned.get("projection") or None,
        }
        pooling = "cls"
    return training.untuned(
        start,
        training=recipe.finetuning.model_copy(update=compared),
        layout=recipe.layout,
        pooling=pooling,
        seed=recipe.seed,
    )


def baseline(inputs: Inputs) -> Stage:
    """The base model fine-tuned without pre-training: the same stage as for objective "none"."""
    options = inputs.recipe.finetuning.model_copy(update={"pseudo_labels": None})
    return retriever(inputs, inputs.base.model, first_negatives(inputs), options)


def mined(inputs: Inputs, encoder: Stage, keep: int | None = None) -> Stage:
    """Hard negatives from a retriever's own ranking of the training queries; with `keep`, this many
    of them and no others.
    """
    mining = inputs.recipe.mining
    run = dense_run(inputs, encoder, "train", mining.depth + inputs.most_relevant)
    options = mining.model_dump(exclude={"rounds", "with_bm25"})
    if keep is not None:
        options |= {"keep": keep, "random_negatives": 0}
    also = bm25_negatives(inputs) if mining.with_bm25 and keep is None else None
    return retrieval.negatives(run, judged(inputs, mining.held_out), also, **options)


# Searching ----------------------------------------------------------------------------------------


def vectors(
    inputs: Inputs, encoder: Stage | Data, collection: Collection | None = None
) -> list[Stage]:
    """The vectors of all passages, in shards that can be encoded on several machines."""
    recipe, collection = inputs.recipe, collection or inputs.collection
    passages, dtype = len(collection.passages), recipe.evaluation.vector_type
    if isinstance(encoder, Data):
        how = {"dtype": dtype, "title": recipe.title != "none", "prompts": recipe.prompts}
        make = partial(retrieval.given_vectors, encoder, collection, **how)
        return in_shards(make, passages, encoding_work(encoder, recipe.passage_length))
    make = partial(retrieval.vectors, encoder, inputs.passages(collection), dtype=dtype)
    return in_shards(make, passages, inputs.base.shape.encoding(recipe.passage_length))


def dense_run(
    inputs: Inputs,
    encoder: Stage | Data,
    split: str,
    depth: int,
    collection: Collection | None = None,
) -> Stage:
    """The nearest passages of each query of a split."""
    collection, where = collection or inputs.collection, {"split": split, "depth": depth}
    shards = vectors(inputs, encoder, collection)
    if isinstance(encoder, Data):
        where |= {"prompts": inputs.recipe.prompts}
        return retrieval.given_run(encoder, shards, collection, **where)
    queries, asked = inputs.queries(split, collection), len(collection.qrels(split))
    made = retrieval.dense_run(encoder, shards, queries, collection, **where)
    shape = inputs.base.shape
    products = 2 * asked * len(collection.passages) * shape.hidden
    return made.costs(products + asked * shape.encoding(inputs.recipe.query_length))


# Re-rankers and teachers --------------------------------------------------------------------------


def reranker(inputs: Inputs, encoder: Stage) -> Stage:
    """The re-ranker and teacher: a cross-encoder trained on a retriever's candidates, or late
    interaction.
    """
    recipe = inputs.recipe
    if recipe.reranking.by:
        return late_interaction(inputs)
    fixed = recipe.auxiliary.cross_encoder.seed
    seed = recipe.seed if fixed is None else fixed
    return cross_encoder(inputs, mined(inputs, encoder), encoder, "listwise", seed)


def cross_encoder(
    inputs: Inputs, negatives: Stage | None, encoder: Stage, loss: str, seed: int
) -> Stage:
    """A cross-encoder trained on the training queries: "listwise" to re-rank, "pointwise" for
    probabilities; it may start from the retriever `encoder`.
    """
    recipe, settings = inputs.recipe, inputs.recipe.auxiliary.cross_encoder
    check_batch(inputs, settings.batch_queries, "auxiliary.cross_encoder.batch_queries")
    check_length(settings.length, inputs.reader, "auxiliary.cross_encoder.length")
    queries, passages = inputs.pairs("train", inputs.collection)
    start = inputs.reader.model
    if settings.start == "retriever":
        start = encoder / "model"
    elif settings.start and settings.start != "none":
        other = Inputs(recipe.with_(objective=settings.start))
        start = pretrained(other) / "model"
    made = training.cross_encoder(
        start,
        passages,
        queries,
        examples(inputs, negatives),
        training=settings,
        loss=loss,
        title=recipe.title != "none",
        dropout=recipe.dropout,
        seed=seed,
    )
    return made.costs(cross_encoder_work(inputs))


def cross_encoder_work(inputs: Inputs) -> float:
    """Operations of a cross-encoder's training."""
    settings = inputs.recipe.auxiliary.cross_encoder
    batch = settings.batch_queries * (settings.negatives + 1)
    return 3 * inputs.scoring_work(settings.steps * settings.accumulation * batch)


def late_interaction(inputs: Inputs) -> Stage:
    """A re-ranker and teacher that is the same for all pre-training methods: from the base model,
    with BM25's negatives.
    """
    options = inputs.recipe.finetuning
    made = training.late_interaction(
        inputs.base.model,
        inputs.passages(),
        inputs.queries("train"),
        examples(inputs, first_negatives(inputs)),
        training=options,
        **inputs.reading,
    )
    return made.costs(1.5 * finetuning_work(inputs, options))


def dialogue_cross_encoder(inputs: Inputs) -> Stage:
    """A cross-encoder trained on the pairs of dialogues, from the encoder that learned those before
    them, else the base.
    """
    recipe, settings = inputs.recipe, inputs.recipe.auxiliary.cross_encoder
    dialogue = recipe.evaluation.dialogue
    check_length(settings.length, inputs.base, "auxiliary.cross_encoder.length")
    made = training.dialogue_cross_encoder(
        learned_before(inputs),
        reddit_pairs(inputs),
        training=settings,
        context_length=dialogue.context_length,
        side=dialogue.side,
        dropout=recipe.dropout,
        seed=recipe.seed,
    )
    return made.costs(cross_encoder_work(inputs))


def teacher_scores(inputs: Inputs, scorer: Stage | None, negatives: Stage) -> Stage:
    """The re-ranker's scores of every positive and negative of the training queries; BM25's if
    there is no re-ranker.
    """
    recipe, learned = inputs.recipe, examples(inputs, negatives)
    if scorer is None:
        return retrieval.bm25_teacher_scores(inputs.bm25_index(), inputs.collection, learned)
    lists = [recipe.mining, *([recipe.negatives] if recipe.mining.with_bm25 else [])]
    listed = sum(part.depth + part.random_negatives for part in lists)
    scored = 1 + (recipe.distillation.teacher_negatives or listed)
    texts = inputs.pairs("train", inputs.collection, recipe.reranking.by)
    made = retrieval.teacher_scores(scorer, *texts, learned)
    return made.costs(inputs.scoring_work(scored * inputs.labelled_queries))


# What methods read besides the passages -----------------------------------------------------------


def importances(
    inputs: Inputs,
    *,
    window: int = PAPERS_WINDOW,
    min_count: int | None = None,
    unit: str = "word",
    **options: Any,
) -> Stage:
    """The importance of each piece (CDMAE section 3.2)."""
    passages, order = inputs.passages(inputs.corpus), max(window, PAPERS_WINDOW)
    counts = materials.ngrams(passages, order=order, min_count=min_count, unit=unit)
    return materials.importances(passages, counts, window=window, **options)


def keyword_weights(inputs: Inputs, **options: Any) -> Stage:
    """The keyword weight of each piece (MASTER section 4.2)."""
    return materials.keyword_weights(inputs.passages(inputs.corpus), **options)


def questions(inputs: Inputs, *, per_passage: int = 10) -> Stage:
    """Questions about every passage of the pre-training corpus, by a generator trained on the
    collection or a public one.
    """
    writer = question_generator(inputs, SEED)
    return questions_by(inputs, writer, inputs.corpus, per_passage=per_passage, top_k=10, seed=SEED)


def question_generator(inputs: Inputs, seed: int) -> Checkpoint:
    """A public question generator by name, or one trained on the collection's own training
    queries.
    """
    settings = inputs.recipe.auxiliary.questions
    if settings.model:
        return open_writer(settings.model)
    made = materials.question_generator(
        inputs.base.model,
        inputs.passages(),
        inputs.queries("train"),
        inputs.collection,
        training=settings,
        **inputs.reading | {"seed": seed},
    )
    return trained_writer(inputs, made.costs(inputs.writing_work(settings)))


def questions_by(
    inputs: Inputs,
    writer: Checkpoint,
    collection: Collection | None = None,
    *,
    per_passage: int,
    top_k: int,
    seed: int,
) -> Stage:
    """Questions about every passage of a collection (default the recipe's): at most `per_passage`
    distinct ones each.
    """
    recipe, collection = inputs.recipe, collection or inputs.collection
    own_tokens = isinstance(writer.tokenizer, Data) and not writer.public
    made = materials.questions(
        writer.model,
        inputs.passages(collection, writer if own_tokens else None),
        collection,
        inputs.base.tokenizer,
        public=writer.public,
        per_passage=per_passage,
        top_k=top_k,
        layout=recipe.layout,
        seed=seed,
    )
    written = len(collection.passages) * per_passage * recipe.query_length
    return made.costs(written * inputs.work_a_token() / 3)


def continuations(inputs: Inputs, *, new_tokens: int = 128, prompt_tokens: int = 256) -> Stage:
    """One continuation of every passage (MASTER's GPT-2 task); a decoder reads no more than a
    passage's length.
    """
    recipe, corpus, settings = inputs.recipe, inputs.corpus, inputs.recipe.auxiliary.continuations
    longest, passages = recipe.passage_length, inputs.passages(corpus)
    new_tokens, prompt_tokens = min(new_tokens, longest), min(prompt_tokens, 2 * longest)
    if settings.model:
        writer = open_writer(settings.model)
    else:
        made = materials.continuation_model(
            inputs.base.model,
            passages,
            corpus,
            training=settings,
            positions=prompt_tokens + new_tokens + 1,
            dropout=recipe.dropout,
            seed=SEED,
        )
        writer = trained_writer(inputs, made.costs(inputs.writing_work(settings)))
    made = materials.continuations(
        writer.model,
        passages,
        corpus,
        inputs.base.tokenizer,
        public=writer.public,
        new_tokens=new_tokens,
        prompt_tokens=prompt_tokens,
        top_p=0.9,
        seed=SEED,
    )
    return made.costs(len(corpus.passages) * new_tokens * inputs.work_a_token() / 3)


def trained_writer(inputs: Inputs, made: Stage) -> Checkpoint:
    """The model of a stage that trains a writer from the base model."""
    model = made / "model"
    return Checkpoint(made.kind, inputs.base.shape, model, model, public=False)


def paq_pairs(inputs: Inputs) -> Stage:
    """Questions with the passages they were generated from, and hard negatives (DPR-PAQ section
    3.1.1), or people's questions in their place.
    """
    options, corpus = inputs.recipe.auxiliary.paq_pairs, inputs.corpus
    if options.labels == "given":
        return given_labels(inputs, options.limit)
    if options.file:
        return pairs_of_file(inputs, options.file, options.limit, options.depth)
    searchers = {options.negatives}
    if options.filter != "none":
        searchers.add(options.filter_by)
    encoder = baseline(inputs) if "dense" in searchers else None
    return materials.generated_pairs(
        questions(inputs, per_passage=options.per_passage),
        corpus,
        inputs.base.tokenizer,
        inputs.bm25_index(corpus) if "bm25" in searchers else None,
        encoder,
        vectors(inputs, encoder, corpus) if encoder else None,
        seed=SEED,
        **options.model_dump(exclude={"labels", "file", "per_passage"}),
    )


def reddit_pairs(inputs: Inputs) -> Stage:
    """Pairs that people wrote: of a file, else the titles of what is pre-trained on with their
    bodies.
    """
    options = inputs.recipe.auxiliary.reddit_pairs
    if options.file:
        return pairs_of_file(inputs, options.file, options.limit, depth=0)
    return materials.title_pairs(inputs.corpus, inputs.base.tokenizer)


def pairs_of_file(inputs: Inputs, name: str, limit: int | None, depth: int) -> Stage:
    """Pairs of a file, all or `limit` of them."""
    file = Data.file(find_file(name, "pairs/train.jsonl"))
    return materials.file_pairs(file, inputs.base.tokenizer, limit=limit, seed=SEED, depth=depth)


def given_labels(inputs: Inputs, limit: int | None = None) -> Stage:
    """The training queries with their relevant passages and BM25's negatives, all or `limit` of
    them.
    """
    share = min(limit / inputs.labelled_queries, 1) if limit else None
    labels = training.training_set(inputs.collection, bm25_negatives(inputs), share=share)
    return materials.given_labels(inputs.queries("train"), labels / "examples")


def pseudo_labels(inputs: Inputs) -> Stage:
    """Pairs that the cross-encoder is confident about, or the given labels as they are (PAIR
    section 3.3): other thresholds make other pairs from the same scores.
    """
    options, collection = inputs.recipe.auxiliary.pseudo_labels, inputs.collection
    if options.labels == "given":
        return given_labels(inputs)
    queries, size = unlabelled(inputs)
    encoder = baseline(inputs)
    if options.first == "bm25":
        candidates = materials.bm25_candidates(
            queries, inputs.bm25_index(), collection, pool=options.pool, depth=options.depth
        )
    else:
        candidates = retrieval.dense_run(
            encoder,
            vectors(inputs, encoder),
            queries,
            collection,
            split="train" if options.pool == "train" else None,
            depth=options.depth,
        )
    loss = SCORER_LOSS[options.probability]
    scorer = cross_encoder(inputs, bm25_negatives(inputs), encoder, loss, SEED)
    read, passages = inputs.pairs("train", collection)
    if options.pool != "train":
        reader = inputs.reader.tokenizer
        read = (
            queries if reader == inputs.base.tokenizer else materials.text_tokens(queries, reader)
        )
    scores = retrieval.candidate_scores(scorer, read, passages, candidates)
    scores = scores.costs(inputs.scoring_work(size * options.depth))
    chosen = options.model_dump(include={"pool", "s_pos", "s_neg", "probability"})
    return materials.pseudo_labels(queries, candidates, scores, collection, **chosen)


def unlabelled(inputs: Inputs) -> tuple[Stage, int]:
    """The queries to label, and their approximate number."""
    options, collection = inputs.recipe.auxiliary.pseudo_labels, inputs.collection
    if options.pool == "questions":
        made = questions(inputs, per_passage=options.per_passage)
        return made, options.per_passage * len(collection.passages)
    if options.file:
        file = find_file(options.file, "queries.jsonl")
        size = file.stat().st_size // BYTES_A_QUERY + 1
        tested = list({part.digest: part for part in (collection, inputs.searched)}.values())
        return materials.unlabelled_queries(Data.file(file), inputs.base.tokenizer, tested), size
    return inputs.queries("train"), len(collection.qrels("train"))


MATERIALS = {
    "importances": importances,
    "keyword_weights": keyword_weights,
    "questions": questions,
    "continuations": continuations,
    "paq_pairs": paq_pairs,
    "reddit_pairs": reddit_pairs,
    "pseudo_labels": pseudo_labels,
}
"""Name of a material, as in `Settings.materials` -> the function that makes its stage."""
