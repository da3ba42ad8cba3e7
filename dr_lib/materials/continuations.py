"""Continuations: a causal LM reads a passage and continues it, as GPT-2 does in MASTER section 4.2.

The paper gives no settings. Here: a prompt of at most 256 tokens, top-p 0.9 and 128 new tokens (its
public sample has 130). Texts do not end early, since one that ended at once would be useless. Page:
ideas/generators.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from dr_lib import losses
from dr_lib.collections import Collection
from dr_lib.errors import InputError, check_texts
from dr_lib.materials.texts import PassageWriter, ready, save_texts, writer_tokenizer
from dr_lib.models import (
    CausalDecoding,
    Sampling,
    end_of_text,
    load_causal_lm,
    load_masked_lm,
    new_causal_lm,
    save_masked_lm,
)
from dr_lib.stages import stage
from dr_lib.tokens import TokenBatch, TokenStore, load_tokenizer, special_ids
from dr_lib.training import GeneratorTraining, machine, train

MULTIPLE = 16


@stage(resumable=True, gpu=True, reads=())
def continuation_model(
    folder: Path,
    base: Path | str,
    passages: Path,
    collection: Collection,
    *,
    positions: int,
    training: GeneratorTraining,
    dropout: float | None,
    seed: int,
) -> None:
    """`model/`: a causal LM trained on the collection, with the base model's tokenizer; `log.json`.

    Args:
        folder: where to write.
        base: the masked LM whose size and word embeddings it has.
        passages: their tokens (`store/`).
        collection: for the order of passages in documents.
        positions: maximum length: prompt, continuation and one more token.
        training: how it is trained.
        dropout: of the masked LM; None keeps what it says.
        seed: of fresh weights and of the order of rows.
    """
    tokenizer = load_tokenizer(base)
    masked = load_masked_lm(base, dropout=dropout, device=machine.device())
    model = new_causal_lm(masked, special_ids(tokenizer), positions=positions, seed=seed)
    text = PackedText(
        TokenStore.open(passages / "store"),
        *collection.documents(),
        length=positions,
        tokens_per_batch=training.tokens_per_batch,
        seed=seed,
    )
    train(
        ContinuationTraining(model),
        text.batch,
        training.with_seed(seed),
        folder,
        title="continuation model",
    )
    save_masked_lm(model, tokenizer, folder / "model")


@stage(resumable=True, gpu=True, reads=())
def continuations(
    folder: Path,
    writer: Path | str,
    passages: Path,
    collection: Collection,
    tokenizer: Path | str,
    *,
    new_tokens: int,
    prompt_tokens: int,
    top_p: float,
    seed: int,
    public: bool,
) -> None:
    """The continuation of each passage as `Texts`; `counts.json`.

    Args:
        folder: where to write; a killed build is resumed.
        writer: the causal LM.
        passages: tokens of the passages (`store/`).
        collection: their texts.
        tokenizer: of the model that will read the continuations.
        new_tokens, prompt_tokens: tokens to generate, and tokens from the passage's beginning to
            read first.
        top_p: each token is drawn among the most likely ones whose probabilities sum to this.
        seed: of the draws.
        public: the writer has a tokenizer of its own, of any kind.
    """
    store, words = TokenStore.open(passages / "store"), writer_tokenizer(writer, public)
    model = ready(load_causal_lm(writer, device=machine.device()))
    check_room(model, prompt_tokens, new_tokens)

    def begin(rows: np.ndarray) -> CausalDecoding:
        ids, mask = prompts(collection.passages[rows]["text"], words, prompt_tokens)
        return CausalDecoding(model, ids.to(model.device), mask.to(model.device))

    write = PassageWriter(
        model,
        words,
        begin,
        copies=1,
        longest=new_tokens,
        choice=Sampling(top_p=top_p),
        may_end=False,
        seed=seed,
    )
    save_texts(folder, write, store, tokenizer, title="continuations")


class PackedText:
    """The bodies of all passages as one long text, document by document, [SEP] after each, cut into
    rows of one length.

    The training text of a causal LM, as in Radford et al. 2019.

    Args:
        store: tokens of the passages.
        documents, positions: `[passages]` int64, the document of each passage and its place there.
        length: tokens per row, at least 2; shorter if there is less text.
        tokens_per_batch: rows x length of a batch, at least one row.
        seed: of the order of rows and the offset of an epoch's first row.
    """

    def __init__(
        self,
        store: TokenStore,
        documents: np.ndarray,
        positions: np.ndarray,
        *,
        length: int,
        tokens_per_batch: int,
        seed: int = 0,
    ):
        self.store, self.seed = store, seed
        order = np.lexsort((positions, documents))
        last = np.append(documents[order][1:] != documents[order][:-1], True)
        self.counts = np.diff(store.text_offsets)[order]
        self.sources = store.text_offsets[order]
        self.ends = np.cumsum(self.counts + last)
        self.starts = self.ends - self.counts - last
        self.length = int(min(length, self.ends[-1]))
        self.rows = int(self.ends[-1]) // self.length
        self.batch_rows = min(self.rows, max(1, tokens_per_batch // self.length))
        self._order = lru_cache(maxsize=2)(self._cut)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of an epoch."""
        return self.rows // self.batch_rows

    def batch(self, step: int) -> TokenBatch:
        """The batch of a micro-step, counted from 0 over all epochs; the same number, the same
        batch.
        """
        epoch, within = divmod(step, self.steps_per_epoch)
        shift, order = self._order(epoch)
        chosen = order[within * self.batch_rows :][: self.batch_rows]
        ids = self.read(shift + chosen[:, None] * self.length + np.arange(self.length))
        special = ids == self.store.special["sep"]
        return TokenBatch(
            input_ids=torch.from_numpy(ids),
            attention_mask=torch.ones(ids.shape, dtype=torch.int64),
            token_type_ids=torch.zeros(ids.shape, dtype=torch.int64),
            special=torch.from_numpy(special),
            word_start=torch.from_numpy(~special & ~self.store.continuation[ids]),
            rows=torch.from_numpy(chosen),
        )

    def read(self, places: np.ndarray) -> np.ndarray:
        """The tokens at some positions of the long text, int64, of the same shape."""
        passage = np.searchsorted(self.ends, places, side="right")
        offset = places - self.starts[passage]
        inside = offset < self.counts[passage]
        source = np.where(inside, self.sources[passage] + offset, 0)
        return np.where(
            inside, self.store.text_ids[source].astype(np.int64), self.store.special["sep"]
        )

    def _cut(self, epoch: int) -> tuple[int, np.ndarray]:
        draw = np.random.default_rng([self.seed, epoch])
        spare = int(self.ends[-1]) - self.rows * self.length
        return int(draw.integers(0, spare + 1)), draw.permutation(self.rows)


class ContinuationTraining(nn.Module):
    """Training of a causal LM: each token from all before it in its row.

    Args:
        model: causal LM with the tokenizer of the batches.
    """

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model = model

    def forward(self, batch: TokenBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Mean cross-entropy of every token but the first of each row, and the accuracy.

        Args:
            batch: rows of text without padding.
            generator: not used; the loop hands it to every module.
        """
        ids = batch.input_ids
        states = self.model.base_model(input_ids=ids[:, :-1]).last_hidden_state
        labels, head = ids[:, 1:].reshape(-1), self.model.get_output_embeddings()
        loss, correct = losses.chunked_cross_entropy(
            states.flatten(0, 1), head.weight, head.bias, labels
        )
        return {"loss": loss, "accuracy": torch.as_tensor(correct) / labels.numel()}


def check_room(model: PreTrainedModel, prompt_tokens: int, new_tokens: int) -> None:
    """Raise `InputError` if a model's maximum length is below that of start token, prompt and
    continuation.
    """
    room = getattr(model.config, "max_position_embeddings", None)
    if room is not None and 1 + prompt_tokens + new_tokens > room:
        problem = f"1 + {prompt_tokens} + {new_tokens} tokens, but the model reads {room}"
        fix = "Shorten the prompt or the continuation, or take another model."
        raise InputError(problem, where="prompt_tokens", fix=fix)


def prompts(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, length: int
) -> tuple[Tensor, Tensor]:
    """The first `length` tokens of each text, ids and mask as of `left_padded`."""
    check_texts(texts=texts)
    coded = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=length)[
        "input_ids"
    ]
    counts = np.array([len(ids) for ids in coded])
    return left_padded(
        np.fromiter(chain.from_iterable(coded), np.int64, counts.sum()),
        counts,
        end_of_text(tokenizer),
    )


def left_padded(flat: np.ndarray, counts: np.ndarray, end: int) -> tuple[Tensor, Tensor]:
    """Left-padded rows, each preceded by the end-of-text token.

    Args:
        flat: the tokens of all rows, concatenated.
        counts: `[rows]` tokens of each.
        end: id of the token between texts, also used as padding, which the mask hides.

    Returns:
        Ids and mask `[rows, length]` int64; length - 1 is a multiple of 16.

    Example:
        >>> ids, mask = left_padded(np.array([5, 6, 7]), np.array([2, 1]), end=1)
        >>> ids[:, -4:].tolist(), mask[:, -4:].tolist()
        ([[1, 1, 5, 6], [1, 1, 1, 7]], [[0, 1, 1, 1], [0, 0, 1, 1]])
    """
    width = 1 + -(-max(1, int(counts.max())) // MULTIPLE) * MULTIPLE
    from_right = width - np.arange(width)[None, :]
    ids = np.full((len(counts), width), end, np.int64)
    ids[from_right <= counts[:, None]] = flat
    return torch.from_numpy(ids), torch.from_numpy(
        (from_right <= counts[:, None] + 1).astype(np.int64)
    )
