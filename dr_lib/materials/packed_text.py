"""A whole collection as one long text, cut into rows of one length: what a causal LM learns from.

Radford et al. 2019 read the web so; documents follow each other with an end token between. Page: ideas/generators.
"""

from functools import lru_cache

import numpy as np
import torch

from dr_lib.tokens import TokenBatch, TokenStore


class PackedText:
    """The bodies of all passages, document by document, [SEP] after each document.

    Args:
        store: tokens of the passages.
        documents, positions: `[passages]` int64, the document of each passage and its place there.
        length: tokens of a row, at least 2; shorter where there is less text.
        tokens_per_batch: rows x length of a batch, at least one row.
        seed: of the order of rows and of the place where an epoch's first row begins.
    """

    def __init__(
        self, store: TokenStore, documents: np.ndarray, positions: np.ndarray, *, length: int, tokens_per_batch: int,
        seed: int = 0,
    ):  # fmt: skip
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
        """The batch of a micro-step, counted from 0 over all epochs; the same number, the same batch."""
        epoch, within = divmod(step, self.steps_per_epoch)
        shift, order = self._order(epoch)
        chosen = order[within * self.batch_rows :][: self.batch_rows]
        ids = self.read(shift + chosen[:, None] * self.length + np.arange(self.length))
        special = ids == self.store.special["sep"]
        return TokenBatch(
            input_ids=torch.from_numpy(ids), attention_mask=torch.ones(ids.shape, dtype=torch.int64),
            token_type_ids=torch.zeros(ids.shape, dtype=torch.int64), special=torch.from_numpy(special),
            word_start=torch.from_numpy(~special & ~self.store.continuation[ids]), rows=torch.from_numpy(chosen),
        )  # fmt: skip

    def read(self, places: np.ndarray) -> np.ndarray:
        """The tokens at some places of the long text, int64, of the same shape."""
        passage = np.searchsorted(self.ends, places, side="right")
        offset = places - self.starts[passage]
        inside = offset < self.counts[passage]
        source = np.where(inside, self.sources[passage] + offset, 0)
        return np.where(inside, self.store.text_ids[source].astype(np.int64), self.store.special["sep"])

    def _cut(self, epoch: int) -> tuple[int, np.ndarray]:
        draw = np.random.default_rng([self.seed, epoch])
        spare = int(self.ends[-1]) - self.rows * self.length
        return int(draw.integers(0, spare + 1)), draw.permutation(self.rows)
