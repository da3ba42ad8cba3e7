"""doc2query: learn from a collection's own queries to ask about a passage, ask about all, keep what leads back to it.

Nogueira et al. 2019, by sampling as in docTTTTTquery (top-k 10); MASTER section 3.3 takes such questions as decoder
text, the DPR-PAQ paper pairs as PAQ does.

PAQ (Lewis et al. 2021) answers every question again and keeps it where the answer is the one it was made for:
*locally*, from its own passage alone, or *globally*, from whatever a retriever finds in all of Wikipedia. The DPR-PAQ
paper's questions went through the global filter. Here questions have no answer and there is no reader, so the passage
takes the answer's place:

- global: the retriever brings the passage back among the first `top_k` of the whole collection;
- local: the same among the passages of its own document. A document of one passage leaves BM25 to ask for a word in
  common, and a dense retriever nothing at all. This is weaker than a reader: it asks whether the question is about this
  passage, not whether the passage answers it.

Pages: ideas/generators, practice/own-corpus.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import EncoderDecoderModel, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.materials.texts import spelled, uniform_numbers
from dr_lib.models import Sampling, Seq2seqDecoding, end_of_text, never_written, write_texts
from dr_lib.objectives.predict import labels_at, predict_tokens
from dr_lib.retrieval import Bm25, Ranking, exact_scores, mine_negatives, search
from dr_lib.tokens import Title, TokenStore, concat_runs
from dr_lib.training import Examples, RetrievalBatch, distinct_rows, group_examples, text_hash

Inputs = Callable[[np.ndarray], Mapping[str, Tensor]]
Filter = Literal["none", "local", "global"]
ASKED = Sampling(top_k=10)
AT_ONCE = 16_384
PAIRS_AT_ONCE = 1 << 22
FEWEST_DOCUMENTS = 50
"""Documents with questions below which splits are drawn by passage."""
WORD = re.compile(r"\w+")


# The generator ------------------------------------------------------------------------------------------------------


class QuestionTraining(nn.Module):
    """The question generator under training: each query, token by token, given its passage and the tokens before.

    Args:
        model: encoder-decoder with the tokenizer of the batches.
    """

    def __init__(self, model: EncoderDecoderModel):
        super().__init__()
        self.model = model

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Mean cross-entropy of the queries' tokens ([SEP] included, [CLS] and padding not), and the share predicted.

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
        labels = labels_at(queries.input_ids[:, 1:], queries.attention_mask[:, 1:] == 1)
        loss, accuracy = predict_tokens(self.model.decoder, states, labels)
        return {"loss": loss, "accuracy": accuracy}


class QuestionWriter:
    """Asks `copies` questions about each passage of a batch; see `texts.write_all`.

    Args:
        model: encoder-decoder, in eval mode, on its device; in bfloat16 it writes fastest.
        tokenizer: the model's own.
        inputs: rows of passages -> arguments of the encoder, `[batch, length]`.
        copies: questions a passage.
        longest: longest question in tokens.
        choice: how tokens are drawn.
        seed: of the draws.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        inputs: Inputs,
        *,
        copies: int,
        longest: int,
        choice: Sampling = ASKED,
        seed: int = 0,
    ):
        self.model, self.tokenizer, self.inputs = model, tokenizer, inputs
        self.copies, self.longest, self.choice, self.seed = copies, longest, choice, seed
        self.end = end_of_text(tokenizer)
        vocab = model.get_output_embeddings().weight.shape[0]
        self.forbidden = torch.tensor(never_written(tokenizer, vocab, self.end), device=model.device)

    @torch.inference_mode()
    def __call__(self, rows: np.ndarray) -> list[list[str]]:
        """The questions about some passages, by passage."""
        inputs = {name: tensor.to(self.model.device) for name, tensor in self.inputs(rows).items()}
        uniform = torch.from_numpy(uniform_numbers(self.seed, rows, self.copies, self.longest)).to(self.model.device)
        decoding = Seq2seqDecoding(self.model, inputs, self.copies)
        ids = write_texts(decoding, uniform, self.choice, end=self.end, forbidden=self.forbidden)
        texts = spelled(self.tokenizer, ids)
        return [texts[start : start + self.copies] for start in range(0, len(texts), self.copies)]


def stored_inputs(store: TokenStore, length: int, title: Title) -> Inputs:
    """Passages as the token store cuts them, for a model with the store's tokenizer."""
    return lambda rows: store.batch(rows, max_length=length, title=title, pad_to_multiple=16).model_inputs()


def tokenised_inputs(passages: Dataset, tokenizer: PreTrainedTokenizerBase, length: int, title: Title) -> Inputs:
    """Passages cut by a public model's own tokenizer, the title (unless ``"none"``) before the text."""

    def read(rows: np.ndarray) -> Mapping[str, Tensor]:
        chosen = passages[rows]
        texts = chosen["text"]
        if title != "none":
            texts = [f"{head} {body}".strip() for head, body in zip(chosen["title"], texts, strict=True)]
        coded = tokenizer(texts, truncation=True, max_length=length, padding=True, return_tensors="pt")
        return {name: coded[name] for name in ("input_ids", "attention_mask")}

    return read


# Round trips --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByWords:
    """BM25 over the collection, asked the questions again.

    Attributes:
        index: of the passages.
        texts: all questions, column text.
    """

    index: Bm25
    texts: Dataset

    def best(self, questions: np.ndarray, k: int, progress: bool = False) -> Ranking:
        """The `k` first passages of some questions; a passage without a word of the question is never found."""
        return self.index.search(self.texts[questions]["text"], k, progress=progress)

    def scores(self, questions: np.ndarray, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Score `[pairs]` of passage `rows` for question `questions[owners]`; minus infinity without a common word."""
        found = self.index.pair_scores(self.texts[questions]["text"], owners, rows)
        return np.where(found > 0, found, -np.inf).astype(np.float32)


@dataclass(frozen=True)
class ByVectors:
    """A dense retriever by its vectors, asked the questions again.

    Attributes:
        questions: `[questions, hidden]` float.
        passages: `[passages, hidden]` float.
        device: where products are computed.
    """

    questions: np.ndarray
    passages: np.ndarray
    device: torch.device | str = "cpu"

    def best(self, questions: np.ndarray, k: int, progress: bool = False) -> Ranking:
        """The `k` first passages of some questions."""
        asked = np.asarray(self.questions[questions])
        scores, rows = search(asked, self.passages, k, device=self.device, progress=progress)
        return Ranking([str(row) for row in range(len(questions))], rows, scores)

    def scores(self, questions: np.ndarray, owners: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Score `[pairs]` of passage `rows` for question `questions[owners]`."""
        asked = np.asarray(self.questions[questions], dtype=np.float32)
        return exact_scores(asked[owners], self.passages, rows[:, None])[:, 0]


Retriever = ByWords | ByVectors


def consistent(
    retriever: Retriever | None,
    sources: np.ndarray,
    documents: np.ndarray,
    *,
    how: Filter = "global",
    top_k: int = 1,
    progress: bool = True,
) -> np.ndarray:
    """Which questions lead back to their passage.

    Args:
        retriever: who is asked; None where nobody is.
        sources: `[questions]` int64, the passage that each was made from.
        documents: `[passages]` int64, the document of each passage, for the local filter.
        how: "global", "local" or "none" (keeps all).
        top_k: the passage must be among so many.
        progress: show a bar.

    Returns:
        `[questions]` bool.

    Example:
        >>> from datasets import Dataset
        >>> texts = Dataset.from_dict({"title": ["", ""], "text": ["a red fox", "two foxes and a dog"]})
        >>> asked = Dataset.from_dict({"text": ["where is the fox?", "whose dog?", "red or dead?"]})
        >>> retriever = ByWords(Bm25.build(texts, progress=False), asked)
        >>> consistent(retriever, np.array([1, 1, 1]), np.array([0, 1]), progress=False).tolist()
        [False, True, False]
    """
    kept = np.ones(len(sources), bool)
    if how == "none" or retriever is None:
        return kept
    with tqdm(total=len(sources), desc=f"{how} filter", unit="question", disable=not progress) as bar:
        for start in range(0, len(sources), AT_ONCE):
            asked = np.arange(start, min(start + AT_ONCE, len(sources)))
            if how == "global":
                kept[asked] = (retriever.best(asked, top_k).rows == sources[asked][:, None]).any(axis=1)
            else:
                kept[asked] = _place_in_document(retriever, asked, sources[asked], documents) < top_k
            bar.update(len(asked))
    return kept


def _place_in_document(
    retriever: Retriever, asked: np.ndarray, sources: np.ndarray, documents: np.ndarray
) -> np.ndarray:
    """Place `[questions]` of each source in its document, from 0; past all places where it scores minus infinity."""
    order, counts = np.argsort(documents, kind="stable"), np.bincount(documents)
    starts, places = np.cumsum(counts) - counts, np.empty(len(asked), np.int64)
    # All passages of a document are scored for each of its questions, a bounded number of pairs at a time.
    part_of = np.cumsum(counts[documents[sources]]) // PAIRS_AT_ONCE
    for part in np.split(np.arange(len(asked)), np.flatnonzero(np.diff(part_of)) + 1):
        own, document = sources[part], documents[sources[part]]
        rows = concat_runs(order, starts[document], counts[document])
        owners = np.repeat(np.arange(len(part)), counts[document])
        scores = retriever.scores(asked[part], owners, rows)
        of_source = scores[rows == own[owners]]
        ahead = (scores > of_source[owners]) | ((scores == of_source[owners]) & (rows < own[owners]))
        behind = np.bincount(owners, weights=ahead, minlength=len(part)).astype(np.int64)
        places[part] = np.where(np.isfinite(of_source), behind, np.iinfo(np.int64).max)
    return places


# Pairs of question and passage --------------------------------------------------------------------------------------


def store_questions(
    questions: Dataset,
    sources: np.ndarray,
    kept: np.ndarray,
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    *,
    passages: int,
    retriever: Retriever | None = None,
    depth: int = 20,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, int]:
    """Write `queries/` and `examples/`; equal questions of several passages are one query with several positives.

    Oguz et al. 2022, section 3.1.1 and "Data preparation": the task is to find the passage that a question was made
    from.

    Args:
        questions: all questions, column text.
        sources: `[questions]` int64, the passage that each was made from.
        kept: `[questions]` bool, what the filter let through.
        folder: an existing folder.
        tokenizer: of the model that will read them.
        passages: passages of the collection.
        retriever: who finds hard negatives; None leaves them to training, which draws random passages.
        depth: hard negatives a query, random ones where the retriever finds fewer.
        seed: of the order of negatives.
        progress: show bars.

    Returns:
        Counts: filtered (questions that passed), queries (distinct ones), pairs, and passages that have a question.

    Raises:
        InputError: no question passed.
    """
    rows = np.flatnonzero(kept)
    if not len(rows):
        fix = "Use a weaker filter or a larger top_k, or train the question generator longer."
        raise InputError("no question passed the filter", where="filter", fix=fix)
    hashes = (text_hash(text.casefold()) for text in questions.select(rows)["text"])
    query_of, first = distinct_rows(np.fromiter(hashes, np.int64, len(rows)))
    found = group_examples(query_of, sources[rows], passages=passages)
    if retriever is not None and depth:
        # The retriever's first passages less the positives: that many more have to be looked for.
        ranking = retriever.best(rows[first], depth + int(found.counts().max()), progress)
        positives = np.split(found.positives, found.offsets[1:-1])
        negatives = mine_negatives(ranking, positives, passages=passages, depth=depth, random_negatives=0, seed=seed)
        found = Examples(found.query_rows, found.positives, found.offsets, negatives, passages)
    TokenStore.build(questions.select(rows[first]), tokenizer, folder / "queries", columns=("text",), progress=progress)
    found.save(folder / "examples")
    covered = len(np.unique(found.positives))
    return {"filtered": len(rows), "queries": len(found), "pairs": len(found.positives), "passages": covered}


# Splits: no passage and no question is in two of them -----------------------------------------------------------------


def asked_once(texts: Sequence[str]) -> np.ndarray:
    """Which questions were written once only, `[questions]` bool; case does not count.

    A question that fits two passages tells them apart for nobody, and might stand in two splits.

    Example:
        >>> asked_once(["Who?", "why?", "who?"]).tolist()
        [False, True, False]
    """
    hashes = np.fromiter((text_hash(text.casefold()) for text in texts), np.int64, len(texts))
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return counts[inverse] == 1


def draw_splits(
    documents: np.ndarray, asked: np.ndarray, shares: Mapping[str, float], *, held: np.ndarray, seed: int
) -> np.ndarray:
    """Draw the split of every passage.

    By document, so that neighbours of a training passage are no test passages; a collection of few documents is split
    by passage instead.

    Args:
        documents: `[passages]` int64, the document of each.
        asked: rows of passages that have a question, in any order, repeated or not.
        shares: split -> its part of the documents that have a question, scaled to sum to 1; the first gets the rest.
        held: rows of passages that are judged already; they and their documents are left out.
        seed: of the draw.

    Returns:
        `[passages]` int64, the split by its place in `shares`; -1 where there is no question or the passage is held.

    Raises:
        InputError: too few passages with a question for so many splits.

    Example:
        >>> draw_splits(np.arange(4), np.array([0, 1, 3]), {"train": 2, "test": 1}, held=np.array([]), seed=0).tolist()
        [0, 1, -1, 0]
    """
    few = len(np.unique(documents[asked])) < FEWEST_DOCUMENTS
    units = np.arange(len(documents)) if few else documents
    free = ~np.isin(units, units[held.astype(np.int64)])
    rows = np.unique(asked)
    drawn = np.unique(units[rows[free[rows]]])
    if len(drawn) < len(shares):
        fix = "Write more questions a passage, use a weaker filter, or train the question generator longer."
        raise InputError(f"{len(drawn)} passages with questions make no {len(shares)} splits", where="ask", fix=fix)
    sizes = [max(1, int(share / sum(shares.values()) * len(drawn))) for share in shares.values()]
    sizes[0] = len(drawn) - sum(sizes[1:])
    of_unit = np.full(int(units.max()) + 1, -1)
    of_unit[np.random.default_rng([seed, 7]).permutation(drawn)] = np.repeat(np.arange(len(shares)), sizes)
    found = np.full(len(documents), -1)
    found[rows] = of_unit[units[rows]]
    return found


def first_of_each(sources: np.ndarray) -> np.ndarray:
    """The first question of each passage, `[questions]` bool; `sources` is ascending.

    Example:
        >>> first_of_each(np.array([2, 2, 5])).tolist()
        [True, False, True]
    """
    return np.diff(sources, prepend=-1) > 0


def shared_words(questions: Sequence[str], passages: Sequence[str]) -> float:
    """Mean share of a question's distinct words that its passage has too; case does not count.

    Example:
        >>> shared_words(["Why do tides rise?"], ["Tides rise twice a day."])
        0.5
    """
    shares = []
    for question, passage in zip(questions, passages, strict=True):
        words = set(WORD.findall(question.casefold()))
        shares.append(len(words & set(WORD.findall(passage.casefold()))) / max(1, len(words)))
    return float(np.mean(shares)) if shares else 0.0
