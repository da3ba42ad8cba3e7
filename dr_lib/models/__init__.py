"""Models: masked LMs with their heads, the sampling generator, the bottleneck's shallow decoder, the dense encoder."""

from dr_lib.models.by_length import encode_by_length
from dr_lib.models.cross_encoder import CrossEncoder, CrossEncoderSettings
from dr_lib.models.decoder import Decoder
from dr_lib.models.dense import DenseEncoder, DenseSettings
from dr_lib.models.enhanced_decoder import EnhancedDecoder
from dr_lib.models.first_state import first_states
from dr_lib.models.fit import check_fit, check_generator
from dr_lib.models.generator import Generator, fresh_copy
from dr_lib.models.gradient_cache import encode_in_chunks
from dr_lib.models.masked_lm import load_extra, load_masked_lm, new_bert, save_masked_lm
from dr_lib.models.replaced_token_head import ReplacedTokenHead
from dr_lib.models.rows import most_masked, rows_of
from dr_lib.models.states import (
    LmHead,
    attention_bias,
    embed,
    hidden_states,
    layer_states,
    lm_head,
    position_vectors,
)

__all__ = [
    "CrossEncoder",
    "CrossEncoderSettings",
    "Decoder",
    "DenseEncoder",
    "DenseSettings",
    "EnhancedDecoder",
    "Generator",
    "LmHead",
    "ReplacedTokenHead",
    "attention_bias",
    "check_fit",
    "check_generator",
    "embed",
    "encode_by_length",
    "encode_in_chunks",
    "first_states",
    "fresh_copy",
    "hidden_states",
    "layer_states",
    "lm_head",
    "load_extra",
    "load_masked_lm",
    "most_masked",
    "new_bert",
    "position_vectors",
    "rows_of",
    "save_masked_lm",
]
