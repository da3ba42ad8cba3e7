"""BERT-like models: load, create and save a masked LM; embeddings, states, head, and the positions
that a loss needs.

Every pre-training method starts from a masked LM with its head and ends with one: continuing with a
new head is known to harm the encoder, and without decoder and head pre-training cannot be
continued. BERT and ELECTRA differ in two respects: ELECTRA may project its embeddings, and their
heads have different names. Pages: ideas/bottleneck, reference/speed.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from pydantic import BaseModel
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    ElectraModel,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import logging

from dr_lib.errors import InputError, first_line
from dr_lib.files import read_json, write_json
from dr_lib.places import check_finite, check_model_folder, find_model
from dr_lib.tokens import TokenBatch, load_tokenizer, special_ids
from dr_lib.tokens.store import to_device

EXTRA_FILE = "extra.safetensors"
ENCODERS = (AutoModelForMaskedLM, AutoModelForSequenceClassification)
WEIGHT_SPREAD = 0.02  # standard deviation of new weights, as in BERT and ELECTRA
# gathered rows are padded to this: a CPU builds a bf16 kernel per shape, a GPU may recompile
ROWS_MULTIPLE = 256
HALVED = ("cuda",)  # device types on which autocast keeps states in bfloat16
LENGTH_MULTIPLE, GROUPS, FEWEST_ROWS = 16, 4, 16  # of `encode_by_length`
FEWEST_PRODUCTS = 2.6e12
"""Minimum of positions times parameters per group on a GPU, for `encode_by_length`: 24,000
positions of BERT-base. On one H100 a step over 1,024 x 144 positions took 199 ms in four groups and
261 ms whole (12 layers of 768); with groups of 18,000 positions of a 6 x 384 model it took 74 ms
instead of 34 ms, bound by the host.
"""
BASE_PARAMETERS = 1.1e8


# Kinds of encoders --------------------------------------------------------------------------------

# Untested kinds of models may load and silently compute wrong results: they may read an attention
# bias as a mask, or name their dropout differently. They are refused.


class Kind(NamedTuple):
    """What differs between kinds of encoders.

    Attributes:
        dropout: configuration keys of the dropout rates of hidden states, attention and classifier.
        skipped: number of position embeddings that are never used; None for the padding id plus
            one.
    """

    dropout: tuple[str, ...] = (
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
    )
    skipped: int | None = 0


KINDS = {
    "bert": Kind(),
    "electra": Kind(),
    "mobilebert": Kind(),
    "albert": Kind((*Kind().dropout[:2], "classifier_dropout_prob")),
    "distilbert": Kind(("dropout", "attention_dropout", "seq_classif_dropout")),
    "modernbert": Kind(
        ("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout")
    ),
    "mpnet": Kind(skipped=2),
    "roberta": Kind(skipped=None),
}
"""Kinds by the `model_type` of a configuration; tests compare each with transformers."""


def check_kind(config: PretrainedConfig, where: object) -> None:
    """Raise `InputError` for a kind of encoder that is not in `KINDS`, or a causal one."""
    decodes = getattr(config, "is_decoder", False)
    if decodes or config.model_type not in KINDS:
        kind = f"an encoder of the kind {config.model_type!r}"
        kind = "a model that reads from left to right (is_decoder)" if decodes else kind
        problem = f"{kind}, which is not tested here"
        fix = f"Take one of: {', '.join(KINDS)}; or use it as it comes (key retriever)."
        raise InputError(problem, where=where, fix=fix)


def set_dropout(config: PretrainedConfig, dropout: float | None) -> None:
    """Set all dropout rates that a configuration has; None changes nothing."""
    for name in KINDS[config.model_type].dropout if dropout is not None else ():
        if getattr(config, name, None) is not None:
            setattr(config, name, dropout)


def longest(config: PretrainedConfig) -> int:
    """The maximum sequence length of a model, special tokens included.

    Example:
        >>> from transformers import BertConfig, RobertaConfig
        >>> longest(BertConfig()), longest(RobertaConfig(max_position_embeddings=514))
        (512, 512)
    """
    skipped = KINDS.get(config.model_type, Kind()).skipped
    skipped = (config.pad_token_id or 0) + 1 if skipped is None else skipped
    return config.max_position_embeddings - skipped


# On disk ------------------------------------------------------------------------------------------


def load_masked_lm(
    name_or_path: str | Path, *, dropout: float | None = None, device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """Load a masked language model with its head, in float32, in eval mode, on `device`.

    Args:
        name_or_path: ``"embedded"`` (the book's own base), a local folder, or a name on the Hugging
            Face hub.
        dropout: dropout of hidden states and attention, in [0, 1]; None keeps the checkpoint's.
        device: attention is eager on a CPU (faster there) and ``sdpa`` elsewhere.

    Raises:
        InputError: no such model, or a checkpoint without a masked-LM head.
    """
    return read_pretrained(AutoModelForMaskedLM, name_or_path, dropout=dropout, device=device)


def with_fresh_head(name_or_path: str | Path) -> PreTrainedModel:
    """A masked LM with a newly initialised head over an encoder that came without one; word
    embeddings serve as output weights.
    """
    return read_pretrained(AutoModelForMaskedLM, name_or_path, fresh=is_head)


def is_head(model: PreTrainedModel, name: str) -> bool:
    """Whether a weight is not part of the encoder."""
    return not name.startswith(f"{model.base_model_prefix}.")


def read_pretrained(
    kind: Any,
    name_or_path: str | Path,
    *,
    dropout: float | None = None,
    device: torch.device | str = "cpu",
    fresh: Callable[[PreTrainedModel, str], bool] = lambda model, name: False,
    seed: int = 0,
    attention: str | None = "fastest",
    **changes: Any,
) -> PreTrainedModel:
    """Load a checkpoint into a model of some class, in float32 and eval mode.

    Args:
        kind: one of the `AutoModel...` classes.
        name_or_path: ``"embedded"``, a local folder, or a name on the Hugging Face hub.
        dropout: of encoders; None keeps the checkpoint's.
        device: where to load it.
        fresh: whether a weight, by its name, may be missing; it is then drawn from `seed`.
        seed: for missing weights; the global random state is unchanged.
        attention: implementation, "fastest" for `device`, or the library's choice (None).
        changes: configuration entries to override.

    Raises:
        InputError: no such model, an untested kind of encoder, a folder that asks to run its own
            code or that `check_model_folder` refuses, or weights that are missing or not finite.
    """
    source = find_model(name_or_path, ["config.json"])
    check_model_folder(source)
    try:
        with quiet_transformers(), seeded(seed):
            config = AutoConfig.from_pretrained(source, trust_remote_code=False, **changes)
            if kind in ENCODERS:
                check_kind(config, name_or_path)
                set_dropout(config, dropout)
            model, info = kind.from_pretrained(
                source,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                trust_remote_code=False,
                attn_implementation=attention_for(device) if attention == "fastest" else attention,
            )
    except InputError:
        raise
    except Exception as error:  # whatever a checkpoint makes the library raise
        fix = (
            "Give a folder with config.json and model.safetensors, a hub name (needs the network),"
            ' or "embedded".'
        )
        raise InputError(
            f"cannot be loaded ({first_line(error)})", where=name_or_path, fix=fix
        ) from error
    check_whole(info, name_or_path, lambda name: fresh(model, name))
    check_finite(model.named_parameters(), name_or_path)
    if isinstance(model.base_model, (BertModel, ElectraModel)):
        half_norms(model)
    return model.to(device).eval()


def check_whole(info: Mapping[str, Any], where: object, spared: Callable[[str], bool]) -> None:
    """Raise `InputError` naming the first weights that a checkpoint lacks, which the library would
    draw at random.

    Args:
        info: loading info of the library.
        where: of the error.
        spared: whether a weight, by its name, may be missing.
    """
    resized = [name for name, *_ in info["mismatched_keys"]]
    lost = [name for name in sorted([*info["missing_keys"], *resized]) if not spared(name)]
    if not lost:
        return
    sizes = " of the sizes in config.json" * bool(resized)
    problem = f"the checkpoint lacks {len(lost)} weights{sizes} ({', '.join(lost[:3])}"
    problem += ", ...)" if len(lost) > 3 else ")"
    fix = "Name a checkpoint that was saved whole, with its head."
    for name in info["unexpected_keys"]:
        if name.endswith(f".{lost[0]}"):
            prefix = name.removesuffix(lost[0])
            fix = f"Its names begin with {prefix!r}: save the model itself, not what wraps it."
    raise InputError(problem, where=where, fix=fix)


def attention_for(device: torch.device | str) -> str:
    """The fastest attention implementation on `device`."""
    return "eager" if torch.device(device).type == "cpu" else "sdpa"


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and warnings of `transformers`; loading is checked here."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from `seed` inside the block, and leave the global random state as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def new_bert(
    vocab_size: int,
    *,
    layers: int = 2,
    hidden: int = 128,
    heads: int | None = None,
    max_positions: int = 512,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> BertForMaskedLM:
    """Create a BERT with masked-LM head and without dropout, which small models on much text do not
    need, initialised from `seed`; the global random state is unchanged.

    Args:
        vocab_size: number of pieces of the tokenizer it will read.
        layers, hidden: size; the feed-forward part has 4 x `hidden` units.
        heads: attention heads, by default one for every 64 units of `hidden`.
        max_positions: longest sequence in tokens, special tokens included.

    Example:
        >>> new_bert(100, layers=1, hidden=64, max_positions=32).num_parameters()
        63076
    """
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=4 * hidden,
        num_attention_heads=heads or max(1, hidden // 64),
        max_position_embeddings=max_positions,
        pad_token_id=0,
        attn_implementation=attention_for(device),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with seeded(seed):
        return half_norms(BertForMaskedLM(config)).to(device).eval()


class HalfNorm(nn.LayerNorm):
    """A LayerNorm that under bfloat16 autocast on a GPU reads and writes bfloat16, and computes in
    float32.

    Under plain autocast it writes float32: residual sums and their gradients then move twice the
    bytes, and each layer casts its input again.
    """

    def forward(self, states: Tensor) -> Tensor:
        """States `[..., hidden]` of mean 0 and variance 1, times weight plus bias."""
        device = states.device.type
        if device not in HALVED or not torch.is_autocast_enabled(device):
            return super().forward(states)
        dtype = torch.get_autocast_dtype(device)
        parts = (part.to(dtype) for part in (states, self.weight, self.bias))
        with torch.autocast(device, enabled=False):
            states, weight, bias = parts
            return nn.functional.layer_norm(states, self.normalized_shape, weight, bias, self.eps)


def half_norms(model: PreTrainedModel) -> PreTrainedModel:
    """Replace the norms of a BERT or ELECTRA by `HalfNorm`s, except the last layer's last one:
    vectors need more than the eight bits of bfloat16.
    """
    layers = layers_of(model)
    halve_norms(model, layers[-1].output.LayerNorm if len(layers) else None)
    return model


def halve_norms(module: nn.Module, whole: nn.Module | None = None) -> None:
    """Replace all norms inside a module by `HalfNorm`s, except `whole`."""
    for owner in [*module.modules()]:
        for name, norm in owner.named_children():
            if isinstance(norm, nn.LayerNorm) and norm is not whole:
                half = HalfNorm(norm.normalized_shape, norm.eps, device="meta")
                half.weight, half.bias = norm.weight, norm.bias
                setattr(owner, name, half.train(norm.training))


def fresh_copy(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """A model of the same shape with new weights drawn from `seed`; the global random state is
    left as it was.
    """
    with seeded(seed):
        return half_norms(type(model)(copy.deepcopy(model.config))).to(model.device)


def fresh_linear(inputs: int, outputs: int, source: torch.Generator) -> nn.Linear:
    """A linear layer with N(0, 0.02) weights from a generator, and biases of zero."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    nn.init.normal_(layer.weight, std=WEIGHT_SPREAD, generator=source)
    nn.init.zeros_(layer.bias)
    return layer


def save_masked_lm(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    extra: Mapping[str, Tensor] | None = None,
) -> None:
    """Save a model and its tokenizer as safetensors and JSON, `extra` tensors (a decoder) in a file
    beside it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for draft in folder.glob(".*.json.*"):  # left half-written by a killed process
        draft.unlink()
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if extra:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in extra.items()},
            folder / EXTRA_FILE,
        )


def load_extra(folder: Path) -> dict[str, Tensor]:
    """The `extra` tensors saved beside a masked LM; empty where there were none."""
    path = folder / EXTRA_FILE
    return load_file(path) if path.exists() else {}


def named_parts(tensors: Mapping[str, Tensor], modules: Iterable[str]) -> dict[str, Tensor]:
    """Those of some named weights that belong to given sub-modules.

    Example:
        >>> [*named_parts({"head.bias": torch.ones(1), "other": torch.ones(1)}, ["head"])]
        ['head.bias']
    """
    prefixes = tuple(f"{name}." for name in modules)
    return {name: tensor for name, tensor in tensors.items() if name.startswith(prefixes)}


def check_tokenizer(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerFast, *, role: object = "model"
) -> None:
    """Raise `InputError` if the model's vocabulary or special ids do not match the tokenizer's.

    A model may have more rows than the tokenizer has pieces (rounded up for speed), never fewer.
    Ids go from generator to encoder unchanged, so both are checked against the same tokenizer.

    Args:
        config: of the model.
        tokenizer: whose ids it will read.
        role: the model's name in the message, such as ``generator``.
    """
    fix = "Load model and tokenizer from the same checkpoint, or train one for the other."
    rows, pieces = config.vocab_size, len(tokenizer)
    if rows < pieces or rows - pieces >= 128:
        raise InputError(
            f"vocabulary of {rows} does not fit a tokenizer of {pieces} pieces", where=role, fix=fix
        )
    pad, expected = config.pad_token_id, special_ids(tokenizer)["pad"]
    if pad is not None and pad != expected:
        raise InputError(f"padding id {pad} is not the tokenizer's {expected}", where=role, fix=fix)


# States and head ----------------------------------------------------------------------------------


class LmHead(NamedTuple):
    """A masked-LM head: logits are ``transform(hidden) @ weight.T + bias``, so they can be computed
    only where needed.
    """

    transform: Callable[[Tensor], Tensor]
    weight: Tensor
    bias: Tensor


def lm_head(model: PreTrainedModel) -> LmHead:
    """The parts of a masked LM's head: transform, output weight `[vocab, width]` (tied), bias
    `[vocab]`.
    """
    output, kind = model.get_output_embeddings(), model.config.model_type
    if kind == "electra" and hasattr(model, "generator_predictions"):
        return LmHead(model.generator_predictions, output.weight, output.bias)
    if kind == "bert" and hasattr(model, "cls") and hasattr(model.cls, "predictions"):
        return LmHead(model.cls.predictions.transform, output.weight, output.bias)
    problem = f"{type(model).__name__} has a head of an unknown kind"
    raise InputError(problem, where="model", fix="Use a BERT or an ELECTRA generator.")


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """The Transformer layers of a BERT or ELECTRA, after which decoders are modelled; other kinds
    are refused.
    """
    if not isinstance(model.base_model, (BertModel, ElectraModel)):
        problem = f"{type(model).__name__} has layers of an unknown kind"
        raise InputError(problem, where="model", fix="Use a BERT or an ELECTRA generator.")
    return model.base_model.encoder.layer


def attention_bias(batch: TokenBatch, dtype: torch.dtype = torch.float32) -> Tensor:
    """`[batch, 1, 1, length]`, 0 at tokens and very negative at padding, for encoder and decoder
    layers alike.

    Made once per batch: the library would make it in every pass and, on a GPU, synchronise to find
    out whether there is padding.
    """
    padding = batch.attention_mask[:, None, None, :] == 0
    return torch.zeros(padding.shape, dtype=dtype, device=padding.device).masked_fill_(
        padding, torch.finfo(dtype).min
    )


def embed(
    model: PreTrainedModel, input_ids: Tensor, token_type_ids: Tensor | None = None
) -> Tensor:
    """Embedding output `[batch, length, hidden]`: word + position + type, LayerNorm, dropout
    (ELECTRA: projection).
    """
    base, types = model.base_model, token_types(model, token_type_ids)
    embedded = base.embeddings(input_ids=input_ids, token_type_ids=types)
    return getattr(base, "embeddings_project", nn.Identity())(embedded)


def position_vectors(model: PreTrainedModel, length: int) -> Tensor:
    """Raw position embeddings `[length, hidden]`: no token type, no LayerNorm, no dropout (ELECTRA:
    projected).
    """
    vectors = model.base_model.embeddings.position_embeddings.weight[:length]
    return getattr(model.base_model, "embeddings_project", nn.Identity())(vectors)


def hidden_states(
    model: PreTrainedModel, batch: TokenBatch, input_ids: Tensor | None = None
) -> Tensor:
    """Last-layer states `[batch, length, hidden]` of an encoder with or without head.

    Args:
        model: a masked LM or a bare encoder.
        batch: positions, padding and token types; its ids are used if `input_ids` is None.
        input_ids: `[batch, length]`, masked or replaced ids of the same positions.

    Raises:
        InputError: the batch is longer than the model has positions.
    """
    return _run(model, batch, input_ids).last_hidden_state


def layer_states(
    model: PreTrainedModel, batch: TokenBatch, input_ids: Tensor | None = None
) -> tuple[Tensor, ...]:
    """States `[batch, length, hidden]` after the embedding and after each layer, the last being
    `hidden_states`.
    """
    return _run(model, batch, input_ids, output_hidden_states=True).hidden_states


def _run(
    model: PreTrainedModel, batch: TokenBatch, input_ids: Tensor | None, **options: bool
) -> BaseModelOutput:
    batch = batch if input_ids is None else batch.with_ids(input_ids)
    check_length(model, batch.input_ids)
    return model.base_model(**model_inputs(model, batch), **options)


def model_inputs(model: PreTrainedModel, batch: TokenBatch) -> dict[str, Tensor | None]:
    """Keyword arguments of a model: padding is an attention bias for BERT and ELECTRA, and the
    plain mask for other kinds, from which ModernBERT makes its window masks.
    """
    inputs = batch.model_inputs()
    if isinstance(model.base_model, (BertModel, ElectraModel)):
        inputs["attention_mask"] = attention_bias(batch, model.dtype)
    return inputs | {"token_type_ids": token_types(model, batch.token_type_ids)}


def token_types(model: PreTrainedModel, types: Tensor | None) -> Tensor | None:
    """Token types; None, meaning a single segment, for models without a second one, such as
    RoBERTa.
    """
    return types if getattr(model.config, "type_vocab_size", 2) > 1 else None


def check_length(model: PreTrainedModel, ids: Tensor) -> None:
    """Raise `InputError` where ids `[batch, length]` are longer than the model has positions."""
    positions = longest(model.config)
    if ids.shape[1] > positions:
        problem = f"{ids.shape[1]} tokens are more than the model's {positions} positions"
        raise InputError(
            problem, where="length", fix="Cut passages shorter, or use a model with more positions."
        )


# Less work for the same numbers -------------------------------------------------------------------


def masked_positions(mask: Tensor, at_most: int | None = None) -> Tensor:
    """Flat positions `[rows]` int64: all True positions of `mask` in order, padded with False ones.

    On a CPU the count is read and rounded up. On a GPU reading it would synchronise, so the shape
    comes from `at_most` (or is the whole batch if that is None).

    Args:
        mask: `[batch, length]` bool.
        at_most: an upper bound on the number of True positions, known without reading the mask.

    Example:
        >>> masked_positions(torch.tensor([[False, True], [True, False]]))
        tensor([1, 2, 0, 3])
    """
    if mask.device.type == "cpu":
        at_most = int(mask.sum())
    needed = mask.numel() if at_most is None else -(-at_most // ROWS_MULTIPLE) * ROWS_MULTIPLE
    return torch.argsort(mask.flatten(), descending=True, stable=True)[:needed]


def max_masked(mask: Tensor, *rates: float) -> int:
    """An upper bound on the True positions of a union of masks drawn at `rates`, from the shape
    alone.
    """
    batch, length = mask.shape
    return min(batch * length, batch * sum(max(1, round(rate * length)) for rate in rates))


def first_states(model: PreTrainedModel, batch: TokenBatch) -> Tensor:
    """Last-layer states `[batch, hidden]` of position 0: ``hidden_states(model, batch)[:, 0]`` in
    less time.

    Dense encoders and cross-encoders read nothing else. The last layer is computed for that one
    position: its keys and values are needed everywhere, but query, output and feed-forward part,
    five sixths of its products, only once. This saves two fifths of a step with two layers and a
    fourteenth with twelve; vector and gradient are those of the whole layer up to rounding.

    Args:
        model: a BERT or ELECTRA with or without head; for any other kind the whole last layer is
            computed.
        batch: ids, padding and token types.

    Raises:
        InputError: the batch is longer than the model has positions.
    """
    base = model.base_model
    if not isinstance(base, (BertModel, ElectraModel)):
        return hidden_states(model, batch)[:, 0]
    check_length(model, batch.input_ids)
    states = embed(model, batch.input_ids, batch.token_type_ids)
    bias = attention_bias(batch, states.dtype)
    *lower, last = base.encoder.layer
    for layer in lower:
        states = layer(states, bias)
    first = states[:, :1]
    attended = last.attention.output(_attended(last.attention.self, first, states, bias), first)
    return last.feed_forward_chunk(attended)[:, 0]


def _attended(attention: nn.Module, asking: Tensor, states: Tensor, bias: Tensor) -> Tensor:
    """Standard attention, with dropout on its weights, of some positions `[batch, some, hidden]` to
    all.
    """
    heads = (len(states), -1, attention.num_attention_heads, attention.attention_head_size)
    query = attention.query(asking).view(heads).transpose(1, 2)
    key, value = (
        part(states).view(heads).transpose(1, 2) for part in (attention.key, attention.value)
    )
    weights = torch.softmax(query @ key.transpose(2, 3) * attention.scaling + bias, dim=-1)
    weights = nn.functional.dropout(weights, attention.dropout.p, attention.training)
    return (weights @ value).transpose(1, 2).flatten(2)


def encode_by_length(function: Callable[[TokenBatch], Tensor], batch: TokenBatch) -> Tensor:
    """`function(batch)` in less time, for a function with one vector per sequence.

    Fine-tuning batches are drawn by query, so short passages are padded to long ones, and a third
    to a half of the positions is padding. Groups of similar lengths are each cut to their own
    longest sequence.

    Args:
        function: `function(part)` -> vectors `[rows, hidden]`; the size of a module decides how
            many positions fill a GPU.
        batch: all sequences. It is not divided if it has fewer than 32, on a GPU also if it has too
            few positions, or no `lengths`, which would need a synchronisation.

    Returns:
        Vectors in the order of the batch, equal to those of a single call up to rounding and
        dropout.
    """
    device, lengths = batch.input_ids.device, batch.lengths
    groups = min(GROUPS, len(batch) // FEWEST_ROWS)
    if device.type != "cpu":
        parameters = BASE_PARAMETERS
        if isinstance(function, nn.Module):
            parameters = sum(weight.numel() for weight in function.parameters())
        groups = min(groups, int(batch.input_ids.numel() * parameters / FEWEST_PRODUCTS))
    if groups < 2 or (lengths is None and device.type != "cpu"):
        return function(batch)
    if lengths is None:
        lengths = batch.attention_mask.sum(1).numpy()
    order = np.argsort(-lengths, kind="stable")
    parts = []
    for rows in torch.from_numpy(order).chunk(groups):
        # Rounded up for few shapes: the math library builds a kernel for each.
        longest = -(-int(lengths[rows[0]]) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        parts.append(function(batch.take(to_device(rows, device)).cut(longest)))
    back = torch.from_numpy(np.argsort(order))
    return torch.cat(parts)[to_device(back, device)]


def encode_in_chunks(
    function: Callable[..., Any], batch: TokenBatch, rows: int | None, *beside: Tensor
) -> Any:
    """Encode a batch chunk by chunk, keeping only each chunk's result until its backward pass.

    A contrastive loss needs the vectors of its whole batch, but not the activations behind them:
    this is the gradient cache (Gao et al. 2021), large batches in the memory of small ones. Page:
    practice/gpu.

    Why checkpointing a chunk is the gradient cache: that method encodes each chunk without a graph,
    takes the gradient of the loss to all vectors, then encodes each chunk once more, with the
    random state it had, and sends the kept gradient of its vectors through it. A checkpointed chunk
    keeps no activations forward; the loss lies above all chunks, so autograd has the gradient of
    every vector before it reaches the first chunk, computes that chunk once more with the random
    state it had, sends the gradient through it, and goes on to the next one. A further loss that is
    made inside a chunk arrives by the same path with the weight it has in the sum, and a
    temperature stays where the loss has it: there is only one formula.

    Args:
        function: `function(chunk, *beside)` -> vectors `[rows, hidden]`, or a tuple of these and
            sums over its rows. It may use dropout (its random state comes back) but no generator of
            its own.
        batch: all sequences.
        rows: sequences of a chunk, the last one may have fewer; None encodes all at once.
        beside: tensors `[batch, ...]` to be cut as the batch is.

    Returns:
        Concatenated vectors and added sums, equal to those of one call on the whole batch up to
        rounding and dropout. The gradient is that of the same chunks without the cache, at the cost
        of one more forward pass.
    """
    if rows is None or rows >= len(batch):
        return function(batch, *beside)

    # Chunks of similar lengths are cut to their longest sequence; `beside` keeps its width.
    lengths, order = batch.lengths, np.arange(len(batch))
    if lengths is not None and not beside:
        order = np.argsort(-lengths, kind="stable")

    def encode(index: Tensor, start: int) -> Any:
        part = batch.take(index)
        if lengths is not None:
            known = lengths[order[start : start + rows]]
            part = replace(part, lengths=known)
            if not beside:
                part = part.cut(-(-int(known[0]) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE)
        return function(part, *(tensor[index] for tensor in beside))

    # The index is a tensor on the device, so that the checkpoint saves that device's random state.
    device = batch.input_ids.device
    chunks = to_device(torch.from_numpy(order), device).split(rows)
    results = [
        checkpoint(encode, index, number * rows, use_reentrant=False)
        for number, index in enumerate(chunks)
    ]
    if isinstance(results[0], Tensor):
        back = torch.from_numpy(np.argsort(order))
        return torch.cat(results)[to_device(back, device)]
    vectors, *sums = zip(*results, strict=True)
    return torch.cat(vectors), *(torch.stack(parts).sum(0) for parts in sums)


def compile_layers(module: nn.Module) -> None:
    """Compile, in place, the layers of every stack in a module, once for all shapes of batches.

    Equal layers share their compiled code. The rest is not compiled: drawing masks and gathering
    rows would break the graph, and on a CPU trigger recompilation for every shape.

    Raises:
        InputError: the module has no stack of layers.
    """
    layers = [
        layer for stack in module.modules() if isinstance(stack, nn.ModuleList) for layer in stack
    ]
    if not layers:
        raise InputError(
            "there are no layers to compile in this module", where="compile", fix="Leave it false."
        )
    for layer in layers:
        layer.compile(dynamic=True)


# A model with its settings and its tokenizer ------------------------------------------------------
# Shared by dense encoder, cross-encoder and late interaction. A checkpoint used with other settings
# than in training silently loses accuracy, so the settings are saved with the weights and
# contradictions are refused. Page of the book: ideas/dual-encoders.


class TextModel(nn.Module):
    """An encoder, and how texts become its input.

    Args:
        encoder: a BERT or ELECTRA.
        settings: how it reads texts, saved beside the weights.
        tokenizer: saved beside the weights.
        seed: of weights that the checkpoint lacks; unused here.
    """

    settings_type: ClassVar[type[BaseModel]]
    settings_file: ClassVar[str]
    """Where a saved model has its settings."""
    saved_beside: ClassVar[tuple[str, ...]] = ()
    """Sub-modules whose weights are in a separate file, which other tools do not read.
    """

    def __init__(
        self,
        encoder: PreTrainedModel,
        settings: BaseModel,
        tokenizer: PreTrainedTokenizerFast,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder, self.settings, self.tokenizer = encoder, settings, tokenizer

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        dropout: float | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
        **values: Any,
    ) -> Self:
        """Open a saved model, or start one from an encoder of any of `KINDS`, without its head; in
        eval mode.

        Args:
            name_or_path: ``"embedded"``, a local folder, or a hub name.
            dropout: in [0, 1]; None keeps the checkpoint's.
            device: where to load it.
            seed: of weights that the checkpoint lacks.
            values: fields of the settings, which must agree with saved settings if there are any.

        Raises:
            InputError: no such model, an untested kind, missing weights, a tokenizer that does not
                fit, or a value that contradicts the saved settings.
        """
        place = find_model(name_or_path, ["config.json"])
        settings = saved_settings(cls.settings_type, place / cls.settings_file, values)
        is_saved = (place / cls.settings_file).is_file()
        encoder = cls.load_encoder(
            name_or_path, is_saved=is_saved, dropout=dropout, device=device, seed=seed
        )
        tokenizer = load_tokenizer(name_or_path)
        check_tokenizer(encoder.config, tokenizer, role=name_or_path)
        model = cls(encoder, settings, tokenizer, seed=seed)
        beside = named_parts(load_extra(place), cls.saved_beside)
        check_finite(beside.items(), place / EXTRA_FILE)
        if is_saved and (
            lost := sorted(named_parts(model.state_dict(), cls.saved_beside).keys() - beside.keys())
        ):
            raise InputError(
                f"{EXTRA_FILE} lacks {lost[0]}", where=place, fix="Save the model again."
            )
        model.load_state_dict(beside, strict=False)
        return model.eval()

    @classmethod
    def load_encoder(
        cls, name_or_path: str | Path, *, is_saved: bool, seed: int, **options: Any
    ) -> PreTrainedModel:
        """The encoder of a checkpoint without its head, if it has one; `options` of
        `read_pretrained`.
        """
        return read_pretrained(
            AutoModelForMaskedLM, name_or_path, fresh=is_head, **options
        ).base_model

    def rounded(self) -> Self | None:
        """A copy with embeddings and layers in bfloat16 and heads in float32, for inference; None
        for kinds other than BERT and ELECTRA.
        """
        twin = copy.deepcopy(self)
        base = twin.encoder.base_model
        if not isinstance(base, (BertModel, ElectraModel)):
            return None
        for name, part in base.named_children():
            if name != "pooler":
                part.to(torch.bfloat16)
        return twin

    def save(self, folder: Path) -> None:
        """Write configuration, weights (safetensors), tokenizer and settings; other tools can open
        all but the last.
        """
        save_masked_lm(
            self.encoder, self.tokenizer, folder, named_parts(self.state_dict(), self.saved_beside)
        )
        write_json(folder / self.settings_file, self.settings.model_dump())


def saved_settings(kind: type[BaseModel], file: Path, values: Mapping[str, Any]) -> Any:
    """The settings in a file, else defaults with `values`; `values` must agree with the file if
    there is one.

    Raises:
        InputError: an unknown field or a wrong value, here or in the file, or one that contradicts
            the file.
    """
    settings = kind(**values)
    if not file.is_file():
        return settings
    try:
        saved = kind(**read_json(file))
    except TypeError:
        raise InputError("no settings", where=file, fix="Save the model again.") from None
    except InputError as error:
        raise error.at(f"{file}: {error.where}") from None
    for name, value in values.items():
        if getattr(saved, name) != value:
            problem = f"trained with {getattr(saved, name)!r}, asked for {value!r}"
            fix = "Use it as it was trained, or train one with the other setting."
            raise InputError(problem, where=f"{file}: {name}", fix=fix)
    return saved
