"""How much memory a training step takes on a GPU, told before anything runs.

Nearly all of it is what the backward pass needs of the forward pass: for every position, layer and
unit of the hidden size so many bytes, whatever the model (`UNIT`). A test counts them, step by
step, on a device without values. Page of the book: practice/gpu.
"""

from typing import NamedTuple

UNIT = 38.0
"""Bytes a position, layer and hidden unit of a BERT under bfloat16 autocast, dropout included; the
embedding counts as a layer.
"""
STATE = 18.0
"""Bytes a weight: itself, gradient and two moments in float32, and its copy in bfloat16."""
CHUNK = 2.0**30
"""Bytes of the vocabulary's logits that are there at a time, with their slopes."""
RESERVED = 0.06
"""Share of a GPU that CUDA itself and gaps between tensors take."""


class Step(NamedTuple):
    """What is in memory together in a training step.

    Attributes:
        positions: tokens with their padding whose activations are kept together.
        layers: Transformer layers that they go through with a gradient, a decoder's included.
        hidden: units of a layer.
        weights: trained parameters.
    """

    positions: int
    layers: int
    hidden: int
    weights: int

    def bytes(self) -> float:
        """Memory of the step, in bytes.

        Example:
            >>> base = Step(59_392, 14, 768, 110_000_000)
            >>> f"{base.bytes() / 2**30:.0f} GiB"
            '27 GiB'
        """
        kept = UNIT * self.positions * (self.layers + 1) * self.hidden
        return kept + STATE * self.weights + CHUNK

    def fitting(self, memory: float) -> int:
        """Positions that fit into `memory` bytes of a device; 0 where not even the weights do."""
        room = memory * (1 - RESERVED) - STATE * self.weights - CHUNK
        return max(0, int(room / (UNIT * (self.layers + 1) * self.hidden)))


def bert_weights(layers: int, hidden: int, vocabulary: int, positions: int = 512) -> int:
    """Parameters of a BERT with its head, biases and norms left out.

    Example:
        >>> f"{bert_weights(12, 768, 30522):,}"
        '109,358,592'
    """
    return 12 * layers * hidden**2 + hidden**2 + hidden * (vocabulary + positions)
