"""An encoder in miniature under data parallel training, for two processes."""

import gc

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from dr_lib import losses
from dr_lib.losses import gather

BATCH, N = 8, 3
KNOWN = torch.rand(BATCH, BATCH * N, generator=torch.Generator().manual_seed(2)) < 0.2
LOSSES = {
    "released": lambda q, p, ids, known: losses.contrastive(
        q, p, temperature=0.3, passage_ids=ids, known_positives=known
    ),
    "pair": lambda q, p, ids, known: losses.pair(
        q, p, alpha=0.4, passage_ids=ids, known_positives=known
    ),
    "siblings": lambda q, p, ids, known: losses.siblings(p, ids),
}


def gradient(loss: torch.Tensor, encoder: nn.Module) -> torch.Tensor:
    encoder.zero_grad()
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in encoder.parameters()])


def apart() -> dict[str, float]:
    """Loss -> distance between the gradients of processes that share a batch and those of one
    process with the whole batch.
    """
    distributed.init_process_group("gloo")
    found = distances(distributed.get_world_size(), distributed.get_rank())
    # Data parallel training's references to the group must go first: if they were the last, it
    # would wait for the group's threads while holding Python's lock, which they need to end.
    gc.collect()
    distributed.destroy_process_group()
    return found


def distances(count: int, rank: int) -> dict[str, float]:
    """The same in the existing group of `count` processes."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 5))
    texts, ids = torch.randn(BATCH * (1 + N), 6), torch.arange(BATCH * N) % (BATCH * N - 4)
    parallel = DistributedDataParallel(encoder)
    own, own_passages = (
        slice(rank * size // count, (rank + 1) * size // count) for size in (BATCH, BATCH * N)
    )
    found = {}
    for name, loss in LOSSES.items():
        vectors = parallel(torch.cat([texts[:BATCH][own], texts[BATCH:][own_passages]]))
        queries, passages = (gather(part) for part in vectors.tensor_split([BATCH // count]))
        shared = gradient(
            loss(queries, passages, gather(ids[own_passages]), gather(KNOWN[own])), encoder
        )
        whole = gradient(loss(*encoder(texts).tensor_split([BATCH]), ids, KNOWN), encoder)
        found[name] = ((shared - whole).norm() / whole.norm()).item()
    return found
