"""Which words a mask hides: the most frequent ones, how many of them are stop words, how far two draws agree.

What CDMAE's figures 2 and 3 show, on any collection. Page: ideas/masking.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np
from IPython.display import HTML
from matplotlib.figure import Figure
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.evaluation import Interval, bootstrap_interval
from dr_lib.materials import WordBlock, WordTable
from dr_lib.report.theme import Palette, show
from dr_lib.tokens import TokenBatch


class BatchWords:
    """The words of a batch, each with its place and its text.

    Args:
        batch: passages; words are whole, as `word_start` says.
        tokenizer: the one that cut them.

    Attributes:
        rows, columns: `[words]` int64, the passage and the first piece of each word.
        numbers: `[words]` int64, the same for equal words.
        names: `[words]` str, the text of each word.
        plain: `[words]` bool, True for stop words (scikit-learn's English list) and words without letter or digit.
    """

    def __init__(self, batch: TokenBatch, tokenizer: PreTrainedTokenizerFast):
        maskable, begins = ~batch.special.numpy(), batch.word_start.numpy()
        self.batch = batch
        self.rows, self.columns = begins.nonzero()
        pieces, starts = batch.input_ids.numpy()[maskable], begins[maskable].nonzero()[0]
        sizes = np.diff(starts, append=len(pieces))
        block = WordBlock(0, len(batch), pieces, 0, starts, sizes, room=sizes, rows=self.rows)
        self.numbers = WordTable(len(tokenizer)).learn(block)
        _, first, kind = np.unique(self.numbers, return_index=True, return_inverse=True)
        spans = zip(starts[first], starts[first] + sizes[first], strict=True)
        kinds = [tokenizer.decode(pieces[start:end]) for start, end in spans]
        self.names = np.array(kinds, dtype=object)[kind]
        self.plain = np.array([is_plain(name) for name in kinds], bool)[kind]

    def hidden(self, mask: Tensor) -> np.ndarray:
        """`[words]` bool, True where a mask `[batch, length]` hides the word's first piece."""
        if mask.shape != self.batch.special.shape:
            raise InputError(f"a mask of {tuple(mask.shape)}", where="mask", fix="Give the mask of this batch.")
        return mask.numpy()[self.rows, self.columns]

    def top(self, mask: Tensor, number: int = 10) -> dict[str, float]:
        """The words hidden most often, each with its share of all hidden words, most frequent first."""
        hidden = self.hidden(mask)
        _, first, counts = np.unique(self.numbers[hidden], return_index=True, return_counts=True)
        best = np.argsort(-counts, kind="stable")[:number]
        return {self.names[hidden][first[i]]: counts[i] / hidden.sum() for i in best}

    def share(self, mask: Tensor, of: np.ndarray) -> np.ndarray:
        """`[batch]` float, the share of each passage's hidden words that `of` `[words]` marks; NaN without any."""
        hidden = self.hidden(mask)
        both, all_ = (np.bincount(self.rows[some], minlength=len(self.batch)) for some in (hidden & of, hidden))
        return np.divide(both, all_, out=np.full(len(all_), np.nan), where=all_ > 0)


@cache
def is_plain(word: str) -> bool:
    """Whether a word is a stop word of scikit-learn's English list, or has neither letter nor digit.

    Example:
        >>> [is_plain(word) for word in ("The", "retriever", ",", "4")]
        [True, False, True, False]
    """
    return word.lower() in stop_words() or not any(map(str.isalnum, word))


@cache
def stop_words() -> frozenset[str]:
    """scikit-learn's list of English stop words, lower case."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # takes a second to load

    return ENGLISH_STOP_WORDS


def mean_share(shares: np.ndarray) -> Interval:
    """Mean over passages in percent, with a 95 % bootstrap interval; passages where the share is NaN do not count."""
    return bootstrap_interval(100 * shares[~np.isnan(shares)])


def top_words_figure(tops: Mapping[str, Mapping[str, float]]) -> HTML:
    """A panel a mask with its most frequent words as bars (CDMAE, figure 2); stop words and punctuation are grey.

    Args:
        tops: name of the mask -> its words and their shares, as `BatchWords.top` gives them.
    """

    def draw(palette: Palette) -> Figure:
        figure = Figure(figsize=(7.4, 0.7 + 0.26 * max(map(len, tops.values()))), layout="constrained")
        panels = figure.subplots(1, len(tops), squeeze=False, sharex=True)[0]
        for axes, (name, shares) in zip(panels, tops.items(), strict=True):
            colors = [palette.paper if is_plain(word) else palette.recorded for word in shares]
            axes.barh(range(len(shares)), [100 * share for share in shares.values()], color=colors, edgecolor="none")
            axes.set_yticks(range(len(shares)), [_spelled(word) for word in shares])
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
            axes.set_title(name, loc="left", fontsize=10)
            axes.set_xlabel("% of the hidden words")
        return figure

    told = [f"{name}: {', '.join(f'{word} {100 * share:.1f} %' for word, share in top.items())}."
            for name, top in tops.items()]  # fmt: skip
    return show(draw, "The words hidden most often, with their share of all hidden words. " + " ".join(told))


def hidden_share_figure(words: list[str], shares: Mapping[str, np.ndarray]) -> HTML:
    """How often each word of one passage is hidden, by mask (CDMAE, figure 3a).

    Args:
        words: the words in their order.
        shares: name of the mask -> `[words]`, share of the draws that hid each word.
    """

    def draw(palette: Palette) -> Figure:
        figure = Figure(figsize=(7.4, 3.0), layout="constrained")
        axes, width = figure.subplots(), 0.8 / len(shares)
        for i, (name, values) in enumerate(shares.items()):
            places = np.arange(len(words)) - 0.4 + (i + 0.5) * width
            axes.bar(places, 100 * values, width, color=palette.series[i], edgecolor="none", label=name)
        axes.set_xticks(range(len(words)), [_spelled(word) for word in words], rotation=60, ha="right", fontsize=8)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("hidden in % of the draws")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(shares), fontsize=9)
        return figure

    told = ["; ".join(f"{name} {100 * values[i]:.0f} %" for name, values in shares.items()) for i in range(len(words))]
    return show(draw, "How often each word is hidden. " + ", ".join(map(": ".join, zip(words, told, strict=True))))


def _spelled(word: str) -> str:
    """The word as a label: cut if it is long, and with no dollar sign, which would begin a formula."""
    return (word if len(word) <= 16 else word[:15] + "…").replace("$", r"\$")
