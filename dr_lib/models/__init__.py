"""Models: masked LMs and their states, decoders, generator, dense encoder, cross-encoder, late
interaction, and text generators.
"""

from dr_lib.models.bert import (
    EXTRA_FILE,
    LmHead,
    check_kind,
    check_tokenizer,
    compile_layers,
    embed,
    encode_by_length,
    encode_in_chunks,
    first_states,
    fresh_copy,
    fresh_linear,
    hidden_states,
    layer_states,
    layers_of,
    lm_head,
    load_extra,
    load_masked_lm,
    longest,
    masked_positions,
    max_masked,
    named_parts,
    new_bert,
    position_vectors,
    save_masked_lm,
    with_fresh_head,
)
from dr_lib.models.bottleneck import Decoder, EnhancedDecoder, Generator, ReplacedTokenHead
from dr_lib.models.cross_encoder import (
    CrossEncoder,
    CrossEncoderSettings,
    LateInteraction,
    LateInteractionSettings,
    Pieces,
    TextPairs,
    best_matches,
    best_matches_of_pairs,
    response_pairs,
)
from dr_lib.models.dense import (
    DenseEncoder,
    DenseSettings,
    Projection,
    Prompts,
    SentenceEncoder,
    encoder_digest,
    open_encoder,
)
from dr_lib.models.writers import (
    CausalDecoding,
    Sampling,
    Seq2seqDecoding,
    end_of_text,
    load_causal_lm,
    load_seq2seq,
    never_written,
    new_causal_lm,
    new_seq2seq,
    write_texts,
)
