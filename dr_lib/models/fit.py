"""Do model, tokenizer and generator belong together? Asked before anything expensive runs."""

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens.tokenizer import special_ids


def check_fit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, role: str = "model") -> None:
    """Raise `InputError` where the model's vocabulary or special ids are not the tokenizer's.

    A model may have more rows than the tokenizer has pieces (rounded up for speed), never fewer. Ids go from generator
    to encoder unchanged, so both must be checked against the same tokenizer; then they fit each other.

    Args:
        role: what the model is called in the message, such as ``generator``.
    """
    rows, pieces = model.config.vocab_size, len(tokenizer)
    if rows < pieces or rows - pieces >= 128:
        raise InputError(
            f"vocabulary of {rows} does not fit a tokenizer of {pieces} pieces", where=role,
            fix="Load model and tokenizer from the same checkpoint, or train one for the other.",
        )  # fmt: skip
    pad, expected = model.config.pad_token_id, special_ids(tokenizer)["pad"]
    if pad is not None and pad != expected:
        raise InputError(
            f"padding id {pad} is not the tokenizer's {expected}", where=role,
            fix="Load model and tokenizer from the same checkpoint.",
        )  # fmt: skip


def check_generator(generator: PreTrainedModel, encoder: PreTrainedModel) -> None:
    """Raise `InputError` where sampled ids of `generator` could not be read by `encoder`: unequal vocabularies."""
    ours, theirs = encoder.config.vocab_size, generator.config.vocab_size
    if ours != theirs:
        raise InputError(
            f"vocabulary of {theirs} does not fit the encoder's {ours}", where="generator",
            fix="Use a generator with the encoder's vocabulary (sampled ids are passed on unchanged).",
        )  # fmt: skip
