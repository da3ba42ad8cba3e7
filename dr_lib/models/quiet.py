"""Keep the model library's own bars and warnings out of notebooks while we load; what matters we check ourselves."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence warnings and progress bars of `transformers` inside the block, and restore both afterwards."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
