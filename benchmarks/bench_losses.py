"""Cost of the losses, forward and backward, compared with plain ones and sentence-transformers.

The chunked cross-entropy is compared with `torch.nn.functional.cross_entropy` on `[tokens, vocab]`
logits, in float32 and under bfloat16 autocast; the contrastive loss with
`MultipleNegativesRankingLoss`, whose plain form has the same pairs (the two values are checked to
be equal); its form with four directions has the pairs of the four blocks and more.

    python benchmarks/bench_losses.py [--tokens 8192 --vocab 8192 --hidden 128 --repeats 5 --device
    cpu --threads 1]
"""

import argparse
from collections.abc import Callable

import peers
import torch
from timing import alternate, show, start
from torch import Tensor
from torch.nn import functional

from dr_lib import losses

FULL, PEER = "full logits", "MultipleNegativesRankingLoss"


def vocabulary_losses(
    tokens: int, vocab: int, hidden: int, device: str
) -> dict[str, Callable[[], Tensor]]:
    """Loss and gradients of states, table and bias, by both implementations."""
    states = torch.randn(tokens, hidden, device=device, requires_grad=True)
    table = (torch.randn(vocab, hidden, device=device) * 0.1).requires_grad_()
    bias = torch.zeros(vocab, device=device, requires_grad=True)
    labels = torch.randint(vocab, (tokens,), device=device)

    def differentiate(loss: Tensor) -> Tensor:
        torch.autograd.grad(loss, (states, table, bias))
        return loss.detach()

    return {
        "chunked_cross_entropy": lambda: differentiate(
            losses.chunked_cross_entropy(states, table, bias, labels)[0]
        ),
        FULL: lambda: differentiate(
            functional.cross_entropy(functional.linear(states, table, bias).float(), labels)
        ),
    }


def contrastive_losses(
    batch: int, n: int, hidden: int, device: str
) -> dict[str, Callable[[], Tensor]]:
    """Loss and gradients for the vectors of `batch` queries with `n` passages each."""
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    queries = torch.randn(batch, hidden, device=device, requires_grad=True)
    passages = torch.randn(batch * n, hidden, device=device, requires_grad=True)
    every = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
    plain = MultipleNegativesRankingLoss(None, scale=50.0)
    wide = MultipleNegativesRankingLoss(None, scale=50.0, directions=every)

    def differentiate(loss: Tensor) -> Tensor:
        torch.autograd.grad(loss, (queries, passages))
        return loss.detach()

    def theirs(loss: MultipleNegativesRankingLoss) -> Tensor:
        columns = passages.view(batch, n, hidden).unbind(1)
        return differentiate(loss.compute_loss_from_embeddings([queries, *columns], None))

    def ours(blocks: str) -> Tensor:
        return differentiate(losses.contrastive(queries, passages, temperature=0.02, blocks=blocks))

    return {
        "contrastive, query_passage": lambda: ours("query_passage"),
        PEER: lambda: theirs(plain),
        "contrastive, released (four blocks)": lambda: ours("released"),
        f"{PEER}, four directions": lambda: theirs(wide),
    }


def main() -> None:
    """Print the medians and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("tokens", 8192),
        ("vocab", 8192),
        ("hidden", 128),
        ("repeats", 5),
        ("threads", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    start(options.threads)
    kind = options.device.split(":")[0]
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast(kind, torch.bfloat16, enabled=dtype == torch.bfloat16):
            ways = vocabulary_losses(options.tokens, options.vocab, options.hidden, options.device)
            torch.testing.assert_close(*(way() for way in ways.values()), rtol=1e-3, atol=1e-3)
            found = alternate(ways, options.repeats, options.device)
        show(
            f"{options.tokens} tokens, vocabulary {options.vocab}, hidden {options.hidden},"
            f" {dtype}",
            found,
            FULL,
        )
    if not peers.at_hand():
        return
    ways = contrastive_losses(64, 16, options.hidden, options.device)
    ours, theirs = (way() for way in list(ways.values())[:2])
    torch.testing.assert_close(ours, theirs)
    show(
        "64 queries x 16 passages, float32",
        alternate(ways, 20 * options.repeats, options.device),
        PEER,
    )


if __name__ == "__main__":
    main()
