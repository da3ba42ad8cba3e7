"""Tasks of language understanding: their files, fine-tuning by hand, measures against scikit-learn,
intervals.
"""

import datasets
import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics
from sklearn.metrics import matthews_corrcoef

from dr_book.measured import set_influence
from dr_book.statistics import cluster_mean, combined
from dr_lib.errors import InputError
from dr_lib.evaluation import TASKS, NluSettings, Scores
from dr_lib.evaluation.nlu import (
    MEASURES,
    NluBatch,
    NluSplit,
    SentenceClassifier,
    load_nlu,
    nlu,
    predict,
)
from dr_lib.models import save_masked_lm
from dr_lib.places import data_root
from dr_lib.tokens import TokenStore
from dr_lib.training import TrainLog

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
FILES = {
    "cola": 'gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tRode sailors "the.\n',
    "mrpc": (
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe said "no.\tNo, he'
        " said.\n0\t1\t2\ta\tb\n"
    ),
    "stsb": "index\tgenre\tscore\tsentence1\tsentence2\n0\tx\t4.75\ta b\tc d\n1\tx\t0\ta\tb\n",
    "sick-relatedness": SICK + "1\ta\tb\t4.5\tNEUTRAL\n",
    "sick-entailment": SICK + "1\ta\tb\t1\tENTAILMENT\n",
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta?\tb?\t1\n9\tbroken\n1\t3\t4\tc\td\t0\n"
    ),
}
EXPECTED = {
    "cola": ([["The sailors rode."], ["Rode sailors \"the."]], [1, 0]),
    "mrpc": ([["He said \"no.", "No, he said."], ["a", "b"]], [1, 0]),
    "stsb": ([["a b", "c d"], ["a", "b"]], [4.75, 0]),
    "sick-relatedness": ([["a", "b"]], [4.5]),
    "sick-entailment": ([["a", "b"]], [2]),
    "qqp": ([["a?", "b?"], ["c", "d"]], [1, 0]),
}  # fmt: skip


@pytest.mark.parametrize("task", FILES)
def test_published_files_are_read(tmp_path, task):
    (tmp_path / "dev.tsv").write_text(FILES[task])
    split = load_nlu(task, tmp_path, "dev")
    rows, targets = EXPECTED[task]
    assert [list(row.values()) for row in split.texts] == rows
    assert split.targets.tolist() == targets


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (
            "stsb",
            "score\tsentence1\tsentence2\n9\ta\tb\n",
            "line 2: score '9'. Give a number from 0 to 5",
        ),
        ("stsb", "score\tsentence1\tsentence2\nx\ta\tb\n", "line 2: score 'x'"),
        ("mrpc", "label\tsentence1\tsentence2\n1\ta\n", "line 2: 2 cells, 3 columns"),
        ("mrpc", "label\tsentence1\n1\ta\n", "line 1: columns label, sentence1. One of sentence2"),
        ("cola", "sentence\tlabel\nfine\t2\n", "line 2: answer '2'. Known: 0, 1"),
        ("cola", "sentence\tlabel\n", "no row in it"),
        ("cola", "", "the file is empty"),
        ("snli", "x\n", "Known: cola, mrpc"),
    ],
)
def test_broken_files_are_refused_with_the_place(tmp_path, task, text, message):
    (tmp_path / "dev.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        load_nlu(task, tmp_path, "dev")


@pytest.mark.parametrize(
    "content", [b"\xff\n", b"\0\t\0\n", b"\n\n", b"\x1f\x8b", "inf", "nan", "0x1", "9" * 5000]
)
def test_odd_files_end_in_one_clear_error(tmp_path, content):
    row = f"score\tsentence1\tsentence2\n{content}\ta\tb\n"
    (tmp_path / "dev.tsv").write_bytes(content if isinstance(content, bytes) else row.encode())
    with pytest.raises(InputError, match=r"dev\.tsv"):
        load_nlu("stsb", tmp_path, "dev")


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_nlu("cola", tmp_path, "test")


@pytest.mark.parametrize(
    ("task", "folder", "sizes"),
    [
        ("cola", "glue-cola", {"train": 8551, "dev": 1043}),
        ("mrpc", "glue-mrpc", {"dev": 391, "test": 1725}),
        ("stsb", "glue-stsb", {"dev": 1500}),
        ("sick-entailment", "sick", {"dev": 500}),
        ("sick-relatedness", "sick", {"dev": 500}),
    ],
)
def test_real_files_have_their_published_sizes(task, folder, sizes):
    if not data_root() or not (data_root() / folder).is_dir():
        pytest.skip(f"needs the folder {folder} under DR_DATA")
    assert {split: len(load_nlu(task, folder, split)) for split in sizes} == sizes


def test_measures_of_classes_equal_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(20):
        actual = rng.integers(0, 2, 40)
        predicted = np.where(rng.random(40) < 0.7, actual, 1 - actual)
        found = {name: MEASURES[name](predicted, actual) for name in ("accuracy", "F1", "Matthews")}
        assert found["accuracy"] == pytest.approx(metrics.accuracy_score(actual, predicted))
        assert found["F1"] == pytest.approx(metrics.f1_score(actual, predicted))
        assert found["Matthews"] == pytest.approx(matthews_corrcoef(actual, predicted))


def test_correlations_equal_scipy():
    rng = np.random.default_rng(0)
    for _ in range(20):
        actual = np.round(5 * rng.random(50), 1)
        predicted = np.round(actual + rng.standard_normal(50))  # with ties
        found = {name: MEASURES[name](predicted, actual) for name in ("Pearson", "Spearman")}
        assert found["Pearson"] == pytest.approx(stats.pearsonr(predicted, actual).statistic)
        assert found["Spearman"] == pytest.approx(stats.spearmanr(predicted, actual).statistic)


def test_constant_predictions_have_no_correlation_and_no_f1():
    found = [
        MEASURES[name](np.zeros(4), np.array([0, 1, 1, 0]))
        for name in ("Matthews", "Pearson", "Spearman", "F1")
    ]
    assert found == [0.0] * 4


SETTINGS = NluSettings(
    task="cola", folder="", epochs=25, batch_rows=16, learning_rate=2e-3, warmup=0.0
)


@pytest.fixture(autouse=True)
def without_bf16(monkeypatch):
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)


def sentences_of(count: int, seed: int) -> NluSplit:
    """A sentence is acceptable if it speaks of a vector."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 2, count)
    others = ["passages", "queries", "tokens", "encoder"]
    texts = [
        " ".join(rng.permutation(["the", rng.choice(others), ("decoder", "vector")[t]]))
        for t in targets
    ]
    return NluSplit(TASKS["cola"], datasets.Dataset.from_dict({"sentence1": texts}), targets)


def pairs_of(count: int, seed: int) -> NluSplit:
    """The score of a pair is 2.5 times the number of its sentences that mention a vector."""
    rng = np.random.default_rng(seed)
    each = rng.integers(0, 2, (count, 2))
    texts = [[f"the {('decoder', 'vector')[t]}" for t in side] for side in each.T]
    columns = datasets.Dataset.from_dict({"sentence1": texts[0], "sentence2": texts[1]})
    return NluSplit(TASKS["stsb"], columns, (2.5 * each.sum(axis=1)).astype(np.float32))


def answers(
    bert, tokenizer, train: NluSplit, test: NluSplit, settings: NluSettings, folder, seed: int = 0
) -> Scores:
    """The stage's scores, from files of these rows."""
    save_masked_lm(bert, tokenizer, folder / "start")
    files = []
    for name, split in (("train", train), ("test", test)):
        answers = [
            split.task.classes[int(target)] if split.task.classes else str(target)
            for target in split.targets
        ]
        lines = zip(
            *(split.texts[column][:] for column in split.texts.column_names), answers, strict=True
        )
        header = [*split.texts.column_names, split.task.target[0]]
        files.append(folder / f"{name}.tsv")
        files[-1].write_text("\n".join("\t".join(line) for line in (header, *lines)) + "\n")
    (folder / "made").mkdir()
    settings = settings.model_copy(update={"task": train.task.name})
    nlu.body(folder / "made", folder / "start", *files, task=settings, dropout=None, seed=seed)
    return Scores.load(folder / "made" / "scores.json")


def test_a_word_can_be_learnt_to_classify(tiny_bert, tiny_tokenizer, tmp_path):
    result = answers(
        tiny_bert(), tiny_tokenizer, sentences_of(64, 0), sentences_of(40, 1), SETTINGS, tmp_path
    )
    assert np.array_equal(result.per_query("predicted"), result.per_query("actual"))
    assert result.mean("accuracy") == 1.0


def test_both_sentences_of_a_pair_are_read_and_scores_come_in_their_own_scale(
    tiny_bert, tiny_tokenizer, tmp_path
):
    result = answers(
        tiny_bert(), tiny_tokenizer, pairs_of(64, 0), pairs_of(40, 1), SETTINGS, tmp_path
    )
    predicted, actual = result.per_query("predicted"), result.per_query("actual")
    assert (
        MEASURES["Pearson"](predicted, actual) > 0.95
        and MEASURES["Spearman"](predicted, actual) > 0.9
    )
    assert (
        predicted.max() > 3.2
        and predicted.min() < 1.9
        and list(result.values) == ["predicted", "actual"]
    )


def test_loss_and_output_are_those_of_a_plain_head(tiny_bert, tiny_tokenizer, tmp_path):
    split = pairs_of(6, 0)
    store = TokenStore.build(
        split.texts, tiny_tokenizer, tmp_path / "t", tuple(split.texts.column_names)
    )
    batch = store.batch(np.arange(6), max_length=32, title="pair")
    assert batch.token_type_ids.max() == 1
    model = SentenceClassifier(tiny_bert(), TASKS["stsb"]).eval()
    with torch.no_grad():
        cls = model.encoder(**batch.model_inputs()).last_hidden_state[:, 0]
        plain = (
            torch.tanh(cls @ model.dense.weight.T + model.dense.bias) @ model.output.weight.T
            + model.output.bias
        )
        wanted = torch.linspace(0, 1, 6)
        found = model(NluBatch(batch, wanted), torch.Generator())
    assert found["loss"].item() == pytest.approx(
        ((plain[:, 0] - wanted) ** 2).mean().item(), rel=1e-5
    )
    assert predict(model, store, 32) == pytest.approx((5 * plain[:, 0]).numpy(), abs=1e-5)


def test_class_loss_is_the_cross_entropy(tiny_bert, tiny_tokenizer, tmp_path):
    split = sentences_of(8, 0)
    store = TokenStore.build(split.texts, tiny_tokenizer, tmp_path / "t", ("sentence1",))
    batch = store.batch(np.arange(8), max_length=32)
    model = SentenceClassifier(tiny_bert(), TASKS["cola"]).eval()
    with torch.no_grad():
        found = model(NluBatch(batch, torch.from_numpy(split.targets)), torch.Generator())
        logits = model.logits(batch).double().numpy()
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert found["loss"].item() == pytest.approx(
        -np.log(chances[np.arange(8), split.targets]).mean(), rel=1e-5
    )
    assert found["accuracy"].item() == pytest.approx(
        (logits.argmax(axis=1) == split.targets).mean()
    )


def test_same_seed_gives_the_same_predictions_and_another_one_another_head(
    tiny_bert, tiny_tokenizer, tmp_path
):
    splits = pairs_of(32, 0), pairs_of(10, 1)
    short = changed(epochs=1, batch_rows=8)
    first, second = (
        answers(tiny_bert(), tiny_tokenizer, *splits, short, tmp_path / name) for name in "ab"
    )
    assert np.allclose(first.per_query("predicted"), second.per_query("predicted"), atol=1e-5)
    heads = [
        SentenceClassifier(tiny_bert(), TASKS["stsb"], seed=seed).output.weight
        for seed in (0, 0, 1)
    ]
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


def test_batches_larger_than_the_split_are_refused(tiny_bert, tiny_tokenizer, tmp_path):
    splits = sentences_of(8, 0), sentences_of(4, 1)
    with pytest.raises(InputError, match="batches of 9 rows, but only 8"):
        answers(tiny_bert(), tiny_tokenizer, *splits, changed(batch_rows=9), tmp_path)


@pytest.mark.parametrize(("rows", "epochs", "steps"), [(64, 3, 12), (20, 0.5, 1), (16, 0.1, 1)])
def test_epochs_become_steps_of_full_batches(
    tiny_bert, tiny_tokenizer, tmp_path, rows, epochs, steps
):
    settings, splits = changed(epochs=epochs), (sentences_of(rows, 0), sentences_of(4, 1))
    answers(tiny_bert(), tiny_tokenizer, *splits, settings, tmp_path)
    assert TrainLog.load(tmp_path / "made" / "log.json").column("step")[-1] == steps


def changed(**values) -> NluSettings:
    return SETTINGS.model_copy(update=values)


def scores(predicted, actual) -> Scores:
    return Scores(
        [str(row) for row in range(len(actual))], {"predicted": predicted, "actual": actual}
    )


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    actual = rng.integers(0, 2, 300)
    flips = rng.random((2, 300)) < [[0.2], [0.4]]
    return actual, *(np.where(flip, 1 - actual, actual) for flip in flips)


def interval(actual, measure, *predicted):
    """The interval of one run's measure, or of the difference of two."""
    parts = [set_influence(scores(labels, actual), measure) for labels in predicted]
    signed = [(sign, *part) for sign, part in zip((1, -1), parts, strict=False)]
    return combined(signed, len(actual)).interval()


def test_of_a_mean_over_rows_it_is_the_common_interval(rows):
    actual, good, _ = rows
    own = interval(actual, "accuracy", good)
    plain = cluster_mean((good == actual).astype(float)).interval()
    assert (own.mean, own.low, own.high) == pytest.approx((plain.mean, plain.low, plain.high))


def test_leaving_rows_out_says_what_resampling_them_says(rows):
    """The slow twin: the measure is recomputed for each draw of rows."""
    actual, good, _ = rows
    own = interval(actual, "Matthews", good)
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, 300, 300) for _ in range(500)]
    values = [matthews_corrcoef(actual[one], good[one]) for one in drawn]
    assert own.mean == pytest.approx(matthews_corrcoef(actual, good), abs=1e-6)
    assert [own.low, own.high] == pytest.approx(
        np.quantile(values, [0.025, 0.975]).tolist(), abs=0.03
    )


def test_differences_are_paired(rows):
    actual, good, bad = rows
    same = interval(actual, "Matthews", good, good)
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    gain = interval(actual, "Matthews", good, bad)
    assert gain.low > 0
    assert gain.mean == pytest.approx(
        matthews_corrcoef(actual, good) - matthews_corrcoef(actual, bad), abs=1e-6
    )
