"""Records: complete or absent, refused when altered, replaced when published; those of the book
still load; odd values are read or reported, and nothing else happens.
"""

import json
import lzma
import multiprocessing
import os
import subprocess
import warnings
from collections import Counter
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dr_lib import lab, places
from dr_lib.errors import InputError
from dr_lib.evaluation import Clusters, Scores
from dr_lib.files import json_digest, read_json
from dr_lib.lab import Record, load_record, load_records, publish
from dr_lib.lab.records import Shared, _record, read_records, save_records, training_log
from dr_lib.training import TrainLog
from tests.golden import golden

GOLDEN = read_json(golden.RECORDED)


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
    paths = sorted(places.records_root().glob("*/*"))
    assert paths and {path.suffixes[-1] for path in paths} == {".xz"}
    for path in paths:
        records, broken = read_records(path)
        assert not broken
        where = [
            (one.study, one.label, one.seed, one.data["collection"]["name"]) for one in records
        ]
        assert len({*where}) == len(records) and sorted(where) == where
        for record in records:
            assert (record.scale, record.file_name) == (path.parent.name, path.name)
            for log in record.training.values():
                assert max(map(len, log.get("curve", {}).values()), default=0) <= 50, "publish it"
            assert {*record.means} == {*record.scores["measures"]}
            assert len(record.clusters.of) == len(record.scores["queries"]) > 0
        assert [*records[0].measured.query_ids] == records[0].scores["queries"]
    assert sum(path.stat().st_size for path in paths) < 12_000 * len(load_everything())


def test_every_recorded_commit_is_in_the_history():
    git = ["git", "-C", str(places.project_root())]
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True)
    if shallow.stdout.strip() != b"false":
        pytest.skip("no clone with the whole history")
    history = {*subprocess.check_output([*git, "rev-list", "HEAD"], text=True).split()}
    lost = [one for one in load_everything() if one.commit["id"] not in history]
    assert not [(one.study, one.label) for one in lost]


def test_outside_a_checkout_nothing_is_said_of_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "project_root", lambda: tmp_path)
    assert lab.records.commit() == {"id": None, "changed": None}


@cache
def load_everything() -> list[Record]:
    """The book's records of all scales."""
    return [
        one for scale in places.known_scales() for one in load_records(lab.recorded_folder(scale))
    ]


def test_clusters_of_the_book_are_those_of_its_collections():
    records = load_everything()
    kinds = {
        one.data["collection"]["name"]: (one.clusters.by, len(one.clusters.names))
        for one in records
        if len(one.clusters.of) > 40
        and "search" in one.recipe.get("evaluation", {}).get("kind", "")
    }
    assert kinds["squad"] in (("document", 48), ("document", 50))  # articles of test and of dev
    assert kinds["medquad"][0] == "question template" and kinds["medquad"][1] < 20
    assert kinds["wikipedia-nq"][0] == kinds["scifact"][0] == "document"
    chats = {one.clusters.by for one in records if one.recipe.get("evaluation", {}).get("dialogue")}
    assert chats == {"dialogue"}


def test_epochs_of_the_book_are_known_but_for_the_oldest_records():
    epochs = Counter(record.epoch for record in load_everything())
    assert epochs[None] == 9 and {*epochs} <= {None, *range(3, lab.epoch() + 1)}
    assert lab.epoch() == int(max(GOLDEN["epochs"], key=int)) == GOLDEN["epoch"]


def test_a_record_comes_back_as_it_was_saved(tmp_path):
    record = make_record()
    loaded = load_record(record.save(tmp_path))
    assert loaded == record
    assert loaded.per_query("MRR@10").tolist() == [1.0, 0.5]
    assert loaded.query_ids == ["q1", "q2"]


def test_a_record_names_itself_on_one_line():
    assert repr(make_record()) == "Record(simlm/table08, '30% / 50%', seed 0, smoke: MRR@10 0.75)"


def test_a_packed_file_holds_lines_of_json_that_anyone_can_read(tmp_path):
    records = [make_record(seed=seed, label=label) for seed in (0, 1) for label in "ab"]
    with lzma.open(save_records(records, tmp_path / "s.jsonl.xz"), "rt") as file:
        lines = [json.loads(line) for line in file]
    assert [(line["label"], line["seed"]) for line in lines] == [
        (record.label, record.seed) for record in records
    ]
    scores = lines[0]["scores"]
    assert [scores["values"][row] for row in scores["row"]] == [[1.0], [0.5]]
    assert read_records(tmp_path / "s.jsonl.xz") == (records, [])


def test_a_record_is_read_from_plain_json_and_from_keys_in_another_order(tmp_path):
    record, path = make_record(), tmp_path / "record.json"
    assert load_record(save_records([record], path)) == record
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(content.items())), indent=1).replace("\n", " "))
    assert load_record(path) == record


def test_what_records_share_is_parsed_once_and_read_the_same(tmp_path):
    rng = np.random.default_rng(0)
    records = []
    for number in range(60):
        count = int(rng.integers(1, 5))
        ids = [f'q"{"queries"}":{n}' if rng.random() < 0.2 else f"q{n}" for n in range(count)]
        made = Scores(ids, {"MRR@10": rng.integers(0, 3, count) / 2})
        changes = {"scores": made.to_dict(), "means": {"MRR@10": made.mean("MRR@10")}}
        if rng.random() < 0.5:
            clusters = Clusters.named("document", [f"d{n}" for n in rng.integers(0, 2, count)])
            changes["clusters"] = clusters
        records.append(make_record(f"row {number}", **changes))
    path = save_records(records, tmp_path / "s.jsonl.xz")
    lines = lzma.decompress(path.read_bytes()).splitlines()
    alone = [_record(line, "alone", Shared()) for line in lines]
    together, broken = read_records(path)
    assert together == alone == records and not broken
    kinds = {id(record.scores["queries"]) for record in together}
    assert len(kinds) == len({tuple(record.scores["queries"]) for record in together})


def test_an_altered_record_is_refused(tmp_path):
    path = save_records([make_record()], tmp_path / "r.json")
    path.write_text(path.read_text().replace('"MRR@10":0.75', '"MRR@10":0.95'))
    with pytest.raises(InputError, match=r"r.json line 1: altered.*checksum"):
        load_record(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a record"),
        (b"{}", "not a record"),
        (b"", "no record in it"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path, content, said):
    for path, written in (("a.json", content), ("a.jsonl.xz", lzma.compress(content))):
        (tmp_path / path).write_bytes(written)
        with pytest.raises(InputError, match=rf"{path}.*{said}"):
            load_record(tmp_path / path)


def test_a_packed_file_that_is_damaged_is_refused(tmp_path):
    whole = make_record().save(tmp_path).read_bytes()
    path = tmp_path / "a.jsonl.xz"
    for damaged in (whole[:-9], whole[:40], b"x" + whole[1:], whole[:90] + b"?" + whole[91:], b""):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.jsonl\.xz: (cut short|cannot be read)"):
            load_record(path)
    with pytest.raises(InputError, match="no such file"):
        load_record(tmp_path / "none.jsonl.xz")


def test_a_small_file_that_unpacks_to_a_large_one_is_refused_before_memory_is_full(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("dr_lib.lab.records.LARGEST", 1 << 20)
    path = tmp_path / "a.jsonl.xz"
    path.write_bytes(lzma.compress(b" " * (2 << 20)))
    with pytest.raises(InputError, match="unpacks to over 1 MB"):
        load_record(path)
    monkeypatch.setattr("dr_lib.lab.records.LARGEST_DICTIONARY", 1 << 20)
    path.write_bytes(lzma.compress(b"{}"))
    with pytest.raises(InputError, match="cannot be read"):
        load_record(path)


def test_a_file_of_several_records_is_not_taken_for_one(tmp_path):
    save_records([make_record(), make_record(seed=1)], tmp_path / "s.jsonl.xz")
    with pytest.raises(InputError, match="holds 2 records"):
        load_record(tmp_path / "s.jsonl.xz")


def rewritten(path, **changes):
    """Change fields and correct the line's checksum, as a careful editor could."""
    content = json.loads(lzma.decompress(path.read_bytes())) | changes
    content.pop("checksum")
    text = json.dumps(content | {"checksum": json_digest(content)})
    path.write_bytes(lzma.compress(text.encode()))
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe": {"seed": 0, "objective": {"name": "mlm"}}}, "digest"),
        ({"seed": 3}, "seed"),
        ({"scores": scores([1.0, 0.4])}, "mean of MRR@10"),
        ({"scores": {"queries": "???", "values": {}}}, "not scores of queries"),
        ({"scores": make_record().scores | {"row": "???"}}, "not scores of queries"),
        ({"scores": make_record().scores | {"row": [0, 7]}}, "not scores of queries"),
        ({"scores": make_record().scores | {"row": [0, 1 << 40]}}, "not scores of queries"),
        ({"scores": make_record().scores | {"measures": ["MRR@10", "R@1"]}}, "not scores"),
        ({"scores": make_record().scores | {"row": [1, 0, 0, 1]}}, "not one row a query"),
        ({"scores": []}, "not a record"),
        ({"clusters": None}, "not a record"),
        ({"clusters": {"by": "document", "names": ["a"], "of": [0]}}, "not every query"),
        ({"clusters": {"by": "document", "names": ["a"], "of": [0, 1]}}, "no name"),
        ({"format": 1}, "format"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(tmp_path, changes, said):
    path = rewritten(make_record().save(tmp_path), **changes)
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
    assert load_records(str(tmp_path), "simlm/table08") == found
    assert len(load_records(tmp_path)) == 4


def test_of_a_folder_or_study_that_is_not_there_nothing_is_read(tmp_path):
    make_record(study="pair/alpha").save(tmp_path)
    assert load_records(tmp_path, "pair/alph") == load_records(str(tmp_path / "missing")) == []


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
    assert sorted((record.seed, record.keys["evaluation"][:2]) for record in left) == [
        (0, "22"),
        (0, "33"),
        (1, "ab"),
    ]
    assert publish([make_record(scale="laptop")]) == [book / "laptop" / "simlm-table08.jsonl.xz"]
    assert lab.recorded_folder("laptop") == book / "laptop"


def test_a_run_that_is_published_again_keeps_its_certificates(book):
    run, first, second = make_record(), {"outcome": "equal"}, {"outcome": "equivalent"}
    publish([run.model_copy(update={"rebuilt": (first,)})])
    publish([run])
    publish([run.model_copy(update={"rebuilt": (first, second)})])
    (record,) = load_records(book / "smoke")
    assert record.rebuilt == (first, second)
    publish([make_record(created="2027-01-01T00:00:00+00:00")])  # another run in its place
    (record,) = load_records(book / "smoke")
    assert record.rebuilt == ()


def test_publishing_writes_one_file_a_study(book):
    shown = [make_record(), make_record("none"), make_record("BERT", study="simlm/table01")]
    paths = publish(shown)
    assert [path.name for path in paths] == ["simlm-table08.jsonl.xz", "simlm-table01.jsonl.xz"]
    assert [read_records(path)[0] for path in paths] == [shown[:2], shown[2:]]
    assert load_records(book / "smoke", "simlm/table01") == [shown[2]]
    assert publish([shown[1]]) == [] and publish([make_record("new")]) == paths[:1]


def test_records_that_cannot_be_read_are_named_and_the_others_are_given(book):
    paths = publish([make_record(seed=seed, key=f"{seed}1" * 32) for seed in range(3)])
    lines = lzma.decompress(paths[0].read_bytes()).splitlines()
    lines[1] = lines[1].replace(b"MRR", b"NDCG")
    paths[0].write_bytes(lzma.compress(b"\n".join(lines)))
    (paths[0].parent / "simlm-table08_link_seed9_abcd.jsonl.xz").symlink_to(book / "nothing")
    with pytest.warns(RuntimeWarning, match="left out, as they cannot be read") as said:
        assert [one.seed for one in load_records(paths[0].parent)] == [0, 2]
    assert f"{paths[0]} line 2: altered" in str(said[0].message)
    assert "_link_" in str(said[0].message)


def test_publishing_into_a_file_that_cannot_be_read_whole_writes_nothing(book):
    (path,) = publish([make_record(), make_record(seed=1)])
    lines = lzma.decompress(path.read_bytes()).splitlines()
    path.write_bytes(lzma.compress(lines[0] + b"\n" + lines[1].replace(b"MRR", b"NDCG")))
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"simlm-table08\.jsonl\.xz line 2: altered"):
        publish([make_record("other", study="simlm/table01"), make_record(seed=2)])
    assert path.read_bytes() == before and [*book.rglob("*.xz")] == [path]


def _publish(book, seeds, start) -> None:
    places.records_root = lambda: book
    start.wait()
    for seed in seeds:
        machine = {"processor": f"of seed {seed} " + "x" * 100}
        key = f"{seed}1" * 32
        publish([make_record(seed=seed, key=key, machine=machine, versions={"numpy": "1" * 100})])


@pytest.mark.faults
@pytest.mark.parametrize("trial", range(max(1, int(os.environ.get("DR_KILLS", "200")) * 12 // 200)))
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
    with pytest.raises(InputError, match=r"no scale 'huge'.*Known: gpu, laptop, paper, .*smoke"):
        publish([make_record(scale="huge")])
    assert not list(book.rglob("*.xz"))


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
    assert found.name == made.name == again.name
    assert found.means == {"gigabytes": 28.0} and found.data["collection"]["name"] == "made"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECIPE = {"seed": 0, "objective": {"name": "simlm"}}
RECORD = Record(
    study="simlm/table08",
    label="none",
    scale="smoke",
    seed=0,
    recipe=RECIPE,
    recipe_digest=json_digest(RECIPE),
    keys={"evaluation": "ab" * 32},
    data={"collection": {"name": "squad", "digest": "c0"}},
    scores=Scores(["q1", "q2"], {"MRR@10": np.array([1.0, 0.5])}).to_dict(),
    means={"MRR@10": 0.75},
    training={},
    seconds={"evaluation": 1.0},
    versions={},
    machine={},
    commit={"id": None, "changed": None},
    created="2026-01-01T00:00:00+00:00",
)
CONTENT = {name: value for name, value in json.loads(RECORD.line()).items() if name != "checksum"}


def seal(content: dict) -> bytes:
    """A line with the checksum of its bytes, whether or not they are valid JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))[1:].encode()
    return b'{"checksum":"' + sha256(b"{" + text).hexdigest().encode() + b'",' + text + b"\n"


def fields(value: object) -> list[tuple]:
    """The path to every field of nested mappings and lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    inner = [(key, part) for key, part in pairs if isinstance(part, dict | list)]
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [(key,) for key, _ in pairs] + [
        (key, *way) for key, part in inner for way in fields(part)
    ]


def check(path: Path) -> int:
    """Whether a file's record is read, and then completely."""
    records, broken = read_records(path)
    for record in records:
        assert repr(record) and record.name and record.trained_on["name"] is not None
        for measure in record.means:
            with suppress(InputError):  # the ids of its queries are looked at when they are wanted
                assert np.isfinite(record.per_query(measure)).all()
    assert len(records) + len(broken) == 1
    return len(records)


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_json_in_any_field_of_a_record_is_named_or_read(tmp_path, data):
    content = json.loads(json.dumps(CONTENT))
    way = data.draw(st.sampled_from(fields(content)))
    inner = content
    for key in way[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        del inner[way[-1]]
    else:
        inner[way[-1]] = data.draw(JSON)
    (tmp_path / "odd.jsonl").write_bytes(seal(content))
    check(tmp_path / "odd.jsonl")


@pytest.mark.parametrize(
    "odd", ["NaN", "1e999", '"\\ud800"', "9" * 5000, "[" * 100_000, "null", "[3]"]
)
def test_what_no_json_can_hold_is_named_in_every_field_of_a_record(tmp_path, odd, counted):
    for name in CONTENT:
        text = seal(CONTENT | {name: "HERE"}).replace(b'"HERE"', odd.encode(), 1)
        rest = text[text.index(b'",') + 2 :].strip()
        line = b'{"checksum":"' + sha256(b"{" + rest).hexdigest().encode() + b'",' + rest
        (tmp_path / "odd.jsonl").write_bytes(line)
        check(tmp_path / "odd.jsonl")
    counted("odd values in sealed files", len(CONTENT))


def test_a_record_is_found_by_its_bare_name_from_within_its_folder(tmp_path, monkeypatch):
    path = RECORD.save(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load_record(Path(path.name)) == load_record(path)
    with pytest.raises(InputError):
        load_record(Path("nothing.jsonl.xz"))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_other_queries_of_a_study_lie_in_its_file_and_are_read_alone(book):
    studies = ("plan/core", "plan/core-dev", "plan/core-x-elsewhere", "plan/core-x-dev-elsewhere")
    paths = publish([make_record(study=study, scale="laptop") for study in studies])
    assert [path.name for path in paths] == ["plan-core.jsonl.xz", "plan-core-x.jsonl.xz"]
    for study in studies:
        assert [record.study for record in load_records(book / "laptop", study)] == [study]
    assert load_records(book / "laptop", "plan/core-x") == []


@pytest.mark.parametrize("count", [1, 50, 51, 777])
def test_a_curve_has_about_fifty_rows_from_the_first_to_the_last(tmp_path, count):
    rows = [{"step": step, "loss": 1 / step} for step in range(1, count + 1)]
    TrainLog(title="t", steps=count, rows=rows).save(tmp_path / "log.json")
    steps = training_log(tmp_path / "log.json")["curve"]["step"]
    assert (steps[0], steps[-1], len(steps)) == (1, count, min(count, 50))
