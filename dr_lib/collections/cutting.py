"""Running text cut into passages: at the ends of paragraphs where that fits, else of sentences.

About 100 words a passage, as in DPR's Wikipedia (Karpukhin et al. 2020, section 4.1), but no sentence is torn apart
unless it is longer than a passage. Words are what stands between spaces. Book: practice/own-corpus.
"""

import re
from collections.abc import Iterable, Iterator

WORDS = 100
ABBREVIATIONS = ("e.g", "i.e", "cf", "vs", "etc", "Eq", "Fig", "Dr", "et al", "resp", "Ref", "approx", "No")
SENTENCE_END = re.compile(
    rf"(?<=[a-z0-9)\]\"'%][.!?]){''.join(f'(?<!{re.escape(word)}[.])' for word in ABBREVIATIONS)}\s+(?=[\"'(]?[A-Z0-9])"
)


def sentences(text: str) -> list[str]:
    """Cut plain text at sentence ends.

    Example:
        >>> sentences("Sort the rows, e.g. by name. The order is kept. 3 of 4 stay.")
        ['Sort the rows, e.g. by name.', 'The order is kept.', '3 of 4 stay.']
    """
    return [part for part in SENTENCE_END.split(text) if part]


def paragraphs(lines: Iterable[str]) -> list[str]:
    """The paragraphs of a text: runs of lines with a blank line between, each as one line.

    Example:
        >>> paragraphs(["The moon", "  pulls.", "", "Tides rise."])
        ['The moon pulls.', 'Tides rise.']
    """
    groups: list[list[str]] = [[]]
    for line in lines:
        words = line.split()
        if not words and groups[-1]:
            groups.append([])
        groups[-1] += words
    return [" ".join(group) for group in groups if group]


def cut(parts: Iterable[str], words: int = WORDS) -> list[str]:
    """Passages of a document.

    Args:
        parts: its paragraphs.
        words: most words of a passage. A last one of less than a fifth of it is joined to the one before.

    Returns:
        The passages in order; joined with spaces they give the paragraphs again.

    Example:
        >>> cut(["One two three. Four five six. Seven.", "Eight nine ten."], words=6)
        ['One two three. Four five six.', 'Seven. Eight nine ten.']
    """
    groups: list[list[str]] = [[]]
    for part in parts:
        if len(groups[-1]) >= words / 2 and len(groups[-1]) + len(part.split()) > words:
            groups.append([])
        for run in _runs(part, words):
            if groups[-1] and len(groups[-1]) + len(run) > words:
                groups.append([])
            groups[-1] += run
    if len(groups) > 1 and len(groups[-1]) < words / 5:
        last = groups.pop()
        groups[-1] += last
    return [" ".join(group) for group in groups if group]


def _runs(paragraph: str, words: int) -> Iterator[list[str]]:
    """The sentences of a paragraph as lists of words; one that is too long comes in pieces."""
    for sentence in sentences(paragraph):
        found = sentence.split()
        for start in range(0, len(found), words):
            yield found[start : start + words]
