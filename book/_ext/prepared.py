"""Imported for its side effects: it caches in memory what nearly every notebook would compute.

The process from which `run_notebooks` forks its kernels imports it, so that sixty kernels need not
each read the library's code for their stages' keys, unpack the book's records, group them by
configuration and pool the variance between seeds.
"""

import sys
from contextlib import suppress

import matplotlib.backends.backend_svg  # noqa: F401
import scipy.stats  # noqa: F401
import sentence_transformers  # noqa: F401
import sklearn.feature_extraction.text  # noqa: F401

from dr_book import measured
from dr_lib.errors import InputError
from dr_lib.stages import names_in

with suppress(InputError):  # the page that reads an unreadable file reports it
    for module in [name for name in sys.modules if name.startswith(("dr_lib.", "dr_book."))]:
        names_in(module)
    measured.seed_variances("MRR@10")  # the measure of nearly every page
