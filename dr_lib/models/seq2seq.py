"""Sequence-to-sequence models that turn a passage into a question (doc2query). Page: ideas/generators.

Nogueira et al. 2019; MASTER section 3.3 takes a public one, the DPR-PAQ paper a whole pipeline of them. The small one
made here starts from the recipe's masked LM on both sides. The attention from decoder to encoder, which a masked LM
lacks, starts as a copy of each layer's self-attention: it then looks for the like of what was written last, a step
from copying words, which fresh weights take about twice as many steps to find (Rothe et al. 2020 start them fresh).
"""

import copy
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DynamicCache,
    EncoderDecoderCache,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput

from dr_lib.errors import InputError
from dr_lib.models.pretrained import attention_for, read_pretrained, refuse_missing
from dr_lib.models.quiet import quiet_transformers


def new_seq2seq(model: PreTrainedModel, special: Mapping[str, int]) -> EncoderDecoderModel:
    """Make an encoder-decoder of a masked LM: its encoder, and a decoder with the same weights and its head.

    Args:
        model: BERT or ELECTRA with its head; it is left as it is.
        special: ids by short name; a text begins with [CLS] and ends with [SEP].

    Raises:
        InputError: a model whose weights do not fit its own decoder form.
    """
    config = copy.deepcopy(model.config)
    config.is_decoder = config.add_cross_attention = True
    attention = model.config._attn_implementation
    with torch.random.fork_rng(devices=[]), quiet_transformers():  # what is drawn here is overwritten below
        decoder = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    lost, unknown = decoder.load_state_dict(model.state_dict(), strict=False)
    if unknown or any("crossattention" not in name for name in lost):
        raise InputError(
            f"{type(model).__name__} does not fit its decoder form ({', '.join([*unknown, *lost][:3])})",
            where="model", fix="Start from a BERT or an ELECTRA generator.",
        )  # fmt: skip
    for layer in decoder.base_model.encoder.layer:
        layer.crossattention.load_state_dict(layer.attention.state_dict())
    joint = EncoderDecoderConfig.from_encoder_decoder_configs(
        model.config, config, decoder_start_token_id=special["cls"], eos_token_id=special["sep"],
        pad_token_id=special["pad"], bos_token_id=special["cls"], vocab_size=config.vocab_size,
    )  # fmt: skip
    with quiet_transformers():
        made = EncoderDecoderModel(config=joint, encoder=copy.deepcopy(model.base_model), decoder=decoder)
    return made.to(model.device).eval()


def load_seq2seq(name_or_path: str | Path, *, device: torch.device | str = "cpu") -> PreTrainedModel:
    """Load an encoder-decoder in float32, in eval mode: one trained here, or a public checkpoint of T5's kind.

    Args:
        name_or_path: a local folder, or a name on the Hugging Face hub.
        device: where it goes.

    Raises:
        InputError: nothing to load under that name, weights missing, or no token to begin a text with.
    """
    model, missing = read_pretrained(AutoModelForSeq2SeqLM, name_or_path)
    if isinstance(model, EncoderDecoderModel):
        model.set_attn_implementation(attention_for(device))
    lost = [name for name in missing if ".pooler." not in name]
    refuse_missing(lost, name_or_path, "Name a checkpoint of an encoder-decoder with its head.")
    start_id(model)
    return model.to(device).eval()


def start_id(model: PreTrainedModel) -> int:
    """Id that every text of an encoder-decoder begins with."""
    found = model.config.decoder_start_token_id
    if found is None and model.generation_config is not None:
        found = model.generation_config.decoder_start_token_id
    if found is None:
        raise InputError("no decoder_start_token_id", where="config.json", fix="Add it to the model's configuration.")
    return int(found)


class Seq2seqDecoding:
    """An encoder-decoder that has read its input; see `decoding.Decoding`.

    Args:
        model: in eval mode.
        inputs: arguments of its encoder, `input_ids` and `attention_mask` `[batch, length]` among them.
        copies: texts to write for each input, one after the other: row i * copies + j is text j of input i.
    """

    def __init__(self, model: PreTrainedModel, inputs: Mapping[str, Tensor], copies: int = 1):
        self.model = model
        states = model.get_encoder()(**inputs).last_hidden_state
        self.states = states.repeat_interleave(copies, 0)
        self.mask = inputs["attention_mask"].repeat_interleave(copies, 0)
        self.cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self.first = torch.full((len(self.mask),), start_id(model), device=states.device)

    def logits(self, ids: Tensor) -> Tensor:
        """Logits `[rows, vocab]` of the next token."""
        out = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self.states), attention_mask=self.mask,
            decoder_input_ids=ids[:, None], past_key_values=self.cache, use_cache=True,
        )  # fmt: skip
        return out.logits[:, -1]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        self.states, self.mask = self.states[rows], self.mask[rows]
        self.cache.reorder_cache(rows)
