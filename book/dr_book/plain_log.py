"""Progress for a log file: plain lines, once a minute, instead of progress bars.

Page of the book: practice/own-corpus.
"""

import io
import os
import re
import sys
from typing import TextIO

EVERY = "60"
"""Seconds between two lines of a task; shorter tasks print none."""
FORM = "{desc}: {n_fmt} of {total_fmt} after {elapsed}, {remaining} left"
JUST_BEGUN = " after 00:00, "
UNKNOWN = re.compile(r" of \?( after .*), \S+ left$")
"""A task of unknown length, and so without an end."""
CURSOR_MOVES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class PlainLines(io.TextIOBase):
    """A stream on which every redrawing of a bar becomes a line.

    Args:
        stream: where the lines go.
    """

    def __init__(self, stream: TextIO):
        self.stream, self._begun = stream, False

    def write(self, text: str) -> int:
        """Write text; if it moves the cursor, only its words, on a separate line."""
        drawn = "\r" in text or "\x1b[" in text
        line = CURSOR_MOVES.sub("", text).split("\r")[-1].strip() if drawn else text
        if drawn:
            # a task that has just begun prints nothing yet
            told = "" if not line or JUST_BEGUN in line else UNKNOWN.sub(r"\1", line)
            self.stream.write(told and f"{told}\n")
        elif self._begun or line.strip("\n"):  # newlines alone only move to a bar's position
            self.stream.write(line)
            self._begun = not line.endswith("\n")
        return len(text)

    def flush(self) -> None:
        """Pass on what was written."""
        self.stream.flush()


def log_plainly() -> None:
    """Make standard error such a stream if it is not a terminal; tqdm reads its settings when
    imported, so this comes before.
    """
    if sys.stderr.isatty() or isinstance(sys.stderr, PlainLines):
        return
    told = {"MININTERVAL": EVERY, "MAXINTERVAL": EVERY, "DELAY": EVERY, "BAR_FORMAT": FORM}
    for name, value in told.items():
        os.environ.setdefault(f"TQDM_{name}", value)
    sys.stderr = PlainLines(sys.stderr)
