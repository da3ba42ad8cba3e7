"""Drawing and writing against plain enumeration, and against a model that follows a script."""

import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.models import Sampling, never_written, write_texts, writers
from dr_lib.models.writers import draw_next, nucleus

GRID = (torch.arange(5_000) + 0.5) / 5_000


class Script:
    """Rows whose next logits are given step by step: `tables[step]` is `[rows, vocab]`."""

    def __init__(self, tables: list[torch.Tensor]):
        self.tables, self.step, self.rows = tables, -1, torch.arange(len(tables[0]))
        self.first, self.read = torch.full((len(tables[0]),), 9), []

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        self.step += 1
        self.read.append(ids.tolist())
        return self.tables[self.step][self.rows].clone()

    def keep(self, rows: torch.Tensor) -> None:
        self.rows = self.rows[rows]


def preferring(ids: list[int], vocab: int = 6) -> torch.Tensor:
    """Logits that leave each row no doubt about its next id."""
    return torch.nn.functional.one_hot(torch.tensor(ids), vocab).float() * 50


def shares(logits: torch.Tensor, choice: Sampling) -> np.ndarray:
    """How often each id is drawn over evenly spaced uniform numbers."""
    drawn = draw_next(logits.expand(len(GRID), -1), GRID, choice)
    return np.bincount(drawn.numpy(), minlength=logits.shape[1]) / len(GRID)


def allowed(chances: np.ndarray, choice: Sampling) -> np.ndarray:
    """The chances that are left, by walking down the sorted list; the share of top-p is one of what top-k leaves."""
    best = np.argsort(-chances)[: choice.top_k]
    kept, total = np.zeros_like(chances), 0.0
    for id_ in best:
        if total < (choice.top_p or 1.0) * chances[best].sum():
            kept[id_] = chances[id_]
        total += chances[id_]
    return kept / kept.sum()


@pytest.mark.parametrize(
    "choice",
    [
        Sampling(),
        Sampling(top_k=3),
        Sampling(top_p=0.8),
        Sampling(top_k=5, top_p=0.6),
        Sampling(top_k=99, temperature=0.5),
    ],
    ids=str,
)
def test_ids_are_drawn_by_their_chances_among_those_allowed(choice):
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(1)) * 2
    chances = torch.softmax(logits[0].double() / choice.temperature, 0).numpy()
    assert np.abs(shares(logits, choice) - allowed(chances, choice)).max() < 2 / len(GRID)


def test_a_nucleus_is_the_fewest_tokens_that_reach_the_share():
    chances = torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.97, 0.01, 0.01, 0.01], [0.25, 0.25, 0.25, 0.25]])
    kept = nucleus(chances, 0.7) > 0
    assert kept.tolist() == [[False, True, False, True], [True, False, False, False], [True] * 4]
    assert (nucleus(chances, 1.0) > 0).all()


def test_chances_are_those_of_float32_for_logits_of_bfloat16():
    logits = torch.randn(1, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    assert np.array_equal(shares(logits, Sampling(top_k=8)), shares(logits.float(), Sampling(top_k=8)))


def test_the_largest_uniform_number_draws_nothing_that_is_not_allowed():
    logits = torch.zeros(1, 12)
    logits[0, :3] = 5.0
    drawn = draw_next(logits, torch.tensor([1 - 2**-24]), Sampling(top_k=10, top_p=0.5))
    assert drawn.item() < 3


@pytest.mark.parametrize("values", [{"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.1}, {"temperature": 0.0}])
def test_choices_out_of_range_are_refused(values):
    with pytest.raises(InputError, match=next(iter(values))):
        Sampling(**values)


def test_a_text_stops_at_its_end_and_reads_what_it_wrote():
    script = Script([preferring([2, 3]), preferring([1, 4]), preferring([5, 5]), preferring([5, 1])])
    written = write_texts(script, torch.full((2, 4), 0.5), Sampling(), end=1, forbidden=torch.tensor([0]))
    assert written.tolist() == [[2, 1, 1, 1], [3, 4, 5, 1]]
    assert script.read == [[9, 9], [2, 3], [1, 4], [1, 5]]


def test_the_end_is_never_first_and_what_is_forbidden_never_comes():
    table = torch.tensor([[9.0, 8.0, 7.0, 1.0]])
    script = Script([table, table])
    written = write_texts(script, torch.tensor([[0.1, 0.1]]), Sampling(top_k=1), end=1, forbidden=torch.tensor([0]))
    assert written.tolist() == [[2, 1]]


def test_nothing_more_is_asked_once_all_rows_have_ended(monkeypatch):
    monkeypatch.setattr(writers, "LOOK", 1)
    script = Script([preferring([2, 3]), preferring([1, 1])])
    written = write_texts(
        script, torch.full((2, 50), 0.5), Sampling(), end=1, forbidden=torch.tensor([], dtype=torch.int64)
    )
    assert written[:, :2].tolist() == [[2, 1], [3, 1]] and (written[:, 2:] == 1).all()


def test_dropping_ended_rows_changes_no_text(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    tables = [torch.randn(40, 6, generator=generator) for _ in range(12)]
    uniform = torch.rand(40, 12, generator=generator)
    whole = write_texts(Script(tables), uniform, Sampling(), end=1, forbidden=torch.tensor([0]))
    monkeypatch.setattr(writers, "MULTIPLE", 4)
    monkeypatch.setattr(writers, "LOOK", 1)
    script = Script(tables)
    assert torch.equal(write_texts(script, uniform, Sampling(), end=1, forbidden=torch.tensor([0])), whole)
    assert len(script.rows) < 20


def test_no_special_token_and_no_unused_row_may_be_written(tiny_tokenizer):
    pieces = len(tiny_tokenizer)
    assert never_written(tiny_tokenizer, pieces + 2, end=3) == [0, 1, 2, 4, pieces, pieces + 1]
    assert 3 in never_written(tiny_tokenizer, pieces)
