"""RetroMAE's enhanced decoder: one layer in which every row of the attention sees its own part of the passage.

Xiao et al. 2022, "enhanced decoding", as in the released code. Page: ideas/bottleneck.
"""

from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from dr_lib.models.generator import fresh_copy


class EnhancedDecoder(nn.Module):
    """One Transformer layer of the encoder's shape with queries from one stream, keys and values from another.

    The attention's residual is the query stream: a position knows of the passage what it attends to and nothing else.

    Args:
        model: the encoder (with or without head) whose layers are imitated.
        seed: of the weights, N(0, 0.02).
    """

    def __init__(self, model: PreTrainedModel, seed: int = 0):
        super().__init__()
        self.layer = fresh_copy(model, seed).base_model.encoder.layer[-1]

    def forward(self, queries: Tensor, contents: Tensor, unseen: Tensor) -> Tensor:
        """Decoder states `[batch, length, hidden]`.

        Args:
            queries: `[batch, length, hidden]`, what each row asks with; also the residual.
            contents: `[batch, length, hidden]`, what keys and values are made from.
            unseen: `[batch, length, length]` bool from `masking.per_row`, True where row i may not see column j.
        """
        attention, after = self.layer.attention.self, self.layer.attention.output
        mixed = functional.scaled_dot_product_attention(
            *(
                linear(stream).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
                for linear, stream in (
                    (attention.query, queries), (attention.key, contents), (attention.value, contents),
                )
            ),
            attn_mask=~unseen[:, None], dropout_p=attention.dropout.p if self.training else 0.0,
        )  # fmt: skip
        attended = after(mixed.transpose(1, 2).flatten(2), queries)
        states: Tensor = self.layer.feed_forward_chunk(attended)
        return states
