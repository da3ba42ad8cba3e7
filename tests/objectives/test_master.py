"""MASTER's losses against plain torch with full logits, task by task, and what switching a task off
removes.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.objectives.master import TASKS, MasterBatch, MasterSettings
from dr_lib.tokens import halves


@pytest.fixture
def texts(batch, store):
    """A batch with every part, made without materials: the parts are passages in another order."""
    values = torch.rand(batch.special.shape, generator=torch.Generator().manual_seed(3)).where(
        ~batch.special, 0.0
    )
    passages = replace(batch, values=values)
    others = [batch.take(torch.tensor(order)) for order in ([1, 2, 3, 4, 5, 0], [5, 4, 3, 2, 1, 0])]
    first, second = halves(passages, 0)
    return MasterBatch(passages, first, second, *others, longest_word=12)


class Spy:
    """Remember, in order, each text that was hidden from, its mask and the ids that came of it."""

    def __init__(self, objective):
        self.seen, inner = [], objective.hide

        def hiding(text, mask, generator, policy="mask"):
            ids = inner(text, mask, generator, policy)
            self.seen.append((text, mask, ids))
            return ids

        objective.hide = hiding


def encoder_pass(objective, text, mask, ids):
    """Masked-LM loss and first states, every logit made."""
    output = objective.model(**text.with_ids(ids).model_inputs(), output_hidden_states=True)
    return plain_loss(output.logits, text, mask), output.hidden_states[-1][:, 0]


def plain_loss(logits, text, mask):
    return functional.cross_entropy(logits.transpose(1, 2), text.input_ids.masked_fill(~mask, -100))


def decoder_pass(objective, decoder, vector, text, mask, ids):
    """A decoder's loss, the bottleneck put in by hand."""
    model, base = objective.model, objective.model.base_model
    embedded = base.embeddings(ids, text.token_type_ids)
    states = torch.cat([vector[:, None], embedded[:, 1:]], 1)
    bias = (1.0 - text.attention_mask[:, None, None].float()) * -1e30
    for layer in decoder.layers:
        states = layer(states, bias)
    return plain_loss(model.cls(states), text, mask)


def plain_losses(objective, seen, readings, vectors):
    """Losses by name: `readings` names the encoder's passes in their order, `vectors` the pass that
    each task reads.
    """
    passes = {name: encoder_pass(objective, *seen[place]) for place, name in enumerate(readings)}
    losses = {name: loss for name, (loss, _) in passes.items()}
    for place, (task, name) in enumerate(vectors.items(), len(readings)):
        decoder = objective.decoders["shared" if objective.settings.shared_decoder else task]
        losses[task] = decoder_pass(objective, decoder, passes[name][1], *seen[place])
    return losses


RELEASED = {
    "mkp": "encoder",
    "cmp": "complement_encoder",
    "npr": "half_encoder",
    "dor": "encoder",
    "gor": "encoder",
}
PASSES = ["encoder", "complement_encoder", "half_encoder"]


@pytest.mark.parametrize("shared", [False, True])
def test_losses_and_gradients_are_those_of_full_logits(shared, make, texts, seeded):
    objective = make("master", shared_decoder=shared, complement_weight=0.5, half_weight=2.0)
    spy = Spy(objective)
    result = objective(texts, seeded())
    losses = plain_losses(objective, spy.seen, PASSES, RELEASED)
    for name, loss in losses.items():
        assert torch.allclose(result[f"{name}_loss"], loss, atol=1e-5), name
    scale = {"complement_encoder": 0.5, "half_encoder": 2.0}
    expected = sum(scale.get(name, 1.0) * loss for name, loss in losses.items())
    weights = list(objective.parameters())
    found, wanted = (torch.autograd.grad(loss, weights) for loss in (result["loss"], expected))
    assert all(torch.allclose(a, b, atol=3e-5) for a, b in zip(found, wanted, strict=True))


def test_the_papers_form_has_one_encoder_pass_and_real_neighbours(make, texts, seeded):
    real = replace(texts, halves=None)
    objective = make("master", complement="paper")
    spy = Spy(objective)
    result = objective(real, seeded())
    assert len(spy.seen) == 1 + len(TASKS)
    losses = plain_losses(objective, spy.seen, ["encoder"], dict.fromkeys(TASKS, "encoder"))
    assert torch.allclose(result["loss"], sum(losses.values()), atol=1e-5)
    # what 30 % leave, against half of the passage
    assert spy.seen[2][1].sum() > spy.seen[1][1].sum()


def test_an_encoder_loss_of_weight_zero_is_left_out_and_its_vector_still_serves(
    make, texts, seeded
):
    objective = make("master", passage_weight=0, complement_weight=0, half_weight=0)
    spy = Spy(objective)
    result = objective(texts, seeded())
    losses = plain_losses(objective, spy.seen, PASSES, RELEASED)
    assert torch.allclose(result["loss"], sum(losses[task] for task in TASKS), atol=1e-5)
    assert not any("encoder" in name for name in result)


@pytest.mark.parametrize("task", TASKS)
def test_one_task_alone_has_one_decoder_and_learns_through_its_vector(task, make, texts, seeded):
    unread = {
        "mkp": (),
        "cmp": (),
        "npr": ("halves", "neighbours"),
        "dor": ("questions",),
        "gor": ("continuations",),
    }
    absent = {name: None for other, parts in unread.items() if other != task for name in parts}
    objective = make("master", tasks=(task,), passage_weight=0, complement_weight=0, half_weight=0)
    result = objective(replace(texts, **absent), seeded())
    assert set(objective.decoders) == {task} and set(result) == {
        "loss",
        f"{task}_loss",
        f"{task}_accuracy",
    }
    result["loss"].backward()
    last = objective.model.bert.encoder.layer[-1].output.dense.weight
    # no loss of the encoder's own: this came through the bottleneck
    assert last.grad.abs().max() > 0
    assert all(weight.grad is not None for weight in objective.decoders.parameters())


def test_tasks_left_out_change_no_other_decoder(make):
    every, one = make("master"), make("master", tasks=("npr",))
    theirs, ours = every.decoders["npr"].state_dict(), one.decoders["npr"].state_dict()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    assert not torch.equal(
        *[every.decoders[task].layers[0].output.dense.weight for task in ("npr", "mkp")]
    )


def test_decoders_are_drawn_anew_with_the_usual_spread(make):
    objective = make("master")
    for decoder in objective.decoders.values():
        weight = decoder.layers[0].intermediate.dense.weight
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert not decoder.layers[0].intermediate.dense.bias.any()


def test_materials_are_those_of_the_chosen_tasks():
    every = MasterSettings(weighting="tfidf", questions=4)
    assert every.materials() == {
        "keyword_weights": {"weighting": "tfidf"},
        "questions": {"per_passage": 4},
        "continuations": {},
    }
    assert set(MasterSettings(tasks=("cmp", "npr")).materials()) == {"keyword_weights"}
    assert MasterSettings(tasks=("cmp",)).materials() == {}


@pytest.mark.parametrize("tasks", [(), ("mkp", "mkp"), ("mlm",)])
def test_tasks_that_make_no_sense_are_refused(tasks):
    with pytest.raises(InputError, match="tasks"):
        objectives.parameters("master", tasks=tasks)
    assert objectives.parameters("master", tasks=["gor", "mkp"]).tasks == ("mkp", "gor")


@pytest.mark.parametrize("complement", ["released", "paper"])
def test_the_decoder_of_cmp_loses_exactly_what_its_encoder_kept(complement, make, texts, seeded):
    objective = make("master", tasks=("cmp",), complement=complement)
    spy = Spy(objective)
    objective(replace(texts, halves=None), seeded())
    encoder, decoder = (
        spy.seen[place][1] for place in ((1, 2) if complement == "released" else (0, 1))
    )
    assert not (encoder & decoder).any()
    assert torch.equal(encoder | decoder, ~texts.passages.special)
    rate = 0.5 if complement == "released" else 0.3
    pieces = (~texts.passages.special).sum(1)
    assert (encoder.sum(1) <= (rate * pieces).round().clamp(min=1)).all()
    assert encoder.sum() > 0.9 * rate * pieces.sum()


def test_keywords_are_hidden_by_weight_and_other_texts_evenly(make, texts, seeded):
    heavy = replace(
        texts.passages, values=(texts.passages.input_ids % 2 == 0).float() * ~texts.passages.special
    )
    first, second = halves(heavy, 0)
    objective = make("master")
    spy = Spy(objective)
    objective(replace(texts, passages=heavy, halves=first, neighbours=second), seeded())
    for place in (3, 5):  # mkp and npr
        text, mask, _ = spy.seen[place]
        starts = text.word_start & (text.values > 0)
        missed = (starts & ~mask).any(1)
        light = text.word_start & (text.values == 0) & mask
        assert not (missed & light.any(1)).any()  # no light word goes before a heavy one
    questions = spy.seen[6]
    assert torch.equal(questions[0].input_ids, texts.questions.input_ids) and not torch.equal(
        questions[1], spy.seen[3][1]
    )


def test_a_passage_of_one_token_and_one_of_none_are_handled(make, texts, seeded):
    one = texts.passages.take(torch.tensor([5, 5]))
    only = ~one.special & (torch.arange(one.special.shape[1]) == 1)
    only[1] = False
    passages = replace(one, special=~only, word_start=only)
    first, second = halves(passages, 0)
    objective = make("master")
    result = objective(
        MasterBatch(passages, first, second, passages, passages, longest_word=1), seeded()
    )
    result["loss"].backward()
    assert all(value.isfinite() for value in result.values()) and result["npr_loss"] > 0
    assert result["half_encoder_loss"] == 0  # the first half of one token is empty


def test_pre_training_lowers_every_loss(make, texts, seeded):
    objective = make("master")
    optimiser = torch.optim.AdamW(objective.parameters(), lr=3e-3)
    first = objective(texts, seeded(0))
    for step in range(20):
        optimiser.zero_grad()
        result = objective(texts, seeded(step))
        result["loss"].backward()
        optimiser.step()
    last = objective(texts, seeded(0))
    assert all(last[name] < first[name] for name in first if name.endswith("loss"))
    assert np.isfinite(last["loss"].item())
