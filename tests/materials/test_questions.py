"""The question generator: its loss against plain torch on each pair alone, and what it writes."""

import datasets
import numpy as np
import pytest
import torch

from dr_lib.materials import questions
from dr_lib.materials.questions import QuestionTraining, QuestionWriter, stored_inputs, tokenised_inputs
from dr_lib.models import Sampling, new_seq2seq, writers
from dr_lib.tokens import TokenStore, special_ids
from dr_lib.training import Examples, RetrievalBatches, TrainSettings, train

QUERIES = ["what does the bottleneck carry", "dense retriever", "hard negatives are what", "new york", "masked"]


@pytest.fixture(scope="module")
def rows(sentences) -> datasets.Dataset:
    titles = ["bottleneck", "", "negatives", "new york", ""]
    return datasets.Dataset.from_dict({"title": titles, "text": sentences})


@pytest.fixture(scope="module")
def passages(rows, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("p") / "store", progress=False)


@pytest.fixture(scope="module")
def batches(passages, tiny_tokenizer, tmp_path_factory) -> RetrievalBatches:
    asked = datasets.Dataset.from_dict({"text": QUERIES})
    folder = tmp_path_factory.mktemp("q") / "store"
    queries = TokenStore.build(asked, tiny_tokenizer, folder, columns=("text",), progress=False)
    examples = Examples.of(np.arange(5), np.arange(5)[:, None], passages=5)
    return RetrievalBatches(
        queries, passages, examples, batch_queries=4, passages_per_query=1, query_length=12, passage_length=40
    )


@pytest.fixture
def model(tiny_bert, tiny_tokenizer):
    return new_seq2seq(tiny_bert(), special_ids(tiny_tokenizer))


@pytest.fixture
def writer(model, tiny_tokenizer, passages):
    def make(**rest) -> QuestionWriter:
        options = {"copies": 3, "longest": 9, **rest}
        return QuestionWriter(model, tiny_tokenizer, stored_inputs(passages, 40, "pair"), **options)

    return make


def reference_loss(model, batch) -> tuple[torch.Tensor, float]:
    """Mean over all tokens of all queries, each pair alone and without padding."""
    losses, right = [], []
    for row in range(len(batch)):
        passage, query = batch.passages, batch.queries
        length, size = int(passage.attention_mask[row].sum()), int(query.attention_mask[row].sum())
        ids = query.input_ids[row, :size]
        logits = model(
            input_ids=passage.input_ids[row : row + 1, :length],
            attention_mask=torch.ones(1, length),
            token_type_ids=passage.token_type_ids[row : row + 1, :length],
            decoder_input_ids=ids[None, :-1],
        ).logits[0]
        losses.append(-torch.log_softmax(logits, -1)[torch.arange(size - 1), ids[1:]])
        right.append(logits.argmax(-1) == ids[1:])
    return torch.cat(losses).mean(), float(torch.cat(right).float().mean())


def test_loss_and_gradient_are_those_of_each_pair_alone(model, batches):
    batch = batches.batch(0)
    loss, accuracy = reference_loss(model, batch)
    names = [
        "decoder.bert.encoder.layer.0.crossattention.self.query.weight",
        "encoder.encoder.layer.0.output.dense.bias",
    ]
    wanted = [model.get_parameter(name) for name in names]
    expected = torch.autograd.grad(loss, wanted)
    parts = QuestionTraining(model)(batch, torch.Generator())
    torch.testing.assert_close(parts["loss"], loss, atol=1e-5, rtol=1e-5)
    assert float(parts["accuracy"]) == pytest.approx(accuracy)
    for found, gradient in zip(torch.autograd.grad(parts["loss"], wanted), expected, strict=True):
        torch.testing.assert_close(found, gradient, atol=1e-6, rtol=1e-4)


def test_training_lowers_the_loss(tmp_path, model, batches):
    settings = TrainSettings(steps=10, learning_rate=5e-3, precision="fp32", log_every=2)
    log = train(QuestionTraining(model), batches.batch, settings, tmp_path, title="questions", progress=False)
    assert log.column("loss")[-1] < log.column("loss")[0] - 0.5
    assert log.tokens > 0


def test_questions_do_not_depend_on_what_is_written_beside_them(writer):
    together = writer()(np.arange(5))
    assert [len(own) for own in together] == [3] * 5
    assert together == [own for rows in ([0], [1, 2], [3], [4]) for own in writer()(np.array(rows))]
    assert together != writer(seed=1)(np.arange(5))


def test_questions_hold_no_special_token_and_are_never_empty(writer, monkeypatch):
    seen = []

    def spy(*args, **options) -> torch.Tensor:
        seen.append(writers.write_texts(*args, **options))
        return seen[-1]

    monkeypatch.setattr(questions, "write_texts", spy)
    writer(choice=Sampling(), copies=20)(np.arange(5))
    ids = seen[0]
    assert ids.shape == (100, 9)
    assert not torch.isin(ids, torch.tensor([0, 1, 2, 4])).any() and (ids[:, 0] != 3).all()
    ended = (ids == 3).cumsum(1) > 0
    assert (ids[ended] == 3).all()


def test_top_1_asks_the_same_question_each_time(writer):
    for own in writer(choice=Sampling(top_k=1))(np.arange(5)):
        assert len(set(own)) == 1


def test_a_public_tokenizer_reads_title_and_text_as_one(rows, tiny_tokenizer):
    read = tokenised_inputs(rows, tiny_tokenizer, 40, "pair")(np.array([0, 1]))
    for row, text in enumerate([f"{rows[0]['title']} {rows[0]['text']}", rows[1]["text"]]):
        ids = tiny_tokenizer(text)["input_ids"]
        assert read["input_ids"][row][: len(ids)].tolist() == ids
        assert read["attention_mask"][row].sum() == len(ids)
    alone = tokenised_inputs(rows, tiny_tokenizer, 8, "none")(np.array([0]))
    assert alone["input_ids"][0].tolist() == tiny_tokenizer(rows[0]["text"], truncation=True, max_length=8)["input_ids"]
