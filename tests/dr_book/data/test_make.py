"""From a name to a folder: downloaded files, digests, and one-line errors."""

import gzip
import io
import json
import shutil
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest
from data_sheets import is_here

from dr_book import commands
from dr_book.data import files as data_files
from dr_book.data.make import CONVERTERS, make
from dr_book.data.sheets import Sheet, sheets
from dr_book.data.sheets import sheet as sheet_of
from dr_lib import collections
from dr_lib.collections import squad
from dr_lib.errors import InputError
from dr_lib.files import file_digest
from dr_lib.places import data_root
from tests.dr_book.data.layouts import lay_out, packed, zipped

ROWS = [{"question": "who won", "answer": ["A"]}, {"question": "when", "answer": ["1"]}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
SHARED = data_root() or Path()
NAME = "nq_open/NQ-open.dev.jsonl"


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DR_DATA", raising=False)


@pytest.fixture
def served(tmp_path, monkeypatch) -> Path:
    """A folder that replaces the code host."""
    host = tmp_path / "host"
    monkeypatch.setattr(data_files, "RAW", f"file://{host}/{{repository}}/{{commit}}/{{path}}")
    monkeypatch.setattr(data_files, "ARCHIVE", f"file://{host}/{{repository}}/{{commit}}.tar.gz")
    return host


def sheet(**facts) -> Sheet:
    known = {"licence": "free", "counts": {}} | facts
    return Sheet(name="nq-open-questions", title="Questions", text="Words.", **known)


def source(**files) -> list[dict]:
    return [{"repository": "a/b", "commit": "c0", "files": files or {NAME: None}}]


def digest_of(rows: list[dict], tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "wanted"
    data_files.write(folder, {"queries.jsonl.gz": rows})
    return {"queries.jsonl.gz": data_files.content_digest(folder / "queries.jsonl.gz")}


def test_files_are_fetched_converted_and_checked(served, tmp_path):
    lay_out(served / "a" / "b" / "c0", {NAME: LINES})
    rows = [
        {"_id": f"nqdev{n}", "text": row["question"], "answers": row["answer"]}
        for n, row in enumerate(ROWS)
    ]
    made = sheet(sources=source(), digest=digest_of(rows, tmp_path))
    told = make(made, tmp_path / "new")
    assert told == f"{tmp_path / 'new'}: nq-open-questions, as in its sheet"
    with gzip.open(tmp_path / "new" / "queries.jsonl.gz", "rt") as lines:
        assert [*map(json.loads, lines)] == rows
    assert "Licence: free" in (tmp_path / "new" / "README.md").read_text()


def test_files_are_fetched_once(served, tmp_path):
    lay_out(served / "a" / "b" / "c0", {NAME: LINES})
    first = data_files.fetch("some", source())
    (served / "a" / "b" / "c0" / NAME).unlink()
    assert data_files.fetch("some", source()).read(NAME) == first.read(NAME) == LINES.encode()


def test_what_matches_a_pattern_comes_from_the_archive(served, tmp_path):
    served.joinpath("a", "b").mkdir(parents=True)
    with tarfile.open(served / "a" / "b" / "c0.tar.gz", "w:gz") as archive:
        for name in ("b-c0/docs/LISA1.001", "b-c0/docs/other", "b-c0/LISA.QUE"):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    files = data_files.fetch("some", source(**{"docs/LISA*": None}))
    assert files.names("*LISA*") == ["docs/LISA1.001"]
    assert files.read("docs/LISA1.001") == b"b-c0/docs/LISA1.001"


def test_an_archive_cannot_write_outside_its_folder(served, tmp_path):
    served.joinpath("a", "b").mkdir(parents=True)
    with tarfile.open(served / "a" / "b" / "c0.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("b-c0/../../../evil.txt"))
    with pytest.raises(InputError, match="could not be downloaded"):
        data_files.fetch("some", source(**{"*.txt": None}))
    assert not [*tmp_path.rglob("evil.txt")]


def test_a_file_of_another_content_is_refused_and_nothing_is_kept(served, tmp_path):
    lay_out(served / "a" / "b" / "c0", {NAME: LINES, "good": "x"})
    good = file_digest(served / "a" / "b" / "c0" / "good")
    with pytest.raises(
        InputError, match=r"NQ-open.dev.jsonl: could not be downloaded \(its content"
    ):
        data_files.fetch("some", source(**{"good": good, NAME: "0" * 64}))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_slip_in_the_name_of_a_sheet_is_told_what_was_meant(capsys):
    assert commands.main(["data", "sqad", "--to", "new"]) == 1
    assert "'sqad'. Did you mean squad? There are: " in capsys.readouterr().err


def test_without_a_network_one_line_says_what_to_give(served, tmp_path):
    with pytest.raises(
        InputError, match=rf"could not be downloaded .*give a folder with {NAME}: --from"
    ) as told:
        make(sheet(sources=source(), digest={}), tmp_path / "new")
    assert "\n" not in str(told.value) and not (tmp_path / "new").exists()


def test_another_digest_is_refused_or_kept_when_told(tmp_path):
    place = lay_out(tmp_path / "source", {NAME: LINES})
    wanted = sheet(digest={"queries.jsonl.gz": "0" * 64})
    with pytest.raises(
        InputError, match=r"content differs from its sheet: queries.jsonl.gz.*--allow-changes"
    ):
        make(wanted, tmp_path / "new", place)
    assert not (tmp_path / "new").exists()
    told = make(wanted, tmp_path / "new", place, allow_changes=True)
    assert "content differs" in told and (tmp_path / "new" / "queries.jsonl.gz").is_file()


@pytest.mark.parametrize(
    "files, problem",
    [
        ({}, "no such file"),
        ({NAME: "{broken\n"}, r"not the files that its sheet names \(JSONDecodeError"),
        ({NAME: '{"asked": "?"}\n'}, r"not the files that its sheet names \(KeyError"),
    ],
)
def test_what_is_no_such_source_is_refused(files, problem, tmp_path):
    place = lay_out(tmp_path / "source", files | {"other": "x"})
    with pytest.raises(InputError, match=problem):
        make(sheet(digest={}), tmp_path / "new", place)
    assert not (tmp_path / "new").exists()


ENTITIES = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise("abcdefghij"))
ODD = {
    "empty": b"",
    "noise": bytes(range(256)) * 8,
    "half a surrogate": b'{"question": "\\ud800", "answer": ["\\udfff"], "text": "\\ud800"}\n',
    "100,000 brackets": b"[" * 100_000,
    "5,000 digits": b"9" * 5_000,
    "null": b"null",
    "a list": b"[[null]]",
    "an object": b'{"data": null, "a": {"content": null}}',
    "a table": b"a,b,id,title,selftext,over_18\n1,2\n" * 3,
    "bomb of entities": f'<!DOCTYPE a [<!ENTITY a "aa">{ENTITIES}]><a>&j;</a>'.encode(),
    "cut archive": zipped({"corpus_train.csv": "a,b\n"})[:-9],
    "empty archive": zipped({}),
    "cut gzip": gzip.compress(b"x" * 999)[:-9],
}


@pytest.mark.parametrize("name", CONVERTERS)
def test_whatever_lies_in_a_source_ends_in_one_line(name, tmp_path, monkeypatch, counted):
    known = sheet_of(name)
    files = [path for place in known.sources for path in place["files"]]
    files = [path.replace("[0-9]", "1").replace("*", "1") for path in files]
    for number, content in enumerate(ODD.values()):
        place = lay_out(tmp_path / str(number), dict.fromkeys(files, content))
        try:
            make(known, tmp_path / "new", place, allow_changes=True)
        except InputError as error:
            assert "draft" not in str(error)
        else:  # it is an empty set
            shutil.rmtree(tmp_path / "new")
        assert not (tmp_path / "new").exists()
    counted("odd files in a source of a collection", len(ODD))


def test_a_source_without_a_passage_is_named_by_its_folder(tmp_path):
    files = {
        "cacm.all": "words\n",
        "query.text": ".I 1\n.W\nwhat?\n",
        "qrels.text": "01 0001 0 0\n",
    }
    place = lay_out(tmp_path / "source", files)
    with pytest.raises(InputError, match=r"source: not the files .* \(there is no passage in it\)"):
        make(sheet_of("cacm"), tmp_path / "new", place)


@pytest.mark.parametrize(("name", "file"), [("scifact", "scifact.zip"), ("medline", "med.tar.gz")])
def test_an_archive_that_unpacks_without_end_is_named(name, file, tmp_path, monkeypatch, counted):
    monkeypatch.setattr(data_files, "LARGEST", 1000)
    content = {"corpus_train.csv": "a" * 1001, "MED.ALL": "a" * 1001}
    made = packed(content) if file.endswith(".gz") else zipped(content)
    place = lay_out(tmp_path / "source", {file: made})
    with pytest.raises(InputError, match="unpacks to 1,001 bytes, more than 1,000"):
        make(sheet_of(name), tmp_path / "new", place)
    counted("packed values that unpack without end", 1)


def test_a_folder_of_the_readers_own_is_left_alone_and_an_earlier_one_replaced(tmp_path):
    place = lay_out(tmp_path / "source", {NAME: LINES})
    wanted = sheet(digest={})
    make(wanted, tmp_path / "new", place)
    make(wanted, tmp_path / "new", place)
    (tmp_path / "new" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        make(wanted, tmp_path / "new", place)
    assert (tmp_path / "new" / "notes.txt").read_text() == "mine"


def test_squad_from_its_official_files_is_a_folder_of_the_same_digest(tmp_path):
    asked = [{"id": "1", "question": "What is it about?", "answers": [{"text": "two"}]}]
    article = {"title": "St._John%27s", "paragraphs": [{"context": "A  text.", "qas": asked}]}
    official = {name: {"data": [article]} for name in squad.FILES.values()}
    place = lay_out(tmp_path / "source", official)
    told = make(sheet_of("squad"), tmp_path / "squad", place, allow_changes=True)
    assert "1 passages (of the records: 20,958)" in told
    readme = (tmp_path / "squad" / "README.md").read_text()
    assert "of English Wikipedia. The" in " ".join(readme.split()) and "{cite" not in readme
    made = collections.load(tmp_path / "squad", cache=tmp_path / "c")
    assert made.digest == collections.load(place, cache=tmp_path / "c", allow_changes=True).digest


def test_what_comes_through_ir_datasets_is_loaded_by_its_name(tmp_path):
    with pytest.raises(InputError, match="Load it by name: ir_datasets:msmarco-passage"):
        make(sheet_of("msmarco-passage"), tmp_path / "new")


def test_a_machine_has_a_collection_another_state_of_it_or_none(tmp_path, monkeypatch):
    rows = [{"_id": "nqdev0", "text": "who", "answers": ["A"]}]
    here = sheet(digest=digest_of(rows, tmp_path))
    assert is_here(here) == "no"
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    data_files.write(tmp_path / "data" / "nq-open-questions", {"queries.jsonl.gz": rows})
    assert is_here(here) == "yes"
    assert is_here(sheet(digest={"queries.jsonl.gz": "0"})) == "another state of it"


@pytest.mark.parametrize("name", ["sgd", "ubuntu-irc", "topical-chat"])
def test_packed_files_have_the_bytes_that_records_know(name, tmp_path):
    packed = SHARED / name / "pairs" / "dev.jsonl.gz"
    if not packed.is_file():
        pytest.skip(f"needs the folder {name} under DR_DATA")
    with gzip.open(packed, "rt", encoding="utf-8") as lines:
        rows = [*map(json.loads, lines)]
    data_files.write(tmp_path, {"dev.jsonl.gz": rows})
    assert file_digest(tmp_path / "dev.jsonl.gz") == file_digest(packed)


@pytest.mark.slow
def test_reddit_as_retrieval_is_made_of_its_pairs_to_the_digest(tmp_path):
    if not (SHARED / "reddit-title-body" / "pairs").is_dir():
        pytest.skip("needs the folder reddit-title-body under DR_DATA")
    made = make(sheet_of("reddit-retrieval"), tmp_path / "new", SHARED / "reddit-title-body")
    assert made.endswith("reddit-retrieval, as in its sheet")


@pytest.mark.parametrize("language", ["de", "vi", "zh"])
def test_xquad_is_made_of_its_official_format_to_the_digest(language, tmp_path):
    """The file is rebuilt from the collection, which has everything that the converter reads."""
    folder = SHARED / f"xquad-{language}"
    if not (folder / "corpus.jsonl.gz").is_file():
        pytest.skip(f"needs the folder xquad-{language} under DR_DATA")
    whole = collections.load(folder, cache=tmp_path / "cache")
    judged = {query: passage for query, (passage,) in whole.qrels("test").items()}
    blocks = {row["id"]: {"context": row["text"], "qas": []} for row in whole.passages}
    articles = dict.fromkeys(whole.passages["doc"], ())
    for row in whole.passages:
        articles[row["doc"]] = (*articles[row["doc"]], blocks[row["id"]])
    for query in whole.queries("test"):
        answers = [{"text": answer, "answer_start": 0} for answer in query["answers"]]
        asked = {"id": query["id"], "question": query["text"], "answers": answers}
        blocks[judged[query["id"]]]["qas"].append(asked)
    data = [{"title": title, "paragraphs": [*found]} for title, found in articles.items()]
    release = {"data": data}
    place = lay_out(tmp_path / "official", {f"xquad.{language}.json": release})
    made = make(sheet_of(f"xquad-{language}"), tmp_path / "new", place)
    assert made.endswith(f"xquad-{language}, as in its sheet")


# Sheets


@pytest.mark.parametrize("name", [one.name for one in sheets()])
def test_every_sheet_says_what_a_reader_needs(name):
    known = sheet_of(name)
    assert known.title and known.licence and len(known.text) > 60
    assert known.command or name == "liveqa-med-questions"
    for one in known.sources:
        assert len(one["commit"]) == 40 or one["commit"] == "HEAD"
        assert one["repository"].count("/") == 1 and one["files"]
    if name in CONVERTERS:
        assert known.sources and known.digest
        digests = [known.digest] if isinstance(known.digest, str) else [*known.digest.values()]
        assert all(len(digest) == 64 for digest in digests)


def test_every_converter_has_a_sheet_and_every_sheet_with_sources_a_converter():
    assert CONVERTERS.keys() == {one.name for one in sheets() if one.sources}


def test_the_sheet_of_squad_has_the_facts_of_its_reader():
    known = sheet_of("squad")
    assert known.digest == squad.EXPECTED.digest
    assert known.counts == {"passages": squad.EXPECTED.passages, "queries": squad.EXPECTED.queries}
    assert squad.REVISION in known.text


# The command


def test_the_command_lists_the_sheets(capsys):
    assert commands.main(["data"]) == 0
    told = capsys.readouterr().out
    assert "SQuAD 1.1" in told and "dr-lib data squad --to FOLDER" in told
    assert 'collections.load("ir_datasets:msmarco-passage")' in told
    assert all(line.strip() for line in told.splitlines())


def test_the_command_makes_a_folder_under_dr_data(tmp_path, monkeypatch, capsys):
    place = lay_out(tmp_path / "source", {NAME: LINES})
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    arguments = ["data", "nq-open-questions", "--from", str(place), "--allow-changes"]
    assert commands.main(arguments) == 0
    assert (tmp_path / "data" / "nq-open-questions" / "queries.jsonl.gz").is_file()
    assert "content differs" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["nothing"], "there is no data sheet for 'nothing'"),
        (["squad"], "--to: no folder given"),
        (["squad", "--to", "{new}", "--from", "{nowhere}"], "nowhere: no such folder"),
        (["liveqa-med-questions", "--to", "{new}"], "Its sheet says how it is made"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(arguments, told, tmp_path, capsys):
    places = {name: str(tmp_path / name) for name in ("new", "nowhere")}
    assert commands.main(["data", *(one.format(**places) for one in arguments)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and told in error and error.count("\n") == 1
