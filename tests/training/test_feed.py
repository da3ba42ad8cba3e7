import tempfile
import threading
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch

from dr_lib import objectives
from dr_lib.tokens import BatchStream, TokenStore
from dr_lib.training import TrainSettings, loop
from dr_lib.training.loop import describe_rows, feed, real_tokens
from tests.training.killable import train_until

# numbers stay where they are, so all run without a GPU
DEVICES = [torch.device(name) for name in ("cpu", "cuda", "mps")]


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_batches_come_in_order_and_none_is_left_out(device):
    assert [(index, batch) for index, batch, _ in feed(lambda i: i * i, range(3, 50), device)] == [
        (i, i * i) for i in range(3, 50)
    ]


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_an_error_surfaces_where_its_batch_was_due(device):
    def batches(index):
        if index == 5:
            raise ValueError("row 5 is broken")
        return index

    seen = []
    with pytest.raises(ValueError, match="row 5 is broken"):
        seen.extend(index for index, _, _ in feed(batches, range(10), device))
    assert seen == list(range(5))


def test_on_a_gpu_the_next_batches_are_made_ahead_in_another_thread():
    made = []
    ready = feed(
        lambda index: made.append((index, threading.current_thread())), range(10), DEVICES[1]
    )
    next(ready)
    ready.close()
    assert 1 <= len(made) <= 4
    assert threading.current_thread() not in {thread for _, thread in made}


@pytest.mark.parametrize("objective", ["line", "simlm"])
@pytest.mark.parametrize("cut", [None, 3])
def test_a_thread_that_feeds_changes_no_bit_of_a_training_even_one_that_is_cut_off(
    objective, cut, make_trained, monkeypatch
):
    expected = make_trained(objective)
    monkeypatch.setattr(loop, "to_device", lambda batch, device: batch)  # of a GPU there is none
    monkeypatch.setattr(loop, "feed", lambda *given: feed(*given[:2], DEVICES[1]))
    found = make_trained(objective, cut)
    assert expected and all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.fixture
def make_trained(regression, gaussian_batches, tiny_bert, tiny_tokenizer, sentences, tmp_path):
    """Weights after six updates with dropout, drawn noise or masks and two micro-batches each, in
    one run or interrupted.
    """
    rows = datasets.Dataset.from_dict({"title": [""] * 20, "text": sentences * 4})
    store = TokenStore.build(rows, tiny_tokenizer, tmp_path / "store")
    settings = TrainSettings(steps=6, learning_rate=1e-3, accumulation=2, precision="fp32")

    def run(name: str, cut: int | None = None) -> dict[str, torch.Tensor]:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            for last in [cut, None] if cut else [None]:
                if name == "line":
                    module, batches = regression(dropout=0.2, noise=0.1), gaussian_batches
                else:
                    bert, helper = tiny_bert(dropout=0.1), tiny_bert(seed=1)
                    module = objectives.create(name, bert, tiny_tokenizer, generator_model=helper)
                    batches = BatchStream(store, tokens_per_batch=256, max_length=48).batch
                train_until(last, module, batches, settings, Path(folder), title=name)
            return {name: weight.detach().clone() for name, weight in module.named_parameters()}

    return run


@pytest.mark.parametrize("name", ["cpu", "mps"])
def test_elsewhere_the_thread_that_computes_makes_them(name):
    made = []
    list(feed(lambda index: made.append(threading.current_thread()), range(5), torch.device(name)))
    assert set(made) == {threading.current_thread()}


@pytest.mark.parametrize(("name", "waits"), [("cuda", False), ("mps", True), ("cpu", True)])
def test_only_cuda_is_not_waited_for_when_a_batch_is_sent(
    name, waits, make_token_batch, monkeypatch
):
    """Apple's GPUs would read the batch after its memory was reused (pytorch, issue 189690)."""
    asked = []
    monkeypatch.setattr(
        torch.Tensor,
        "to",
        lambda tensor, *where, **options: asked.append((*where, options)) or tensor,
    )
    make_token_batch(np.array([[2, 5, 3]]), np.array([7])).to(name)
    assert asked == 6 * [(name, {"non_blocking": not waits})]


def test_a_batch_for_cuda_goes_through_pinned_memory(make_token_batch, monkeypatch):
    pinned, sent = [], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.clone()) or pinned[-1]
    )
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *_, **__: sent.append(tensor) or tensor)
    make_token_batch(np.array([[2, 5, 3]]), np.array([7])).to("cuda")
    assert len(pinned) == 6 and all(a is b for a, b in zip(pinned, sent, strict=True))
    make_token_batch(np.array([[2, 5, 3]]), np.array([7])).to("mps")
    assert len(pinned) == 6


def test_real_tokens_and_rows_are_found_in_nested_batches(make_token_batch):
    from dr_lib.training import RetrievalBatch

    queries = make_token_batch(np.array([[2, 5, 3, 0]]), np.array([7]))
    passages = make_token_batch(np.array([[2, 3, 0], [2, 5, 3]]), np.array([8, 9]))
    batch = RetrievalBatch(
        queries, passages, torch.tensor([8, 9]), torch.zeros(1, 2, dtype=torch.bool)
    )
    assert real_tokens(batch) == 8
    assert describe_rows(batch) == "queries rows 7; passages rows 8, 9"
    assert describe_rows(batch, limit=1) == "queries rows 7; passages rows 8 ... (2 in all)"
    assert (real_tokens(3), describe_rows(3)) == (0, "")
