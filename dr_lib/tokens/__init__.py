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
    TokenStore,
    TokenValues,
    Window,
    passage_tokens,
    plan_by_length,
    query_tokens,
)
from dr_lib.tokens.tokenizer import (
    Legibility,
    legibility,
    load_tokenizer,
    special_ids,
    tokenizer_digest,
    train_wordpiece,
)
