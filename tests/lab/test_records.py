"""Records: whole or absent, refused when altered, replaced when published; those of the book still
load.
"""

import json
import multiprocessing
import re
import warnings

import numpy as np
import pytest

from dr_lib import lab, places
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.files import json_digest
from dr_lib.lab import Record, load_record, load_records, publish


def scores(values: list[float]) -> dict:
    return Scores(
        [f"q{number}" for number in range(1, len(values) + 1)], {"MRR@10": np.array(values)}
    ).to_dict()


def make_record(label: str = "30% / 50%", seed: int = 0, key: str = "ab" * 32, **changes) -> Record:
    recipe = {"seed": seed, "objective": {"name": "simlm"}}
    values = {
        "study": "simlm/table08",
        "label": label,
        "scale": "smoke",
        "seed": seed,
        "recipe": recipe,
        "recipe_digest": json_digest(recipe),
        "keys": {"evaluation": key},
        "data": {"collection": {"name": "squad", "digest": "c0"}},
        "scores": scores([1.0, 0.5]),
        "means": {"MRR@10": 0.75},
        "training": {},
        "seconds": {"evaluation": 1.0},
        "versions": {},
        "machine": {},
        "commit": {"id": None, "changed": None},
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Record(**values | changes)


def test_every_record_of_the_book_loads():
    paths = sorted(
        path
        for path in places.records_root().glob("*/*.json")
        if path.parent.name not in ("ids", "parts")
    )
    assert paths
    held, named = {}, set()
    for path in paths:
        record = load_record(path)
        content = json.loads(path.read_text())
        named |= {*re.findall("[0-9a-f]{16}(?![0-9a-f])", path.read_text())}
        assert (record.scale, record.file_name) == (path.parent.name, path.name)
        if "run" in content:
            continue
        run = (
            path.parent.name,
            record.seed,
            record.keys["evaluation"],
            content["scores"]["packed"],
        )
        assert run not in held, f"publish it: {held[run]} holds the same run"
        held[run] = path.name
        assert "packed" in content["scores"] and content["scores"]["queries"].endswith(".json"), (
            "publish it: an earlier form"
        )
        scored = len(record.query_ids) * len(record.means)
        assert (
            len(content["scores"]["packed"]) <= 5 * scored + 200
            and path.stat().st_size < 20_000 + 5 * scored
        ), path.name
        curves = [
            points for log in record.training.values() for points in log.get("curve", {}).values()
        ]
        assert max(map(len, curves), default=0) <= 50, "publish it: a curve has 50 points"
        for measure in record.means:
            assert len(record.per_query(measure)) == len(record.query_ids) > 0
    shared = [
        file for folder in ("ids", "parts") for file in (places.records_root() / folder).glob("*")
    ]
    assert [file.name for file in shared if file.stem[-16:] not in named] == [], (
        "publish: no record names it"
    )


def test_a_record_comes_back_as_it_was_saved(tmp_path):
    record = make_record()
    loaded = load_record(record.save(tmp_path))
    assert loaded == record
    assert loaded.per_query("MRR@10").tolist() == [1.0, 0.5]
    assert loaded.query_ids == ["q1", "q2"]


def test_a_record_names_itself_on_one_line():
    assert repr(make_record()) == "Record(simlm/table08, '30% / 50%', seed 0, smoke: MRR@10 0.75)"


def test_a_record_from_before_keys_held_the_code_loads(tmp_path):
    path = make_record().save(tmp_path)
    content = json.loads(path.read_text())
    del content["code"], content["checksum"]
    path.write_text(json.dumps(content | {"checksum": json_digest(content)}))
    assert load_record(path).code == {}


def test_a_record_whose_curve_is_not_compressed_loads(tmp_path):
    record = make_record(training={"retriever": {"curve": {"loss": [0.25, 0.1]}}})
    path = record.save(tmp_path)
    rewrite(path, training=record.training)
    loaded = load_record(path)
    assert loaded == record and loaded.training["retriever"]["curve"]["loss"] == [0.25, 0.1]


def test_an_altered_record_is_refused(tmp_path):
    path = make_record().save(tmp_path)
    path.write_text(path.read_text().replace('"MRR@10":0.75', '"MRR@10":0.95'))
    with pytest.raises(InputError, match=rf"{path.name}.*checksum"):
        load_record(path)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not valid JSON"), ("[]", "not a record"), ("{}", "not a record")]
)
def test_a_file_that_is_no_record_is_refused(tmp_path, text, said):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"broken\.json.*{said}"):
        load_record(path)


def rewrite(path, **changes):
    """Change fields and give the file a right checksum again, as a careful hand could."""
    content = json.loads(path.read_text()) | changes
    content.pop("checksum")
    path.write_text(json.dumps(content | {"checksum": json_digest(content)}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe": {"seed": 0, "objective": {"name": "mlm"}}}, "digest"),
        ({"seed": 3}, "seed"),
        ({"scores": scores([1.0, 0.4])}, "mean of MRR@10"),
        ({"scores": {"queries": "???", "values": {}}}, "not packed scores"),
        ({"scores": make_record().scores | {"packed": "???"}}, "not packed scores"),
        ({"scores": make_record().scores | {"measures": ["MRR@10", "R@1"]}}, "not packed scores"),
        ({"scores": make_record().scores | {"queries": None}}, "not packed scores"),
        ({"training": {"retriever": {"curve": "???"}}}, "training: cannot be unpacked"),
        ({"format": 0}, "format"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(tmp_path, changes, said):
    path = make_record().save(tmp_path)
    rewrite(path, **changes)
    with pytest.raises(InputError, match=said):
        load_record(path)


def test_an_unknown_measure_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"nDCG.*MRR@10"):
        make_record().per_query("nDCG@10")


def test_records_are_read_by_study_in_order(tmp_path):
    for record in (
        make_record(seed=1),
        make_record(seed=0),
        make_record("none"),
        make_record(study="other/table01"),
    ):
        record.save(tmp_path)
    found = load_records(tmp_path, "simlm/table08")
    assert [(record.label, record.seed) for record in found] == [
        ("30% / 50%", 0),
        ("30% / 50%", 1),
        ("none", 0),
    ]
    assert len(load_records(tmp_path)) == 4
    assert load_records(tmp_path / "missing") == []


# Publishing ---------------------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "records_root", lambda: tmp_path)
    return tmp_path


def test_publishing_replaces_the_earlier_record_of_the_same_place(book):
    publish([make_record(key="11" * 32), make_record(seed=1)])
    elsewhere = {"collection": {"name": "primer", "digest": "c1"}}
    publish([make_record(key="22" * 32), make_record(key="33" * 32, data=elsewhere)])
    left = load_records(book / "smoke")
    assert [(record.seed, record.keys["evaluation"][:2]) for record in left] == [
        (0, "22"),
        (0, "33"),
        (1, "ab"),
    ]
    assert [path.parent for path in publish([make_record(scale="laptop")])] == [book / "laptop"]
    assert lab.recorded_folder("laptop") == book / "laptop"


def test_published_records_share_the_ids_of_their_queries(book):
    record, other = make_record(), make_record("none", scores=scores([0.5, 1.0]))
    paths = publish([record, other])
    (ids,) = (book / "ids").iterdir()
    assert [json.loads(path.read_text())["scores"]["queries"] for path in paths] == [ids.name] * 2
    assert [load_record(path) for path in paths] == [record, other]
    assert load_record(paths[0]).query_ids == ["q1", "q2"]


LONG = {
    "steps": 2000,
    "curve": {"step": [10.0, 2000.0], "loss": [9.5, 2.25]},
    "seconds": 61.25,
    "tokens_per_second": 9123.5,
}


def test_published_records_share_what_is_equal_in_them(book):
    versions = {f"package-{number}": "1.0.0" for number in range(9)}
    trained = {"training": {"retriever": LONG}, "versions": versions}
    paths = publish(
        [make_record(**trained), make_record("none", scores=scores([0.5, 1.0]), **trained)]
    )
    log, shared = sorted((book / "parts").iterdir())
    assert (log.stem[:-17], shared.stem[:-17]) == ("training-retriever", "versions")
    for path, label in zip(paths, ("30% / 50%", "none"), strict=True):
        content = json.loads(path.read_text())
        assert content["training"] == {"retriever": {"part": log.stem[-16:]}} and content[
            "versions"
        ] == {"part": shared.stem[-16:]}
        loaded = load_record(path)
        assert (loaded.label, loaded.training, loaded.versions) == (
            label,
            {"retriever": LONG},
            versions,
        )


def test_what_no_record_shares_any_more_goes(book):
    publish(
        [make_record(training={"retriever": LONG}), make_record("none", scores=scores([0.5, 1.0]))]
    )
    (log,) = (book / "parts").iterdir()
    others = [
        make_record(
            key="22" * 32, scores=scores([1.0]), means={"MRR@10": 1.0}, training={"retriever": LONG}
        )
    ]
    publish(others)
    assert log.is_file() and len([*(book / "ids").iterdir()]) == 2
    publish([make_record(key="33" * 32)])
    assert not log.exists() and len([*(book / "ids").iterdir()]) == 1


def test_a_changed_or_missing_part_is_refused(book):
    (path,) = publish([make_record(training={"retriever": LONG})])
    (log,) = (book / "parts").iterdir()
    log.write_text(log.read_text().replace("61.25", "16.25"))
    with pytest.raises(InputError, match=rf"{log.name}.*altered"):
        load_record(path)
    log.unlink()
    with pytest.raises(InputError, match="no such file"):
        load_record(path)


def test_a_run_that_several_tables_show_is_stored_once(book):
    shown = [
        make_record(),
        make_record("none", created="2026-01-02T00:00:00+00:00"),
        make_record("BERT", study="simlm/table01"),
    ]
    paths = publish(shown)
    held = ["run" not in json.loads(path.read_text()) for path in paths]
    assert held == [True, False, False]
    assert set(json.loads(paths[1].read_text())) == {
        "run",
        "run_checksum",
        "label",
        "created",
        "checksum",
    }
    assert [load_record(path) for path in paths] == shown
    assert load_records(book / "smoke", "simlm/table01") == [shown[2]]
    assert publish([shown[1]]) == [paths[1]] and [load_record(path) for path in paths] == shown


def test_a_run_that_others_name_can_be_replaced_and_removed(book):
    shown = [make_record(), make_record("none"), make_record("BERT", study="simlm/table01")]
    paths = publish(shown)
    # the same key on another machine
    measured_again = make_record(scores=scores([1.0, 0.25]), means={"MRR@10": 0.625})
    assert publish([measured_again]) == [paths[0]]
    assert [load_record(path) for path in paths] == [measured_again, *shown[1:]]
    replaced = make_record("none", key="22" * 32)
    (path,) = publish([replaced])  # `none` may hold the run of `BERT`, and goes
    assert not paths[1].exists() and [load_record(one) for one in (path, paths[2])] == [
        replaced,
        shown[2],
    ]


def test_a_run_that_is_missing_or_was_changed_is_refused(book):
    paths = publish([make_record(), make_record("none")])
    content = json.loads(paths[0].read_text())
    content.pop("checksum")
    changed = content | {"created": "2026-01-03T00:00:00+00:00"}
    paths[0].write_text(json.dumps(changed | {"checksum": json_digest(changed)}))
    with pytest.raises(InputError, match="changed after simlm-table08_none_seed0"):
        load_record(paths[1])
    paths[0].unlink()
    with pytest.raises(InputError, match="no such file"):
        load_record(paths[1])


def test_a_changed_or_missing_file_of_ids_is_refused(book):
    (path,) = publish([make_record()])
    (ids,) = (book / "ids").iterdir()
    ids.write_text(json.dumps({"queries": scores([1.0, 0.5, 0.2])["queries"]}))
    with pytest.raises(InputError):
        load_record(path)
    others = Scores(["q2", "q1"], {"MRR@10": np.array([1.0, 0.5])}).to_dict()
    ids.write_text(json.dumps({"queries": others["queries"]}))
    with pytest.raises(InputError, match="query ids was altered"):
        load_record(path)
    ids.unlink()
    with pytest.raises(InputError, match="no such file"):
        load_record(path)


def test_a_record_that_cannot_be_read_is_named_and_the_others_are_given(book):
    paths = publish([make_record(seed=seed, key=f"{seed}1" * 32) for seed in range(3)])
    paths[1].write_text(paths[1].read_text().replace("MRR", "NDCG"))
    (paths[2].parent / "simlm-table08_link_seed9_abcd.json").symlink_to(book / "nothing")
    with pytest.warns(RuntimeWarning, match="left out, as they cannot be read") as said:
        assert [one.seed for one in load_records(paths[0].parent)] == [0, 2]
    assert f"{paths[1]}: altered" in str(said[0].message) and "_link_" in str(said[0].message)
    with pytest.warns(RuntimeWarning):  # a good record of the same place takes the broken one's
        publish([make_record(seed=1, key="11" * 32)])
    (paths[2].parent / "simlm-table08_link_seed9_abcd.json").unlink()
    assert [one.seed for one in load_records(paths[0].parent)] == [0, 1, 2]


def _publish(book, seeds, start) -> None:
    places.records_root = lambda: book
    start.wait()
    for seed in seeds:
        machine = {"processor": f"of seed {seed} " + "x" * 100}
        key = f"{seed}1" * 32
        publish([make_record(seed=seed, key=key, machine=machine, versions={"numpy": "1" * 100})])


@pytest.mark.faults
@pytest.mark.parametrize("trial", range(12))
def test_two_that_publish_into_one_book_at_once_leave_every_record_whole(book, trial, counted):
    context = multiprocessing.get_context("fork")
    start = context.Barrier(2)
    seeds = [range(5), range(3, 9)]
    writers = [context.Process(target=_publish, args=(book, part, start)) for part in seeds]
    for process in writers:
        process.start()
    for process in writers:
        process.join(120)
        assert process.exitcode == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {one.seed for one in load_records(book / "smoke")} == {*range(9)}
    counted("books that two publish into at once", 1)


def test_a_record_of_an_unknown_scale_is_not_published(book):
    with pytest.raises(InputError, match=r"no scale 'huge'.*Known: gpu, laptop, paper, smoke"):
        publish([make_record(scale="huge")])
    assert not list(book.rglob("*.json"))


def test_numbers_computed_in_a_notebook_have_a_record_too(tiny_recipe):
    values = Scores(["a", "b"], {"gigabytes": np.array([27.0, 29.0])})
    made = lab.measured(
        "simlm/table03",
        "SimLM",
        tiny_recipe,
        values,
        {"name": "made", "passages": 9},
        scale="smoke",
    )
    again = lab.measured(
        "simlm/table03",
        "SimLM",
        tiny_recipe,
        values,
        {"name": "made", "passages": 9},
        scale="smoke",
    )
    [found] = load_records(lab.live_folder("smoke"), "simlm/table03")
    # measured again, it takes the place of the first
    assert found.file_name == made.file_name == again.file_name
    assert found.means == {"gigabytes": 28.0} and found.data["collection"]["name"] == "made"
