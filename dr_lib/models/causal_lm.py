"""Causal language models that go on where a passage ends (GPT-2, MASTER section 3.3). Page: ideas/generators.

Radford et al. 2019. The small one made here has GPT-2's form, the size and tokenizer of the recipe's masked LM, and
begins with its word embeddings; everything else about it is fresh.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from dr_lib.models.pretrained import attention_for, read_pretrained, refuse_missing


def new_causal_lm(
    model: PreTrainedModel, special: Mapping[str, int], *, positions: int | None = None, seed: int = 0
) -> GPT2LMHeadModel:
    """Make a GPT-2 of the masked LM's layers, width, heads and vocabulary.

    Args:
        model: masked LM; its word embeddings are copied where they have the width of its states.
        special: ids by short name; [CLS] begins and [SEP] ends a text.
        positions: longest sequence it can read; that of the masked LM if None.
        seed: of the fresh weights; the global random state is left as it was.
    """
    shape = model.config
    config = GPT2Config(
        vocab_size=shape.vocab_size, n_positions=positions or shape.max_position_embeddings, n_embd=shape.hidden_size,
        n_layer=shape.num_hidden_layers, n_head=shape.num_attention_heads, bos_token_id=special["cls"],
        eos_token_id=special["sep"], pad_token_id=special["pad"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        attn_implementation=attention_for(model.device),
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = GPT2LMHeadModel(config)
    words = model.get_input_embeddings().weight
    if words.shape == made.transformer.wte.weight.shape:
        made.transformer.wte.weight.data.copy_(words)
    return made.to(model.device).eval()


def load_causal_lm(name_or_path: str | Path, *, device: torch.device | str = "cpu") -> PreTrainedModel:
    """Load a causal LM in float32, in eval mode: one trained here, or a public checkpoint such as ``"gpt2"``.

    Args:
        name_or_path: a local folder, or a name on the Hugging Face hub.
        device: where it goes.

    Raises:
        InputError: nothing to load under that name, or weights missing.
    """
    model, lost = read_pretrained(AutoModelForCausalLM, name_or_path, attn_implementation=attention_for(device))
    refuse_missing(lost, name_or_path, "Name a checkpoint of a causal language model with its head.")
    return model.to(device).eval()


class CausalDecoding:
    """A causal LM that has read its prompts; see `decoding.Decoding`.

    Args:
        model: in eval mode.
        prompts: `[rows, length]` int64, padded on the left, at least one token each.
        mask: `[rows, length]` int64, 1 at real tokens.
    """

    def __init__(self, model: PreTrainedModel, prompts: Tensor, mask: Tensor):
        self.model, self.mask, self.cache = model, mask[:, :-1], DynamicCache()
        self.first = prompts[:, -1]
        if prompts.shape[1] > 1:
            model.base_model(input_ids=prompts[:, :-1], **self._place(prompts.shape[1] - 1))

    def logits(self, ids: Tensor) -> Tensor:
        """Logits `[rows, vocab]` of the next token."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(ids), 1)], dim=1)
        return self.model(input_ids=ids[:, None], **self._place(1)).logits[:, -1]

    def _place(self, length: int) -> dict[str, Tensor | DynamicCache | bool]:
        """Arguments that say where the last `length` tokens stand; padding does not count as a place."""
        places = (self.mask.cumsum(-1) - 1).clamp(min=0)[:, -length:]
        return {"attention_mask": self.mask, "position_ids": places, "past_key_values": self.cache, "use_cache": True}

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        self.mask = self.mask[rows]
        self.cache.reorder_cache(rows)
