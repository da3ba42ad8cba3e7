"""From text to padded batches: the tokenizer, the token store on disk, and the order in which
training sees it.
"""

from dr_lib.tokens.layout import (
    Layout,
    Side,
    Slice,
    Title,
    TokenBatch,
    Truncated,
    concat_runs,
    padded_length,
    to_batch,
    truncate,
)
from dr_lib.tokens.sequences import QueryPassagePairs, halves, join_texts, joined_lengths, shortened
from dr_lib.tokens.store import (
    BatchStream,
    Legibility,
    TokenStore,
    TokenValues,
    Window,
    blocks,
    legibility,
    load_tokenizer,
    passage_tokens,
    plan_by_length,
    query_tokens,
    shards,
    special_ids,
    tokenizer_digest,
    train_wordpiece,
)
