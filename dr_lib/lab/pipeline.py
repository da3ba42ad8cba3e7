"""From a recipe to its stages: SimLM's Figure 2 in code, and what CDMAE (section 3.4) and MASTER
(section 4.3) share.

    passages -> pretrained -> retriever 1 -> mined -> retriever 2 -> cross-encoder -> teacher scores
    -> distilled
                                   ^ BM25's negatives                      |-> re-ranked run

Every retriever starts from the same pre-trained encoder; only what it learns from changes. A stage
is defined beside the code that does its work; this file only connects the stages and can be read
from top to bottom. Nothing is built here. Page of the book: ideas/pipeline.
"""

from functools import cached_property, partial
from itertools import chain, count
from pathlib import Path
from typing import Any

from dr_lib import evaluation, materials, objectives, retrieval, tokens, training
from dr_lib.collections import Collection, dialogue_file, dstc7_answers
from dr_lib.errors import InputError
from dr_lib.files import file_digest
from dr_lib.lab.base import Checkpoint, in_shards, open_checkpoint, open_sample, open_writer
from dr_lib.lab.recipe import Recipe
from dr_lib.models import EXTRA_FILE
from dr_lib.places import find_file
from dr_lib.stages import Data, Part, Stage
from dr_lib.training import Finetuning, Training

PAPERS_WINDOW = 4  # CDMAE counts n-grams up to four words; shorter windows share these counts
# a sigmoid needs logits that were trained pair by pair
SCORER_LOSS = {"sigmoid": "pointwise", "softmax": "listwise"}
TUNING = "dev"  # the split that the weight of a fusion is chosen on
BYTES_A_QUERY = 60  # of a line in a file of queries, about; only estimates go by it


class Pipeline:
    """The stages of one recipe, each made when it is named.

    Args:
        recipe: the configuration.
        searches: whether anything will be searched; if not, the collection needs no queries (to
            generate some, for instance).

    Attributes:
        collection: what the recipe trains on.
        searched: what it is evaluated on: the same one but for zero-shot runs.
        corpus: what is pre-trained on, and what pairs for it are made of: the same one unless
            `pretraining.collection` is set.
        base: the masked LM that every training starts from.

    Raises:
        InputError: a collection or model that cannot be opened, a split it does not have, sizes
            that do not fit.
    """

    def __init__(self, recipe: Recipe, searches: bool = True):
        self.recipe = recipe
        self.collection = open_sample(recipe.collection)
        self.searched = (
            open_sample(recipe.evaluation.on) if recipe.evaluation.on else self.collection
        )
        self.corpus = (
            open_sample(recipe.pretraining.collection)
            if recipe.pretraining.collection
            else self.collection
        )
        self.base = open_checkpoint(recipe.base)
        if searches:
            check(self)

    # Tokens and words -----------------------------------------------------------------------------

    def passages(self, collection: Collection | None = None, by: Checkpoint | None = None) -> Stage:
        """The passages of a collection (default the recipe's) in the tokens of a model (default the
        base).
        """
        collection, by = collection or self.collection, by or self.base
        return tokens.passage_tokens(collection, by.tokenizer)

    def queries(
        self, split: str, collection: Collection | None = None, by: Checkpoint | None = None
    ) -> Stage:
        """The queries of a split, likewise."""
        collection, by = collection or self.collection, by or self.base
        return tokens.query_tokens(collection, by.tokenizer, split=split)

    def bm25_index(self, collection: Collection | None = None, *, cut: bool = False) -> Stage:
        """BM25 over the passages, titles included where the recipe reads them; whole, or cut as the
        encoder reads them.
        """
        collection = collection or self.collection
        limits = {"tokenizer": self.base.tokenizer, "layout": self.recipe.layout} if cut else {}
        return retrieval.bm25_index(collection, title=self.recipe.title != "none", **limits)

    def bm25_run(
        self, split: str, depth: int, collection: Collection | None = None, *, cut: bool = False
    ) -> Stage:
        """BM25's ranking for the queries of a split."""
        collection = collection or self.collection
        return retrieval.bm25_run(
            self.bm25_index(collection, cut=cut), collection, split=split, depth=depth
        )

    # Pre-training ---------------------------------------------------------------------------------

    @cached_property
    def pretrained(self) -> Stage | None:
        """The base model pre-trained on the passages; None for objective "none"."""
        recipe, name = self.recipe, self.recipe.objective.name
        if name == "none":
            return None
        method, settings = (
            objectives.method(name),
            objectives.parameters(name, **recipe.objective.params),
        )
        # then these change nothing
        unread = {} if method.reads_queries else {"query_length": 32, "query_side": "right"}
        # With few labels or with all of them, pre-training and what it reads stay the same (MASTER,
        # Figure 3).
        whole = Pipeline(recipe.with_(few_shot=None)) if recipe.few_shot else self
        begin = self._learned_before
        beside = Path(begin.place) / EXTRA_FILE if isinstance(begin, Data) else None
        made = objectives.pretrained(
            begin,
            self.passages(self.corpus),
            self.corpus,
            self.generator.model if self.generator else None,
            {name: whole.material(name, **params) for name, params in settings.materials().items()},
            # where an earlier pre-training left its decoder and heads
            Data.file(beside) if beside and beside.is_file() else None,
            method=method,
            settings=settings,
            training=recipe.pretraining,
            **self._common | {"layout": recipe.layout.model_copy(update=unread)},
        )
        return made.costs(self._writing_work(recipe.pretraining))

    @property
    def _learned_before(self) -> Stage | Data | Part:
        """What pre-training starts from: the base model, or what it became by texts and then pairs
        that are read `first`.
        """
        recipe = self.recipe
        if recipe.objective.name == "reddit" and (pairs := recipe.auxiliary.reddit_pairs.first):
            same = {"file": pairs, "first": None, "first_by": None}
            before = {f"auxiliary__reddit_pairs__{key}": value for key, value in same.items()}
            before |= {"objective": recipe.auxiliary.reddit_pairs.first_by or "reddit"}
        elif passages := recipe.pretraining.first:
            before = {"pretraining__collection": passages.model_dump(mode="json")}
            before |= {"pretraining__first": None, "pretraining__first_by": None}
            if recipe.pretraining.first_by:
                before |= {"objective": recipe.pretraining.first_by}
        else:
            return self.base.model
        # Its decoder and heads are not kept: the second training makes its own.
        return Pipeline(recipe.with_(few_shot=None, **before)).pretrained / "model"

    @cached_property
    def generator(self) -> Checkpoint | None:
        """The masked LM that proposes replacements, for methods that need one."""
        needed = objectives.method(self.recipe.objective.name).needs_generator
        return open_checkpoint(self.recipe.generator or self.recipe.base) if needed else None

    @property
    def start(self) -> Stage | Data | Part:
        """The encoder that every retriever starts from."""
        return self.pretrained or self.base.model

    # Retrievers -----------------------------------------------------------------------------------

    @cached_property
    def bm25_negatives(self) -> Stage:
        """BM25's hard negatives of the training queries."""
        options = self.recipe.negatives
        run = self.bm25_run("train", options.depth + self.most_relevant)
        return retrieval.negatives(run, self.collection, **options.model_dump())

    def examples(self, negatives: Stage | None, pseudo_labels: Stage | None = None) -> Part:
        """What trainings on labels learn from: the training queries, or the share of them that the
        recipe may learn from.
        """
        share = self.recipe.few_shot
        few = {} if share is None else {"share": share, "share_seed": self.recipe.collection.seed}
        return training.training_set(self.collection, negatives, pseudo_labels, **few) / "examples"

    @cached_property
    def retriever1(self) -> Stage:
        """Trained with BM25 negatives."""
        return self.finetuned(self._first_negatives)

    @cached_property
    def retriever2(self) -> Stage:
        """Trained, from the same start, with the negatives of the retriever before it."""
        retriever = self.retriever1
        for _ in range(self.recipe.mining.rounds):
            retriever = self.finetuned(self.mined_by(retriever), self.recipe.finetuning2)
        return retriever

    @property
    def mined(self) -> Stage:
        """Hard negatives of the last retriever before retriever 2."""
        return self.retriever2.arguments["examples"].stage.arguments["negatives"]

    @cached_property
    def cross_encoder(self) -> Stage:
        """The re-ranker, trained on the candidates of retriever 2."""
        chosen = self.recipe.auxiliary.cross_encoder.seed
        seed = self.recipe.seed if chosen is None else chosen
        return self.cross_encoder_on(
            self.mined_by(self.retriever2), self.retriever2, "listwise", seed
        )

    @cached_property
    def late_interaction(self) -> Stage:
        """A re-ranker and teacher that no pre-training method has a part in: from the base model,
        with BM25's negatives.
        """
        learned, options = (
            self.examples(self._first_negatives),
            {"training": self.recipe.finetuning, **self._common},
        )
        made = training.late_interaction(
            self.base.model, self.passages(), self.queries("train"), learned, **options
        )
        return made.costs(1.5 * self.retriever1.cost)

    @property
    def scorer(self) -> Stage:
        """What re-ranks."""
        return self.late_interaction if self.recipe.reranking.by else self.cross_encoder

    @cached_property
    def teacher_negatives(self) -> Stage:
        """The negatives that the teacher reads and the distilled retriever learns from."""
        return self.mined_by(self.retriever2, self.recipe.distillation.teacher_negatives)

    @cached_property
    def teacher_scores(self) -> Stage:
        """The re-ranker's scores of every positive and negative of the training queries, or
        BM25's.
        """
        if self.recipe.reranking.by == "bm25":
            return retrieval.bm25_teacher_scores(
                self.bm25_index(), self.collection, self.examples(self.teacher_negatives)
            )
        lists = [
            self.recipe.mining,
            *([self.recipe.negatives] if self.recipe.mining.with_bm25 else []),
        ]
        listed = self.recipe.distillation.teacher_negatives or sum(
            one.depth + one.random_negatives for one in lists
        )
        texts, pairs = (
            self._tokens_for_scoring("train", self.collection, self.recipe.reranking.by),
            1 + listed,
        )
        made = retrieval.teacher_scores(self.scorer, *texts, self.examples(self.teacher_negatives))
        return made.costs(self.scoring_work(pairs * self.labelled_queries))

    @cached_property
    def distilled(self) -> Stage:
        """A retriever that learns the re-ranker's scores, from the same start as the others."""
        return self.finetuned(
            self.teacher_negatives, self.recipe.distillation, teacher=self.teacher_scores
        )

    @cached_property
    def retriever(self) -> Stage | Data:
        """The retriever that the recipe ends with, or a given one; under a re-ranker the one whose
        candidates it reads.
        """
        recipe = self.recipe
        if recipe.retriever:
            return retrieval.given(recipe.retriever)
        if recipe.final == "pretrained":
            learned, compared, pooling = recipe.objective.params, {}, recipe.pooling
            # a contrastive method has trained its vectors, the states of [CLS], for one comparison
            if "normalise" in learned:
                compared = {
                    "normalise": learned["normalise"],
                    "projection": learned.get("projection") or None,
                }
                pooling = "cls"
            options = {"layout": recipe.layout, "pooling": pooling, "seed": recipe.seed}
            return training.untuned(
                self.start, training=recipe.finetuning.model_copy(update=compared), **options
            )
        return getattr(self, "retriever2" if recipe.final == "reranker" else recipe.final)

    def finetuned(
        self,
        negatives: Stage | None,
        options: Finetuning | None = None,
        *,
        teacher: Stage | None = None,
        start: Stage | Data | Part | None = None,
    ) -> Stage:
        """A retriever fine-tuned on queries, positives and hard negatives, from the recipe's start
        unless told.
        """
        recipe, options = self.recipe, options or self.recipe.finetuning
        look = options.validation
        made = training.retriever(
            start or self.start,
            self.passages(),
            self.queries("train"),
            self.examples(negatives, self.pseudo_labels() if options.pseudo_labels else None),
            teacher,
            (
                [
                    self.collection,
                    self.queries(look.split),
                    self.bm25_run(look.split, look.per_query),
                ]
                if look
                else []
            ),
            training=options,
            pooling=recipe.pooling,
            distil=training.DistilledBiEncoder if teacher else None,
            **self._common,
        )
        per_query = recipe.query_length + (options.negatives + 1) * recipe.passage_length
        read = options.steps * options.accumulation * options.batch_queries * per_query
        return made.costs(read * self.base.shape.work(recipe.passage_length))

    def mined_by(self, retriever: Stage, keep: int | None = None) -> Stage:
        """Hard negatives from a retriever's own ranking of the training queries; with `keep` so
        many of these, and no others.
        """
        mining = self.recipe.mining
        run = self.dense_run(retriever, "train", mining.depth + self.most_relevant)
        options = mining.model_dump(exclude={"rounds", "with_bm25"})
        if keep is not None:
            options |= {"keep": keep, "random_negatives": 0}
        also = self.bm25_negatives if mining.with_bm25 and keep is None else None
        return retrieval.negatives(run, self.collection, also, **options)

    # Searching ------------------------------------------------------------------------------------

    def vectors(self, retriever: Stage | Data, collection: Collection | None = None) -> list[Stage]:
        """Every passage as a vector of a retriever, in shards that can be made on several
        machines.
        """
        collection = collection or self.collection
        count, dtype = len(collection.passages), self.recipe.evaluation.vector_type
        if isinstance(retriever, Data):
            make = partial(
                retrieval.given_vectors,
                retriever,
                collection,
                dtype=dtype,
                title=self.recipe.title != "none",
            )
            return in_shards(make, count)
        make = partial(retrieval.vectors, retriever, self.passages(collection), dtype=dtype)
        return in_shards(make, count, self.base.shape.encoding(self.recipe.passage_length))

    def dense_run(
        self, retriever: Stage | Data, split: str, depth: int, collection: Collection | None = None
    ) -> Stage:
        """The nearest passages of each query of a split."""
        collection = collection or self.collection
        vectors, where = self.vectors(retriever, collection), {"split": split, "depth": depth}
        if isinstance(retriever, Data):
            return retrieval.given_run(retriever, vectors, collection, **where)
        return retrieval.dense_run(
            retriever, vectors, self.queries(split, collection), collection, **where
        )

    @cached_property
    def run(self) -> Stage:
        """What is evaluated: BM25's ranking, the last retriever's, the re-ranked one, or one of
        these two fused with BM25's.
        """
        options, where = self.recipe.evaluation, self.searched
        if options.kind == "bm25":
            return self.bm25_run(options.split, options.depth, where, cut=bool(options.cut))
        if not options.fusion:
            return self.found(options.split)
        splits = (options.split, TUNING) if options.fusion == "weight" else (options.split,)
        # what a re-ranker has not scored has places, and no scores to weigh
        rest = options.fusion == "rank"
        return self.fused(
            [
                [self.bm25_run(split, options.depth, where), self.found(split, rest=rest)]
                for split in splits
            ]
        )

    def fused(self, pairs: list[list[Stage]]) -> Stage:
        """The first pair of runs joined: by a weight that is chosen on the second pair, if there is
        one, else by rank.
        """
        options, (runs, *tuning) = self.recipe.evaluation, pairs
        measured = (
            {"tuning_split": TUNING, "measure": options.measures[0], "grade": options.grade}
            if tuning
            else {}
        )
        return evaluation.fused(runs, self.searched, *tuning, depth=options.depth, **measured)

    def found(self, split: str, *, rest: bool = True) -> Stage:
        """What the last retriever finds for the queries of a split, re-ranked where the recipe says
        so; `rest` as there.
        """
        options, where = self.recipe.evaluation, self.searched
        run = self.dense_run(self.retriever, split, options.depth, where)
        if self.recipe.final != "reranker":
            return run
        if not self.recipe.reranking.weighted:
            return self.reranked(run, split, where, rest=rest)
        tuning = self.dense_run(self.retriever, TUNING, options.depth, where)
        return self.fused(
            [
                [one, self.reranked(one, of, where, rest=False)]
                for one, of in ((run, split), (tuning, TUNING))
            ]
        )

    def reranked(self, run: Stage, split: str, where: Collection, *, rest: bool = True) -> Stage:
        """A run with its first passages in the re-ranker's order, the others below or left out."""
        options = self.recipe.reranking
        texts = self._tokens_for_scoring(split, where, options.by)
        made = retrieval.reranked(run, self.scorer, *texts, depth=options.depth, rest=rest)
        return made.costs(self.scoring_work(options.depth * len(where.qrels(split))))

    # Cross-encoders -------------------------------------------------------------------------------

    @cached_property
    def reader(self) -> Checkpoint:
        """What the cross-encoder starts from: a model of its own, or the recipe's base."""
        name = self.recipe.auxiliary.cross_encoder.model
        return open_checkpoint(name) if name else self.base

    def cross_encoder_on(
        self, negatives: Stage | None, retriever: Stage, loss: str, seed: int
    ) -> Stage:
        """A cross-encoder trained on the training queries: "listwise" to re-rank, "pointwise" for
        probabilities.
        """
        settings = self.recipe.auxiliary.cross_encoder
        check_batch(self, settings.batch_queries, "auxiliary.cross_encoder.batch_queries")
        check_length(settings.length, self.reader, "auxiliary.cross_encoder.length")
        queries, passages = self._tokens_for_scoring("train", self.collection)
        begin = self.reader.model
        if settings.start and settings.start != "none":
            trained = (
                retriever
                if settings.start == "retriever"
                else Pipeline(self.recipe.with_(objective=settings.start)).start
            )
            begin = trained / "model" if isinstance(trained, Stage) else trained
        read = {
            "training": settings,
            "loss": loss,
            "title": self.recipe.title != "none",
            "dropout": self.recipe.dropout,
        }
        made = training.cross_encoder(
            begin, passages, queries, self.examples(negatives), **read, seed=seed
        )
        return self._cross_encoder_costs(made)

    @cached_property
    def dialogue_cross_encoder(self) -> Stage:
        """A cross-encoder trained on the pairs of dialogues, from the encoder that learned those
        before them, else the base.
        """
        settings, talk = self.recipe.auxiliary.cross_encoder, self.recipe.evaluation.dialogue
        check_length(settings.length, self.base, "auxiliary.cross_encoder.length")
        read = {
            "context_length": talk.context_length,
            "side": talk.side,
            "dropout": self.recipe.dropout,
        }
        begin, pairs = self._learned_before, self.reddit_pairs()
        made = training.dialogue_cross_encoder(
            begin, pairs, training=settings, **read, seed=self.recipe.seed
        )
        return self._cross_encoder_costs(made)

    def _cross_encoder_costs(self, made: Stage) -> Stage:
        settings = self.recipe.auxiliary.cross_encoder
        pairs = (
            settings.steps
            * settings.accumulation
            * settings.batch_queries
            * (settings.negatives + 1)
        )
        return made.costs(3 * self.scoring_work(pairs))

    def _tokens_for_scoring(
        self, split: str, collection: Collection, other: str | None = None
    ) -> tuple[Stage, Stage]:
        """Queries and passages in the cross-encoder's tokens; the base model's where both
        tokenizers agree.

        What scores in its place (`other`, as in `reranking.by`) starts from the base model.
        """
        by = self.base if other or self.reader.tokenizer == self.base.tokenizer else self.reader
        return self.queries(split, collection, by), self.passages(collection, by)

    def scoring_work(self, pairs: int) -> float:
        """Operations needed to score this many pairs."""
        length = self.recipe.auxiliary.cross_encoder.length
        return pairs * length * self.reader.shape.work(length) / 3

    # Materials: what a method reads besides the passages ------------------------------------------

    def material(self, name: str, **params: Any) -> Stage:
        """The stage of one material, by the name of its method below, with the parameters that the
        objective decides.
        """
        return getattr(self, name)(**params)

    def importances(
        self,
        *,
        window: int = PAPERS_WINDOW,
        min_count: int | None = None,
        unit: str = "word",
        **options: Any,
    ) -> Stage:
        """The importance of each piece (CDMAE section 3.2)."""
        passages = self.passages(self.corpus)
        counts = materials.ngrams(
            passages, order=max(window, PAPERS_WINDOW), min_count=min_count, unit=unit
        )
        return materials.importances(passages, counts, window=window, **options)

    def keyword_weights(self, **options: Any) -> Stage:
        """The keyword weight of each piece (MASTER section 3.2)."""
        return materials.keyword_weights(self.passages(self.corpus), **options)

    def questions(self, *, per_passage: int = 10, top_k: int = 10, seed: int = 0) -> Stage:
        """Questions about every passage that is pre-trained on, by the collection's own generator
        or a public one.
        """
        options = {"per_passage": per_passage, "top_k": top_k, "seed": seed}
        return self.questions_by(self.question_generator(seed), self.corpus, **options)

    def question_generator(self, seed: int) -> Checkpoint:
        """A public question generator by name, or one trained on the collection's own training
        queries.
        """
        settings = self.recipe.auxiliary.questions
        if settings.model:
            return open_writer(settings.model)
        common = self._common | {"seed": seed}
        learned = self.passages(), self.queries("train"), self.collection
        made = materials.question_generator(self.base.model, *learned, training=settings, **common)
        return self._writer(made, settings)

    def questions_by(
        self,
        writer: Checkpoint,
        collection: Collection | None = None,
        *,
        per_passage: int,
        top_k: int,
        seed: int,
    ) -> Stage:
        """Questions about every passage of a collection (default the recipe's): at most
        `per_passage` distinct ones each.
        """
        collection = collection or self.collection
        options = {
            "per_passage": per_passage,
            "top_k": top_k,
            "layout": self.recipe.layout,
            "seed": seed,
        }
        read = self.passages(
            collection, writer if isinstance(writer.tokenizer, Data) and not writer.public else None
        )
        made = materials.questions(
            writer.model, read, collection, self.base.tokenizer, public=writer.public, **options
        )
        written = len(collection.passages) * per_passage * self.recipe.query_length
        return made.costs(written * self._work_a_token() / 3)

    def continuations(
        self, *, new_tokens: int = 128, prompt_tokens: int = 256, top_p: float = 0.9, seed: int = 0
    ) -> Stage:
        """One continuation of every passage (MASTER's GPT-2 task); a decoder reads no more than a
        passage's length.
        """
        settings, longest, texts = (
            self.recipe.auxiliary.continuations,
            self.recipe.passage_length,
            self.passages(self.corpus),
        )
        new_tokens, prompt_tokens = min(new_tokens, longest), min(prompt_tokens, 2 * longest)
        if settings.model:
            writer = open_writer(settings.model)
        else:
            options = {
                "positions": prompt_tokens + new_tokens + 1,
                "dropout": self.recipe.dropout,
                "seed": seed,
            }
            made = materials.continuation_model(
                self.base.model, texts, self.corpus, training=settings, **options
            )
            writer = self._writer(made, settings)
        options = {
            "new_tokens": new_tokens,
            "prompt_tokens": prompt_tokens,
            "top_p": top_p,
            "seed": seed,
        }
        made = materials.continuations(
            writer.model, texts, self.corpus, self.base.tokenizer, public=writer.public, **options
        )
        return made.costs(len(self.corpus.passages) * new_tokens * self._work_a_token() / 3)

    def _writer(self, made: Stage, settings: Any) -> Checkpoint:
        made = made.costs(self._writing_work(settings))
        return Checkpoint(made.kind, self.base.shape, made / "model", made / "model", public=False)

    def paq_pairs(self, *, seed: int = 0) -> Stage:
        """Questions with the passages they were generated from, and hard negatives (DPR-PAQ section
        3.1.1).
        """
        options = self.recipe.auxiliary.paq_pairs
        if options.file:
            return self._file_pairs(options.file, options.limit, seed, options.depth)
        searchers = {
            options.negatives,
            "none" if options.filter == "none" else options.filter_by,
        } - {"none"}
        first = self.first_retriever if "dense" in searchers else None
        dense = (first, self.vectors(first, self.corpus)) if first else (None, None)
        return materials.generated_pairs(
            self.questions(per_passage=options.per_passage, seed=seed),
            self.corpus,
            self.base.tokenizer,
            self.bm25_index(self.corpus) if "bm25" in searchers else None,
            *dense,
            seed=seed,
            **options.model_dump(exclude={"file", "per_passage"}),
        )

    def reddit_pairs(self, *, seed: int = 0) -> Stage:
        """Pairs that people wrote: of a file, else the titles of what is pre-trained on with their
        bodies.
        """
        options = self.recipe.auxiliary.reddit_pairs
        if options.file:
            return self._file_pairs(options.file, options.limit, seed, 0)
        return materials.title_pairs(self.corpus, self.base.tokenizer)

    def _file_pairs(self, name: str, limit: int | None, seed: int, depth: int) -> Stage:
        options = {"limit": limit, "seed": seed if limit else 0, "depth": depth}
        return materials.file_pairs(
            Data.file(find_file(name, "pairs/train.jsonl")), self.base.tokenizer, **options
        )

    @cached_property
    def first_retriever(self) -> Stage:
        """The base model fine-tuned without any pre-training: the same stage as of objective
        "none".
        """
        given_labels_alone = self.recipe.finetuning.model_copy(update={"pseudo_labels": None})
        return self.finetuned(self._first_negatives, given_labels_alone, start=self.base.model)

    # Pseudo-labels (PAIR section 3.3): other thresholds make other pairs from the same scores -----

    def pseudo_labels(self, *, seed: int = 0) -> Stage:
        """Pairs that the cross-encoder is confident about, or the given labels as they are."""
        options = self.recipe.auxiliary.pseudo_labels
        if options.labels == "given":
            return materials.given_labels(
                self.queries("train"),
                training.training_set(self.collection, self.bm25_negatives) / "examples",
            )
        pool, size = self._pool(seed)
        if options.first == "bm25":
            found = materials.bm25_candidates(
                pool, self.bm25_index(), self.collection, pool=options.pool, depth=options.depth
            )
        else:
            vectors, split = (
                self.vectors(self.first_retriever),
                "train" if options.pool == "train" else None,
            )
            own = {"split": split, "depth": options.depth}
            found = retrieval.dense_run(self.first_retriever, vectors, pool, self.collection, **own)
        loss = SCORER_LOSS[options.probability]
        scorer = self.cross_encoder_on(self.bm25_negatives, self.first_retriever, loss, seed)
        queries, passages = self._tokens_for_scoring("train", self.collection)
        if options.pool != "train":
            same = self.reader.tokenizer == self.base.tokenizer
            queries = pool if same else materials.text_tokens(pool, self.reader.tokenizer)
        scores = retrieval.candidate_scores(scorer, queries, passages, found).costs(
            self.scoring_work(size * options.depth)
        )
        chosen = options.model_dump(include={"pool", "s_pos", "s_neg", "probability"})
        return materials.pseudo_labels(pool, found, scores, self.collection, **chosen)

    def _pool(self, seed: int) -> tuple[Stage, int]:
        """The queries to label, and their approximate number."""
        options = self.recipe.auxiliary.pseudo_labels
        if options.pool == "questions":
            made = self.questions(per_passage=options.per_passage, seed=seed)
            return made, options.per_passage * len(self.collection.passages)
        if options.file:
            path = find_file(options.file, "queries.jsonl")
            size = path.stat().st_size // BYTES_A_QUERY + 1
            tested = list({one.digest: one for one in (self.collection, self.searched)}.values())
            return materials.unlabelled_queries(Data.file(path), self.base.tokenizer, tested), size
        return self.queries("train"), len(self.collection.qrels("train"))

    # The end --------------------------------------------------------------------------------------

    @cached_property
    def evaluation(self) -> Stage:
        """The stage whose `scores.json` the record holds."""
        options, where = self.recipe.evaluation, self.searched
        if options.kind == "nlu":
            files = (
                evaluation.nlu_file(options.nlu.folder, split)
                for split in (options.nlu.train, options.nlu.split)
            )
            chance = {"dropout": self.recipe.dropout, "seed": self.recipe.seed}
            return evaluation.nlu(self.start, *map(Data.file, files), task=options.nlu, **chance)
        if options.kind == "dialogue":
            path = dialogue_file(options.dialogue.folder, options.dialogue.split)
            beside = dstc7_answers(path)
            path = (
                Data(str(path), " ".join(map(file_digest, (path, beside))))
                if beside
                else Data.file(path)
            )
            if self.recipe.final == "reranker":
                return evaluation.cross_encoded_dialogue(
                    self.dialogue_cross_encoder, path, settings=options.dialogue
                )
            return evaluation.dialogue(self.retriever, path, settings=options.dialogue)
        if options.kind == "similarity":
            vectors = self.vectors(self.retriever, where)
            return evaluation.similarities(
                self.run, vectors, where, split=options.split, grade=options.grade
            )
        if options.kind == "coverage":
            judged = {"split": options.split, "grade": options.grade, "layout": self.recipe.layout}
            return evaluation.coverage(self.start, self.passages(where), where, **judged)
        if options.kind == "checks":
            depth = self.recipe.mining.depth + self.most_relevant
            made = (
                self.bm25_negatives,
                self.mined,
                self.examples(self.teacher_negatives),
                self.teacher_scores,
            )
            runs = (
                self.dense_run(one, "train", depth) for one in (self.retriever1, self.retriever2)
            )
            return evaluation.pipeline_checks(*made, *runs, self.collection)
        measured = {
            "split": options.split,
            "measures": list(options.measures),
            "grade": options.grade,
        }
        return evaluation.scores(self.run, where, **measured)

    def stages(self) -> dict[str, Stage]:
        """Every stage that the evaluation depends on, by its role in this pipeline, else by its
        kind.

        Of several of one name the last has it; those before it are `earlier NAME`, `earlier NAME
        2`, and so on back.
        """
        walked = {one.key: one for one in self.evaluation.walk()}
        kind, retrieves = self.recipe.evaluation.kind, ("pretrained", "retriever", "run")
        # a cross-encoder reads them without a retriever
        dialogue = () if self.recipe.final == "reranker" else retrieves
        unread = dict.fromkeys(("nlu", "coverage"), ("pretrained",))
        names = {"bm25": (), "dialogue": dialogue, **unread}.get(kind, retrieves)
        names = ("run",) if self.recipe.retriever and names else names
        named = {
            name: one
            for name in (*names, "evaluation")
            if (one := getattr(self, name)) and one.key in walked
        }
        known = {one.key for one in named.values()}
        for one in [one for one in reversed(walked.values()) if one.key not in known]:
            before = (f"earlier {_role(one)}" + (f" {n}" if n > 1 else "") for n in count(1))
            named[next(name for name in chain([_role(one)], before) if name not in named)] = one
        return named

    # Facts ----------------------------------------------------------------------------------------

    @cached_property
    def most_relevant(self) -> int:
        """The largest number of passages judged for a training query: a ranking must be deeper by
        this number.
        """
        return max(len(grades) for grades in self.collection.qrels("train").values())

    @property
    def labelled_queries(self) -> int:
        """The number of training queries that the recipe may learn from."""
        return round(len(self.collection.qrels("train")) * (self.recipe.few_shot or 1))

    @property
    def _first_negatives(self) -> Stage | None:
        """What `finetuning` draws its hard negatives from; None where it has none."""
        return self.bm25_negatives if self.recipe.finetuning.negatives else None

    @property
    def _common(self) -> dict[str, Any]:
        """How sequences are made in every training, and its random draws."""
        return {
            "layout": self.recipe.layout,
            "dropout": self.recipe.dropout,
            "seed": self.recipe.seed,
        }

    def _work_a_token(self) -> float:
        """Operations of a training step for one token of a model of the base's size that predicts
        at all positions.
        """
        return self.base.shape.work(self.recipe.passage_length, predicted=1.0)

    def _writing_work(self, options: Training) -> float:
        """Operations of a whole training of such a model."""
        return (
            options.steps * options.accumulation * options.tokens_per_batch * self._work_a_token()
        )


# What can be refused before anything is built -----------------------------------------------------


def _role(one: Stage) -> str:
    """Kind of a stage; of a shard that is not the first, its rows too."""
    first, end = one.arguments.get("rows") or (0, 0)
    return f"{one.kind}, rows {first} to {end}" if first else one.kind


def check(pipeline: Pipeline) -> None:
    """Refuse in advance what would fail only after hours."""
    recipe, collection, searched = pipeline.recipe, pipeline.collection, pipeline.searched
    options, base = recipe.evaluation, pipeline.base
    searched.qrels(options.split)
    evaluation.check_measures(options.measures, searched, options.split)
    for name in options.measures if options.kind in ("search", "bm25") else ():
        if options.depth < min(evaluation.cut_of(name) or 0, len(searched.passages)):
            fix = "Search deeper, or take a smaller cut."
            raise InputError(
                f"{name} of a ranking of {options.depth} passages",
                where="evaluation.depth",
                fix=fix,
            )
    weighted = {
        "evaluation.fusion": ('Fuse by "rank".', options.fusion == "weight"),
        "reranking.weighted": (
            "Leave it out.",
            recipe.final == "reranker" and recipe.reranking.weighted,
        ),
    }
    for where, (fix, chosen) in weighted.items():
        if chosen and not searched.qrels(TUNING).keys().isdisjoint(searched.qrels(options.split)):
            problem = (
                f"its weight would be chosen by queries of the split {options.split!r}, which is"
                " reported"
            )
            raise InputError(problem, where=where, fix=fix)
    if recipe.retriever or options.kind == "bm25":  # nothing is trained
        return
    collection.qrels("train")
    trainings = {
        name: one
        for name in ("finetuning", "finetuning2", "distillation")
        if (one := getattr(recipe, name))
    }
    for name, one in trainings.items():
        _check_validation(name, one, pipeline)
    if base.pooling not in (None, recipe.pooling):
        problem = (
            f"{base.name} makes its vectors by {base.pooling!r}, the recipe by {recipe.pooling!r}"
        )
        raise InputError(
            problem,
            where="pooling",
            fix=f"Set pooling to {base.pooling!r}, and what the model has learned is kept.",
        )
    if pipeline.generator and pipeline.generator.fresh_head:
        problem = (
            f"{recipe.objective.name} replaces words by the guesses of a masked LM, and {base.name}"
            " came without its head"
        )
        fix = (
            "Name a masked LM of the same vocabulary as `generator`, or take a method without one"
            " (mlm, retromae)."
        )
        raise InputError(problem, where="objective", fix=fix)
    if recipe.objective.name == "none" and recipe.pretraining.first:
        fix = "Take the method that is to pre-train, or leave it out."
        raise InputError(
            'objective "none" pre-trains on nothing, first or last',
            where="pretraining.first",
            fix=fix,
        )
    readers = {
        "collection": recipe.objective.name,
        "first": recipe.pretraining.first_by or recipe.objective.name,
    }
    for key in [key for key, name in readers.items() if name == "pair"]:
        if (chosen := getattr(recipe.pretraining, key)) and open_sample(
            chosen
        ).digest != collection.digest:
            problem = (
                "pair learns from judged passages of the recipe's collection, and this names"
                " another one"
            )
            raise InputError(
                problem,
                where=f"pretraining.{key}",
                fix="Leave it out, or take a method that reads no labels.",
            )
    check_length(max(recipe.passage_length, recipe.query_length), base, "passage_length")
    if options.nlu:
        evaluation.task_of(options.nlu.task)
        check_length(options.nlu.length, base, "evaluation.nlu.length")
    if options.dialogue:
        check_length(options.dialogue.context_length, base, "evaluation.dialogue.context_length")
    check_batch(pipeline, recipe.finetuning.batch_queries, "finetuning.batch_queries")
    ends = {"pretrained": (), "distilled": tuple(trainings)}.get(
        recipe.final, ("finetuning", "finetuning2")
    )
    for name, one in trainings.items():
        if name in ends and one.shared and recipe.objective.params.get("separate"):
            problem = "pre-training makes two encoders, fine-tuning would start from one"
            raise InputError(problem, where=f"{name}.shared", fix="Set it to false.")
    for name in (
        ("negatives",) if recipe.final in ("pretrained", "retriever1") else ("negatives", "mining")
    ):
        if getattr(recipe, name).answers != "keep" and not any(
            collection.queries("train")["answers"]
        ):
            fix = "Leave it out, or give the queries their answers (queries.jsonl)."
            raise InputError(
                "no training query has an answer to look for", where=f"{name}.answers", fix=fix
            )


def check_batch(pipeline: Pipeline, batch: int, where: str) -> None:
    """Refuse batches that the training queries cannot fill."""
    if pipeline.labelled_queries < batch:
        problem = f"{pipeline.labelled_queries} training queries cannot fill a batch of {batch}"
        raise InputError(
            problem, where=where, fix="Make batches smaller or take more training queries."
        )


def check_length(length: int, model: Checkpoint, where: str) -> None:
    """Refuse sequences that a model cannot read."""
    if length > model.shape.positions:
        problem = f"sequences of {length} pieces, but {model.name} reads {model.shape.positions}"
        raise InputError(
            problem, where=where, fix="Shorten the sequences or take another base model."
        )


def _check_validation(name: str, options: Finetuning, pipeline: Pipeline) -> None:
    """Refuse to choose weights by queries that are trained on or reported."""
    if options.validation is None:
        return
    collection, reported = pipeline.collection, pipeline.recipe.evaluation.split
    chosen_by = collection.qrels(options.validation.split).keys()
    for split in ("train", *([reported] if pipeline.searched is collection else [])):
        if not chosen_by.isdisjoint(collection.qrels(split)):
            problem = (
                "weights would be chosen by queries that are"
                f" {'trained on' if split == 'train' else 'reported'}"
            )
            fix = f"Name a split that shares no query with {split!r}."
            raise InputError(problem, where=f"{name}.validation.split", fix=fix)
