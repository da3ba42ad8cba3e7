"""How much arithmetic a training is, counted by hand: what estimates scale with and what a large scale costs.

Kaplan et al. 2020, section 2.1: a forward pass takes about two operations per weight and token, a backward pass
twice that. Attention scores and the vocabulary's logits are added here because small models are full of them.
Page of the book: practice/gpu.
"""


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
