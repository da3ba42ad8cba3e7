"""How much arithmetic a training is, counted by hand: what estimates scale with and what a large scale costs.

Kaplan et al. 2020, section 2.1: a forward pass takes about two operations per weight and token, a backward pass
twice that. Attention scores and the vocabulary's logits are added here because small models are full of them.
Page of the book: practice/gpu.
"""

from collections.abc import Iterable

from dr_lib.lab.spelling import spell_seconds
from dr_lib.lab.stage import Stage

# kinds of stages whose cost is in operations
COUNTED = (
    "base", "pretrained", "retriever", "vectors", "span_matcher", "cross_encoder", "reranked", "teacher_scores",
)  # fmt: skip
SPEEDS = {"a data-centre GPU": 2e14, "two processor cores": 1.6e11}  # operations a second that training has reached


def bert_work(layers: int, hidden: int, vocabulary: int, share_predicted: float = 1.0, length: int = 128) -> float:
    """Floating-point operations of one training step per token (forward and backward) of a BERT with head.

    Args:
        layers, hidden, vocabulary: size; the feed-forward part has 4 x `hidden` units.
        share_predicted: share of the positions for which vocabulary logits are made.
        length: sequence length, for the attention scores.

    Example:
        >>> f"{bert_work(12, 768, 30522):.2g}"
        '6.7e+08'
    """
    layer = 12 * hidden**2 + 2 * length * hidden
    head = share_predicted * (hidden**2 + hidden * vocabulary)
    return 6.0 * (layers * layer + head)


def spell_cost(stages: Iterable[Stage]) -> str:
    """What training and encoding will cost, in operations and in time on two kinds of machine.

    Example:
        >>> train = Stage("pretrained", 1, {}, lambda folder, inputs: None, cost=3.2e15)
        >>> spell_cost([train])
        '3.2e+15 operations (16 s on a data-centre GPU, 5.6 h on two processor cores)'
    """
    total = sum(stage.cost for stage in stages if stage.kind in COUNTED)
    times = ", ".join(f"{spell_seconds(total / speed)} on {machine}" for machine, speed in SPEEDS.items())
    return f"{total:.1e} operations ({times})"
