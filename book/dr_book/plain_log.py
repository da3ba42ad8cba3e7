"""Progress for a log that nobody watches: plain lines, once a minute, in place of bars.

Page of the book: practice/own-corpus.
"""

import io
import os
import re
import sys
from typing import TextIO

EVERY = "60"
"""Seconds between two lines of one piece of work; what takes less leaves none."""
FORM = "{desc}: {n_fmt} of {total_fmt} after {elapsed}, {remaining} left"
JUST_BEGUN = " after 00:00, "
UNKNOWN = re.compile(r" of \?( after .*), \S+ left$")
"""Of work whose length nobody knows, and so no end."""
MOVES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class PlainLines(io.TextIOBase):
    """A stream on which what is drawn over and over comes as a line each time.

    Args:
        stream: where the lines go.
    """

    def __init__(self, stream: TextIO):
        self.stream, self._begun = stream, False

    def write(self, text: str) -> int:
        """Write text; of what moves the cursor only the words, on a line of their own."""
        drawn = "\r" in text or "\x1b[" in text
        line = MOVES.sub("", text).split("\r")[-1].strip() if drawn else text
        if drawn:
            # what has just begun says nothing yet
            told = "" if not line or JUST_BEGUN in line else UNKNOWN.sub(r"\1", line)
            self.stream.write(told and f"{told}\n")
        elif self._begun or line.strip("\n"):  # line ends alone are a bar's way to its place
            self.stream.write(line)
            self._begun = not line.endswith("\n")
        return len(text)

    def flush(self) -> None:
        """Pass on what was written."""
        self.stream.flush()


def log_plainly() -> None:
    """Make standard error such a stream where it is no terminal; bars are read as tqdm is
    imported, so this comes before.
    """
    if sys.stderr.isatty() or isinstance(sys.stderr, PlainLines):
        return
    told = {"MININTERVAL": EVERY, "MAXINTERVAL": EVERY, "DELAY": EVERY, "BAR_FORMAT": FORM}
    for name, value in told.items():
        os.environ.setdefault(f"TQDM_{name}", value)
    sys.stderr = PlainLines(sys.stderr)
