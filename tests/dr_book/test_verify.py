"""A record is confirmed by a run rebuilt from it alone: equal weights, equal scores, or means whose
difference is within the margin and within chance.
"""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from generated_pages import made_twice

from dr_book import verify
from dr_book.commands import main
from dr_book.data.sheets import is_public, sheet
from dr_book.measured import all_recorded, seed_variances
from dr_book.statistics import SeedVariance
from dr_book.verify import GOOD, certificate_lines, cheapest, compare, cost, find, seed_noise
from dr_lib import lab, places
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.files import json_digest
from dr_lib.lab import Record, Study, load_records, publish, records
from dr_lib.lab.records import live_folder, save_records
from dr_lib.training import machine

TRAINED = {"training": {"retriever": {"weights": {"model": "w0"}}}}


def made(values, weights: str | None = "w0", seed: int = 0, **changes) -> Record:
    """A record of some scores, with the digest of its weights."""
    scores = Scores([f"q{row}" for row in range(len(values))], {"MRR@10": np.float32(values)})
    recipe = {"seed": seed}
    facts = {
        "study": "s/t",
        "label": "l",
        "scale": "laptop",
        "seed": seed,
        "recipe": recipe,
        "recipe_digest": json_digest(recipe),
        "keys": {"evaluation": "e" * 64},
        "code": {"retriever": "c0"},
        "data": {"collection": {"name": "c", "digest": "d"}},
        "scores": scores.to_dict(),
        "means": {"MRR@10": scores.mean("MRR@10")},
        "training": {"retriever": {"weights": {"model": weights}} if weights else {}},
        "seconds": {"retriever": 10.0},
        "versions": {},
        "machine": {},
        "commit": {"id": None},
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Record(**facts | changes)


VALUES = np.linspace(0.2, 0.6, 200)


def noise(deviation: float, freedom: int) -> SeedVariance:
    return SeedVariance(((freedom, deviation**2),))


NOISE = noise(0.25, 33)
"""About SQuAD's."""


@pytest.mark.parametrize(
    ("values", "weights", "noise", "outcome"),
    [
        (VALUES, "w0", NOISE, "equal"),
        (VALUES, "w1", NOISE, "scores equal"),
        (VALUES, None, NOISE, "scores equal"),
        (VALUES + 0.004, "w1", NOISE, "equivalent"),
        (VALUES + 0.004, "w0", NOISE, "equivalent"),
        (VALUES[::-1], "w1", NOISE, "equivalent"),
        (VALUES - 0.006, "w1", NOISE, "not shown"),
        # only 68 of 100 pairs keep half a point, so it is widened to a whole one
        (VALUES - 0.008, "w1", noise(0.5 / 2**0.5, 33), "equivalent"),
        (VALUES - 0.02, "w1", NOISE, "different"),
        (VALUES - 0.02, "w1", noise(2.0, 3), "equivalent"),
        (VALUES - 0.10, "w1", noise(2.0, 3), "different"),
        (VALUES + 0.004, "w1", noise(0.1, 20), "equivalent and different"),
        (VALUES + 0.004, "w1", noise(0.0, 0), "equivalent"),
        (VALUES + 0.02, "w1", noise(0.0, 0), "not shown"),
        (VALUES + 0.02, "w1", noise(0.0, 3), "not shown"),
    ],
)
def test_outcome(values, weights, noise, outcome):
    found = compare(made(VALUES), made(values, weights), noise)
    assert found["outcome"] == outcome
    words = "\n".join(certificate_lines(made(VALUES), found | {"epoch": None}))
    assert outcome in words and ("nan" in words) is False


def test_a_measure_that_is_0_in_the_rebuilt_run_is_compared_too():
    """It was passed over, and the weights, then the scores, were called equal."""
    one, other = (
        Scores(["a", "b"], {"MRR@10": [0.5, 1], "R@1": values}) for values in ([0, 1], [0, 0])
    )
    first, second = (
        made(
            [0, 0],
            scores=scores.to_dict(),
            means={name: scores.mean(name) for name in scores.values},
        )
        for scores in (one, other)
    )
    found = compare(first, second, NOISE)
    assert found["means"]["R@1"] == [50.0, 0.0]
    assert not found["same"] and found["outcome"] == "equivalent"


def test_code_that_has_changed_since_is_said_as_what_it_is_the_usual_case():
    rebuilt = made(VALUES, code={"retriever": "c1", "vectors": "v"})
    found = compare(made(VALUES, code={"retriever": "c0", "vectors": "v"}), rebuilt, NOISE)
    last = certificate_lines(made(VALUES), found | {"epoch": None})[-1]
    assert last == "  code has changed since it was recorded, as is usual: retriever"


@pytest.mark.parametrize(("recorded", "asked", "used"), [(1, None, 1), (64, None, 6), (1, "4", 4)])
def test_a_run_is_rebuilt_with_the_threads_of_its_record(recorded, asked, used, monkeypatch):
    for name in ("DR_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if asked:
        monkeypatch.setenv("DR_THREADS", asked)
    else:
        monkeypatch.setattr(machine, "threads", lambda: int(os.environ.get("DR_THREADS", 6)))
    threads = []

    def execute(*_):
        threads.append(machine.threads())
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "execute", execute)
    monkeypatch.setattr(verify, "recipe_of", lambda *_: SimpleNamespace())
    with pytest.raises(KeyboardInterrupt):
        verify.verify(made(VALUES, machine={"threads": recorded}))
    assert threads == [used] and os.environ.get("DR_THREADS") == asked


def test_two_faithful_trainings_are_called_different_one_time_in_twenty():
    """Means of 4,000 pairs of runs that scatter by 0.25 points."""
    rng, outcomes = np.random.default_rng(0), []
    error = 0.25 * 2**0.5
    for difference in rng.normal(0, error, 4000):
        low = abs(difference) - error * scipy.stats.t.ppf(0.975, 10**6)
        outcomes.append((abs(difference) <= 0.5, low > 0))
    equivalent, different = np.mean(outcomes, axis=0)
    found = compare(made(VALUES), made(VALUES + 0.001, "w1"), noise(0.25, 10**6))
    assert abs(found["faithful"] - equivalent) < 0.02 and abs(different - 0.05) < 0.012
    assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * error, rel=1e-3)


def test_the_noise_is_that_of_seeds_of_one_recipe_epoch_and_collection(book):
    moves = {"simlm": [0.0, 0.02], "mlm": [0.01, 0.03, 0.05]}

    def run(label, seed, mean, **changes):
        recipe = lab.recipe_at("smoke", {"objective": label, "seed": seed}).portable()
        facts = {"recipe": recipe, "recipe_digest": json_digest(recipe), "label": label}
        facts |= {"keys": {"evaluation": f"{label}{seed}" * 9, "retriever": "r"}, "epoch": 5}
        return made(VALUES + mean, seed=seed, **facts | changes)

    records = [
        run(label, seed, mean) for label, means in moves.items() for seed, mean in enumerate(means)
    ]
    other = {"data": {"collection": {"name": "other", "digest": "other"}}}
    records += [run("none", seed, 9.0 * seed, **other) for seed in range(2)]
    records += [run("simlm", 5, 7.0, epoch=3)]
    publish(records)
    found = seed_noise(records[0], "MRR@10")
    # by hand: variances 2 and 4 points squared with 1 and 2 degrees of freedom
    assert found.freedom == 3 and found.variance == pytest.approx((1 * 2 + 2 * 4) / 3)
    alone = {"data": {"collection": {"name": "new", "digest": "new"}}}
    assert seed_noise(run("simlm", 0, 0.0, **alone), "MRR@10").freedom == 0


def test_trainings_of_one_recipe_and_seed_elsewhere_are_compared(book):
    def run(study, mean, machine, seconds, seed=0, **changes):
        recipe = lab.recipe_at("smoke", {"objective": "simlm", "seed": seed}).portable()
        facts = {"recipe": recipe, "recipe_digest": json_digest(recipe), "study": study}
        facts |= {"keys": {"evaluation": study * 9, "retriever": "r"}, "machine": {"cpu": machine}}
        facts["training"] = {"retriever": {"wall_seconds": seconds, "weights": {"model": study}}}
        return made(VALUES + mean, seed=seed, **facts | changes)

    publish(
        [
            run("first/t", 0.0, "Intel", 1.0),
            run("again/t", 0.004, "AMD", 2.0, created="2026-01-02T00:00:00+00:00"),
            # another study's row of the same training, another training on the same machine and
            # commit, and one of another seed
            run("shown/t", 0.0, "AMD", 1.0, created="2026-01-03T00:00:00+00:00"),
            run("here/t", 0.001, "Intel", 3.0, created="2026-01-04T00:00:00+00:00"),
            run("seed/t", 0.002, "AMD", 4.0, seed=1),
        ]
    )
    (pair,) = made_twice()
    assert (pair.record.study, pair.again.study) == ("first/t", "again/t")
    assert pair.found["difference"] == pytest.approx(0.4, abs=1e-4)
    assert (
        pair.found["outcome"]
        == compare(pair.record, pair.again, seed_noise(pair.record, "MRR@10"))["outcome"]
    )


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "records_root", lambda: tmp_path / "book")
    return tmp_path / "book"


def test_a_record_is_named_by_study_label_and_seed_or_by_file_and_line(book, tmp_path):
    records = [made(VALUES, label=label, seed=seed) for label in "ab" for seed in (0, 1)]
    (path,) = publish(records)
    assert find("s/t", "b") == records[2] and find("s/t", "b", seed=1) == records[3]
    assert find(str(path), "a", seed=1) == find(str(path), "2") == records[1]
    save_records(records[:1], tmp_path / "one.json")
    assert find(str(tmp_path / "one.json")) == records[0]
    elsewhere = {"collection": {"name": "other", "digest": "d"}}
    publish([made(VALUES + 0.1, label="a", data=elsewhere)])
    assert find("s/t", "a", on="other").data == elsewhere
    assert find("s/t", "a", on="c") == records[0]
    for wrong in (
        ("s/t",),
        ("s/t", "a"),
        ("s/t", "c"),
        ("s/u", "a"),
        (str(path), "9"),
        ("none.jsonl.xz",),
    ):
        with pytest.raises(InputError):
            find(*wrong)


def test_the_cheapest_is_trained_of_this_epoch_and_its_data_are_here(
    own_recipe, book, tmp_path, monkeypatch
):
    monkeypatch.setenv("DR_DATA", str(tmp_path))
    recipe = own_recipe.with_(objective="mlm", base="embedded", passage_length=24)
    Study("s/t", {"mlm": recipe}, scale="smoke").run()
    (record,) = load_records(lab.live_folder("smoke"))
    monkeypatch.setattr("dr_book.measured.SCALES", ("smoke",))
    slow = {"label": "slow", "seconds": {"retriever": 1e6}, "training": {"retriever": {}}}
    gone = {"label": "gone", "seconds": {}, "data": record.data | {"base": {"digest": "x"}}}
    old = {"label": "old", "seconds": {}, "epoch": 1}
    untrained = {"label": "bm25", "seconds": {}, "training": {}}
    log = record.training | {"retriever": {"device": "a GPU"}}
    elsewhere = {"label": "GPU", "seconds": {}, "training": log}  # and evaluated on a processor
    every = (slow, gone, old, untrained, elsewhere)
    changed = [record.model_copy(update=update) for update in every]
    publish([*changed, record])
    assert cheapest() == record
    publish_none = [one for one in changed if one.label != "slow"]
    (book / "smoke" / record.file_name).unlink()
    publish(publish_none)
    with pytest.raises(InputError, match="no trained record"):
        cheapest()


def test_of_a_training_on_a_busy_machine_the_processor_s_time_counts():
    record = made(VALUES, training={"pretrained": {}}, seconds={"pretrained": 10.0, "run": 5.0})
    assert cost(record) == 15
    busy = record.model_copy(update={"training": {"pretrained": {"processor_seconds": 5.0}}})
    assert cost(busy) == 10


def test_a_run_is_rebuilt_from_its_record(own_recipe, book, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DR_DATA", str(tmp_path))
    recipe = own_recipe.with_(objective="mlm", base="embedded", passage_length=24)
    Study("s/t", {"mlm": recipe}, scale="smoke").run()
    (path,) = publish(load_records(lab.live_folder("smoke")))
    monkeypatch.chdir(tmp_path)
    assert main(["verify", str(path), "--keep"]) == 0
    told = capsys.readouterr().out
    assert "when it was recorded\n" in told
    (record,) = load_records(path.parent)
    (certificate,) = record.rebuilt
    assert certificate["outcome"] in GOOD and certificate["outcome"] in told
    assert {*certificate["weights"]} == {"pretrained", "retriever"}
    assert certificate["code"] == [] and str(tmp_path) not in json.dumps(certificate)
    assert certificate["epoch"] == lab.epoch() and (places.cache_root() / "rebuilt").is_dir()

    (tmp_path / "tiny" / "corpus.jsonl").write_text(
        (tmp_path / "tiny" / "corpus.jsonl").read_text().replace("vector", "victor")
    )
    assert main(["verify", str(path)]) == 1
    assert "collection 'tiny' has changed since" in capsys.readouterr().err


def test_a_record_of_a_recipe_of_another_time_is_named_with_its_commit(book, capsys):
    recipe = {"negatives": {"source": "bm25"}, "seed": 0}
    facts = {"recipe": recipe, "recipe_digest": json_digest(recipe), "commit": {"id": "a1b2c3"}}
    publish([made(VALUES, **facts)])
    assert main(["verify", "s/t"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert "from another version (negatives.source" in said and "a1b2c3" in said


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("s/tt", "s/tt: the book has no record of this study. Did you mean s/t? "),
        ("S/T --scale laptop", "no record of this study. Did you mean s/t? The page reference/"),
        ("s", "the book has no record of this study. There are: s/t. The page reference/records"),
        ("x/y", "the book has no record of this study. The page reference/records has every"),
        ("s/t --scale gpu", "s/t: no record at gpu. Give --scale laptop."),
        ("s/t simml", "no record with these names. Did you mean simlm? Name one by its label; "),
        ("s/t simlm --seed 9", "s/t: no record of seed 9. There are: 0, 2."),
        ("s/t bow --on moon", "s/t: it was not searched on moon. Name one with --on: "),
        ("./s.jsonl", "s.jsonl: no such file or folder."),
        ("s/t", "s/t: several configurations. Name one by its label; there are: 'bow', 'simlm'."),
    ],
)
def test_a_slip_in_the_name_of_a_record_is_told_what_there_is(named, said, book, capsys):
    publish([made(VALUES, label="bow"), *(made(VALUES, label="simlm", seed=n) for n in (0, 2))])
    assert main(["verify", *named.split()]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_without_a_scale_the_first_that_has_the_study_is_taken(book):
    publish([made(VALUES, study="m/n", scale="smoke")])
    assert find("m/n").scale == "smoke"
    publish([made(VALUES, study="m/n", scale="laptop")])
    assert find("m/n").scale == "laptop"


@pytest.mark.parametrize("changed", [True, False, None])
def test_published_records_of_code_that_was_never_committed_are_said(changed, book, capsys):
    data = {"collection": {"name": "scifact", "digest": sheet("scifact").digest}}
    for label, state in (("none", False), ("mlm", changed)):
        facts = {"label": label, "data": data, "commit": {"id": "a1b2c3", "changed": state}}
        made(VALUES, study="m/n", scale="smoke", **facts).save(live_folder("smoke"))
    assert main(["publish", "m/n", "--scale", "smoke"]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("m-n.jsonl.xz\n")
    assert ("1 of 2 records were made by uncommitted code" in said.err) == bool(changed)


def test_studies_are_named_without_their_records_being_parsed(book, monkeypatch):
    publish([made(VALUES, study='a/"b"', label='"study":"no"'), made(VALUES, study="c/d")])
    monkeypatch.setattr(records, "_record", None)  # which parses a line
    folder = places.records_root() / "laptop"
    assert records.studies_in(folder) == {'a/"b"': "laptop", "c/d": "laptop"}
    next(folder.glob("c*")).write_bytes(b"cut")
    assert [*records.studies_in(folder)] == ['a/"b"']
    with pytest.raises(InputError, match=r"""There are: a/"b"\."""):
        find("a/c")


def test_scores_on_a_text_of_one_s_own_are_published_by_consent_alone(book, capsys):
    """A user's own text is recognised by its content: a name may be anything."""
    known = sheet("scifact").digest
    runs = [("mydata", "d"), ("scifact", "e"), ("scifact", known), ("mine", known), ("primer", "f")]
    for number, (name, digest) in enumerate(runs):
        data = {"collection": {"name": name, "digest": digest}}
        run = made(VALUES, study=f"mine/{number}", data=data, scale="smoke")
        run.save(live_folder("smoke"))
    command = ["publish", "--scale", "smoke"]
    assert main([*command, "mine/0"]) == 1
    assert "mydata: query ids and scores of your own text" in capsys.readouterr().err
    assert not (book / "smoke" / "mine").exists()
    assert main([*command, "mine/0", "--yes"]) == main([*command, "mine/2"]) == 0
    assert main([*command, "mine/3"]) == 0
    for study, name in (("mine/1", "scifact"), ("mine/4", "primer")):
        assert main([*command, study, "--yes"]) == 1
        assert f"{name}: the book has another collection of this name" in capsys.readouterr().err


@pytest.mark.parametrize("sizes", [{}, {"passages": 20}, {"train_queries": 5, "seed": 1}])
@pytest.mark.parametrize("rule", [None, "keep"])
def test_a_collection_of_the_book_is_known_by_what_a_recipe_draws_of_it(sizes, rule):
    recipe = lab.recipe_at("smoke", {"evaluation": {"own_passage": rule}}, "primer")
    recipe = recipe.with_(**{f"collection__{name}": size for name, size in sizes.items()})
    searched = lab.Inputs(recipe).searched
    for digest, public in ((searched.digest, True), ("0" * 64, False)):
        data = {"collection": {"name": "elsewhere", "digest": digest}}
        facts = {"recipe": recipe.portable(), "recipe_digest": recipe.digest}
        assert is_public(made(VALUES, data=data, **facts)) is public


def test_every_record_of_the_book_is_on_a_public_collection():
    assert [record.name for record in all_recorded() if not is_public(record)] == []


@pytest.mark.parametrize("command", ["export --to new --study", "publish"])
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("s/tt", "s/tt: no record of this study was made on this machine. Did you mean s/t? Run"),
        ("m/n", "m/n: no record at laptop. Give --scale smoke."),
        ("s/t", "s/t: no record of this study was made on this machine. Run the notebook"),
    ],
)
def test_every_command_tells_a_slip_in_the_name_of_a_study_alike(
    command, named, said, book, capsys
):
    publish([made(VALUES)])
    made(VALUES, study="m/n", scale="smoke").save(live_folder("smoke"))
    assert main([*command.split(), named, "--scale", "laptop"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("medquad", "and make it: dr-lib data medquad."),
        ("liveqa-med-questions", "and see its data sheet."),
    ],
)
def test_a_collection_that_is_not_here_is_named_with_what_makes_it(
    name, said, book, capsys, monkeypatch
):
    monkeypatch.delenv("DR_DATA", raising=False)
    recipe = lab.recipe_at("smoke", {"collection": name}).portable()
    data = {"collection": {"name": name, "digest": "d"}}
    facts = {"recipe": recipe, "recipe_digest": json_digest(recipe), "data": data}
    publish([made(VALUES, **facts)])
    assert main(["verify", "s/t"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name!r} is not on this machine. Set DR_DATA to the folder" in line and said in line


def test_which_record_must_be_said_once(capsys):
    assert main(["verify"]) == main(["verify", "s/t", "--cheapest"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert "no record given" in said[0] and "both a record and --cheapest" in said[1]


def test_how_many_pairs_keep_the_margin_is_what_the_records_say():
    (pool,) = (
        pool
        for _, name, end, pool in seed_variances("MRR@10")
        if (name, end) == ("squad", "retriever1")
    )
    deviations = pool.variance**0.5, pool.interval().high
    # to the next five: the variance is not known better, and a new record moves the last digit
    pooled, upper = (
        5 * round(20 * (2 * scipy.stats.norm.cdf(verify.MARGIN / (2**0.5 * one)) - 1))
        for one in deviations
    )
    page = (places.project_root() / "book" / "ideas" / "statistics.md").read_text(encoding="utf-8")
    assert f"on SQuAD about {pooled} of 100 pairs" in page
    assert f"its interval, about {upper} would" in page
    assert f"on SQuAD about {pooled} of 100 pairs" in " ".join(verify.__doc__.split())
