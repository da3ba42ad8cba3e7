"""Shared by the converters: decoding, sentences, passages, and reproducible draws.

The passages of MedQuAD and Wikipedia are cut by these rules, so their digests depend on them.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

from dr_lib.collections.plain import one_line

ABBREVIATIONS = (
    " dr mr mrs ms prof st vs etc e.g i.e fig no inc jr sr al approx dept gen col lt rev u.s u.k"
    " ph.d m.d ca cf vol pp op ed "
)
SENTENCE_END = re.compile(
    r"([.!?][\"')\]\u201d\u2019]*)\s+(?=[\"'(\[\u201c\u2018]*[A-Z0-9\u00c0-\u00de])"
)
READ_AS_LATIN1 = re.compile("[\u00c2-\u00f4][\u0080-\u00bf]{1,3}")


def decode(content: bytes) -> str:
    """The text of bytes in UTF-8, or else in Windows' code page 1252."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace").replace("\ufffd", " ")


def rows_of(table: str) -> Iterator[dict[str, str]]:
    """Rows of a CSV table, with cells of any length."""
    csv.field_size_limit(2**31 - 1)
    return csv.DictReader(io.StringIO(table))


def repaired(text: str) -> str:
    """A text on one line, with UTF-8 sequences that were read as Latin-1 repaired.

    Example:
        >>> repaired("CafÃ© au lait")
        'Café au lait'
    """

    def whole(match: re.Match) -> str:
        try:
            return match[0].encode("latin1").decode()
        except UnicodeError:
            return match[0]

    return one_line(READ_AS_LATIN1.sub(whole, text))


def letters(text: str, between: str = "") -> str:
    """Lower-case letters and digits of a text, with `between` for all else, to compare texts."""
    return re.sub(r"[^a-z0-9]+", between, text.lower()).strip()


def share(key: str, salt: str) -> float:
    """A number in [0, 1) that depends only on a key and a salt."""
    return int(sha256(f"{salt}|{key}".encode()).hexdigest()[:12], 16) / 16**12


def split_of(key: str, salt: str, part: float = 0.1) -> str:
    """Split of a document or conversation: test and dev get a share `part` each, train the rest."""
    drawn = share(key, salt)
    return "test" if drawn < part else "dev" if drawn < 2 * part else "train"


def sentences(text: str) -> list[str]:
    """Sentences of a text on one line.

    Example:
        >>> sentences("Dr. Lee left. J. Roe stayed.")
        ['Dr. Lee left.', 'J. Roe stayed.']
    """
    found, start = [], 0
    for match in SENTENCE_END.finditer(text):
        before = text[start : match.start()].split()
        last = before[-1].lower().lstrip("(\"'[") if before else ""
        if match[1][0] == "." and (f" {last} " in ABBREVIATIONS or re.fullmatch("[a-z]", last)):
            continue
        found.append(text[start : match.end()].strip())
        start = match.end()
    return [*found, rest] if (rest := text[start:].strip()) else found


def passages(
    units: Iterable[str], words: int = 100, most: int = 160, fewest: int = 25
) -> list[str]:
    """Passages of whole sentences, about `words` words each.

    Args:
        units: sentences or list items, in order.
        words: a passage has at most a fifth more than this.
        most: longer sentences are cut.
        fewest: a shorter last passage is appended to the one before, if both together fit `most`.
    """
    pieces: list[list[str]] = []
    for unit in units:
        rest = unit.split()
        while len(rest) > most:
            pieces.append(rest[:words])
            rest = rest[words:]
        pieces.append(rest)
    cut: list[list[str]] = []
    for piece in filter(None, pieces):
        if not cut or len(cut[-1]) + len(piece) > words * 1.2:
            cut.append([])
        cut[-1] += piece
    if len(cut) > 1 and len(cut[-1]) < fewest and len(cut[-2]) + len(cut[-1]) <= most:
        cut[-2:] = [cut[-2] + cut[-1]]
    return [" ".join(passage) for passage in cut]
