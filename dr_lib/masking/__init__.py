"""Which pieces of a passage are hidden: masks for a whole batch at once, on its device, from a given generator."""

from dr_lib.masking.complementary import complementary
from dr_lib.masking.hide import hide
from dr_lib.masking.importance import importance
from dr_lib.masking.keyword import keyword
from dr_lib.masking.per_row import per_row
from dr_lib.masking.superset import superset
from dr_lib.masking.uniform import uniform
from dr_lib.masking.whole_word import whole_word

__all__ = ["complementary", "hide", "importance", "keyword", "per_row", "superset", "uniform", "whole_word"]
