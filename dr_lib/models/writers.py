"""Models that generate text: questions about a passage (doc2query), and continuations of it
(GPT-2).

Nogueira et al. 2019 and MASTER section 4.2 use public models. The small ones here start from the
recipe's masked LM. In the encoder-decoder, cross-attention, which a masked LM lacks, starts as a
copy of each layer's self-attention: it then attends to tokens like the last one written, close to
copying words, which random weights take about twice as many steps to learn (Rothe et al. 2020 start
them at random). Texts are sampled from the top k (Fan et al. 2018) or the nucleus (Holtzman et al.
2020); one uniform number decides each token, so that rows do not depend on each other and an
interrupted run writes the same texts when it resumes. The library's `generate` takes two to five
times as long for small models. Page: ideas/generators.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DynamicCache,
    EncoderDecoderCache,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import BaseModelOutput

from dr_lib.errors import InputError
from dr_lib.models.bert import attention_for, quiet_transformers, read_pretrained, seeded
from dr_lib.models.bottleneck import sample_by_cdf

# tokens between checks of how many rows are unfinished; each check synchronises a GPU
LOOK_EVERY = 4
# row counts are rounded up to this when finished rows are dropped, for few distinct shapes
MULTIPLE = 64


def new_seq2seq(model: PreTrainedModel, special: Mapping[str, int]) -> EncoderDecoderModel:
    """Make an encoder-decoder from a masked LM: its encoder, and a decoder with the same weights
    and head.

    Args:
        model: BERT or ELECTRA with its head; not modified.
        special: ids by short name; a text begins with [CLS] and ends with [SEP].

    Raises:
        InputError: the model's weights do not fit its decoder class.
    """
    config = copy.deepcopy(model.config)
    config.is_decoder = config.add_cross_attention = True
    attention = model.config._attn_implementation
    with seeded(0), quiet_transformers():  # these weights are overwritten below
        decoder = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    lost, unknown = decoder.load_state_dict(model.state_dict(), strict=False)
    if unknown or any("crossattention" not in name for name in lost):
        problem = (
            f"{type(model).__name__} does not fit its decoder form"
            f" ({', '.join([*unknown, *lost][:3])})"
        )
        raise InputError(problem, where="model", fix="Start from a BERT or an ELECTRA generator.")
    for layer in decoder.base_model.encoder.layer:
        layer.crossattention.load_state_dict(layer.attention.state_dict())
    joint = EncoderDecoderConfig.from_encoder_decoder_configs(
        model.config,
        config,
        decoder_start_token_id=special["cls"],
        eos_token_id=special["sep"],
        pad_token_id=special["pad"],
        bos_token_id=special["cls"],
        vocab_size=config.vocab_size,
    )
    with quiet_transformers():
        writer = EncoderDecoderModel(
            config=joint, encoder=copy.deepcopy(model.base_model), decoder=decoder
        )
    return writer.to(model.device).eval()


def load_seq2seq(
    name_or_path: str | Path, *, device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """Load an encoder-decoder in float32, in eval mode: one trained here, or a public T5-like
    checkpoint.

    Args:
        name_or_path: a local folder, or a name on the Hugging Face hub.
        device: where to load it.

    Raises:
        InputError: no such model, missing weights, or no start token.
    """
    model = read_pretrained(
        AutoModelForSeq2SeqLM,
        name_or_path,
        device=device,
        fresh=lambda _, name: ".pooler." in name,  # an encoder-decoder does not use the pooler
        attention=None,
    )
    if isinstance(model, EncoderDecoderModel):
        model.set_attn_implementation(attention_for(device))
    start_id(model)
    return model


def start_id(model: PreTrainedModel) -> int:
    """Id of the start token of an encoder-decoder."""
    for config in (model.config, model.generation_config):
        if getattr(config, "decoder_start_token_id", None) is not None:
            return int(config.decoder_start_token_id)
    raise InputError(
        "no decoder_start_token_id", where="config.json", fix="Add it to the model's configuration."
    )


class Seq2seqDecoding:
    """The state of an encoder-decoder while it generates; its input is in the cache.

    Attributes:
        first: `[rows]` int64, the id from which each row continues.

    Args:
        model: in eval mode.
        inputs: arguments of its encoder, including `input_ids` and `attention_mask` `[batch,
            length]`.
        copies: texts per input: row i * copies + j is text j of input i.
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
        read = BaseModelOutput(last_hidden_state=self.states)
        written = {
            "decoder_input_ids": ids[:, None],
            "past_key_values": self.cache,
            "use_cache": True,
        }
        return self.model(encoder_outputs=read, attention_mask=self.mask, **written).logits[:, -1]

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows only."""
        self.states, self.mask = self.states[rows], self.mask[rows]
        self.cache.reorder_cache(rows)


def new_causal_lm(
    model: PreTrainedModel,
    special: Mapping[str, int],
    *,
    positions: int | None = None,
    seed: int = 0,
) -> GPT2LMHeadModel:
    """Make a GPT-2 with the masked LM's layers, width, heads and vocabulary.

    Args:
        model: masked LM; its word embeddings are copied if they have the width of its states.
        special: ids by short name; [CLS] begins and [SEP] ends a text.
        positions: maximum sequence length; that of the masked LM if None.
        seed: of the new weights; the global random state is unchanged.
    """
    shape = model.config
    config = GPT2Config(
        vocab_size=shape.vocab_size,
        n_positions=positions or shape.max_position_embeddings,
        n_embd=shape.hidden_size,
        n_layer=shape.num_hidden_layers,
        n_head=shape.num_attention_heads,
        bos_token_id=special["cls"],
        eos_token_id=special["sep"],
        pad_token_id=special["pad"],
        attn_implementation=attention_for(model.device),
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    )
    with seeded(seed):
        writer = GPT2LMHeadModel(config)
    words = model.get_input_embeddings().weight
    if words.shape == writer.transformer.wte.weight.shape:
        writer.transformer.wte.weight.data.copy_(words)
    return writer.to(model.device).eval()


def load_causal_lm(
    name_or_path: str | Path, *, device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """Load a causal LM in float32, in eval mode: one trained here, or a public checkpoint such as
    ``"gpt2"``.

    Args:
        name_or_path: a local folder, or a name on the Hugging Face hub.
        device: where to load it.

    Raises:
        InputError: nothing to load under that name, or weights missing.
    """
    return read_pretrained(AutoModelForCausalLM, name_or_path, device=device)


class CausalDecoding:
    """The state of a causal LM after its prompts, like `Seq2seqDecoding`.

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
        """Arguments with the positions of the last `length` tokens, not counting padding."""
        places = (self.mask.cumsum(-1) - 1).clamp(min=0)[:, -length:]
        return {
            "attention_mask": self.mask,
            "position_ids": places,
            "past_key_values": self.cache,
            "use_cache": True,
        }

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows only."""
        self.mask = self.mask[rows]
        self.cache.reorder_cache(rows)


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn: among all tokens, the top k, or the nucleus.

    Args:
        top_k: among the `top_k` most likely tokens.
        top_p: among the fewest most likely tokens whose probabilities sum to this, in (0, 1].
    """

    top_k: int | None = None
    top_p: float | None = None


@torch.inference_mode()
def write_texts(
    decoding: Seq2seqDecoding | CausalDecoding,
    uniform: Tensor,
    choice: Sampling,
    *,
    end: int,
    forbidden: Tensor,
) -> Tensor:
    """Generate until every row has ended or reached the maximum length.

    Args:
        decoding: the model and its state.
        uniform: `[rows, steps]` float32 in [0, 1): one number per token; `steps` is the maximum
            length.
        choice: how a token is drawn.
        end: id that ends a text; never the first one.
        forbidden: int64 ids that are never generated.

    Returns:
        `[rows, steps]` int64, `end` from where a text ends.
    """
    rows, steps = uniform.shape
    written = torch.full((rows, steps), end, dtype=torch.int64, device=uniform.device)
    places = torch.arange(rows, device=uniform.device)
    going, ids = torch.ones_like(places, dtype=torch.bool), decoding.first
    for step in range(steps):
        logits = decoding.logits(ids).index_fill_(1, forbidden, -torch.inf)
        if step == 0:
            logits[:, end] = -torch.inf
        ids = torch.where(going, draw_next(logits, uniform[places, step], choice), end)
        written[places, step] = ids
        going = going & (ids != end)
        if (step + 1) % LOOK_EVERY == 0:
            count = int(going.sum())
            if count == 0:
                break
            needed = -(-count // MULTIPLE) * MULTIPLE
            if needed <= len(places) // 2:
                rows_left = torch.argsort(going, descending=True, stable=True)[:needed]
                decoding.keep(rows_left)
                places, going, ids = places[rows_left], going[rows_left], ids[rows_left]
    return written


def draw_next(logits: Tensor, uniform: Tensor, choice: Sampling) -> Tensor:
    """Draw one id per row; probabilities are float32 whatever the type of the logits.

    Args:
        logits: `[rows, vocab]`.
        uniform: `[rows]` float32 in [0, 1).
        choice: which tokens may be drawn.

    Returns:
        `[rows]` int64.

    Example:
        >>> logits = torch.tensor([[0.0, 2.0, 1.0, -9.0]])
        >>> [
        ...     draw_next(logits, torch.tensor([u]), Sampling(top_k=2)).item()
        ...     for u in (0.0, 0.7, 0.8)
        ... ]
        [1, 1, 2]
    """
    if choice.top_k is None or choice.top_k >= logits.shape[1]:
        probs = torch.softmax(logits, -1, dtype=torch.float32)
        return sample_by_cdf(
            probs if choice.top_p is None else nucleus(probs, choice.top_p), uniform
        )
    best, ids = logits.topk(choice.top_k)
    probs = torch.softmax(best, -1, dtype=torch.float32)
    upper = probs.cumsum(-1)
    place = (upper <= uniform[:, None] * upper[:, -1:]).sum(-1)
    last = (probs > 0).sum(-1) - 1  # rounding must not lead past the last allowed id
    return ids.gather(1, torch.minimum(place, last)[:, None])[:, 0]


def nucleus(probs: Tensor, top_p: float) -> Tensor:
    """The probabilities, 0 outside the fewest most likely tokens whose probabilities sum to `top_p`
    (ties stay in).

    The least likely tokens with a total of at most `1 - top_p` are dropped, which needs sorted
    probabilities but no ids.

    Args:
        probs: `[rows, vocab]` float32, each row summing to 1.
        top_p: in (0, 1].
    """
    # On a CPU numpy's sort is many times faster than torch's.
    on_cpu = probs.device.type == "cpu"
    ascending = (
        torch.from_numpy(np.sort(probs.numpy(), axis=-1)) if on_cpu else probs.sort(-1).values
    )
    dropped = (
        (ascending.cumsum(-1) <= 1 - top_p).sum(-1, keepdim=True).clamp(max=probs.shape[1] - 1)
    )
    return probs.masked_fill(probs < ascending.gather(1, dropped), 0.0)


def never_written(
    tokenizer: PreTrainedTokenizerBase, vocab: int, end: int | None = None
) -> list[int]:
    """Ids that are never generated: every special token but `end`, and unused rows of the model.

    Args:
        tokenizer: of any kind.
        vocab: number of the model's logits.
        end: id of the token that may end a text; None if none may.
    """
    special = {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    unused = range(len(tokenizer), vocab)
    return sorted({*special, *tokenizer.all_special_ids, *unused} - {end})


def end_of_text(tokenizer: PreTrainedTokenizerBase) -> int:
    """Id that ends a text: the tokenizer's end token, or [SEP] where it has none."""
    return int(tokenizer.sep_token_id if tokenizer.eos_token_id is None else tokenizer.eos_token_id)
