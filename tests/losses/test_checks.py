"""Invalid arguments of losses; the checks read no values, and no key of a stage depends on them."""

import inspect

import pytest
import torch

from dr_lib import losses
from dr_lib.errors import InputError
from dr_lib.losses import checks, contrastive, cross_entropy, distillation, passage_centric
from dr_lib.stages import names_in

QUERIES, PASSAGES = torch.randn(3, 4), torch.randn(6, 4)
LISTS, SPANS = torch.randn(3, 5), torch.randn(4, 4)
STATES, TABLE, LABELS = torch.randn(5, 4), torch.randn(7, 4), torch.zeros(5, dtype=torch.int64)
CONTRASTIVE = (losses.contrastive, losses.passage_centric, losses.pair)
LISTED = (losses.distillation, losses.r_drop)


def refused(where, words, function, *arguments, **named):
    with pytest.raises(InputError) as told:
        function(*arguments, **named)
    assert told.value.where == where and words in str(told.value)
    assert "\n" not in str(told.value) and told.value.fix.endswith(".")


@pytest.mark.parametrize("loss", CONTRASTIVE)
def test_pairs_that_do_not_fit(loss):
    assert torch.isfinite(loss(QUERIES, PASSAGES))
    refused("passages", "5 passages for 3 queries", loss, QUERIES, PASSAGES[:5])
    refused("passages", "2 passages for 3 queries", loss, QUERIES, PASSAGES[:2])
    refused("passages", "[6, 3] is not [6, 4]", loss, QUERIES, PASSAGES[:, :3])
    refused("passages", "shape [0, 4]", loss, QUERIES, PASSAGES[:0])
    refused("queries", "shape [0, 4]", loss, QUERIES[:0], PASSAGES)
    refused("queries", "shape [4] is not [batch, hidden]", loss, QUERIES[0], PASSAGES)
    refused("passages", "shape [3, 2, 4]", loss, QUERIES, PASSAGES.view(3, 2, 4))
    known = {"passage_ids": torch.arange(3), "known_positives": torch.zeros(3, 3) > 0}
    for (name, tensor), told in zip(
        known.items(), ("[3] is not [6]", "[3, 3] is not [3, 6]"), strict=True
    ):
        refused(name, told, loss, QUERIES, PASSAGES, **{name: tensor})


@pytest.mark.parametrize("loss", CONTRASTIVE)
@pytest.mark.parametrize("temperature", [0, 0.0, -1.0, float("nan"), float("inf")])
def test_temperatures_that_are_not_above_0(loss, temperature):
    refused(
        "temperature", f"{temperature} is not", loss, QUERIES, PASSAGES, temperature=temperature
    )


def test_temperatures_of_students_and_teachers_are_above_0():
    for name in ("student_temperature", "teacher_temperature"):
        refused(name, "0.0 is not", losses.distillation, LISTS, LISTS, **{name: 0.0})


def test_a_temperature_may_be_learned():
    learned = torch.tensor(0.1, requires_grad=True)
    losses.contrastive(QUERIES, PASSAGES, temperature=learned).backward()
    assert learned.grad.abs() > 0


@pytest.mark.parametrize("alpha", [2.0, -0.1, float("nan")])
def test_alpha_is_a_share(alpha):
    refused("alpha", f"{alpha} is outside [0, 1]", losses.pair, QUERIES, PASSAGES, alpha=alpha)


def test_names_that_are_not_there():
    loss = losses.contrastive
    refused("blocks", "Did you mean paper? There are: rel", loss, QUERIES, PASSAGES, blocks="papr")
    block = "positive_query"
    refused("blocks", f"blocks=({block!r},)", loss, QUERIES, PASSAGES, blocks=block)
    refused("blocks", f"Did you mean {block}?", loss, QUERIES, PASSAGES, blocks=("positive_qery",))
    for loss, alpha in ((losses.passage_centric, {}), (losses.pair, {"alpha": 0})):
        refused("candidates", "'pape'", loss, QUERIES, PASSAGES, candidates="pape", **alpha)
    refused("mean", "There are: query, element.", losses.distillation, LISTS, LISTS, mean="none")


def test_lists_of_scores_that_do_not_fit():
    for loss in LISTED:  # each of which would be broadcast to the other
        names = [*inspect.signature(loss).parameters][:2]
        refused(names[1], "[3, 1] is not [3, 5]", loss, LISTS, LISTS[:, :1])
        refused(names[1], "[1, 5] is not [3, 5]", loss, LISTS, LISTS[:1])
        refused(names[0], "shape [5] is not [queries, passages]", loss, LISTS[0], LISTS[0])
    present = torch.ones(5, dtype=torch.bool)
    refused("present", "[5] is not [3, 5]", losses.distillation, LISTS, LISTS, present=present)
    for loss in (losses.listwise, losses.pointwise):
        refused("scores", "shape [0, 5]", loss, LISTS[:0])
        refused("scores", "shape [5]", loss, LISTS[0])


def test_spans_that_are_no_pairs():
    refused("vectors", "3 spans are not pairs", losses.siblings, SPANS[:3])
    refused("documents", "[3] is not [4]", losses.siblings, SPANS, torch.arange(3))


def test_states_and_tables_that_do_not_fit():
    loss = losses.chunked_cross_entropy
    assert loss(STATES[:0], TABLE, None, LABELS[:0])[0] == 0
    refused("weight", "[7, 3] is not [7, 4]", loss, STATES, TABLE[:, :3], None, LABELS)
    refused("labels", "[4] is not [5]", loss, STATES, TABLE, None, LABELS[:4])
    refused("bias", "[6] is not [7]", loss, STATES, TABLE, torch.zeros(6), LABELS)
    refused("hidden", "shape [1, 5, 4]", loss, STATES[None], TABLE, None, LABELS)
    refused("weights", "[1] is not [5]", loss, STATES, TABLE, None, LABELS, weights=torch.ones(1))


def test_arrays_and_masks_of_numbers():
    known = torch.zeros(3, 6, dtype=torch.int64)
    for loss in CONTRASTIVE:
        refused("queries", "ndarray is not a tensor", loss, QUERIES.numpy(), PASSAGES)
        refused("known_positives", "int64", loss, QUERIES, PASSAGES, known_positives=known)
    refused("present", "int64", losses.distillation, LISTS, LISTS, present=LISTS.long())


def test_no_value_is_read():
    """Tensors on the device "meta" have no values."""
    queries, passages, lists = (part.to("meta") for part in (QUERIES, PASSAGES, LISTS))
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(queries[0, 0] > 0)
    checks.check_pairs(queries, passages, passages[:, 0], queries @ passages.T > 0)
    checks.check_lists(first=lists, second=lists)
    checks.check_siblings(passages, passages[:, 0])
    checks.check_shapes(hidden=(queries, "[tokens, hidden]"), labels=(queries[:, 0], "[tokens]"))
    checks.check_temperature(queries[0, 0])


@pytest.mark.parametrize("module", [contrastive, cross_entropy, distillation, passage_centric])
def test_no_key_of_a_stage_depends_on_a_check(module):
    text = inspect.getsource(inspect.getmodule(module))
    defined = names_in(inspect.getmodule(module).__name__)[0].values()
    assert "    check_" in text
    assert "check_" not in "".join(definition for parts in defined for definition, _ in parts)
