"""From text to padded batches: the tokenizer, the token store on disk, and the order in which training sees it."""

from dr_lib.tokens.batch import TokenBatch
from dr_lib.tokens.crossed import Crossing
from dr_lib.tokens.plan import plan_epoch
from dr_lib.tokens.store import TokenStore
from dr_lib.tokens.stream import BatchStream
from dr_lib.tokens.tokenizer import load_tokenizer, special_ids, tokenizer_digest
from dr_lib.tokens.values import TokenValues
from dr_lib.tokens.wordpiece import train_wordpiece

__all__ = [
    "BatchStream",
    "Crossing",
    "TokenBatch",
    "TokenStore",
    "TokenValues",
    "load_tokenizer",
    "plan_epoch",
    "special_ids",
    "tokenizer_digest",
    "train_wordpiece",
]
