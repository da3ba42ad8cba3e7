"""Re-ranking: a scorer re-scores the first passages of a ranking; the rest keep their order below
them.

SimLM Table 13 (the first 200 passages; its scripts: 100 for NQ). The same scoring produces teacher
scores for distillation and the probabilities behind PAIR's pseudo-labels. The scorer is a
cross-encoder, or a late-interaction model, which encodes each text once, whatever the number of its
pairs. Page of the book: ideas/distillation.
"""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.models import CrossEncoder, LateInteraction, Pieces, TextPairs, best_matches_of_pairs
from dr_lib.models.dense import PROBES
from dr_lib.retrieval.bm25 import Bm25
from dr_lib.retrieval.encoding import fetching
from dr_lib.retrieval.ranking import Ranking
from dr_lib.stages import stage
from dr_lib.tokens import QueryPassagePairs, TokenStore, concat_runs, plan_by_length
from dr_lib.training import Examples, TeacherScores, machine

PAIRS_AT_ONCE = 1 << 18  # sorted by length together
COSINES_AT_ONCE = 1 << 23  # of late interaction, in memory together
Scorer = CrossEncoder | LateInteraction


def score_pairs(
    cross_encoder: Scorer,
    crossing: QueryPassagePairs | TextPairs,
    query_rows: np.ndarray,
    passage_rows: np.ndarray,
    *,
    tokens_per_batch: int | None = None,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    title: str = "score",
    devices: Sequence[torch.device] | None = None,
) -> np.ndarray:
    """Score pairs of query and passage, sorted by length so that batches have little padding.

    Args:
        cross_encoder: computes on the device of its weights; its mode is unchanged.
        crossing: the layout of pairs, from `cross_encoder.crossing`.
        query_rows, passage_rows: `[pairs]` integers, rows of the two stores.
        tokens_per_batch: rows x padded length of a batch; None takes `machine.encoding_budget`.
        precision: of the forward pass; "auto" takes "bf16" if the machine has it. Weights stay
            float32: rounding them would change scores about fifty times as much.
        title: what is scored, for the progress bar.
        devices: devices that share the batches of a cross-encoder, see `machine.spread`.

    Returns:
        `[pairs]` float32 logits.

    Raises:
        InputError: a score is not finite, or a row does not exist.
    """
    query_rows, passage_rows = np.asarray(query_rows), np.asarray(passage_rows)
    budget = tokens_per_batch or machine.encoding_budget()
    if isinstance(cross_encoder, LateInteraction):
        with machine.evaluating(
            cross_encoder, machine.precision(precision, cross_encoder.head.weight.device)
        ) as scorer:
            return _match_pairs(scorer, crossing, query_rows, passage_rows, budget, title)
    kind = machine.precision(precision, next(cross_encoder.parameters()).device)
    scores = np.empty(len(query_rows), np.float32)

    def score(scorer: nn.Module, pairs: np.ndarray) -> Callable[[], np.ndarray]:
        batch = crossing.batch(query_rows[pairs], passage_rows[pairs])
        return fetching(scorer(batch.to(next(scorer.parameters()).device)).float())

    with (
        machine.spread(cross_encoder, kind, devices) as work,
        tqdm(total=len(query_rows), desc=title, unit="pair", delay=1) as bar,
    ):
        for start in range(0, len(query_rows), PAIRS_AT_ONCE):
            asked, rows = (
                part[start : start + PAIRS_AT_ONCE] for part in (query_rows, passage_rows)
            )
            lengths = crossing.lengths(asked, rows)
            plan = plan_by_length(lengths, budget, crossing.max_length)
            batches = [start + chosen for chosen in plan]
            made = zip(batches, work(score, batches), strict=True)
            # a GPU computes the next batch while the last one's scores are fetched
            for (pairs, fetch), _ in pairwise(chain(made, [None])):
                scores[pairs] = fetch()
                bar.update(len(pairs))
    if not np.isfinite(scores).all():
        pair = int((~np.isfinite(scores)).argmax())
        problem = (
            f"the score of query row {query_rows[pair]} and passage row {passage_rows[pair]} is not"
            " finite"
        )
        raise InputError(
            problem, where="score_pairs", fix="Train the cross-encoder again, at a lower rate."
        )
    return scores


def _match_pairs(
    scorer: LateInteraction,
    texts: TextPairs,
    query_rows: np.ndarray,
    passage_rows: np.ndarray,
    budget: int,
    title: str,
) -> np.ndarray:
    """`score_pairs` for late interaction: queries are kept in memory, each passage is encoded once
    for all its pairs.
    """
    asked, places = np.unique(query_rows, return_inverse=True)
    queries = _pieces(scorer, texts.queries, asked, texts.layout.queries, budget)
    order = np.argsort(passage_rows, kind="stable")
    passages, starts = np.unique(passage_rows[order], return_index=True)
    ends, scores = np.append(starts[1:], len(order)), np.empty(len(order), np.float32)
    lengths = texts.passages.lengths(**texts.layout.passages)[passages]
    with tqdm(total=len(order), desc=title, unit="pair", delay=1) as bar:
        for chosen in plan_by_length(lengths, budget, texts.layout.passage_length):
            batch = texts.passages.batch(passages[chosen], **texts.layout.passages).to(
                scorer.head.weight.device
            )
            pieces, counts = scorer(batch), ends[chosen] - starts[chosen]
            pairs = concat_runs(order, starts[chosen], counts)
            # index in the batch of each pair's passage
            place = np.repeat(np.arange(len(chosen)), counts)
            step = max(1, COSINES_AT_ONCE // (queries.read.shape[1] * pieces.read.shape[1]))
            for start in range(0, len(pairs), step):
                part = pairs[start : start + step]
                of = torch.from_numpy(place[start : start + step]).to(pieces.read.device)
                asking = torch.from_numpy(places[part]).to(pieces.read.device)
                with torch.autocast(pieces.vectors.device.type, enabled=False):
                    matches = best_matches_of_pairs(
                        Pieces(*(tensor[asking] for tensor in queries)),
                        Pieces(*(tensor[of] for tensor in pieces)),
                    )
                scores[part] = (matches / scorer.settings.temperature).cpu().numpy()
            bar.update(len(pairs))
    return scores


def _pieces(
    scorer: LateInteraction, store: TokenStore, rows: np.ndarray, layout: dict, budget: int
) -> Pieces:
    """The token vectors of some texts, padded to the maximum length."""
    length, device = layout["max_length"], scorer.head.weight.device
    vectors = torch.zeros(len(rows), length, scorer.settings.width, device=device)
    read = torch.zeros(len(rows), length, dtype=torch.bool, device=device)
    for chosen in plan_by_length(store.lengths(**layout)[rows], budget, length):
        pieces = scorer(store.batch(rows[chosen], **layout).to(device))
        vectors[chosen, : pieces.read.shape[1]], read[chosen, : pieces.read.shape[1]] = pieces
    return Pieces(vectors, read)


def rerank(
    cross_encoder: Scorer,
    ranking: Ranking,
    crossing: QueryPassagePairs | TextPairs,
    *,
    top: int = 200,
    **options: object,
) -> Ranking:
    """Re-order the first passages of each query by a cross-encoder's score.

    Args:
        cross_encoder: the re-ranker.
        ranking: of a first retriever.
        crossing: its queries, in order, and passages, from `cross_encoder.crossing`.
        top: passages to score, at least one; the others follow in their old order, each with a
            score one below the previous.
        options: of `score_pairs`.

    Returns:
        A ranking of the same queries and passages; the scores of re-ranked passages are logits.
    """
    rows = np.array(ranking.rows)
    best = rows[:, :top]
    scores = score_candidates(
        cross_encoder, crossing, np.arange(len(rows)), best, title="re-rank", **options
    )
    order = np.lexsort((best, -scores), axis=1)
    best, scores = (np.take_along_axis(part, order, axis=1) for part in (best, scores))
    rest = rows[:, top:]  # below the lowest new score, in steps of one
    lowest = np.where(best >= 0, scores, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    below = np.where(rest >= 0, lowest - 1 - np.arange(rest.shape[1]), -np.inf).astype(np.float32)
    rows, scores = np.concatenate([best, rest], axis=1), np.concatenate([scores, below], axis=1)
    return Ranking(ranking.query_ids, rows, scores, ranking.passages)


def score_candidates(
    cross_encoder: Scorer,
    crossing: QueryPassagePairs | TextPairs,
    query_rows: np.ndarray,
    rows: np.ndarray,
    **options: object,
) -> np.ndarray:
    """Scores `[queries, depth]` float32 of each query's passages, -inf where the row is -1;
    `options` of `score_pairs`.

    Args:
        cross_encoder: the scorer.
        crossing: queries and passages, from `cross_encoder.crossing`.
        query_rows: `[queries]` rows of the queries.
        rows: `[queries, depth]` rows of passages, -1 for none.
    """
    present = rows >= 0
    asked = np.broadcast_to(np.asarray(query_rows)[:, None], rows.shape)
    scores = np.full(rows.shape, -np.inf, np.float32)
    if present.any():
        scores[present] = score_pairs(
            cross_encoder, crossing, asked[present], rows[present], **options
        )
    return scores


@stage(gpu=True)
def reranked(
    folder: Path,
    run: Path,
    scorer: Path,
    queries: Path,
    passages: Path,
    *,
    depth: int,
    rest: bool = True,
) -> None:
    """`ranking/`: a run with its first `depth` passages in the scorer's order, the others below in
    their old order or left out.
    """
    encoder, pairs = open_scorer(scorer, queries, passages)
    ranking = Ranking.open(run / "ranking")
    if not rest:
        ranking = Ranking(
            ranking.query_ids, ranking.rows[:, :depth], ranking.scores[:, :depth], ranking.passages
        )
    rerank(encoder, ranking, pairs, top=depth).save(folder / "ranking")


@stage(gpu=True)
def teacher_scores(
    folder: Path, scorer: Path, queries: Path, passages: Path, examples: Path
) -> None:
    """`positives.npy` and `negatives.npy`: the scorer's scores of the training examples
    (`TeacherScores`).

    SimLM stores raw logits, without temperature or normalisation; the score is NaN where there is
    no negative.
    """
    (encoder, pairs), learned = open_scorer(scorer, queries, passages), Examples.open(examples)
    owners = np.repeat(learned.query_rows, learned.counts())
    positives = score_pairs(encoder, pairs, owners, learned.positives)
    scores = score_candidates(encoder, pairs, learned.query_rows, learned.negatives)
    TeacherScores(positives, np.where(learned.negatives >= 0, scores, np.float32(np.nan))).save(
        folder
    )


@stage(reads=("train",))
def bm25_teacher_scores(folder: Path, index: Path, collection: Collection, examples: Path) -> None:
    """`positives.npy` and `negatives.npy` with BM25's scores: a teacher without training, as a
    control.
    """
    texts = collection.queries("train")["text"][:]
    bm25 = Bm25.open(index / "index")
    learned = Examples.open(examples)
    asked, listed = [texts[row] for row in learned.query_rows], learned.negatives >= 0
    owners = np.arange(len(asked))
    positives = bm25.pair_scores(asked, np.repeat(owners, learned.counts()), learned.positives)
    scores = np.full(listed.shape, np.nan, np.float32)
    scores[listed] = bm25.pair_scores(
        asked, np.repeat(owners, listed.sum(1)), learned.negatives[listed]
    )
    TeacherScores(positives, scores).save(folder)


@stage(gpu=True)
def candidate_scores(
    folder: Path, cross_encoder: Path, queries: Path, passages: Path, candidates: Path
) -> None:
    """`scores.npy`: the cross-encoder's logit of each candidate, `[queries, depth]` float32, -inf
    if there is none.
    """
    encoder, pairs = open_scorer(cross_encoder, queries, passages)
    rows = np.array(Ranking.open(candidates / "ranking").rows)
    asked = np.arange(len(rows))
    scores = score_candidates(encoder, pairs, asked, rows, title="score candidates")
    np.save(folder / "scores.npy", scores)


def open_scorer(
    scorer: Path, queries: Path, passages: Path
) -> tuple[Scorer, QueryPassagePairs | TextPairs]:
    """A trained scorer on this machine's device, and the pairs it reads."""
    encoder = load_scorer(scorer / "model")
    return encoder, encoder.crossing(
        TokenStore.open(queries / "store"), TokenStore.open(passages / "store")
    )


def load_scorer(folder: Path) -> Scorer:
    """A saved scorer of either kind, on this machine's device.

    Raises:
        InputError: the folder holds neither, `from_pretrained` refuses it, or the scorer gives all
            texts the same score.
    """
    kinds = (CrossEncoder, LateInteraction)
    for kind in kinds:
        if (folder / kind.settings_file).is_file():
            scorer = kind.from_pretrained(folder, device=machine.device())
            probes = TokenStore.of(PROBES, scorer.tokenizer)
            scores = score_pairs(scorer, scorer.crossing(probes, probes), [0, 0], [0, 1])
            if scores[0] == scores[1]:
                fix = "Check that its weights are whole."
                raise InputError("gives all passages one score", where=folder, fix=fix)
            return scorer
    names = " nor ".join(kind.settings_file for kind in kinds)
    raise InputError(
        f"neither {names} in this folder",
        where=folder,
        fix="Give a re-ranker saved or exported by dr_lib.",
    )
