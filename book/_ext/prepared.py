"""Imported for what it leaves in memory: what nearly every notebook of the book would work out
again.

The process from which `run_notebooks` forks its kernels imports it, so that sixty kernels need not
read the library's code for their stages' keys, unpack the book's records, sort them by
configuration and pool what they show from seed to seed each by itself.
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

with suppress(InputError):  # what cannot be read is for the page to tell that reads it
    for module in [name for name in sys.modules if name.startswith(("dr_lib.", "dr_book."))]:
        names_in(module)
    measured.seed_variances("MRR@10")  # the measure of nearly every page
