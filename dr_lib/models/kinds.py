"""Which kinds of encoders are taken: those whose vectors, dropout, longest text and tokenizer are
tested to be what their checkpoint says.

Models of other kinds may open and compute without complaint, and wrongly: they take an attention
bias for a mask, or call their dropout otherwise. They are refused in words.
"""

from typing import NamedTuple

from transformers import PretrainedConfig

from dr_lib.errors import InputError


class Kind(NamedTuple):
    """What differs between kinds of encoders.

    Attributes:
        dropout: the entries of its configuration that hold a dropout rate of hidden states,
            attention or a classifier.
        skipped: rows of positions that are never read: a number, or None for one more than the
            padding id.
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
    """Raise `InputError` for a kind of encoder that is not in `KINDS`."""
    if config.model_type not in KINDS:
        problem = f"an encoder of the kind {config.model_type!r}, which is not tested here"
        fix = f"Take one of: {', '.join(KINDS)}; or use it as it comes (key retriever)."
        raise InputError(problem, where=where, fix=fix)


def set_dropout(config: PretrainedConfig, dropout: float | None) -> None:
    """Set every dropout rate of a configuration; None, or a rate that it leaves out, stays."""
    for name in KINDS[config.model_type].dropout if dropout is not None else ():
        if getattr(config, name, None) is not None:
            setattr(config, name, dropout)


def longest(config: PretrainedConfig) -> int:
    """The longest sequence of tokens that a model reads, special tokens included.

    Example:
        >>> from transformers import BertConfig, RobertaConfig
        >>> longest(BertConfig()), longest(RobertaConfig(max_position_embeddings=514))
        (512, 512)
    """
    skipped = KINDS.get(config.model_type, Kind()).skipped
    skipped = (config.pad_token_id or 0) + 1 if skipped is None else skipped
    return config.max_position_embeddings - skipped
