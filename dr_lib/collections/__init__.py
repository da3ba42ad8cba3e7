"""What is searched: passages, queries and judgements, checked once and memory-mapped.

`load` gives a `Collection` for a name: the built-in PyDocs, SQuAD, any `ir_datasets` id, or a folder in BEIR layout.
"""

from dr_lib.collections.collection import Collection
from dr_lib.collections.loading import load

__all__ = ["Collection", "load"]
