"""What is searched: passages, queries and judgements, checked once and memory-mapped.

`load` gives a `Collection` for a name: the built-in PyDocs, SQuAD, any `ir_datasets` id, a folder in BEIR layout, or
passages without questions: a JSON Lines file, a folder of text files.
`load_candidates` gives a `CandidateSet`: dialogue contexts, each with its own candidates for the next utterance.
`made_dialogues` and `made_sentence_pairs` write stand-ins where no published file is at hand.
"""

from dr_lib.collections.beir import GENERATED, query_text, read_lines, read_records
from dr_lib.collections.collection import Collection
from dr_lib.collections.dialogue import CandidateSet, dialogue_file, load_candidates, read_exchanges
from dr_lib.collections.dialogue_formats import Exchange
from dr_lib.collections.loading import load
from dr_lib.collections.made import made_dialogues, made_sentence_pairs
from dr_lib.collections.rows import document_numbers, id_chunks, judged_rows, rows_of
from dr_lib.collections.source import Judgement, Query
from dr_lib.collections.writing import write_folder

__all__ = [
    "GENERATED",
    "CandidateSet",
    "Collection",
    "Exchange",
    "Judgement",
    "Query",
    "dialogue_file",
    "document_numbers",
    "id_chunks",
    "judged_rows",
    "load",
    "load_candidates",
    "made_dialogues",
    "made_sentence_pairs",
    "query_text",
    "read_exchanges",
    "read_lines",
    "read_records",
    "rows_of",
    "write_folder",
]
