"""What MASTER's tasks read, made from stores: the right texts beside each passage, neighbours only
inside documents.
"""

import datasets
import numpy as np
import pytest

from dr_lib import objectives
from dr_lib.objectives.master import Master, MasterBatch, longest_word, next_passages
from dr_lib.tokens import Layout, TokenStore, TokenValues
from dr_lib.training.loop import to_device

DOCUMENTS, POSITIONS = np.array([0, 0, 1, 0, 2, 1]), np.array([5, 0, 0, 2, 0, 1])
FOLLOWS = {1: 3, 3: 0, 2: 5}  # by document and position; 0, 5 and 4 are the last of theirs
OFFSETS = {"questions": [0, 3, 4, 4, 8, 9, 11], "continuations": [0, 1, 2, 2, 3, 4, 5]}


@pytest.fixture(scope="module")
def folders(store, sentences, tiny_tokenizer, tmp_path_factory):
    """The three materials, made by hand."""
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
    """All batches of one epoch, and where each passage is found."""
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
