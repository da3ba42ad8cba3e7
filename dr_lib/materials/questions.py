"""doc2query: learn from a collection's queries to ask about a passage, generate questions, keep
those that retrieve it.

Nogueira et al. 2019, by sampling as in docTTTTTquery (top-k 10); MASTER section 4.2 uses such
questions as decoder inputs, the DPR-PAQ paper as pairs, like PAQ.

PAQ (Lewis et al. 2021) answers every question again and keeps it if the answer is the one it was
made for: *locally*, from its own passage alone, or *globally*, from what a retriever finds in all
of Wikipedia. The DPR-PAQ paper's questions passed the global filter. Here questions have no answer
and there is no reader, so the passage takes the answer's place:

- global: the retriever finds the passage among the first `top_k` of the whole collection;
- local: the same among the passages of its own document. For a document of one passage, BM25 only
  requires a word in common, and a dense retriever nothing.

This is weaker than a reader: it tests whether the question is about this passage, not whether the
passage answers it.

Page: ideas/generators.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import EncoderDecoderModel, PreTrainedTokenizerBase

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.materials.texts import PassageWriter, Texts, ready, save_texts, writer_tokenizer
from dr_lib.models import (
    DenseEncoder,
    Sampling,
    Seq2seqDecoding,
    load_masked_lm,
    load_seq2seq,
    new_seq2seq,
    save_masked_lm,
)
from dr_lib.objectives import predict_tokens
from dr_lib.retrieval import (
    Bm25,
    Ranking,
    encode_queries,
    exact_scores,
    mine_negatives,
    open_vectors,
    search,
)
from dr_lib.retrieval.mining import first_of_each_text
from dr_lib.stages import stage
from dr_lib.tokens import (
    COARSE,
    Layout,
    Title,
    TokenStore,
    concat_runs,
    load_tokenizer,
    special_ids,
)
from dr_lib.training import (
    GeneratorTraining,
    RetrievalBatch,
    RetrievalBatches,
    machine,
    train,
    training_examples,
)
from dr_lib.training.examples import distinct_rows, group_examples, merge_duplicates, text_hash

Filter = Literal["none", "local", "global"]
AT_ONCE = 16_384
PAIRS_AT_ONCE = 1 << 22


# Stages -------------------------------------------------------------------------------------------


@stage(resumable=True, gpu=True, reads=("train",))
def question_generator(
    folder: Path,
    base: Path | str,
    passages: Path,
    queries: Path,
    collection: Collection,
    *,
    training: GeneratorTraining,
    layout: Layout,
    dropout: float | None,
    seed: int,
) -> None:
    """`model/`: the question generator, trained on the split train, with the base model's
    tokenizer; `log.json`.

    Args:
        folder: where to write.
        base: the masked LM that it starts from.
        passages, queries: their tokens (`store/`).
        collection: whose training queries are learned.
        training, layout: how it is trained, and how long its texts are.
        dropout: None keeps what the base model says.
        seed: of the order and of draws.
    """
    tokenizer, examples = load_tokenizer(base), training_examples(collection)
    model = new_seq2seq(
        load_masked_lm(base, dropout=dropout, device=machine.device()), special_ids(tokenizer)
    )
    fitting = training.tokens_per_batch // (layout.passage_length + layout.query_length)
    batches = RetrievalBatches(
        TokenStore.open(queries / "store"),
        TokenStore.open(passages / "store"),
        examples,
        batch_queries=max(1, min(len(examples), fitting)),
        passages_per_query=1,
        layout=layout,
        seed=seed,
    )
    train(
        QuestionTraining(model),
        batches.batch,
        training.with_seed(seed),
        folder,
        title="question generator",
    )
    save_masked_lm(model, tokenizer, folder / "model")


@stage(resumable=True, gpu=True, reads=())
def questions(
    folder: Path,
    writer: Path | str,
    passages: Path,
    collection: Collection,
    tokenizer: Path | str,
    *,
    per_passage: int,
    top_k: int,
    layout: Layout,
    seed: int,
    public: bool,
) -> None:
    """At most `per_passage` distinct questions about each passage as `Texts`; `counts.json`.

    Args:
        folder: where to write; a killed build is resumed.
        writer: the question generator.
        passages: tokens of the passages (`store/`).
        collection: their texts.
        tokenizer: of the model that will read the questions.
        per_passage: questions drawn a passage (MASTER's public sample: 10).
        top_k: each token is drawn among the `top_k` most likely.
        layout: how a passage is read, and the longest question.
        seed: of the draws.
        public: the writer has a tokenizer of its own, of any kind.
    """
    store, words = TokenStore.open(passages / "store"), writer_tokenizer(writer, public)
    model = ready(load_seq2seq(writer, device=machine.device()))

    def begin(rows: np.ndarray) -> Seq2seqDecoding:
        if public:
            inputs = read_passages(
                collection.passages[rows], words, layout.passage_length, layout.title
            )
        else:
            inputs = store.batch(rows, **layout.passages, pad_to_multiple=COARSE).model_inputs()
        return Seq2seqDecoding(
            model, {name: part.to(model.device) for name, part in inputs.items()}, per_passage
        )

    write = PassageWriter(
        model,
        words,
        begin,
        copies=per_passage,
        longest=layout.query_length,
        choice=Sampling(top_k=top_k),
        may_end=True,
        seed=seed,
    )
    save_texts(folder, write, store, tokenizer, title="questions")


@stage(resumable=True, gpu=True, reads=())
def generated_pairs(
    folder: Path,
    questions: Path,
    collection: Collection,
    tokenizer: Path | str,
    index: Path | None = None,
    retriever: Path | None = None,
    vectors: list[Path] | None = None,
    *,
    filter: Filter,
    top_k: int,
    filter_by: Literal["bm25", "dense"],
    negatives: Literal["none", "bm25", "dense"],
    depth: int,
    seed: int,
    limit: int | None = None,
) -> None:
    """`queries/`, `examples/` and `counts.json`: the questions that retrieve their passage, with
    hard negatives.

    The task is to find the passage that a question was made from (Oguz et al. 2022, section 3.1.1
    and "Data preparation"). Equal questions of several passages are one query with several
    positives. Counts are of questions generated, distinct for their passage, and passing the
    filter; of queries, pairs, and passages with a question.

    Args:
        folder: where to write.
        questions: the `Texts`.
        collection: whose passages they were made from.
        tokenizer: of the model that will read them.
        index: of BM25, if it filters or finds negatives.
        retriever, vectors: a retriever and its passages' vectors, if it does.
        filter, top_k, filter_by: which questions are kept, see `consistent`, and the retriever.
        negatives, depth: the retriever of hard negatives and their number per question, filled up
            with random ones; with "none", training draws random passages.
        seed: of the order of negatives, and of the sample of questions.
        limit: keep this many of the questions that pass (DPR-PAQ Figure 2); more contain fewer.
            None keeps all.
    """
    texts, same = Texts.open(questions), collection.same_text
    sources, searchers = texts.owners(), retrievers(texts, folder, index, retriever, vectors)
    options = {"how": filter, "top_k": top_k, "same": same}
    passing = consistent(searchers.get(filter_by), sources, collection.documents()[0], **options)
    if limit is not None:
        passing[np.random.default_rng(seed).permutation(np.flatnonzero(passing))[limit:]] = False
    rows = np.flatnonzero(passing)
    if not len(rows):
        fix = "Use a weaker filter or a larger top_k, or train the question generator longer."
        raise InputError("no question passed the filter", where="filter", fix=fix)
    hashes = (text_hash(text.casefold()) for text in texts.strings.select(rows)["text"])
    query_of, first = distinct_rows(np.fromiter(hashes, np.int64, len(rows)))
    examples = group_examples(query_of, sources[rows], passages=len(collection.passages))
    examples = merge_duplicates(examples, same)
    if negatives != "none" and depth:
        # Positives are removed from the ranking, so search deeper by their number.
        ranking = searchers[negatives].best(rows[first], depth + int(examples.counts().max()))
        mined = mine_negatives(
            ranking,
            np.split(examples.positives, examples.offsets[1:-1]),
            passages=examples.passages,
            among=None if same is None else first_of_each_text(collection),
            depth=depth,
            random_negatives=0,
            seed=seed,
        )
        examples = replace(examples, negatives=mined)
    asked = texts.strings.select(rows[first])
    TokenStore.build(asked, load_tokenizer(tokenizer), folder / "queries", columns=("text",))
    examples.save(folder / "examples")
    drawn = read_json(questions / "counts.json")
    counts = {
        "generated": drawn["drawn"],
        "deduplicated": drawn["kept"],
        "filtered": len(rows),
        "queries": len(examples),
        "pairs": len(examples.positives),
        "passages": len(np.unique(examples.positives)),
    }
    write_json(folder / "counts.json", counts)


# The generator ------------------------------------------------------------------------------------


class QuestionTraining(nn.Module):
    """Training of the question generator: each query, token by token, given its passage and the
    previous tokens.

    Args:
        model: encoder-decoder with the tokenizer of the batches.
    """

    def __init__(self, model: EncoderDecoderModel):
        super().__init__()
        self.model = model

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Mean cross-entropy of the queries' tokens ([SEP] included, [CLS] and padding not), and
        the accuracy.

        Args:
            batch: `B` queries, and the passage of each.
            generator: not used; the loop hands it to every module.
        """
        queries, encoder = batch.queries, self.model.encoder
        read = encoder(**batch.passages.model_inputs()).last_hidden_state
        states = self.model.decoder.base_model(
            input_ids=queries.input_ids[:, :-1],
            attention_mask=queries.attention_mask[:, :-1],
            encoder_hidden_states=read,
            encoder_attention_mask=batch.passages.attention_mask,
        ).last_hidden_state
        following, there = queries.input_ids[:, 1:], queries.attention_mask[:, 1:] == 1
        loss, accuracy = predict_tokens(self.model.decoder, states, following, there)
        return {"loss": loss, "accuracy": accuracy}


def read_passages(
    passages: Dataset, tokenizer: PreTrainedTokenizerBase, length: int, title: Title
) -> Mapping[str, Tensor]:
    """Passages tokenised by a public model's own tokenizer, the title (unless ``"none"``) before
    the text.
    """
    texts = passages["text"]
    if title != "none":
        texts = [
            f"{head} {body}".strip() for head, body in zip(passages["title"], texts, strict=True)
        ]
    coded = tokenizer(texts, truncation=True, max_length=length, padding=True, return_tensors="pt")
    return {name: coded[name] for name in ("input_ids", "attention_mask")}


# Round trips --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByWords:
    """BM25 over the collection, searched with the questions.

    Attributes:
        index: of the passages.
        texts: all questions, column text.
    """

    index: Bm25
    texts: Dataset

    def best(self, questions: np.ndarray, k: int) -> Ranking:
        """The top `k` passages of some questions; a passage without a word of the question is never
        found.
        """
        return self.index.search(self.texts[questions]["text"], k)

    def scores(self, questions: np.ndarray, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Score `[pairs]` of passage `rows` for question `questions[owners]`; minus infinity
        without a common word.
        """
        scores = self.index.pair_scores(self.texts[questions]["text"], owners, rows)
        return np.where(scores > 0, scores, -np.inf).astype(np.float32)


@dataclass(frozen=True)
class ByVectors:
    """A dense retriever's vectors, searched with the questions.

    Attributes:
        questions: `[questions, hidden]` float.
        passages: `[passages, hidden]` float, or a list of such arrays.
        device: where products are computed.
    """

    questions: np.ndarray
    passages: np.ndarray | list[np.ndarray]
    device: torch.device | str = "cpu"

    def best(self, questions: np.ndarray, k: int) -> Ranking:
        """The `k` first passages of some questions."""
        asked = np.asarray(self.questions[questions])
        scores, rows = search(asked, self.passages, k, device=self.device)
        return Ranking([str(row) for row in range(len(questions))], rows, scores)

    def scores(self, questions: np.ndarray, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Score `[pairs]` of passage `rows` for question `questions[owners]`."""
        asked = np.asarray(self.questions[questions], dtype=np.float32)
        return exact_scores(asked[owners], self.passages, rows[:, None])[:, 0]


Retriever = ByWords | ByVectors


def retrievers(
    texts: Texts,
    folder: Path,
    index: Path | None,
    retriever: Path | None,
    vectors: list[Path] | None,
) -> dict[str, Retriever]:
    """The available retrievers, "bm25" and "dense"; arguments as for `generated_pairs`."""
    searchers: dict[str, Retriever] = {}
    if index is not None:
        searchers["bm25"] = ByWords(Bm25.open(index / "index"), texts.strings)
    if retriever is not None:
        encoder = DenseEncoder.from_pretrained(retriever / "model", device=machine.device())
        place = folder / "checkpoint-vectors" / "questions.npy"
        asked = encode_queries(encoder, texts.store, place)
        searchers["dense"] = ByVectors(asked, open_vectors(vectors), machine.device())
    return searchers


def consistent(
    retriever: Retriever | None,
    sources: np.ndarray,
    documents: np.ndarray,
    *,
    how: Filter = "global",
    top_k: int = 1,
    same: np.ndarray | None = None,
) -> np.ndarray:
    """Which questions retrieve their passage.

    Args:
        retriever: searches with the questions; None if nothing is searched.
        sources: `[questions]` int64, the passage that each was made from.
        documents: `[passages]` int64, the document of each passage, for the local filter.
        how: "global", "local" or "none" (keeps all).
        top_k: the passage must be among the first `top_k`.
        same: `Collection.same_text`; copies of the passage count as well.

    Returns:
        `[questions]` bool.

    Example:
        >>> from datasets import Dataset
        >>> texts = Dataset.from_dict(
        ...     {"title": ["", ""], "text": ["a red fox", "two foxes and a dog"]}
        ... )
        >>> asked = Dataset.from_dict({"text": ["where is the fox?", "whose dog?", "red or dead?"]})
        >>> retriever = ByWords(Bm25.build(texts), asked)
        >>> consistent(retriever, np.array([1, 1, 1]), np.array([0, 1])).tolist()
        [False, True, False]
    """
    passing = np.ones(len(sources), bool)
    if how == "none" or retriever is None:
        return passing
    with tqdm(total=len(sources), desc=f"{how} filter", unit="question") as bar:
        for start in range(0, len(sources), AT_ONCE):
            asked = np.arange(start, min(start + AT_ONCE, len(sources)))
            if how == "global":
                best, wanted = retriever.best(asked, top_k).rows, sources[asked]
                if same is not None:
                    best, wanted = np.where(best >= 0, same[best], -1), same[wanted]
                passing[asked] = (best == wanted[:, None]).any(axis=1)
            else:
                place = _place_in_document(retriever, asked, sources[asked], documents, same)
                passing[asked] = place < top_k
            bar.update(len(asked))
    return passing


def _place_in_document(
    retriever: Retriever,
    asked: np.ndarray,
    sources: np.ndarray,
    documents: np.ndarray,
    same: np.ndarray | None = None,
) -> np.ndarray:
    """Rank `[questions]` of each source in its document, from 0; beyond all ranks if it scores
    minus infinity.
    """
    order, counts = np.argsort(documents, kind="stable"), np.bincount(documents)
    starts, places = np.cumsum(counts) - counts, np.empty(len(asked), np.int64)
    # Score all passages of a document for each of its questions, a bounded number of pairs at a
    # time.
    part_of = np.cumsum(counts[documents[sources]]) // PAIRS_AT_ONCE
    for part in np.split(np.arange(len(asked)), np.flatnonzero(np.diff(part_of)) + 1):
        source, document = sources[part], documents[sources[part]]
        rows = concat_runs(order, starts[document], counts[document])
        owners = np.repeat(np.arange(len(part)), counts[document])
        scores = retriever.scores(asked[part], owners, rows)
        of_source = scores[rows == source[owners]]
        ahead = (scores > of_source[owners]) | (
            (scores == of_source[owners]) & (rows < source[owners])
        )
        if same is not None:
            ahead &= same[rows] != same[source[owners]]
        behind = np.bincount(owners, weights=ahead, minlength=len(part)).astype(np.int64)
        places[part] = np.where(np.isfinite(of_source), behind, np.iinfo(np.int64).max)
    return places
