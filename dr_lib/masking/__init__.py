"""Masking strategies: which pieces of a passage are hidden, for a whole batch at once, on its
device, from a given generator.
"""

from dr_lib.masking.weighted import importance, keyword
from dr_lib.masking.words import (
    Budget,
    MaskPolicy,
    complementary,
    extra_rate,
    first_pieces,
    hide,
    nested,
    per_row,
    superset,
    uniform,
    whole_word,
)
