"""MASTER: the inputs of its tasks, made from stores; its losses against plain torch with full
logits, task by task, and the effect of switching a task off.
"""

from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
from torch.nn import functional

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.objectives.master import (
    TASKS,
    Master,
    MasterBatch,
    MasterSettings,
    longest_word,
    next_passages,
)
from dr_lib.tokens import Layout, TokenStore, TokenValues, halves
from dr_lib.training.loop import to_device


@pytest.fixture
def texts(batch, store):
    """A batch with every part, without materials: the parts are permuted passages."""
    values = torch.rand(batch.special.shape, generator=torch.Generator().manual_seed(3)).where(
        ~batch.special, 0.0
    )
    passages = replace(batch, values=values)
    others = [batch.take(torch.tensor(order)) for order in ([1, 2, 3, 4, 5, 0], [5, 4, 3, 2, 1, 0])]
    first, second = halves(passages, 0)
    return MasterBatch(passages, first, second, *others, longest_word=12)


class Spy:
    """Record, in order, each text, its mask and the resulting ids."""

    def __init__(self, objective):
        self.seen, inner = [], objective.hide

        def hiding(text, mask, generator, policy="mask"):
            ids = inner(text, mask, generator, policy)
            self.seen.append((text, mask, ids))
            return ids

        objective.hide = hiding


def encoder_pass(objective, text, mask, ids):
    """Masked-LM loss and first states, with all logits."""
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
    """Losses by name: `readings` are the encoder's passes in order, `vectors` the pass that each
    task uses.
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
    # after hiding 30 %, compared with half of the passage
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


def test_no_decoder_of_one_seed_is_one_of_another(make):
    drawn = [
        decoder.layers[0].output.dense.weight.sum().item()
        for seed in (0, 1)
        for decoder in make("master", init_seed=seed).decoders.values()
    ]
    assert len({*drawn}) == len(drawn) == 10


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


DOCUMENTS, POSITIONS = np.array([0, 0, 1, 0, 2, 1]), np.array([5, 0, 0, 2, 0, 1])
FOLLOWS = {1: 3, 3: 0, 2: 5}  # by document and position; 0, 5 and 4 are the last of theirs
OFFSETS = {"questions": [0, 3, 4, 4, 8, 9, 11], "continuations": [0, 1, 2, 2, 3, 4, 5]}


@pytest.fixture(scope="module")
def folders(store, sentences, tiny_tokenizer, tmp_path_factory):
    """The three materials, handmade."""
    root = tmp_path_factory.mktemp("materials")
    words = " ".join(sentences).split()
    for name, offsets in OFFSETS.items():
        length = 3 if name == "questions" else 25
        texts = [
            " ".join((words * 2)[5 * row : 5 * row + 1 + (row * 7) % length])
            for row in range(offsets[-1])
        ]
        rows = datasets.Dataset.from_dict({"text": texts})
        TokenStore.build(rows, tiny_tokenizer, root / name / "store", columns=("text",))
        np.save(root / name / "offsets.npy", np.array(offsets))
    weights = np.arange(len(store.title_ids) + len(store.text_ids), dtype=np.float32) + 1
    blocks = [(weights[: len(store.title_ids)], weights[len(store.title_ids) :])]
    TokenValues.write(store, root / "keyword_weights" / "values", blocks)
    return {name: root / name for name in (*OFFSETS, "keyword_weights")}


@pytest.fixture
def source(store, folders):
    def build(**changes):
        order = {"documents": DOCUMENTS, "positions": POSITIONS}
        options = {
            "layout": Layout(passage_length=32),
            "tokens_per_batch": 120,
            "materials": folders,
            "seed": 3,
        }
        return objectives.Source(store, **(order | options | changes))

    return build


@pytest.fixture
def batches(source):
    """Micro-step -> batch: `batches(settings of master, changes of the source)`."""

    def build(changes=(), **values):
        return Master.batches(objectives.parameters("master", **values), source(**dict(changes)))

    return build


def texts_of(store, row):
    return store.text_ids[store.text_offsets[row] : store.text_offsets[row + 1]].tolist()


def real(batch, row):
    return batch.input_ids[row][batch.attention_mask[row] == 1].tolist()


def rows_by_passage(batch: MasterBatch):
    return {int(passage): row for row, passage in enumerate(batch.passages.rows)}


def epoch_of(get, passages=6):
    """All batches of an epoch, and the position of each passage."""
    found, step = {}, 0
    while len(found) < passages:
        batch = get(step)
        found |= {passage: (batch, row) for passage, row in rows_by_passage(batch).items()}
        step += 1
    return found, step


def test_neighbours_are_the_next_passages_of_the_same_document(batches, store):
    found, _ = epoch_of(batches())
    for passage, (batch, row) in found.items():
        if passage in FOLLOWS:
            alone = store.batch(np.array([FOLLOWS[passage]]), max_length=32)
            assert real(batch.neighbours, row) == real(alone, 0)
        else:
            assert batch.neighbours.special[row].all() and real(batch.neighbours, row) == [2]
        assert batch.halves is None


def test_order_in_a_document_is_that_of_its_positions():
    assert next_passages(DOCUMENTS, POSITIONS).tolist() == [
        FOLLOWS.get(row, -1) for row in range(6)
    ]
    assert next_passages(np.arange(4), np.zeros(4, int)).tolist() == [-1] * 4
    assert next_passages(np.zeros(0, int), np.zeros(0, int)).tolist() == []


@pytest.mark.parametrize(
    "changes",
    [{}, {"documents": np.arange(6)}, dict.fromkeys(("documents", "positions"), np.zeros(0, int))],
)
def test_halves_stand_in_as_released_and_where_nothing_has_a_neighbour(batches, changes):
    get = batches(changes, neighbour="released" if not changes else "paper")
    for _, (batch, row) in epoch_of(get)[0].items():
        whole = batch.passages.input_ids[row][~batch.passages.special[row]].tolist()
        parts = [
            part.input_ids[row][~part.special[row]].tolist()
            for part in (batch.halves, batch.neighbours)
        ]
        assert parts[0] + parts[1] == whole and len(parts[0]) == len(whole) // 2


def test_keyword_weights_lie_beside_their_pieces(batches, store):
    weight = np.concatenate(
        [np.arange(len(store.title_ids)), np.arange(len(store.text_ids)) + len(store.title_ids)]
    )
    for neighbour in ("paper", "released"):
        for passage, (batch, row) in epoch_of(batches(neighbour=neighbour))[0].items():
            title = slice(*store.title_offsets[passage : passage + 2])
            body = slice(*(store.text_offsets[passage : passage + 2] + len(store.title_ids)))
            expected = np.concatenate([weight[title], weight[body]]) + 1
            own = batch.passages.values[row][~batch.passages.special[row]].numpy()
            assert own.tolist() == expected[: len(own)].tolist()
            if neighbour == "released":
                second = batch.neighbours.values[row][~batch.neighbours.special[row]]
                assert second.tolist() == own[len(own) // 2 :].tolist()
            elif passage in FOLLOWS:
                assert (batch.neighbours.values[row] > 0).equal(~batch.neighbours.special[row])


def test_questions_come_in_another_order_each_epoch_and_a_separator_after_each(batches, folders):
    get, store = batches(), TokenStore.open(folders["questions"] / "store")
    orders = set()
    steps = epoch_of(get)[1]
    for step in range(6 * steps):
        batch = get(step)
        for passage, row in rows_by_passage(batch).items():
            first, last = OFFSETS["questions"][passage : passage + 2]
            ids = real(batch.questions, row)
            assert ids[0] == 2 and ids[-1] == 3
            asked = " ".join(map(str, ids[1:-1])).split(" 3 ") if last > first else []
            wanted = [
                " ".join(map(str, texts_of(store, question))) for question in range(first, last)
            ]
            assert sorted(asked) == sorted(wanted)
            orders |= {tuple(ids)} if passage == 3 else set()
    assert len(orders) > 2  # of four questions


def test_questions_come_in_another_order_under_another_seed(batches):
    orders = set()
    for seed in range(8):
        get = batches({"seed": seed})
        batch = next(batch for batch in map(get, range(99)) if 3 in batch.passages.rows)
        orders.add(tuple(real(batch.questions, rows_by_passage(batch)[3])))
    assert len(orders) > 2  # of four questions


def test_a_passage_without_questions_has_nothing_to_recover(batches):
    batch, row = epoch_of(batches())[0][2]
    assert batch.questions.special[row].all()


def test_a_passage_without_continuation_takes_its_own_text(batches, folders):
    store = TokenStore.open(folders["continuations"] / "store")
    roomy = {"layout": Layout(passage_length=64), "tokens_per_batch": 256}
    for passage, (batch, row) in epoch_of(batches(roomy))[0].items():
        first, last = OFFSETS["continuations"][passage : passage + 2]
        own = real(batch.passages, row)
        assert real(batch.continuations, row) == (
            [2, *texts_of(store, first), 3] if last > first else own
        )
        if last == first:
            assert (~batch.continuations.special[row]).sum() == (~batch.passages.special[row]).sum()


def test_long_texts_are_cut_to_windows_that_move_from_epoch_to_epoch(batches, folders):
    get = batches({"layout": Layout(passage_length=10), "tokens_per_batch": 60})
    store, steps, windows = TokenStore.open(folders["continuations"] / "store"), 0, set()
    whole = texts_of(store, OFFSETS["continuations"][3])
    assert len(whole) > 10
    steps = epoch_of(get)[1]
    for step in range(12 * steps):
        batch = get(step)
        for passage, row in rows_by_passage(batch).items():
            if passage == 3:
                ids = real(batch.continuations, row)[1:-1]
                assert len(ids) == 8 and any(whole[at : at + 8] == ids for at in range(len(whole)))
                windows.add(tuple(ids))
    assert len(windows) > 2


def test_the_bound_on_words_holds_and_has_few_values(batches):
    get = batches({"tokens_per_batch": 100})
    for batch in map(get, range(12)):
        parts = (batch.passages, batch.neighbours, batch.questions, batch.continuations)
        longest = max(longest_word(part) for part in parts)
        assert longest <= batch.longest_word < longest + 8 and batch.longest_word % 8 == 0


def test_every_text_of_a_batch_keeps_the_budget(batches):
    get = batches({"tokens_per_batch": 100})
    for step in range(12):
        batch = get(step)
        parts = (batch.passages, batch.neighbours, batch.questions, batch.continuations)
        assert all(part.input_ids.numel() <= 100 for part in parts)


def test_tasks_that_are_off_need_no_material(batches):
    batch = batches({"materials": {}}, tasks=("cmp",))(0)
    assert (batch.halves, batch.neighbours, batch.questions, batch.continuations) == (None,) * 4
    assert batch.passages.values is None


def test_the_longest_word_is_counted_in_pieces(store):
    batch = store.batch(np.arange(len(store)), max_length=40)
    longest = 0
    for starts, special in zip(batch.word_start.tolist(), batch.special.tolist(), strict=True):
        run = 0
        for start, none in zip(starts, special, strict=True):
            run = 0 if none else 1 if start else run + 1
            longest = max(longest, run)
    assert longest_word(batch) == longest > 1


def test_a_batch_moves_whole_and_trains(batches, make, seeded):
    get = batches(neighbour="released")
    moved = to_device(get(0), "meta")
    assert {
        part.input_ids.device.type for part in (moved.passages, moved.halves, moved.questions)
    } == {"meta"}
    assert len(moved) == len(get(0))
    for values in ({}, {"neighbour": "released"}):
        result = make("master", **values)(batches(**values)(0), seeded())
        result["loss"].backward()
        assert result["loss"].isfinite()
