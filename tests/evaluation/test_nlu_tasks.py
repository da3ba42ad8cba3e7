"""Files of the tasks as published, written small by hand, and the measures against scikit-learn and scipy."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from dr_lib.errors import InputError
from dr_lib.evaluation import load_nlu
from dr_lib.evaluation.nlu_measures import measure
from dr_lib.places import data_root

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
FILES = {
    "cola": 'gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tRode sailors "the.\n',
    "mrpc": '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe said "no.\tNo, he said.\n0\t1\t2\ta\tb\n',
    "stsb": "index\tgenre\tscore\tsentence1\tsentence2\n0\tx\t4.75\ta b\tc d\n1\tx\t0\ta\tb\n",
    "sick-relatedness": SICK + "1\ta\tb\t4.5\tNEUTRAL\n",
    "sick-entailment": SICK + "1\ta\tb\t1\tENTAILMENT\n",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta?\tb?\t1\n9\tbroken\n1\t3\t4\tc\td\t0\n",
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
    assert split.left_out == (task == "qqp")


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("stsb", "score\tsentence1\tsentence2\n9\ta\tb\n", "line 2: score '9'. Give a number from 0 to 5"),
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
        found = measure(predicted, actual, ("accuracy", "F1", "Matthews"))
        assert found["accuracy"] == pytest.approx(metrics.accuracy_score(actual, predicted))
        assert found["F1"] == pytest.approx(metrics.f1_score(actual, predicted))
        assert found["Matthews"] == pytest.approx(metrics.matthews_corrcoef(actual, predicted))


def test_correlations_equal_scipy():
    rng = np.random.default_rng(0)
    for _ in range(20):
        actual = np.round(5 * rng.random(50), 1)
        predicted = np.round(actual + rng.standard_normal(50))  # with ties
        found = measure(predicted, actual, ("Pearson", "Spearman"))
        assert found["Pearson"] == pytest.approx(stats.pearsonr(predicted, actual).statistic)
        assert found["Spearman"] == pytest.approx(stats.spearmanr(predicted, actual).statistic)


def test_constant_predictions_have_no_correlation_and_no_f1():
    found = measure(np.zeros(4), np.array([0, 1, 1, 0]), ("Matthews", "Pearson", "Spearman", "F1"))
    assert set(found.values()) == {0.0}


@pytest.mark.parametrize("predicted", [np.zeros(3), np.array([np.nan, 0.0]), np.zeros(0)])
def test_predictions_that_do_not_fit_are_refused(predicted):
    with pytest.raises(InputError, match="Predict each row once"):
        measure(predicted, np.zeros(2), ("accuracy",))
