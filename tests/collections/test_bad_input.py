"""Every defect of a collection ends in one error that names the place and the way out, and leaves
nothing behind.
"""

import contextlib
import gzip
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dr_lib import collections, evaluation
from dr_lib.collections import Judgement, Query, write_folder
from dr_lib.errors import InputError
from dr_lib.retrieval import Ranking

GOOD = (
    '{"_id": "p1", "text": "One."}\n{"_id": "p2", "text": "Two."}\n{"_id": "p4", "text": "Four."}\n'
)
ASKED = '{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n'
ADDED_LINES = {
    "malformed line": (
        "corpus",
        '{"_id": "p5", "text": ',
        "corpus.jsonl line 4: not a JSON object",
    ),
    "line that is no object": (
        "corpus",
        '["p5"]',
        "corpus.jsonl line 4: not a JSON object (a list instead)",
    ),
    "missing _id": ("corpus", '{"text": "x"}', "corpus.jsonl line 4: field _id is missing"),
    "empty _id": (
        "corpus",
        '{"_id": " ", "text": "x"}',
        "corpus.jsonl line 4: passage id ' ' is empty",
    ),
    "fraction as _id": (
        "corpus",
        '{"_id": 5.5, "text": "x"}',
        "corpus.jsonl line 4: field _id is a number",
    ),
    "missing text": ("corpus", '{"_id": "p5"}', "corpus.jsonl line 4: field text is missing"),
    "list as text": (
        "corpus",
        '{"_id": "p5", "text": ["x"]}',
        "corpus.jsonl line 4: field text is a list",
    ),
    "number as title": (
        "corpus",
        '{"_id": "p5", "text": "x", "title": 1}',
        "line 4: field title is a whole number",
    ),
    "text as position": (
        "corpus",
        '{"_id": "p5", "text": "x", "position": "2"}',
        "line 4: field position is text",
    ),
    "truth as position": (
        "corpus",
        '{"_id": "p5", "text": "x", "position": true}',
        "field position is true/false",
    ),
    "half a surrogate": (
        "corpus",
        '{"_id": "p5", "text": "\\ud800"}',
        "line 4: a text holds half a surrogate",
    ),
    "half a surrogate in an id": (
        "corpus",
        '{"_id": "\\udcff", "text": "x"}',
        "passage id '\\udcff' is empty or",
    ),
    "tab in an id": (
        "corpus",
        '{"_id": "p\\t5", "text": "x"}',
        "line 4: passage id 'p\\t5' is empty or holds a tab",
    ),
    "line end in an id": (
        "corpus",
        '{"_id": "p\\n5", "text": "x"}',
        "line 4: passage id 'p\\n5' is empty or holds",
    ),
    "escape in a query id": (
        "queries",
        '{"_id": "\\u001b[2J", "text": "x"}',
        "query id '\\x1b[2J' is empty or",
    ),
    "position over 64 bit": (
        "corpus",
        '{"_id": "p5", "text": "x", "position": 9223372036854775808}',
        "beyond 64 bits",
    ),
    "number of 5,000 digits": (
        "corpus",
        '{"_id": "p5", "text": "x", "position": ' + "9" * 5000 + "}",
        "not a JSON",
    ),
    "deep JSON": ("corpus", '{"_id": ' + "[" * 100_000, "corpus.jsonl line 4: not a JSON object"),
    "null": ("corpus", "null", "corpus.jsonl line 4: not a JSON object (null instead)"),
    "empty passage": (
        "corpus",
        '{"_id": "p5", "text": " \\n"}',
        "corpus.jsonl line 4: passage 'p5' is empty",
    ),
    "same passage id": (
        "corpus",
        '{"_id": "p2", "text": "x"}',
        "corpus.jsonl line 2. Remove one of the two",
    ),
    "same passage text": (
        "corpus",
        '{"_id": "p5", "text": "Two."}',
        "corpus.jsonl line 2 (1 such in all)",
    ),
    "same query id": (
        "queries",
        '{"_id": "q1", "text": "x"}',
        "queries.jsonl line 3: duplicate query id 'q1'",
    ),
    "empty query": (
        "queries",
        '{"_id": "q3", "text": ""}',
        "queries.jsonl line 3: query 'q3' is empty",
    ),
    "missing query text": (
        "queries",
        '{"_id": "q3"}',
        "queries.jsonl line 3: field text is missing",
    ),
    "text as answers": (
        "queries",
        '{"_id": "q3", "text": "x", "answers": "y"}',
        "line 3: field answers is text",
    ),
    "number as answer": (
        "queries",
        '{"_id": "q3", "text": "x", "answers": [1]}',
        "field answers holds a whole number",
    ),
    "unknown passage": (
        "qrels",
        "q1\tp9\t1",
        "dev.tsv line 3: the judgement names an unknown passage 'p9'",
    ),
    "unknown query": (
        "qrels",
        "q9\tp1\t1",
        "dev.tsv line 3: the judgement names an unknown query 'q9'",
    ),
    "judged twice": (
        "qrels",
        "q1\tp1\t0",
        "dev.tsv line 3: query 'q1' and passage 'p1' are judged twice",
    ),
    "broken grade": (
        "qrels",
        "q1\tp2\t0.5",
        "dev.tsv line 3: 'q1\\tp2\\t0.5' is not a judgement. Give",
    ),
    "grade over 64 bit": (
        "qrels",
        "q1\tp2\t9223372036854775808",
        "line 3: 'q1\\tp2\\t9223372036854775808' is not a judgement",
    ),
    "two columns": ("qrels", "q1\tp2", "dev.tsv line 3: 'q1\\tp2' is not a judgement. Give"),
    "four columns": (
        "qrels",
        "q1\t0\tp2\t1",
        "dev.tsv line 3: 'q1\\t0\\tp2\\t1' is not a judgement",
    ),
    "four columns, of trec_eval": ("qrels", "q1\t0\tp2\t1", "drop the second column"),
}
MISSING = {
    "no passages": ({"corpus": ""}, "collection tiny: there is no passage in it"),
    "no judgements": (
        {"qrels": {"dev": []}},
        "collection tiny, split dev: there is no judgement in it",
    ),
    "no queries file": ({"queries": None}, "there are qrels but no queries.jsonl"),
    "no corpus file": ({"corpus": None}, "no corpus.jsonl or corpus.jsonl.gz"),
}


def message(folder: str | Path, cache: Path) -> str:
    """The error of a load; only the folder of locks may be left in the cache."""
    with pytest.raises(InputError) as caught:
        collections.load(folder, cache=cache, allow_duplicates=False)
    left = [path.name for path in cache.iterdir() if path.name != "locks"] if cache.exists() else []
    assert left == []
    assert caught.value.fix
    return str(caught.value)


def test_a_folder_that_cannot_be_mended_is_read_with_its_faults_counted(beir_folder, cache):
    corpus = GOOD + '{"_id": "e", "text": " "}\n{"_id": "t", "title": "A title", "text": ""}\n'
    lines = ["q1\tp1\t1", "q1\tt\t2", "q1\tp404\t1", "q404\tp1\t1"]
    folder = beir_folder(**parts(corpus=corpus, qrels={"dev": lines}))
    with pytest.raises(InputError, match="strict=False"):
        collections.load(folder, cache=cache)
    collection = collections.load(folder, cache=cache, strict=False)
    assert "t" in collection.passages["id"][:] and "e" not in collection.passages["id"][:]
    assert collection.qrels("dev") == {"q1": {"p1": 1, "t": 2, "p404": 1}}
    assert collection.irregular == {
        "passages without title and text, left out": 1,
        "judgements of passages that are not there, counted as not found": 1,
        "judgements of unknown queries, or given twice, left out": 1,
        "queries without a judgement": 1,
    }
    ranking = Ranking(["q1"], np.array([[0, 1]]), np.array([[2.0, 1.0]]))
    found = evaluation.evaluate_split(ranking, collection, "dev", ["R@2"])
    assert found.mean("R@2") == pytest.approx(1 / 3)


def test_a_passage_with_a_title_alone_is_a_passage_of_a_folder(beir_folder, cache):
    corpus = (
        GOOD
        + '{"_id": "t", "title": "Remdesivir in adults", "text": ""}\n{"_id": "u", "title": "Two"}'
    )
    folder = beir_folder(**parts(corpus=corpus, qrels={"dev": ["q1\tt\t2"]}))
    collection = collections.load(folder, cache=cache)
    assert collection["t"]["title"] == "Remdesivir in adults" and collection["u"]["text"] == ""
    assert collection.relevant_rows("dev")[0].tolist() == [len(collection) - 2]


def parts(**changed):
    return {"corpus": GOOD, "queries": ASKED, "qrels": {"dev": ["q1\tp1\t1"]}} | changed


@pytest.mark.parametrize("name", ADDED_LINES)
def test_bad_line_is_named_with_its_place(beir_folder, cache, name):
    part, line, problem = ADDED_LINES[name]
    changed = {"dev": ["q1\tp1\t1", line]} if part == "qrels" else parts()[part] + line + "\n"
    assert problem in message(beir_folder(**parts(**{part: changed})), cache)


@pytest.mark.parametrize("name", MISSING)
def test_missing_part_is_named(beir_folder, cache, name):
    changed, problem = MISSING[name]
    assert problem in message(beir_folder(**parts(**changed)), cache)


def test_defect_in_a_packed_file_is_named_by_line(beir_folder, cache):
    text = message(beir_folder(corpus=GOOD + "{\n", packed=True), cache)
    assert "corpus.jsonl.gz line 4" in text


def test_missing_header_is_shown(beir_folder, cache):
    folder = beir_folder()
    (folder / "qrels" / "test.tsv").write_text("q1\tp1\t1\n", encoding="utf-8")
    text = message(folder, cache)
    assert (
        "test.tsv line 1" in text
        and "not the header" in text
        and "query-id, corpus-id and score" in text
    )


@pytest.mark.parametrize("name", ["qrels.tsv", "qrels/test.txt", "qrels"])
def test_judgements_that_would_not_be_read_are_named(beir_folder, cache, name):
    folder = beir_folder(qrels=None)
    if name == "qrels":
        (folder / "qrels").rmdir()
    (folder / name).write_text("query-id\tcorpus-id\tscore\nq1\tp1\t1\n", encoding="utf-8")
    text = message(folder, cache)
    assert f"{folder / name}: judgements are read from" in text and "qrels/test.tsv" in text


def test_truncated_gzip_is_named(beir_folder, cache):
    folder = beir_folder(packed=True)
    path = folder / "corpus.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    assert (
        "corpus.jsonl.gz line" in (text := message(folder, cache))
        and "cut off or damaged behind this line" in text
    )


def test_what_follows_a_packed_file_is_no_reason_to_unpack_it(beir_folder, cache):
    folder = beir_folder(packed=True)
    packed = folder / "queries.jsonl.gz"
    packed.write_bytes(packed.read_bytes() + b"junk")
    assert "gzip file is cut off or damaged" in message(folder, cache)


def test_plain_text_under_a_packed_name_is_named(beir_folder, cache):
    folder = beir_folder(packed=True)
    (folder / "queries.jsonl.gz").write_text(ASKED, encoding="utf-8")
    assert (
        "not a gzip file" in (text := message(folder, cache)) and "Remove .gz from its name" in text
    )


def test_text_in_another_encoding_is_named(beir_folder, cache):
    folder = beir_folder()
    (folder / "corpus.jsonl").write_bytes(
        GOOD.encode() + '{"_id": "p5", "text": "caf\xe9"}\n'.encode("latin-1")
    )
    assert "corpus.jsonl line 4: not UTF-8" in message(folder, cache)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_file_twice_plain_and_packed_is_refused(beir_folder, cache, name):
    folder = beir_folder()
    (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    assert f"both {name.removeprefix('qrels/')} and" in message(folder, cache)


def test_a_split_that_does_not_exist_names_the_others(beir_folder, cache):
    collection = collections.load(beir_folder(), cache=cache)
    for ask in (collection.queries, collection.qrels):
        with pytest.raises(InputError, match=r"no split 'dev'\. Use one of: train, test"):
            ask("dev")


def test_unknown_name_lists_what_there_is(beir_folder, cache, monkeypatch):
    folder = beir_folder("wings")
    monkeypatch.setenv("DR_DATA", str(folder.parent))
    text = message("wing", cache)
    assert (
        "unknown collection 'wing'" in text
        and "primer, squad, ir_datasets:<id>" in text
        and "(wings)" in text
    )


def test_unknown_name_without_data_folder_says_so(cache, monkeypatch):
    monkeypatch.delenv("DR_DATA", raising=False)
    assert "DR_DATA (not set)" in message("wing", cache)
    monkeypatch.setenv("DR_DATA", str(cache / "nowhere"))
    assert f"DR_DATA ({cache / 'nowhere'}: no such folder)" in message("wing", cache)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_the_folder_one_is_in(beir_folder, cache, monkeypatch, name):
    monkeypatch.chdir(beir_folder())
    assert f"unknown collection {name!r}" in message(name, cache)


def test_a_path_that_is_no_folder_says_so(tmp_path, cache):
    assert "there is no folder or file" in message(tmp_path / "nowhere", cache)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert "is neither a folder nor a file of a known kind" in message(tmp_path / "file", cache)


def test_folders_that_are_no_collection_are_told_apart(tmp_path, cache):
    (tmp_path / "pairs" / "pairs").mkdir(parents=True)
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / "queries.jsonl").write_text(ASKED, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    assert "text pairs" in message(tmp_path / "pairs", cache)
    assert "queries only" in message(tmp_path / "questions", cache)
    assert "Give a folder with corpus.jsonl" in message(tmp_path / "empty", cache)
    (tmp_path / "empty" / "a.PDF").write_bytes(b"%PDF-1.4")
    told = message(tmp_path / "empty", cache)
    assert told.endswith(" A text is made by: pdftotext FILE.pdf.")


def test_a_failed_load_leaves_a_finished_one_alone(beir_folder, cache):
    folder = beir_folder()
    good = collections.load(folder, cache=cache)
    with pytest.raises(InputError):
        collections.load(beir_folder("other", corpus=GOOD + "{\n"), cache=cache)
    assert collections.load(folder, cache=cache).digest == good.digest


@pytest.mark.parametrize("kind", ["fifo", "folder"])
@pytest.mark.parametrize(
    "name", ["corpus.jsonl", "queries.jsonl", "qrels/dev.tsv", "README.md", "x.txt"]
)
def test_what_is_no_file_is_never_waited_for(beir_folder, cache, kind, name):
    folder = beir_folder(**parts(qrels=None))
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name) if kind == "fifo" else (folder / name).mkdir()
    if name in ("corpus.jsonl", "qrels/dev.tsv"):
        assert (
            "no corpus.jsonl" if name == "corpus.jsonl" else "'dev.tsv' is not a file of judgements"
        ) in message(folder, cache)
    else:
        assert len(collections.load(folder, cache=cache).passages) == 3


@pytest.mark.parametrize("name", [b"caf\xe9", b"two\nlines", b"x" * 5000])
def test_a_path_that_is_no_text_is_refused(tmp_path, cache, name):
    place = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118
    with contextlib.suppress(OSError):
        os.mkdir(place)  # noqa: PTH102
    assert message(os.fsdecode(place), cache)


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"two\nlines.txt"])
def test_a_text_file_whose_name_is_no_text_is_named(tmp_path, cache, name):
    (tmp_path / "texts").mkdir()
    with open(os.path.join(os.fsencode(tmp_path / "texts"), name), "w") as file:  # noqa: PTH118, PTH123
        file.write("Some text.")
    assert "a file name with a control character or not in UTF-8" in message(
        tmp_path / "texts", cache
    )


def test_a_split_whose_file_name_is_no_text_is_named(beir_folder, cache):
    folder = beir_folder(**parts())
    (folder / "qrels" / "dev.tsv").rename(folder / "qrels" / "d\tev.tsv")
    assert "'d\\tev.tsv' is not a file" in message(folder, cache)


def test_a_file_without_permission_is_named(beir_folder, cache, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("dr_lib.collections.beir.file_digest", refuse)
    assert "corpus.jsonl: Permission denied" in message(beir_folder(), cache)


def test_a_folder_with_a_very_long_name_is_loaded(beir_folder, cache):
    assert len(collections.load(beir_folder("x" * 250), cache=cache).passages) == 4


RECORDS = st.dictionaries(
    st.sampled_from(["_id", "text", "title", "doc", "position", "answers"]),
    st.one_of(
        st.text(st.characters(), max_size=6),
        st.sampled_from(["p1", "p2", "\t", "\ud800", "\u2028", ""]),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.none(),
        st.booleans(),
        st.lists(st.one_of(st.text(max_size=3), st.none()), max_size=2),
    ),
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    corpus=st.lists(RECORDS, max_size=4),
    queries=st.lists(RECORDS, max_size=3),
    judged=st.text(max_size=30),
)
def test_any_folder_is_a_collection_or_one_clear_error(tmp_path, corpus, queries, judged):
    with tempfile.TemporaryDirectory(dir=tmp_path) as place:
        folder, cache = Path(place) / "it", Path(place) / "cache"
        (folder / "qrels").mkdir(parents=True)
        for name, rows in (("corpus", corpus), ("queries", queries)):
            (folder / f"{name}.jsonl").write_text(
                "\n".join(map(json.dumps, rows)), encoding="utf-8"
            )
        lines = f"query-id\tcorpus-id\tscore\n{judged}"
        (folder / "qrels" / "dev.tsv").write_bytes(lines.encode("utf-8", "surrogatepass"))
        try:
            loaded = collections.load(folder, cache=cache, allow_duplicates=True)
        except InputError as error:
            assert error.fix and error.where
            assert not [path for path in cache.glob("*") if path.name != "locks"]
        else:  # its own note can be written and read again
            asked = [
                Query(row["id"], row["text"], tuple(row["answers"])) for row in loaded.queries()
            ]
            own = {
                split: [
                    Judgement(query, *pair)
                    for query, judged in loaded.qrels(split).items()
                    for pair in judged.items()
                ]
                for split in loaded.splits
            }
            write_folder(Path(place) / "copy", loaded.passages, asked, own, "")
            again = collections.load(Path(place) / "copy", cache=cache, allow_duplicates=True)
            assert again.digest == loaded.digest
