"""A comparison in sentences: which system to use, and what to do next."""

import re
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from dr_book.findings import KEPT, advice, next_steps, unfinished
from dr_book.measured import corrected_tests, detectable, differences, mean_intervals
from dr_book.tables import p_cell
from dr_lib import places
from dr_lib.evaluation import Clusters
from tests.dr_book.conftest import Facts


def questions(train: int = 5000, **queries: int) -> SimpleNamespace:
    return SimpleNamespace(
        counts={"queries": {"train": train, **queries}}, folder=Path("written/here")
    )


def least(runs, queries: int) -> float:
    """The smallest difference between `level` and BM25 that this many queries would show, in
    points.
    """
    first, second = (
        runs[label][0].per_query("MRR@10").astype(float) for label in ("level", "BM25")
    )
    return 100 * 2.8 * (first - second).std(ddof=1) / np.sqrt(queries)


def test_of_unequal_seeds_the_verdict_is_that_of_the_means_shown(runs, record):
    """A second seed that is far better than the first, while BM25 has one: the order is that of the
    means over all seeds.
    """
    level = runs["BM25"][0].per_query("MRR@10")
    two = [
        record("a", np.clip(level + gap, 0, 1), seed=seed) for seed, gap in enumerate((-0.03, 0.3))
    ]
    some = {"a": two, "BM25": runs["BM25"]}
    found = differences([("a", "BM25")], some, "MRR@10")["a", "BM25"]
    means = mean_intervals(some, "MRR@10")
    assert found.mean == pytest.approx(means["a"].mean - means["BM25"].mean) and found.low < 0
    verdict = advice(some, "MRR@10", generated=False)
    assert verdict.label is None and "Not enough" in verdict.plain
    assert repr(verdict) == verdict.plain and verdict._repr_html_() == verdict.text.data


def test_one_query_gives_no_verdict(record):
    one = {label: [record(label, [1.0])] for label in ("a", "BM25")}
    assert advice(one, "MRR@10", generated=False).label is None
    left = unfinished({"simlm": "", "BM25 + simlm, by rank": ""})
    alone = advice({"BM25": one["BM25"]}, "MRR@10", generated=False, unfinished=left)
    assert alone.plain.startswith("Use BM25 until the comparison is finished")
    assert (
        "\nNot compared yet, because the time was up: SimLM; BM25 + SimLM, by rank. Run the"
        " same command again, which continues." in alone.plain
    )
    alone = advice({"BM25": one["BM25"]}, "MRR@10", generated=False)
    assert "one system" in alone.plain and "smoke" not in alone.plain


def test_what_was_stopped_is_named_with_how_far_it_is():
    far = "1,250 of 2,000 steps of pre-training"
    told = unfinished({"simlm": far, "mlm": "", "BM25 + simlm, by rank": far})
    steps = (
        "SimLM; BM25 + SimLM, by rank (interrupted after 1,250 of 2,000 steps of pre-training);"
        " masked LM. Run the same command again, which continues."
    )
    assert told.endswith(steps) and unfinished({}) == ""


@pytest.mark.parametrize(
    ("needed", "enough", "further", "said"),
    [
        (
            8.2,
            12,
            True,
            "SimLM. That needs about 8 min more on this machine: give --minutes 12, or"
            " run the same command again, which continues.",
        ),
        (
            8.2,
            12,
            False,
            "SimLM. That needs about 8 min more on this machine, and the same command"
            " would get no further: give --minutes 12.",
        ),
        (
            0,
            6,
            False,
            "SimLM. No step was finished in this time, and the same command would get no further:"
            " give --minutes 6.",
        ),
        (0, 6, True, "SimLM. Give --minutes 6, or run the same command again, which continues."),
    ],
)
def test_what_the_time_did_not_allow_is_told_with_the_time_it_needs(needed, enough, further, said):
    text = unfinished({"simlm": ""}, needed, enough, further=further)
    assert re.sub("<[^>]+>", "", text).endswith(said)


def test_six_generated_questions_are_too_few_and_a_setting_of_bm25_is_not_spoken_of(record):
    lexical = {"evaluation": {"kind": "bm25"}}
    scores = {"BM25": [1, 0.5, 0.25, 1, 1, 0], "k1": [1, 1, 0.5, 1, 1, 0]}
    runs = {name: [record(name, values, recipe=lexical)] for name, values in scores.items()}
    alone = advice(runs, "MRR@10", generated=True)
    assert "k1" not in alone.plain and "Only BM25 was compared" in alone.plain
    assert alone.label is None and alone.pair == ("BM25", "k1")
    runs["simlm"] = [record("simlm", [0.5, 0.5, 0.5, 1, 1, 0])]
    told = advice(runs, "MRR@10", generated=True).plain
    assert "6 questions are too few to decide: BM25 (62.5) and SimLM (58.3)." in told
    assert "ahead" not in told and "k1" not in told


@pytest.mark.parametrize(("documents", "most"), [(6, 0), (10, 0), (12, 18)])
def test_questions_about_few_documents_decide_nothing_and_get_no_p_value(record, documents, most):
    """Nor if most are about one of many."""
    names = [str(max(number - most, 0) % documents) for number in range(30)]
    about = Clusters.named("document", names)
    rng = np.random.default_rng(0)
    scores = {"BM25": 0.2 + 0.1 * rng.random(30), "simlm": 0.8 + 0.1 * rng.random(30)}
    runs = {name: [record(name, values, clusters=about)] for name, values in scores.items()}
    found = advice(runs, "MRR@10", generated=True)
    few = documents < 10 or most > 0
    told = f"30 questions about {documents} documents{', most of them about a few,' * (most > 0)}"
    assert (f"{told} are too few to decide" in found.plain) == few
    assert np.isnan(found.p) == few and (p_cell(found.p).html == "&ndash;") == few
    judged = advice(runs, "MRR@10", generated=False).plain
    told = f"30 questions stand on {documents} documents or templates"
    assert (told + ", most of them on a few" * (most > 0) in judged) == few
    assert ("Use SimLM" in judged) != few and "more queries" not in judged


def test_queries_that_all_agree_do_not_promise_to_detect_everything(record):
    five = {label: [record(label, np.ones(5))] for label in ("a", "BM25")}
    assert detectable([("a", "BM25")], five, "MRR@10")["a", "BM25"] == pytest.approx(
        100 * (1 - 0.05 ** (1 / 5))
    )


def test_generated_questions_ask_for_judgements_and_say_what_fifty_would_show(runs):
    told = next_steps(
        runs, "MRR@10", best="level", questions=questions(test=60), passages=100_000
    ).data
    assert "<code>written/here</code>" in told
    assert (
        "Judge 50 queries" in told and f"difference of about {least(runs, 50):.0f} points" in told
    )


def test_a_smoke_run_advises_a_larger_one_and_compares_nothing(record):
    smoke = {label: [record(label, [1.0, 0.0], scale="smoke")] for label in ("BM25", "simlm")}
    told = next_steps(smoke, "MRR@10", best="simlm", questions=questions(test=2), passages=300).data
    assert (
        "run the scale <code>laptop</code>" in told and "BM25" not in told and "Judge" not in told
    )


def test_advice_looks_at_size_base_and_pipeline(runs, record):
    small = next_steps(
        runs, "MRR@10", best="ahead", questions=questions(train=200), passages=500, enough=12
    ).data
    for words in (
        "500 passages are little",
        "There are few training queries",
        "base model is the",
        "<strong>Give it more time</strong> for what is missing: <code>--minutes 12</code>",
    ):
        assert words in small
    recipe = {"base": "bert-base-uncased", "final": "distilled"}
    large = {"BM25": runs["BM25"], "big": [record("big", np.linspace(0, 1, 60), recipe=recipe)]}
    told = next_steps(large, "MRR@10", best="big", questions=None, passages=100_000).data
    assert not any(words in told for words in ("little", "few", "small one", "distillation"))
    given = {
        "BM25": runs["BM25"],
        "<m>": [record("<m>", np.linspace(0, 1, 60), recipe={"retriever": "<m>"})],
    }
    told = next_steps(given, "MRR@10", best="<m>", questions=None, passages=500).data
    assert (
        "search FOLDER --model &lt;m&gt;<" in told
        and "{base: &lt;m&gt;, pooling: mean}" in told
        and "little" not in told
    )


def test_the_verdict_names_what_is_ahead_of_all(runs):
    found = advice(runs, "MRR@10", generated=False)
    ahead, second = (100 * runs[label][0].per_query("MRR@10").mean() for label in ("ahead", "BM25"))
    assert found.label == "ahead" and "significant" in found.text.data
    assert f"Use ahead ({ahead:.1f} against {second:.1f} of " in found.text.data
    without = {label: own for label, own in runs.items() if label in ("BM25", "behind")}
    found = advice(without, "MRR@10", generated=False)
    assert (
        found.label == "BM25"
        and "Use BM25 (" in found.text.data
        and "No public model" in found.text.data
    )


def test_the_verdict_on_what_was_trained_once_is_of_these_weights(runs, record):
    """Its p-value is in no table, which would speak of the method."""
    runs["BM25"] = [record("BM25", runs["BM25"][0].per_query("MRR@10"), recipe={"retriever": "w"})]
    words = "significant for the weights trained here). Another training may do better or worse"
    found = advice(runs, "MRR@10", generated=False)
    assert found.label == "ahead" and words in found.plain and found.p < 0.05
    assert np.isnan(corrected_tests([found.pair], runs, "MRR@10")[found.pair])
    scores = runs["ahead"][0].per_query("MRR@10")
    given = {"m": [record("m", scores, recipe={"retriever": "m"})], "BM25": runs["BM25"]}
    found = advice(given, "MRR@10", generated=False)
    assert found.label == "m" and "significant)." in found.plain and "training" not in found.plain
    assert found.p == corrected_tests([found.pair], given, "MRR@10")[found.pair]


def test_what_was_trained_on_templates_is_praised_for_templates_alone(runs, record):
    def with_names(runs, **data):
        """The same runs on 60 queries, 48 of which eight templates made."""
        made = Clusters.named(
            "question template", [f"form {min(n, 47) % 8 + n // 48 * n}" for n in range(60)]
        )
        return {
            label: [Facts(**vars(one) | {"clusters": made, "data": one.data | data}) for one in own]
            for label, own in runs.items()
        }

    found = advice(with_names(runs), "MRR@10", generated=False)
    words = (
        "For queries worded like these, use ahead",
        "80\N{NO-BREAK SPACE}% of the test",
        "show BM25 (",
    )
    told = [one in found.text.data for one in words]
    assert found.label == "ahead" and all(told)
    model = {
        "model": [
            record("model", runs["ahead"][0].per_query("MRR@10"), recipe={"retriever": "model"})
        ]
    }
    elsewhere = with_names(runs, trained_on={"name": "other", "digest": "0"})
    for some in (runs, elsewhere, with_names({"BM25": runs["BM25"]} | model)):
        assert "wordings" not in advice(some, "MRR@10", generated=False).text.data
    plain = {"BM25": runs["BM25"], "none": runs["ahead"]}
    assert (
        "Use the retriever without pre-training ("
        in advice(plain, "MRR@10", generated=False).text.data
    )


@pytest.mark.parametrize("undecided", [1, 3])
def test_without_a_secured_difference_the_verdict_says_how_many_queries_are_missing(
    runs, record, undecided
):
    """At Holm's level for as many pairs as are undecided: one that is decided does not count."""
    scores = np.where(
        np.arange(60) % 3,
        runs["BM25"][0].per_query("MRR@10") + 0.1,
        runs["BM25"][0].per_query("MRR@10") - 0.15,
    )
    some = {
        "BM25": runs["BM25"],
        "perhaps": [record("perhaps", scores, recipe={"retriever": "perhaps"})],
        "behind": [record("behind", runs["BM25"][0].per_query("MRR@10") - 0.2)],
    }
    for number in range(1, undecided):
        some[f"{number}"] = [record(f"{number}", scores - 0.001 * number)]
    found = advice(some, "MRR@10", generated=False)
    difference = (scores - runs["BM25"][0].per_query("MRR@10")).astype(float)
    quantiles = stats.t.ppf(1 - 0.025 / undecided, 59) + stats.t.ppf(0.8, 59)
    wanted = 60 * ((quantiles * difference.std(ddof=1) / np.sqrt(60) / difference.mean()) ** 2 - 1)
    shown = float(re.search(r"judge about ([\d,]+) more", found.text.data)[1].replace(",", ""))
    assert (
        found.label is None
        and shown == 10 * np.ceil(wanted / 10)
        and "No public model" not in found.text.data
    )


def test_two_settings_of_bm25_are_no_comparison_unless_one_is_ahead(runs, record):
    lexical = {"evaluation": {"kind": "bm25"}}
    for other, words in (
        ("level", "Use BM25 until the comparison is finished"),
        ("ahead", "Use B ("),
    ):
        some = {
            name: [record(name, runs[label][0].per_query("MRR@10"), recipe=lexical)]
            for name, label in (("BM25", "BM25"), ("B", other))
        }
        found = advice(some, "MRR@10", generated=False, unfinished="Not compared yet: m.")
        assert found.plain.startswith(words) and "No public model" not in found.plain
        assert found.plain.endswith("\nNot compared yet: m.") and found.pair


def test_rivals_of_a_winner_are_named(runs, record):
    twin = [record("twin", runs["ahead"][0].per_query("MRR@10") + 0.002 * (-1) ** np.arange(60))]
    found = advice(runs | {"twin": twin}, "MRR@10", generated=False)
    assert (
        found.label in ("ahead", "twin")
        and "of BM25" in found.text.data
        and f"Not significantly different from {found.label}: " in found.text.data
    )


def test_the_verdict_never_contradicts_the_tests_shown_beside_it(runs, record):
    """Near the level, many comparisons among the others must not revoke a result established
    against BM25.
    """
    level = runs["BM25"][0].per_query("MRR@10")
    order, rng = np.arange(60), np.random.default_rng(0)
    for gap in np.linspace(0.02, 0.08, 7):
        near = [
            record(f"near {n}", np.clip(level + gap + 0.15 * (-1) ** rng.permutation(order), 0, 1))
            for n in range(4)
        ]
        some = {"BM25": runs["BM25"]} | {one.label: [one] for one in near}
        pairs = [(label, "BM25") for label in some if label != "BM25"]
        best, p_values = (
            max(pairs, key=lambda pair: some[pair[0]][0].means["MRR@10"]),
            corrected_tests(pairs, some, "MRR@10", as_trained=True),
        )
        assert (advice(some, "MRR@10", generated=False, pairs=pairs).label is not None) == (
            p_values[best] < 0.05
        )


def test_generated_questions_and_smoke_runs_give_no_verdict(runs, record):
    found = advice(runs, "MRR@10", generated=True)
    assert (
        found.label is None
        and "No verdict" in found.text.data
        and "until then use BM25" in found.text.data
    )
    smoke = {label: [record(label, [1.0, 0.0], scale="smoke")] for label in ("BM25", "simlm")}
    assert advice(smoke, "MRR@10", generated=False).label is None


def test_the_pairs_whose_order_generated_questions_kept_are_those_of_the_pages_tables():
    """The trials of practice/own-corpus: pairs of systems with a number on either side."""
    page = (
        (places.project_root() / "book/practice/own-corpus.md")
        .read_text(encoding="utf-8")
        .split("can be trusted")[1]
    )
    kept = pairs = 0
    for part in re.findall(r"\n\n(\|.*?)\n\n", page.partition("\n## ")[0], re.DOTALL):
        cells = [re.findall(r"\| *(-?\d+\.\d)", line) for line in part.splitlines()]
        for one, other in combinations(
            [tuple(map(float, line)) for line in cells if len(line) == 2], 2
        ):
            pairs, kept = pairs + 1, kept + ((one[0] > other[0]) == (one[1] > other[1]))
    assert f"{kept} of {pairs} pairs of systems" == KEPT
