"""From text to padded batches: the tokenizer, the token store on disk, and the order in which
training sees it.
"""

from typing import TYPE_CHECKING

from dr_lib.stages import lazily

if TYPE_CHECKING:  # BM25 needs no torch
    from dr_lib.tokens.layout import (
        COARSE,
        MULTIPLE,
        Layout,
        Legibility,
        Side,
        Slice,
        Title,
        Truncated,
        check_titles,
        concat_runs,
        legibility,
        load_tokenizer,
        padded_length,
        run_places,
        special_ids,
        tokenizer_digest,
        train_wordpiece,
        truncate,
    )
    from dr_lib.tokens.sequences import (
        QueryPassagePairs,
        halves,
        join_texts,
        joined_lengths,
        shortened,
    )
    from dr_lib.tokens.store import (
        BatchStream,
        TokenBatch,
        TokenStore,
        TokenValues,
        Window,
        blocks,
        passage_tokens,
        plan_by_length,
        query_tokens,
        shards,
        to_batch,
    )

__getattr__, __dir__ = lazily(__name__)
