"""Studies: every run once, failures by label, the budget kept, any executor, and unfinished runs
continued.
"""

import lzma
import os
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from multiprocessing.reduction import ForkingPickler
from types import SimpleNamespace

import pytest
from tqdm import tqdm

from dr_lib import lab, objectives
from dr_lib.errors import InputError
from dr_lib.files import write_json
from dr_lib.lab import Study, StudyError
from dr_lib.lab.study import SPEEDS, STARTING, Work, rest_of, seconds_needed, versions_of
from dr_lib.stages import Cache, code_digest
from dr_lib.training import TrainLog

LABELS = {
    "first": {},
    "mean": {"pooling": "mean"},
    "float16": {"evaluation__vector_type": "float16"},
}


@pytest.fixture
def quick(tiny_recipe):
    """A recipe without any training."""
    return tiny_recipe.with_(objective="none", final="pretrained")


@pytest.fixture
def broken(quick, tmp_path):
    """A recipe that fails at run time: one of its files has a line with too few columns."""
    (tmp_path / "task").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "task" / f"{split}.tsv").write_text("x\t1\n")
    nlu = {"task": "cola", "folder": str(tmp_path / "task"), "length": 16}
    return quick.with_(evaluation=quick.evaluation.model_dump() | {"kind": "nlu", "nlu": nlu})


@pytest.fixture
def study(quick, cache, tmp_path):
    """`study(labels, seeds=[0])`; labels may come with another recipe."""

    def make(labels=("first", "mean"), more=None, **options) -> Study:
        options = {"scale": "smoke", "cache": cache, "records": tmp_path / "records"} | options
        recipes = {label: quick.with_(**LABELS[label]) for label in labels}
        return Study("simlm/test", recipes | (more or {}), **options)

    return make


def kinds(cache: Cache) -> list[str]:
    return [name.rsplit("-", 1)[0] for name in cache.built]


def count(result: lab.StudyResult) -> int:
    return len(result.records)


# Records ------------------------------------------------------------------------------------------


def test_every_label_and_seed_gets_a_record_and_seeds_take_turns(study):
    whole = study(seeds=[0, 1])
    assert [(run.label, run.recipe.seed) for run in whole.planned] == [
        ("first", 0),
        ("mean", 0),
        ("first", 1),
        ("mean", 1),
    ]
    result = whole.run()
    assert {label: [record.seed for record in runs] for label, runs in result.runs().items()} == {
        "first": [0, 1],
        "mean": [0, 1],
    }
    assert result.pending == {}


def test_configurations_share_stages_and_a_second_call_runs_nothing(study, cache):
    first = study(seeds=[0, 1]).run()
    assert repr(first).splitlines() == [repr(record) for record in first.records.values()]
    built = kinds(cache)
    assert (built.count("passage_tokens"), built.count("query_tokens"), built.count("untuned")) == (
        1,
        1,
        4,
    )
    again = study(seeds=[0, 1]).run()
    assert kinds(cache) == built and again.runs() == first.runs()


def test_without_its_records_a_finished_study_builds_nothing_either(study, cache, tmp_path):
    first, built = study().run(), kinds(cache)
    again = study(records=tmp_path / "others").run()
    assert kinds(cache) == built
    assert [one.scores for (one,) in again.runs().values()] == [
        one.scores for (one,) in first.runs().values()
    ]


def test_a_record_of_other_training_queries_is_made_anew_even_if_none_is_read(own_recipe, tmp_path):
    untuned = own_recipe.with_(objective="none", final="pretrained")
    options = {
        "scale": "smoke",
        "cache": Cache(tmp_path / "stages"),
        "records": tmp_path / "records",
    }
    queries, digests = tmp_path / "tiny" / "queries.jsonl", []
    for _ in range(2):
        result = Study("simlm/test", {"row": untuned}, **options).run()
        (record,) = result.runs()["row"]
        assert record.data["collection"]["digest"] == lab.pipeline(untuned).inputs.collection.digest
        digests.append(record.data["collection"]["digest"])
        queries.write_text(queries.read_text().replace('"q0", "text": "', '"q0", "text": "which '))
    assert digests[0] != digests[1]


def test_a_new_seed_or_another_recipe_adds_only_its_own_runs(study, cache, quick):
    study(seeds=[0]).run()
    built = len(cache.built)
    study(seeds=[0, 1]).run()
    assert sorted(kinds(cache)[built:]) == sorted(2 * ["untuned", "vectors", "dense_run", "scores"])
    built = len(cache.built)
    changed = study((), {"first": quick.with_(evaluation__depth=60)}).run()
    assert sorted(kinds(cache)[built:]) == ["dense_run", "scores"]
    assert changed.runs()["first"][0].recipe["evaluation"]["depth"] == 60


def test_a_record_says_what_was_run_and_no_place(tiny_recipe, shared, tmp_path):
    record = lab.execute(lab.Run("simlm/test", "row", "smoke", tiny_recipe), shared)
    text = lzma.decompress(record.save(tmp_path / "records").read_bytes()).decode()
    plan = lab.pipeline(tiny_recipe)
    assert str(tmp_path.parent) not in text and tiny_recipe.collection.name not in text
    assert (record.recipe_digest, record.seed, record.label) == (tiny_recipe.digest, 0, "row")
    assert record.keys == {name: one.key for name, one in plan.stages().items()}
    assert {
        "passage_tokens",
        "negatives",
        "pretrained",
        "retriever",
        "vectors",
        "run",
        "evaluation",
    } <= {*record.keys}
    assert record.keys["evaluation"] == plan.end.key
    assert record.code.keys() == {one.kind for one in plan.stages().values()} | {"method"}
    assert record.code["dense_run"] == plan.run.code
    facts = record.data["collection"]
    assert (facts["name"], facts["digest"]) == ("tiny", plan.inputs.collection.digest)
    assert (facts["passages"], facts["train_queries"], facts["test_queries"]) == (40, 12, 6)
    assert record.data["base"]["name"] == record.data["generator"]["name"] == "base"
    assert len(record.per_query("MRR@10")) == 6
    assert record.means["MRR@10"] == pytest.approx(record.per_query("MRR@10").mean())
    assert set(record.training) == {"pretrained", "retriever"}
    assert record.training["pretrained"]["weights"]["model/model.safetensors"]
    assert record.training["retriever"]["curve"]["step"]
    assert record.versions["torch"] and record.seconds["retriever"] > 0


def test_a_re_ranked_pair_record_names_the_last_cross_encoder_and_not_that_of_the_labels(
    tiny_recipe,
):
    plan = lab.pipeline(tiny_recipe.with_(objective="pair", final="reranker"))
    found = {one.key for one in plan.end.walk() if one.kind == "cross_encoder"}
    assert len(found) == 2 and plan.stages()["cross_encoder"].key == plan.reranker.key


def test_a_record_has_every_stage_and_its_time(tiny_recipe, shared, beir_folder, tmp_path):
    beir_folder(tmp_path / "general", passages=30)
    recipe = tiny_recipe.with_(
        final="retriever2", mining__rounds=2, pretraining__first=str(tmp_path / "general")
    )
    plan = lab.pipeline(recipe)
    stages = plan.stages()
    assert sorted(one.key for one in stages.values()) == sorted(one.key for one in plan.end.walk())
    retrievers = [
        stages[name] for name in ("earlier retriever 2", "earlier retriever", "retriever")
    ]
    assert retrievers[0].key == plan.retriever1.key and retrievers[2].key == plan.retriever2.key
    assert (
        len({one.arguments["examples"].stage.arguments["negatives"].key for one in retrievers}) == 3
    )
    assert stages["pretrained"].arguments["start"].stage.key == stages["earlier pretrained"].key
    record = lab.execute(lab.Run("simlm/test", "row", "smoke", recipe), shared)
    assert record.seconds.keys() == stages.keys() and set(record.training) == {
        "pretrained",
        "retriever",
    }
    for name in (
        "pretrained",
        "earlier pretrained",
        "retriever",
        "earlier retriever",
        "earlier retriever 2",
    ):
        log = TrainLog.load(shared.folder(stages[name]) / "log.json")
        assert record.seconds[name] == log.wall_seconds > 0
    assert record.seconds["vectors"] == shared.manifest(stages["vectors"])["seconds"]


def test_a_record_names_the_code_of_an_earlier_method(tiny_recipe, shared, beir_folder, tmp_path):
    beir_folder(tmp_path / "general", passages=30)
    recipe = tiny_recipe.with_(
        pretraining__first=str(tmp_path / "general"), pretraining__first_by="mlm"
    )
    record = lab.execute(lab.Run("simlm/test", "row", "smoke", recipe), shared)
    assert record.code["dr_lib.objectives.mlm.Mlm"] == code_digest(objectives.METHODS["mlm"])


def test_files_of_finished_stages_can_be_read_by_everybody(tiny_recipe, cache):
    umask = os.umask(0o022)
    try:
        lab.execute(
            lab.Run("t", "read", "smoke", tiny_recipe.with_(objective="cdmae", final="retriever1")),
            cache,
        )
    finally:
        os.umask(umask)
    finished = [
        path
        for manifest in cache.root.glob("*/manifest.json")
        for path in manifest.parent.rglob("*")
    ]
    assert {oct(path.stat().st_mode & 0o777) for path in finished if path.is_file()} == {"0o644"}
    assert {oct(path.stat().st_mode & 0o777) for path in finished if path.is_dir()} <= {"0o755"}


def test_versions_that_differ_between_stages_are_all_named():
    manifests = [{"versions": {"torch": "1", "numpy": "2"}}, {"versions": {"torch": "3"}}]
    assert versions_of(manifests) == {"numpy": "2", "torch": "1 and 3"}


# Failures -----------------------------------------------------------------------------------------


def test_a_failed_run_is_named_and_loses_no_other(study, broken, quick, tmp_path):
    with pytest.raises(StudyError, match=r"broken \(seed 0\): InputError: .*train\.tsv") as error:
        study(["first"], {"broken": broken, "BM25": quick.with_(evaluation__kind="bm25")}).run()
    assert sorted(error.value.result.runs()) == ["BM25", "first"]
    assert [run.label for run in error.value.result.failures] == ["broken"]
    assert len(lab.load_records(tmp_path / "records")) == 2


def test_a_recipe_that_cannot_run_stops_the_study_before_anything_has_started(study, quick, cache):
    with pytest.raises(InputError, match="MMR@10"):
        study(["first"], {"wrong": quick.with_(evaluation__measures=["MMR@10"])}).run()
    assert cache.built == []


def test_an_empty_study_is_refused(study):
    for options in ({"labels": []}, {"seeds": []}):
        with pytest.raises(InputError, match="nothing to run"):
            study(**options)
    with pytest.raises(TypeError, match="scale"):  # it would name smoke runs "laptop"
        Study("mine/quick", {"first": lab.recipe_at("smoke")})


# Budget -------------------------------------------------------------------------------------------


class Time:
    """Time that is up after this many steps of training in total; None: never."""

    def __init__(self, monkeypatch):
        self.steps: int | None = None
        monkeypatch.setattr("dr_lib.training.loop.time_is_up", self.up)

    def up(self) -> bool:
        self.steps = None if self.steps is None else self.steps - 1
        return self.steps is not None and self.steps <= 0


@pytest.fixture
def steps(monkeypatch):
    return Time(monkeypatch)


@pytest.mark.parametrize("pool", [nullcontext, lambda: ThreadPoolExecutor(1)])
def test_a_run_is_stopped_when_the_time_is_up_and_ends_as_an_unbroken_one(
    study, tiny_recipe, steps, tmp_path, capsys, pool
):
    longer = tiny_recipe.with_(objective="simlm", dropout=0.3, pretraining__steps=9)
    elsewhere = {"cache": Cache(tmp_path / "other", announce=str), "records": tmp_path / "others"}
    (unbroken,) = study([], {"long": longer}, **elsewhere).run().runs()["long"]
    with pool() as executor:
        bounded = study(["first"], {"long": longer}, minutes=60, executor=executor)
        steps.steps = 7
        result = bounded.run()
        assert {run.label: far for run, far in result.pending.items()} == {
            "long": "7 of 9 steps of pre-training"
        }
        assert (
            list(result.runs()) == ["first"]
            and "long (seed 0), stopped after 7 of 9" in capsys.readouterr().out
        )
        # two of nine steps are left of the one, all of the other
        missing = bounded.cache.missing(lab.pipeline(run.recipe).end for run in result.pending)
        costs = {stage.kind: stage.cost for stage in missing}
        spared = sum(costs.values()) - costs["pretrained"] * 7 / 9
        core = sum(stage.core_seconds for stage in missing)
        speed, _ = SPEEDS["two processor cores"]
        assert result.needed == pytest.approx(spared / speed + core)
        steps.steps = 3  # two of pre-training, one of fine-tuning
        result = bounded.run()
        assert [*result.pending.values()] == ["1 of 4 steps of fine-tuning"]
        trained = costs["pretrained"] * 2 / 9 + costs["retriever"] / 4
        assert result.done == pytest.approx(trained / speed + core)
        steps.steps = None
        (record,) = bounded.run().runs()["long"]
    assert record.keys == unbroken.keys and record.scores == unbroken.scores
    weights = {name: facts["weights"] for name, facts in record.training.items()}
    assert weights == {name: facts["weights"] for name, facts in unbroken.training.items()}


def test_no_time_starts_nothing(study):
    assert len(study(minutes=0).run().pending) == 2
    assert study(minutes=10).run().pending == {}


def test_the_cost_is_told_before_the_first_run(study, capsys, tiny_recipe):
    study([], {"row": tiny_recipe}, minutes=0).run()
    assert "1 run to do, " in (told := capsys.readouterr().out) and "on a data-centre GPU" in told


def test_small_batches_take_a_gpu_as_long_as_a_processor_takes_to_start_them():
    """Two trainings of a hundred micro-batches, which take 0.1 s and a microsecond each."""
    large, small = Work(2e15, 1.0, 100), Work(2e10, 0.0, 100)
    needed = seconds_needed([large, small], further=2e14)
    assert needed["a data-centre GPU"] == pytest.approx(10 + 100 * STARTING + 1 + 1)
    assert needed["two processor cores"] == pytest.approx((2e15 + 2e10 + 2e14) / 1.6e11 + 1)


def test_what_is_left_of_a_training_are_its_further_steps(tiny_recipe, cache):
    training = {"steps": 12, "accumulation": 2, "stop_at": 8}
    changes = {f"pretraining__{name}": value for name, value in training.items()}
    stage = lab.pipeline(tiny_recipe.with_(objective="mlm", **changes)).pretrained
    assert rest_of(stage, cache) == (stage.cost, 0.0, 16)
    draft = cache.draft(stage)
    draft.mkdir(parents=True)
    write_json(draft / "log.json", TrainLog(title="x", steps=8, step=6).as_dict())
    assert rest_of(stage, cache) == (stage.cost / 4, 0.0, 4)
    tokens = stage.inputs[0]
    assert rest_of(tokens, cache) == (0.0, tokens.core_seconds, 0)


# Executors ----------------------------------------------------------------------------------------


def test_the_bar_says_how_long_what_is_left_takes(study, tiny_recipe, monkeypatch):
    shown, trained = [], tiny_recipe.with_(objective="none")
    monkeypatch.setattr(tqdm, "set_postfix_str", lambda self, text, **options: shown.append(text))
    # a minute for the first 30 of 40 seconds that were expected, so 20 s for the last 10
    monkeypatch.setattr(Study, "_seconds_left", lambda _, ends: (0, 10.0, 40.0)[len([*ends])])
    clock = SimpleNamespace(monotonic=iter([0.0, 60.0]).__next__)
    monkeypatch.setattr("dr_lib.lab.study.time", clock)
    rates = {"first": 1e-3, "second": 2e-3}
    runs = {label: trained.with_(finetuning__learning_rate=rate) for label, rate in rates.items()}
    study([], runs).run()
    first, second = (text for text in shown if "seed" in text)
    assert first == "first (seed 0)"  # nothing is done, so nothing is known
    assert second == "second (seed 0), 20 s left"


def test_threads_take_turns_and_get_the_scores_of_runs_alone(study, tiny_recipe, tmp_path):
    more = {
        f"{rate}": tiny_recipe.with_(dropout=0.3, finetuning__learning_rate=rate)
        for rate in (1e-3, 2e-3)
    }
    with ThreadPoolExecutor(3) as pool:
        together = study(["first"], more, executor=pool).run().runs()
    elsewhere = {
        "cache": Cache(tmp_path / "alone", announce=lambda line: None),
        "records": tmp_path / "others",
    }
    alone = study(["first"], more, **elsewhere).run().runs()
    assert {label: one.scores for label, (one,) in together.items()} == {
        label: one.scores for label, (one,) in alone.items()
    }


def test_an_executor_keeps_the_failures_apart_too(study, broken):
    with ThreadPoolExecutor(2) as pool, pytest.raises(StudyError) as error:
        study(more={"broken": broken}, executor=pool).run()
    assert [run.label for run in error.value.result.failures] == ["broken"] and count(
        error.value.result
    ) == 2


@pytest.mark.parametrize("most", [2, 3])
def test_so_many_runs_are_under_way_at_once(study, monkeypatch, most):
    under_way, seen = [], []

    def execute(run, cache):
        under_way.append(run)
        seen.append(len(under_way))
        time.sleep(0.05)
        under_way.remove(run)
        raise RuntimeError("enough")

    monkeypatch.setattr("dr_lib.lab.study.execute", execute)
    with ThreadPoolExecutor(most) as pool, pytest.raises(StudyError):
        study(seeds=[0, 1, 2, 3], executor=pool).run()
    assert len(seen) == 8 and max(seen) <= most


class Posting(Executor):
    """Pickles what is submitted, as for another process."""

    def submit(self, function, /, *arguments, **named):
        sent, given, more = ForkingPickler.loads(ForkingPickler.dumps((function, arguments, named)))
        future: Future = Future()
        future.set_result(sent(*given, **more))
        return future


def test_what_is_submitted_can_be_sent_to_another_process(quick, tmp_path):
    result = Study("simlm/test", {"first": quick}, scale="smoke", executor=Posting()).run()
    assert count(result) == 1
    (record,) = lab.load_records(lab.live_folder("smoke"), "simlm/test")
    assert record.label == "first"


class Breaking(Executor):
    """A pool whose processes are killed during the second run; it accepts no other run."""

    def __init__(self):
        self.taken = 0

    def submit(self, function, /, *arguments, **named):
        self.taken += 1
        if self.taken > 2:
            raise BrokenProcessPool("a child process terminated abruptly")
        future: Future = Future()
        if self.taken == 2:
            future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
        else:
            future.set_result(function(*arguments, **named))
        return future


def test_a_pool_that_breaks_loses_no_record_and_the_next_call_goes_on(study, tmp_path):
    labels = ["first", "mean", "float16"]
    with pytest.raises(StudyError, match="terminated abruptly") as error:
        study(labels, executor=Breaking()).run()
    assert list(error.value.result.runs()) == ["first"]
    assert [run.label for run in error.value.result.failures] == ["mean", "float16"]
    assert len(lab.load_records(tmp_path / "records")) == 1
    assert count(study(labels).run()) == 3


def test_under_torchrun_the_first_line_says_how_to_start_it(study, monkeypatch, cache):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InputError, match=r"torchrun: .* one process alone.*DR_PROCESSES=4"):
        study().run()
    assert kinds(cache) == []
