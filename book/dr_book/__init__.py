"""The book's apparatus: claims and verdicts, statistics, tables and figures, own corpora, search,
export, the commands.

`dr_lib` knows nothing of it. Modules are imported one by one, so that a command starts without what
it does not need.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

STOPPED = "stopped: what is finished is kept, and the same command continues"


@contextmanager
def one_line_if_stopped() -> Iterator[None]:
    """While a program loads what it needs, which takes seconds, Ctrl-C ends it with one line."""
    try:
        yield
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        sys.exit(130)
