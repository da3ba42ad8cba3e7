"""Fine-tuning on a task: loss and head by hand, what a model can learn in a second, resuming, and pairs."""

import datasets
import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.evaluation import NluSplit, finetune_nlu, steps_for
from dr_lib.evaluation.nlu import NluBatch, SentenceClassifier, predict
from dr_lib.evaluation.nlu_tasks import TASKS
from dr_lib.tokens import TokenStore
from dr_lib.training import TrainSettings

SETTINGS = TrainSettings(steps=100, learning_rate=2e-3, precision="fp32", checkpoint_every=10)


def sentences_of(count: int, seed: int) -> NluSplit:
    """A sentence is acceptable if it speaks of a vector."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 2, count)
    others = ["passages", "queries", "tokens", "encoder"]
    texts = [" ".join(rng.permutation(["the", rng.choice(others), ("decoder", "vector")[t]])) for t in targets]
    return NluSplit(TASKS["cola"], datasets.Dataset.from_dict({"sentence1": texts}), targets)


def pairs_of(count: int, seed: int) -> NluSplit:
    """The score of a pair is the number of its sentences, of two, that speak of a vector, times 2.5."""
    rng = np.random.default_rng(seed)
    each = rng.integers(0, 2, (count, 2))
    texts = [[f"the {('decoder', 'vector')[t]}" for t in side] for side in each.T]
    columns = datasets.Dataset.from_dict({"sentence1": texts[0], "sentence2": texts[1]})
    return NluSplit(TASKS["stsb"], columns, (2.5 * each.sum(axis=1)).astype(np.float32))


def test_a_word_can_be_learnt_to_classify(tiny_bert, tiny_tokenizer, tmp_path):
    bert = tiny_bert()
    before = {name: tensor.clone() for name, tensor in bert.state_dict().items()}
    result = finetune_nlu(
        bert,
        tiny_tokenizer,
        sentences_of(64, 0),
        sentences_of(40, 1),
        SETTINGS,
        tmp_path,
        batch_rows=16,
        progress=False,
    )
    assert result.measures == {"Matthews": 1.0, "accuracy": 1.0}
    assert np.array_equal(result.predicted, result.actual)
    assert all(torch.equal(tensor, before[name]) for name, tensor in bert.state_dict().items())


def test_both_sentences_of_a_pair_are_read_and_scores_come_in_their_own_scale(tiny_bert, tiny_tokenizer, tmp_path):
    result = finetune_nlu(
        tiny_bert(), tiny_tokenizer, pairs_of(64, 0), pairs_of(40, 1), SETTINGS, tmp_path, batch_rows=16, progress=False
    )
    assert result.measures["Pearson"] > 0.95 and result.measures["Spearman"] > 0.9
    assert result.predicted.max() > 3.2 and result.predicted.min() < 1.9


def test_loss_and_output_are_those_of_a_plain_head(tiny_bert, tiny_tokenizer, tmp_path):
    split = pairs_of(6, 0)
    store = TokenStore.build(
        split.texts, tiny_tokenizer, tmp_path / "t", tuple(split.texts.column_names), progress=False
    )
    batch = store.batch(np.arange(6), max_length=32, title="pair")
    assert batch.token_type_ids.max() == 1
    model = SentenceClassifier(tiny_bert(), TASKS["stsb"]).eval()
    with torch.no_grad():
        cls = model.encoder(**batch.model_inputs()).last_hidden_state[:, 0]
        plain = torch.tanh(cls @ model.dense.weight.T + model.dense.bias) @ model.output.weight.T + model.output.bias
        wanted = torch.linspace(0, 1, 6)
        found = model(NluBatch(batch, wanted), torch.Generator())
    assert found["loss"].item() == pytest.approx(((plain[:, 0] - wanted) ** 2).mean().item(), rel=1e-5)
    assert predict(model, store, 32) == pytest.approx((5 * plain[:, 0]).numpy(), abs=1e-5)


def test_class_loss_is_the_cross_entropy(tiny_bert, tiny_tokenizer, tmp_path):
    split = sentences_of(8, 0)
    store = TokenStore.build(split.texts, tiny_tokenizer, tmp_path / "t", ("sentence1",), progress=False)
    batch = store.batch(np.arange(8), max_length=32)
    model = SentenceClassifier(tiny_bert(), TASKS["cola"]).eval()
    with torch.no_grad():
        found = model(NluBatch(batch, torch.from_numpy(split.targets)), torch.Generator())
        logits = model.logits(batch).double().numpy()
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert found["loss"].item() == pytest.approx(-np.log(chances[np.arange(8), split.targets]).mean(), rel=1e-5)
    assert found["accuracy"].item() == pytest.approx((logits.argmax(axis=1) == split.targets).mean())


def test_same_seed_gives_the_same_predictions_and_another_one_another_head(tiny_bert, tiny_tokenizer, tmp_path):
    short = TrainSettings(steps=3, learning_rate=1e-3, precision="fp32")
    splits = pairs_of(32, 0), pairs_of(10, 1)
    options = {"batch_rows": 8, "progress": False}
    first, second = (
        finetune_nlu(tiny_bert(), tiny_tokenizer, *splits, short, tmp_path / name, **options) for name in "ab"
    )
    assert np.array_equal(first.predicted, second.predicted)
    heads = [SentenceClassifier(tiny_bert(), TASKS["stsb"], seed=seed).output.weight for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


def test_what_does_not_fit_is_refused(tiny_bert, tiny_tokenizer, tmp_path):
    arguments = (tiny_bert(), tiny_tokenizer, sentences_of(8, 0))
    with pytest.raises(InputError, match="one task"):
        finetune_nlu(*arguments, pairs_of(4, 0), SETTINGS, tmp_path, progress=False)
    with pytest.raises(InputError, match="can fill"):
        finetune_nlu(*arguments, sentences_of(4, 1), SETTINGS, tmp_path, batch_rows=9, progress=False)


def test_epochs_become_steps():
    assert [steps_for(8551, 32, 3), steps_for(10, 32, 3), steps_for(64, 32, 0.5)] == [801, 1, 1]
