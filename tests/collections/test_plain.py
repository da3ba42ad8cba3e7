"""Passages without questions: a lone corpus.jsonl, a JSON Lines file, a folder of text files."""

import gzip
import json
import os
import re
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_lib import collections
from dr_lib.collections import beir, plain
from dr_lib.collections.plain import (
    cut,
    html_sections,
    paragraphs,
    sections,
    unbroken,
    without_markup,
    without_page_edges,
)
from dr_lib.errors import InputError

LINES = [
    {"text": "The moon pulls the water."},
    {"_id": "b", "title": "Sea", "text": "Tides rise twice a day."},
]


def sections_of(path):
    (rows,) = plain.sections_of(path)  # no text here is long
    return rows


def sentence(word: str, words: int) -> str:
    return " ".join([word.capitalize(), *[word] * (words - 1)]) + "."


@pytest.fixture
def text_folder(tmp_path):
    """Three documents, one of them in a subfolder, and files that are not documents."""
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    long = "\n\n".join(
        f"{sentence('sea', 60)} {sentence(word, 30)}" for word in ("moon", "sun", "star")
    )
    (folder / "b.txt").write_text(long, encoding="utf-8")
    (folder / "a.txt").write_text("Short,\nbut two lines.\n", encoding="utf-8")
    (folder / "deep" / "a.txt").write_text("\ufeffAnother document.", encoding="utf-8")
    (folder / ".hidden" / "c.txt").write_text("never read", encoding="utf-8")
    (folder / "README.md").write_text("- Licence: CC0 1.0", encoding="utf-8")
    return folder


def test_a_folder_with_passages_alone_has_no_splits(beir_folder, cache):
    collection = collections.load(beir_folder(queries=None, qrels=None), cache=cache)
    assert (
        len(collection.passages) == 4 and collection.splits == () and len(collection.queries()) == 0
    )


@pytest.mark.parametrize("packed", [False, True])
def test_a_json_lines_file_is_a_collection(tmp_path, cache, packed):
    content = "\n".join(map(json.dumps, LINES)).encode()
    path = tmp_path / ("tides.jsonl.gz" if packed else "tides.jsonl")
    path.write_bytes(gzip.compress(content) if packed else content)
    collection = collections.load(path, cache=cache)
    assert collection.name == "tides" and collection.splits == ()
    assert collection.passages["id"][:] == ["line-1", "b"] and collection.passages["title"][:] == [
        "",
        "Sea",
    ]


def test_a_json_lines_file_is_found_under_the_data_folder(tmp_path, cache, monkeypatch):
    (tmp_path / "tides.jsonl").write_text(json.dumps(LINES[0]), encoding="utf-8")
    monkeypatch.setenv("DR_DATA", str(tmp_path))
    assert len(collections.load("tides.jsonl", cache=cache).passages) == 1


BAD_LINES = {
    "{": (
        "line 3: not a JSON object (Expecting property name enclosed in double quotes at column 2)"
    ),
    "[1]": "line 3: not a JSON object (a list instead)",
    '{"_id": "c"}': "line 3: field text is missing",
    '{"text": " "}': "line 3: passage 'line-3' is empty",
    '{"_id": "b", "text": "x"}': "line 3: duplicate passage id 'b', first seen in ",
    '{"text": "The moon pulls the water."}': "'line-3' repeats title and text of",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_of_a_json_lines_file_is_named(tmp_path, cache, line):
    path = tmp_path / "tides.jsonl"
    path.write_text("\n".join([*map(json.dumps, LINES), line]), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        collections.load(path, cache=cache, allow_duplicates=False)
    assert BAD_LINES[line] in str(caught.value) and caught.value.fix
    assert not [path for path in cache.iterdir() if path.name != "locks"]


def test_text_files_become_passages_with_document_and_position(text_folder, cache):
    collection = collections.load(text_folder, cache=cache)
    rows = [(row["id"], row["doc"], row["position"]) for row in collection.passages]
    assert rows == [
        ("a.txt#0", "a.txt", 0),
        ("b.txt#0", "b.txt", 0),
        ("b.txt#1", "b.txt", 1),
        ("b.txt#2", "b.txt", 2),
        ("deep/a.txt#0", "deep/a.txt", 0),
    ]
    assert collection.passages["text"][0] == "Short, but two lines."
    assert collection.passages["text"][4] == "Another document."
    assert collection.info["licence"] == "CC0 1.0" and collection.info["files"] == 3


def test_a_text_moved_to_another_folder_is_another_collection(text_folder, cache):
    before = collections.load(text_folder, cache=cache).digest
    (text_folder / "deep" / "a.txt").rename(text_folder / "deep" / "z.txt")
    assert collections.load(text_folder, cache=cache).digest != before


@pytest.mark.parametrize(
    ("content", "problem"), [(b"caf\xe9", "not UTF-8"), (b"Another document.", "repeats title")]
)
def test_a_bad_text_file_is_named(text_folder, cache, content, problem):
    (text_folder / "deep" / "a.rst").write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        collections.load(text_folder, cache=cache, allow_duplicates=False)
    assert "a.rst" in str(caught.value) or "a.txt" in str(caught.value)


STARTS = {
    "UTF-32": "sea".encode("utf-32"),
    "UTF-32, the other way": b"\0\0\xfe\xff" + "sea".encode("utf-32-be"),
    "UTF-16": "sea".encode("utf-16"),
    "UTF-16, the other way": b"\xfe\xff" + "sea".encode("utf-16-be"),
    "spreadsheet": b"PK\x03\x04\x14\x00",
    "office": b"\xd0\xcf\x11\xe0\xa1",
    "PDF": b"%PDF-1.4\nBT /F1 12 Tf (sea) Tj ET",
    "office program": b"{\\rtf1\\ansi sea}",
    "gzip": b"\x1f\x8b\x08\x00",
}


@pytest.mark.parametrize("ending", [".txt", ".csv", ".jsonl"])
@pytest.mark.parametrize("kind", STARTS)
def test_what_is_no_text_is_told_by_its_first_bytes(tmp_path, cache, kind, ending):
    """And not converted to UTF-8 as if it were Latin-1, after which it would be read."""
    (tmp_path / f"a{ending}").write_bytes(STARTS[kind])
    with pytest.raises(InputError, match=kind.split(",")[0]) as caught:
        collections.load(tmp_path / f"a{ending}", cache=cache)
    assert "latin1" not in str(caught.value)


def test_a_file_with_zero_bytes_is_no_latin1(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(b"\x7fELF\x02\0\0\xe9")
    with pytest.raises(InputError, match=r"a\.txt line 1: no text: zero bytes") as caught:
        collections.load(tmp_path, cache=cache)
    assert "latin1" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\x7fELF\0", b"\xff\xff\x01", "é".encode("cp1252")])
def test_of_a_file_beside_others_that_is_no_text_both_ways_out_are_named(tmp_path, cache, content):
    (tmp_path / "b.txt").write_text("The sea is salt.")
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.txt.*iconv.* Or put a dot before its name"):
        collections.load(tmp_path, cache=cache)


@pytest.mark.parametrize("text", ["The sea is salt.", "Луна тянет воду моря."])
@pytest.mark.parametrize("code", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_text_in_utf_16_without_a_mark_is_not_read_as_single_letters(tmp_path, cache, text, code):
    """Its bytes are valid UTF-8 too: letters between zeros, or other characters."""
    (tmp_path / "a.md").write_bytes(text.encode(code))
    with pytest.raises(InputError, match=r"a\.md line 1: no text: zero bytes .*iconv -f utf-16le"):
        collections.load(tmp_path, cache=cache)


def test_a_stray_zero_byte_is_no_reason_to_read_a_text_as_utf_16(tmp_path, cache):
    """iconv would turn it into Chinese characters."""
    (tmp_path / "a.txt").write_bytes(b"The sea\0 is salt.")
    with pytest.raises(InputError, match=r"all of it is UTF-16: iconv .*strays.* tr -d '\\0' <"):
        collections.load(tmp_path, cache=cache)


def test_the_encoding_of_a_page_is_read_and_never_guessed(tmp_path, cache):
    text, file = "<p>A naïve café by the sea.</p>", tmp_path / "a.html"
    said = f"<html><head><meta charset=windows-1252></head>{text}"
    for content in (text.encode(), said.encode("cp1252"), text.encode("utf-8-sig")):
        file.write_bytes(content)
        assert collections.load(file, cache=cache).passages["text"][0] == text[3:-4]
    file.write_bytes(text.encode("cp1252"))
    with pytest.raises(
        InputError, match=r"a\.html: not UTF-8, and names no known charset\..*<meta"
    ):
        collections.load(file, cache=cache)
    file.write_bytes("<p>Salt.</p>".encode("utf-16-le"))
    with pytest.raises(InputError, match="zero bytes"):
        collections.load(file, cache=cache)


JAPANESE, RUSSIAN = (
    "月は海の水を引く。潮は一日に二度満ちる。",
    "Луна тянет воду моря. Прилив дважды в день.",
)
CHINESE, KOREAN = "月亮吸引海水。潮汐一天两次。", "달은 바닷물을 당긴다. 하루에 두 번."
FRENCH = "La marée monte déjà à la plage."
ENCODINGS = [("iso2022_jp", JAPANESE), ("iso2022_kr", KOREAN), ("utf-7", JAPANESE)]
ENCODINGS += [("utf-7", FRENCH), ("utf-7", RUSSIAN), ("gb18030", CHINESE), ("big5", CHINESE[:6])]
ENCODINGS += [("shift_jis", JAPANESE), ("euc_kr", KOREAN), ("koi8_r", RUSSIAN)]
ENCODINGS += [("cp1251", RUSSIAN), ("cp1252", FRENCH), ("utf-32-le", FRENCH)]
KINDS = {".txt": "{}", ".html": "<html><body>{}</body></html>", ".tsv": "id\ttext\n1\t{}\n"}
KINDS |= {".jsonl": '{{"text": "{}"}}\n'}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("code", "text"), ENCODINGS)
def test_a_text_in_another_encoding_is_refused_and_never_read_as_other_signs(
    tmp_path, cache, code, text, kind
):
    """Also if all of its bytes are ASCII."""
    (tmp_path / f"a{kind}").write_bytes(KINDS[kind].format(text).encode(code))
    with pytest.raises(InputError, match=rf"a\{kind}.*UTF-8|zero bytes") as caught:
        collections.load(tmp_path / f"a{kind}", cache=cache)
    assert "UTF-8" in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "EPA+ALA and DHA.",
        "C++11, Google+Facebook, q=deep+learning+retrieval-.",
        "\x1b[31mred\x1b[0m",
    ],
)
def test_what_resembles_an_encoding_of_seven_bits_is_read(tmp_path, cache, text):
    (tmp_path / "a.tsv").write_text(f"text\tposition\n{text}\t1\n", encoding="utf-8")
    assert collections.load(tmp_path / "a.tsv", cache=cache).passages["text"][:] == [text]


@pytest.mark.parametrize(
    ("named", "code", "text"),
    [
        ("iso-8859-1", "cp1252", "“Tides” – déjà vu"),  # as browsers read it
        ("windows-1251", "utf-8", RUSSIAN),  # what its server said
        ("gb2312", "utf-8", RUSSIAN),
        ("utf-16", "utf-8", FRENCH),
        ("nonsense", "utf-8", FRENCH),
        ("gb2312", "gb18030", CHINESE + "镕"),
        ("Shift_JIS", "cp932", JAPANESE + "①"),
        ("koi8-r", "koi8_r", RUSSIAN),
        ("iso-2022-jp", "iso2022_jp", JAPANESE),
        ("utf-8", "utf-8", "A long page with one broken sign: \udc80."),
    ],
)
@pytest.mark.parametrize("how", ["<meta charset={}>", "<?xml version='1.0' encoding='{}'?>"])
def test_a_page_is_read_in_the_encoding_it_names(tmp_path, cache, named, code, text, how):
    page = f"{how.format(named)}<html><body><p>{text}</p></body></html>"
    (tmp_path / "a.html").write_bytes(page.encode(code, "surrogateescape"))
    (found,) = collections.load(tmp_path, cache=cache).passages["text"]
    assert found == text.replace("\udc80", "\ufffd")


def test_the_mark_of_utf_8_goes_before_what_a_page_names(tmp_path, cache):
    page = "<html><head><meta charset=gb2312></head><body><p>A café.</p></body></html>"
    (tmp_path / "a.html").write_bytes(page.encode("utf-8-sig"))
    assert collections.load(tmp_path, cache=cache).passages["text"][:] == ["A café."]


@pytest.mark.parametrize(("named", "code"), [("utf-8", "cp1251"), ("euc-kr", "koi8_r")])
def test_a_page_in_another_encoding_than_it_names_is_refused(tmp_path, cache, named, code):
    page = f"<html><head><meta charset={named}></head><body>{RUSSIAN}</body></html>"
    (tmp_path / "a.html").write_bytes(page.encode(code))
    with pytest.raises(InputError, match=rf"a\.html: not in {named}, the encoding that it names"):
        collections.load(tmp_path, cache=cache)


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.rst", "a.adoc", "a.csv", "a.tsv", "a.jsonl"])
def test_line_ends_of_old_macs_end_lines(tmp_path, cache, name):
    sign = {".csv": ",", ".tsv": "\t"}.get(name[1:])
    text = "# Sea\n\nSalt.\n\n# Moon\n\nTides.\n"
    if name in ("a.txt", "a.rst", "a.adoc"):
        text = "Sea\n===\n\nSalt.\n\nMoon\n====\n\nTides.\n"
    elif sign:
        text = f"title{sign}text\nSea{sign}Salt.\nMoon{sign}Tides.\n"
    elif name == "a.jsonl":
        text = "".join(
            json.dumps({"title": title, "text": text}) + "\n"
            for title, text in (("Sea", "Salt."), ("Moon", "Tides."))
        )
    for end in ("\r", "\r\n", "\r\r\n"):
        (tmp_path / name).write_bytes(text.replace("\n", end).encode())
        found = collections.load(tmp_path / name, cache=cache).passages
        assert [*zip(found["title"], found["text"], strict=True)] == [
            ("Sea", "Salt."),
            ("Moon", "Tides."),
        ]


def test_of_two_files_of_passages_one_is_to_be_named(tmp_path, cache):
    for name in ("a.jsonl", "b.csv"):
        (tmp_path / name).write_text('{"text": "Salt."}\n')
    with pytest.raises(
        InputError, match=r"2 files that may .* \(a\.jsonl, b\.csv\).*/a\.jsonl, or"
    ):
        collections.load(tmp_path, cache=cache)


def test_a_page_in_utf_16_is_read_and_a_pdf_with_its_ending_is_not(tmp_path, cache):
    (tmp_path / "a.html").write_bytes("<p>The sea is salt.</p>".encode("utf-16"))
    assert collections.load(tmp_path, cache=cache).passages["text"][:] == ["The sea is salt."]
    (tmp_path / "a.html").write_bytes(STARTS["PDF"])
    with pytest.raises(InputError, match="pdftotext"):
        collections.load(tmp_path, cache=cache)


def test_of_many_bad_files_three_are_named(tmp_path, cache):
    for number in range(12):
        (tmp_path / f"{number:02}.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"12 files .*02\.txt[^;]*; and 9 more"):
        collections.load(tmp_path, cache=cache)


def test_files_without_text_are_left_out_and_counted(text_folder, cache):
    before = [row["id"] for row in collections.load(text_folder, cache=cache).passages]
    for name, content in {"0.txt": b"", "zz.txt": b" \n\n", "bom.txt": b"\xef\xbb\xbf\n"}.items():
        (text_folder / name).write_bytes(content)
    collection = collections.load(text_folder, cache=cache)
    assert [row["id"] for row in collection.passages] == before
    assert (collection.info["files"], collection.info["empty_files_left_out"]) == (3, 3)
    left = "; not read: 1 .md; without text: 3 .txt"
    assert collection.info["read"] == f"read 3 of 7 files: 3 .txt{left}"


def test_a_folder_of_empty_files_is_refused(tmp_path, cache):
    (tmp_path / "a.txt").write_text("\n")
    with pytest.raises(InputError, match=f"{tmp_path.name}: 1 file without any text"):
        collections.load(tmp_path, cache=cache)


def test_repeated_texts_are_kept_and_counted(text_folder, cache):
    (text_folder / "a.rst").write_text("Another document.", encoding="utf-8")
    collection = collections.load(text_folder, cache=cache)
    assert collection.info["counts"]["duplicate_texts"] == 1


def test_a_copy_under_another_file_s_name_is_a_copy_and_one_under_another_heading_is_none(
    tmp_path, cache
):
    long = f"{sentence('sea', 90)}\n\n{sentence('moon', 90)}"
    texts = {"deep/r.txt.gz": "", "r (1).txt": long, "r.txt": long, "s.md": f"# Sea\n\n{long}"}
    texts |= {"t.md": f"# Moon\n\n{long}", "u.rst.txt": "Short."}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "deep" / "r.txt.gz").write_bytes(gzip.compress(long.encode()))
    collection = collections.load(tmp_path, cache=cache)
    assert collection.passages["title"][:4] == ["r", "r", "r (1)", "r (1)"]
    assert collection.same_text.tolist() == [0, 1, 0, 1, 0, 1, 6, 7, 8, 9, 10]
    assert collection.info["counts"]["duplicate_texts"] == 4
    with pytest.raises(InputError, match=r"'r \(1\)\.txt#0' repeats text of .*r\.txt\.gz \(4 such"):
        collections.load(tmp_path, cache=cache, allow_duplicates=False)


@pytest.mark.parametrize("held", [(), ("photo.png", "data.parquet")])
def test_a_folder_without_any_text_says_what_it_holds_and_what_it_needs(tmp_path, cache, held):
    (folder := tmp_path / "other").mkdir()
    for name in held:
        (folder / name).write_bytes(b"x")
    with pytest.raises(
        InputError,
        match=r"text files \(\.txt, \.md, \.rst, \.adoc, \.html\), or one \.jsonl or \.csv file",
    ) as caught:
        collections.load(folder, cache=cache)
    assert ("It holds data.parquet, photo.png" if held else "It is empty") in str(caught.value)


def test_what_a_dot_hides_never_refuses_the_texts_beside_it(text_folder, beir_folder, cache):
    before = collections.load(text_folder, cache=cache)
    for name in (".git2", ".old"):
        beir_folder(text_folder / name)
    (text_folder / ".passages.jsonl").write_text('{"text": "x"}', encoding="utf-8")
    (text_folder / ".hidden" / "key.txt").symlink_to(text_folder.parent)  # it leads out
    (text_folder.parent / "secret").write_text("never read", encoding="utf-8")
    (text_folder / ".key.txt").symlink_to(text_folder.parent / "secret")
    after = collections.load(text_folder, cache=cache)
    assert (after.digest, after.info["read"]) == (before.digest, before.info["read"])


@pytest.mark.parametrize("name", ["tides.txt", "tides.md", "tides.markdown", "tides.rst"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_text_is_taken_whatever_its_kind_alone_or_in_a_folder(tmp_path, cache, name, alone):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / name).write_text("# Tides\n\nThe moon pulls the water.", encoding="utf-8")
    collection = collections.load(
        tmp_path / "docs" / name if alone else tmp_path / "docs", cache=cache
    )
    assert collection.name == ("tides" if alone else "docs") and collection.passages["id"][:] == [
        f"{name}#0"
    ]
    assert "The moon pulls the water." in collection.passages["text"][0]


TIDES = """Before all headings.

# Tides #

## Cause

The moon pulls.

```
# a comment
```

## *Times*
### Twice a day
# Salt
"""
BOTH = """=====
Tides
=====

Cause
-----
The moon pulls.

+---+---+
| a | b |
+---+---+

Salt
====
Grains.
"""


def test_headings_are_the_titles_of_the_passages_below_them(tmp_path, cache):
    for name, content in {"a.md": TIDES, "b.rst": BOTH, "c.txt": "# no heading\n\nMoon."}.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    rows = [
        (row["id"], row["title"], row["text"])
        for row in collections.load(tmp_path, cache=cache).passages
    ]
    assert rows == [
        ("a.md#0", "a", "Before all headings."),
        ("a.md#1", "Tides: Cause", "The moon pulls.\n```\n# a comment\n```"),
        ("a.md#2", "Tides: *Times*", "Twice a day"),
        ("a.md#3", "a", "Salt"),
        ("b.rst#0", "Tides: Cause", "The moon pulls.\n+---+---+\n| a | b |\n+---+---+"),
        # its sign comes third, so it stands below the second
        ("b.rst#1", "Tides: Cause: Salt", "Grains."),
        ("c.txt#0", "c", "# no heading Moon."),
    ]


FIELDS = {
    "---\ntitle: Boilers\ntags: [x, y]\nauthors:\n  - a\n- b\n---\n": "Boilers",
    "---\nlayout: page\ntitle: 'Boilers: in winter'\n---\n": "Boilers: in winter",
    "---\n# of a site\n\nlayout: home\ntitle: >-\n  Boilers in\n  winter\n---\n": "Boilers in",
    "---\ntitle:\ntags: x\n---\n": "",
    '+++\ntitle = "Boilers"\ntags = [\n"x",\n]\n+++\n': "Boilers",
}


@pytest.mark.parametrize("fields", FIELDS)
def test_fields_before_a_text_of_markdown_are_no_text_and_name_it(tmp_path, fields):
    body, title = "Drain it.\n\n## Frost\n\nClose it.\n\n---\nEnd: now\n---\n", FIELDS[fields]
    (tmp_path / "a.md").write_text(fields + body, encoding="utf-8")
    (tmp_path / "plain.md").write_text(body, encoding="utf-8")
    plain = sections_of(tmp_path / "plain.md")
    assert [text.strip() for _, text in sections_of(tmp_path / "a.md")] == [
        text.strip() for _, text in plain
    ]
    titles = [above for above, _ in sections_of(tmp_path / "a.md")]
    assert titles[:2] == ([title, f"{title}: Frost"] if title else ["a", "Frost"])
    text = f"{fields}# {title or 'Sea'}\n\nDrain it."
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    assert sections_of(tmp_path / "a.md")[1][0] == (title or "Sea")  # once


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nKey: it is a rule.\n\n---\nSalt.",
        "---\nThe moon pulls: so\nit rises.\n---\nSalt.",
        "---\n- a\n- b\n---\nSalt.",
        "---\ntitle: never closed\nSalt.",
        "Salt.\n---\ntitle: x\n---\n",
        "---\ntitle: x\n\nSalt, and no field.\n---\n",
        # never closed: every way to divide it into lines would be tried, doubling with each line
        "---\ntitle: x\n" + " y: z\n\n" * 60 + "Salt.",
    ],
)
def test_text_between_two_rules_is_text(tmp_path, text):
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    found = " ".join(f"{above} {part}" for above, part in sections_of(tmp_path / "a.md"))
    assert {*re.findall(r"\w+", text)} <= {*re.findall(r"\w+", found)}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["# a", "## b", "c", "", "===", "---", "```", "d e", "####### f", " ###"]),
        max_size=12,
    )
)
def test_no_word_of_a_text_with_headings_is_lost(lines):
    text = "\n".join(lines)
    found = " ".join(f"{title} {part}" for title, part in sections(text))
    assert {*re.findall(r"\w+", text)} == {*re.findall(r"\w+", found)}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["# a", "= b", "c", "", "", "===", "---", "-----", "....", "```", " ```", "~~~", " d #"]
        ),
        max_size=16,
    )
)
def test_headings_looked_for_at_line_starts_are_those_of_every_character(lines):
    text = "\n".join(lines)
    for heading in (plain.HEADING, plain.ASCIIDOC):
        slow = [mark.span() for mark in heading.finditer(text)]
        assert [mark.span() for mark in plain._marks(text, heading)] == slow


def test_lines_that_are_passed_over_have_nothing_to_be_changed():
    """For every character: no printable one is invisible, and only these break a word."""
    signs = list(map(chr, range(sys.maxunicode + 1)))
    assert not any(sign.isprintable() for sign in signs if plain.INVISIBLE.match(sign))
    assert {sign for sign in signs if plain.FIRST.search(f"a{sign}")} == {*plain.BREAKS}


@pytest.mark.parametrize("kind", ["txt", "md", "rst"])
@pytest.mark.parametrize("alone", [True, False])
def test_texts_may_be_gzipped(tmp_path, cache, kind, alone):
    (tmp_path / "docs").mkdir()
    path = tmp_path / "docs" / f"tides.{kind}.gz"
    path.write_bytes(gzip.compress(b"The moon pulls.\n"))
    (tmp_path / "docs" / "empty.txt.gz").write_bytes(gzip.compress(b"\n"))
    collection = collections.load(path if alone else path.parent, cache=cache)
    assert collection.passages["id"][:] == [f"tides.{kind}.gz#0"] and collection.name == (
        "tides" if alone else "docs"
    )
    path.write_bytes(b"The moon pulls.")
    with pytest.raises(InputError, match=rf"tides\.{kind}\.gz line 1: not a gzip file"):
        collections.load(path if alone else path.parent, cache=cache)


def test_a_readme_with_the_licence_is_no_document_but_another_one_is(tmp_path, cache):
    (tmp_path / "a.md").write_text("The moon pulls.", encoding="utf-8")
    (tmp_path / "README.md").write_text("How the tide works.", encoding="utf-8")
    assert len(collections.load(tmp_path, cache=cache / "all")) == 2
    (tmp_path / "README.md").write_text("- Licence: CC0", encoding="utf-8")
    assert collections.load(tmp_path, cache=cache / "one").passages["id"][:] == ["a.md#0"]


@pytest.mark.parametrize("name", ["dump.jsonl", "dump.ndjson", "dump.json"])
@pytest.mark.parametrize("alone", [True, False])
def test_json_lines_are_taken_under_another_name(tmp_path, cache, name, alone):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / name).write_text(
        "\n".join(map(json.dumps, [{"id": 3, "contents": "Air."}, LINES[0]])), encoding="utf-8"
    )
    collection = collections.load(
        tmp_path / "docs" / name if alone else tmp_path / "docs", cache=cache
    )
    assert collection.name == "dump" and collection.passages["id"][:] == ["3", "line-2"]


@pytest.mark.parametrize(
    ("name", "sign"),
    [("tides.csv", ","), ("tides.csv", ";"), ("tides.csv", "\t"), ("tides.tsv", "\t")],
)
def test_a_table_is_a_collection(tmp_path, cache, name, sign):
    rows = [
        ["id", "title", "text", "position"],
        ["7", "Sea", f'"Tides{sign} twice\na day."', "2"],
        ["", "", "Moon.", ""],
    ]
    (tmp_path / name).write_text("\n".join(sign.join(row) for row in rows), encoding="utf-8")
    collection = collections.load(tmp_path / name, cache=cache)
    assert [tuple(row.values()) for row in collection.passages] == [
        ("7", "Sea", f"Tides{sign} twice\na day.", "", 2),
        ("line-4", "", "Moon.", "", 0),
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("text\none\ntwo,three", "line 3: not a row of a table whose columns are text (2 cells)"),
        ("text,position\none,first", "line 2: field position is text, not a whole number"),
        ('text\n"open', "line 2: not a row of a table"),
        ("name,words\na,b", "line 1: field text is missing (there are: name, words)"),
        ("a1,The moon pulls.\na2,Salt.", "line 1: field text is missing (there are: a1, The moon"),
    ],
)
def test_a_bad_table_is_named_by_line_and_column(tmp_path, cache, content, problem):
    (tmp_path / "tides.csv").write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        collections.load(tmp_path / "tides.csv", cache=cache)
    assert problem in str(caught.value) and caught.value.fix


@pytest.mark.parametrize(
    "content",
    ["sep=|\ntitle|text\nSea|Salt", "SEP=;\ntitle;text\nSea;Salt", "\ntitle,text\nSea,Salt"],
)
def test_a_line_before_a_table_says_what_separates_its_cells(tmp_path, cache, content):
    """As Excel writes one; a blank line says nothing."""
    (tmp_path / "tides.csv").write_text(content, encoding="utf-8")
    (row,) = collections.load(tmp_path / "tides.csv", cache=cache).passages
    assert (row["id"], row["title"], row["text"]) == ("line-3", "Sea", "Salt")


UNQUOTED = ['"Tides", they rise.', "Salt.", '"Why?', 'Because."', 'A 5" nail', '"To be."']


@pytest.mark.parametrize("ids", [True, False])
def test_in_a_table_of_tabs_without_quoting_a_quote_is_a_sign(tmp_path, cache, ids):
    """As in MS MARCO's: no row becomes part of another row's cell."""
    lines = [f"{row}\t{text}" if ids else text for row, text in enumerate(UNQUOTED)]
    head = "id\ttext" if ids else "text"
    (tmp_path / "a.tsv").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    assert collections.load(tmp_path / "a.tsv", cache=cache).passages["text"][:] == UNQUOTED


def test_a_table_of_tabs_with_quoting_is_read_as_spreadsheets_write_it(tmp_path, cache):
    cells = ['"Tides, ""big"" ones"', "Salt.", '"A\nline end"', '"A\ttab"']
    lines = [f"{row}\t{cell}" for row, cell in enumerate(cells)]
    (tmp_path / "a.tsv").write_text("\n".join(["id\ttext", *lines]) + "\n", encoding="utf-8")
    found = collections.load(tmp_path / "a.tsv", cache=cache).passages["text"][:]
    assert found == ['Tides, "big" ones', "Salt.", "A\nline end", "A\ttab"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (
            "a.csv",
            '7,"Tides\n8,Salt.\n9,Waves"\n10,Sand.',
            r"a\.csv line 2: .* takes in '8,Salt\.'",
        ),
        ("a.csv", '7,Moon.\n8,"Tides" rise.\n9,Sand.', r"a\.csv line 3: .*written twice"),
        ("a.csv", '7,"Tides\n8,Salt.\n9,Sand.', r"a\.csv line 2: .*unexpected end"),
        ("b.csv", '7,"Tides,x\n8,Salt.",y\n9,Sand.,z', r"b\.csv line 2: .* takes in '8,Salt\.,y'"),
        ("a.tsv", '7\t"Tides\n8\tSalt.\n9\tWaves"\nSand.', r"a\.tsv line 2: .* takes in"),
    ],
)
def test_a_quote_that_would_take_in_rows_is_refused_where_it_begins(
    tmp_path, cache, name, content, problem
):
    names = {"a.csv": "id,text\n", "b.csv": "id,text,title\n", "a.tsv": "id\ttext\n"}[name]
    (tmp_path / name).write_text(names + content, encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        collections.load(tmp_path / name, cache=cache)


def test_a_quoted_cell_may_hold_lines_that_read_as_rows_and_others(tmp_path, cache):
    cells = ["Jane\n12, Quay\n75001 Paris", "List:\n8,Salt\nSand", "Sand, salt\n9,Tides\n", "\n"]
    lines = [f'{row},"{cell}"' for row, cell in enumerate(cells)]
    (tmp_path / "a.csv").write_text("\n".join(["id,text", *lines]) + "\n", encoding="utf-8")
    rows = [row["text"] for _, row in beir.read_table(tmp_path / "a.csv")]
    assert rows == cells
    (tmp_path / "b.csv").write_text('text\n"\n"\nSalt.\n', encoding="utf-8")
    assert len([*beir.read_table(tmp_path / "b.csv")]) == 2


def test_an_empty_line_may_stand_before_the_one_that_says_what_separates_cells(tmp_path):
    (tmp_path / "a.csv").write_text("\nsep=;\nid;text\n7;Salt, sand.\n", encoding="utf-8")
    ((where, row),) = beir.read_table(tmp_path / "a.csv")
    assert where.endswith("line 4") and row == {"id": "7", "text": "Salt, sand."}


def test_a_cell_keeps_a_line_that_reads_as_the_tables_first_one(tmp_path):
    """Only the first line of a file says what separates its cells."""
    table = tmp_path / "sheet.csv"
    table.write_text('sep=;\ntitle;text\nExcel;"Begin with\nsep=;\nas its first line."\n')
    ((_, row),) = beir.read_table(table)
    assert row["text"] == "Begin with\nsep=;\nas its first line."


def test_texts_are_read_once_and_never_again(tmp_path, cache, monkeypatch):
    """A description of their content is stored with the passages; files beside them are checked."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text(f"Text {number}.\n\n(c) Ann", encoding="utf-8")
    (folder / "empty.txt").write_text(" ")
    first = collections.load(folder, cache=cache)
    (folder / "picture.png").write_bytes(b"png")
    monkeypatch.setattr(plain, "_blocks", lambda path: pytest.fail(f"{path} is read again"))
    again = collections.load(folder, cache=cache)
    read = "read 6 of {} files: 6 .txt{}; without text: 1 .txt; at the beginning or end of most te"
    assert first.info["read"].startswith(read.format(7, ""))
    assert again.info["read"].startswith(read.format(8, "; not read: 1 .png"))
    assert again.digest == first.digest and again.info["counts"] == first.info["counts"]


def test_a_file_of_an_unknown_kind_is_named_with_the_known_ones(tmp_path, cache):
    (tmp_path / "talk.pdf").write_bytes(b"%PDF")
    with pytest.raises(
        InputError,
        match=r"talk\.pdf is neither .* known kind \(\.txt, \.md.*: pdftotext FILE\.pdf\.$",
    ):
        collections.load(tmp_path / "talk.pdf", cache=cache)
    (tmp_path / "talk.abc").touch()
    with pytest.raises(InputError, match=r"known kind .* Use primer"):
        collections.load(tmp_path / "talk.abc", cache=cache)


def test_a_text_beside_queries_is_no_corpus(beir_folder, cache):
    folder = beir_folder(corpus=None)
    (folder / "LICENSE.txt").write_text("All rights.", encoding="utf-8")
    with pytest.raises(InputError, match=r"no corpus\.jsonl"):
        collections.load(folder, cache=cache)


def test_passages_end_with_a_paragraph_where_that_fits():
    first, second, third = sentence("a", 60), sentence("b", 30), sentence("c", 50)
    assert cut([f"{first} {second}", third]) == [f"{first} {second}", third]
    assert cut([first, second, third]) == [f"{first} {second}", third]
    assert cut([second, f"{first} {third}"]) == [f"{second} {first}", third]


def test_a_sentence_longer_than_a_passage_is_cut():
    assert [len(text.split()) for text in cut([sentence("a", 230)])] == [100, 100, 30]


def test_a_short_rest_joins_the_passage_before():
    assert [len(text.split()) for text in cut([f"{sentence('a', 95)} {sentence('b', 15)}"])] == [
        110
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 130), min_size=1, max_size=4), max_size=5), st.integers(5, 100)
)
def test_nothing_is_lost_and_no_passage_is_too_long(sizes, words):
    parts = [" ".join(sentence("x", size) for size in own) for own in sizes]
    found = cut(parts, words)
    assert " ".join(found) == " ".join(parts)
    assert all(len(text.split()) <= words + words / 5 for text in found)
    assert all(found)


def test_paragraphs_are_runs_of_lines():
    assert paragraphs(["", "a", "b ", " \t", "", "c"]) == ["a b", "c"]


@pytest.mark.parametrize("name", ["TIDES.TXT", "tides.MD", "Tides.JSONL", "TIDES.CSV"])
@pytest.mark.parametrize("alone", [True, False])
def test_an_ending_in_capitals_is_the_same_kind(tmp_path, cache, name, alone):
    content = {"J": '{"text": "The moon pulls."}', "C": "text\nThe moon pulls."}.get(
        name.rpartition(".")[2][0], "The moon pulls."
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / name).write_text(content, encoding="utf-8")
    collection = collections.load(
        tmp_path / "docs" / name if alone else tmp_path / "docs", cache=cache
    )
    assert collection.passages["text"][:] == ["The moon pulls."]


def test_a_readme_beside_the_one_file_of_passages_is_no_passage(tmp_path, cache):
    (tmp_path / "tides.csv").write_text("text\nThe moon pulls.", encoding="utf-8")
    (tmp_path / "README.md").write_text("How this table was made.", encoding="utf-8")
    assert collections.load(tmp_path, cache=cache).passages["text"][:] == ["The moon pulls."]


def test_texts_beside_a_table_are_read_but_beside_json_lines_nobody_knows_what_is_meant(
    tmp_path, cache
):
    (tmp_path / "a.txt").write_text("The moon pulls.", encoding="utf-8")
    (tmp_path / "prices.csv").write_text("a,b\n1,2", encoding="utf-8")
    assert collections.load(tmp_path, cache=cache).passages["id"][:] == ["a.txt#0"]
    (tmp_path / "b.jsonl").write_text('{"text": "x"}', encoding="utf-8")
    with pytest.raises(
        InputError,
        match=r"both texts \(a\.txt\) and passages \(b\.jsonl\) are there\. Give .*/b\.jsonl, or",
    ):
        collections.load(tmp_path, cache=cache)


def test_two_columns_of_one_name_are_refused(tmp_path, cache):
    (tmp_path / "tides.csv").write_text("id,text,text\n1,a,b\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"tides\.csv line 1: two columns of one name"):
        collections.load(tmp_path / "tides.csv", cache=cache)


def test_an_array_is_refused_with_the_way_to_lines(tmp_path, cache):
    (tmp_path / "tides.json").write_text(json.dumps(LINES, indent=1), encoding="utf-8")
    with pytest.raises(InputError, match=r"tides\.json line 1: not a JSON object .*jq -c"):
        collections.load(tmp_path / "tides.json", cache=cache)


@pytest.mark.parametrize(
    "name", ["b.txt", "inner/b.md", "README.md", "corpus.jsonl", "qrels/test.tsv", "b.txt.gz"]
)
def test_a_link_that_leads_out_of_a_folder_is_refused(tmp_path, name, counted):
    (tmp_path / "secret.key").write_text("the key\n")
    folder = tmp_path / "docs"
    (folder / name).parent.mkdir(parents=True)
    (folder / "a.txt").write_text("The moon pulls the sea.\n")
    (folder / name).symlink_to(os.path.relpath(tmp_path / "secret.key", (folder / name).parent))
    with pytest.raises(InputError, match="is a link that leads out of docs") as refused:
        collections.load(str(folder))
    assert refused.value.where == str(folder / name) and "the key" not in str(refused.value)
    counted("links that lead out of a collection's folder", 1)


def test_links_within_a_folder_and_to_the_folder_are_followed_and_folders_behind_links_said(
    tmp_path,
):
    folder, other = tmp_path / "docs", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (folder / "a.txt").write_text("The moon pulls the sea.\n")
    (other / "c.txt").write_text("Elsewhere.\n")
    (folder / "b.txt").symlink_to("a.txt")
    (folder / "behind").symlink_to(other)
    (folder / "circle.txt").symlink_to("circle.txt")
    (folder / "gone.txt").symlink_to("moved.txt")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "lib64").symlink_to(other)
    (tmp_path / "link").symlink_to("docs")
    (tmp_path / "named.txt").symlink_to("other/c.txt")
    collection = collections.load(str(tmp_path / "link"), allow_duplicates=True)
    assert collection.passages["doc"][:] == ["a.txt"]
    assert collection.info["linked_folders_left_out"] == 1
    told = (
        "read 1 of 2 files: 1 .txt; links to files that are there, read once: 1; folders behind a"
        " link, not read: 1; links that lead nowhere: 2"
    )
    assert collection.info["read"] == told
    assert collections.load(str(tmp_path / "named.txt")).passages["text"] == ["Elsewhere."]


# What is read, and how ---------------------------------------------------------------------------

PAGE = b"""<html><head><title>Manual</title><style>b {}</style></head><body><nav>Home</nav>
<p>About <b>tides</b>.</p><h1>Sea</h1><p>Salt&nbsp;water &amp; ice.</p><h2>Code</h2>
<pre>for x in sea:\n    print(x)</pre><table><tr><th>a</th><th>b</th></tr>
<tr><td>1</td><td>2</td></tr></table><script>never()</script></body></html>"""


@pytest.mark.parametrize("name", ["page.html", "PAGE.HTM", "page.html.gz"])
def test_a_page_of_html_is_its_text_under_its_headings(tmp_path, cache, name):
    (tmp_path / "docs").mkdir()
    content = gzip.compress(PAGE) if name.endswith(".gz") else PAGE
    (tmp_path / "docs" / name).write_bytes(content)
    passages = collections.load(tmp_path / "docs", cache=cache).passages
    rows = [(row["title"], row["text"]) for row in passages]
    code = "```\nfor x in sea:\n    print(x)\n```\n| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert rows == [("Manual", "About tides."), ("Sea", "Salt water & ice."), ("Sea: Code", code)]


def test_what_was_read_and_what_not_is_counted(tmp_path, cache):
    (folder := tmp_path / "docs").mkdir()
    names = ("a.txt", "b.rst.txt", "c.html", "a.html", "d.pdf", "e.docx", "f.tex", "Makefile")
    for name in (*names, ".f.txt"):
        (folder / name).write_text(f"The moon pulls {name}.", encoding="utf-8")
    info = collections.load(folder, cache=cache).info
    assert info["read"] == (
        "read 3 of 8 files: 1 .html, 1 .rst, 1 .txt; not read: 1 .docx, 1 .html, 1 .pdf, 1 .tex,"
        " 1 without ending; a text is made by: pdftotext FILE.pdf, pandoc FILE.docx -o FILE.md,"
        " pandoc FILE.tex -o FILE.md"
    )


def test_to_say_what_was_read_looks_at_each_file_a_few_times(tmp_path, monkeypatch):
    looks = 0

    class Looked(type(tmp_path)):
        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return super().__hash__()

    files = [Looked(tmp_path / f"{number}.txt") for number in range(500)]
    monkeypatch.setattr(plain, "visible_files", lambda folder: files)
    said = plain.what_was_read(tmp_path, files[:-1])
    assert said == "read 499 of 500 files: 499 .txt; not read: 1 .txt"
    assert looks < 10 * len(files)  # 500 times each with a set anew for each file


def test_what_lies_beside_the_texts_of_a_collection_that_was_read_before_is_said(
    text_folder, cache
):
    before = collections.load(text_folder, cache=cache)
    text_folder = text_folder.rename(text_folder.with_name("moved"))
    (text_folder / "talk.pdf").write_bytes(b"%PDF")
    after = collections.load(text_folder, cache=cache)
    assert (after.name, after.digest) == ("moved", before.digest) and "1 .pdf" in after.info["read"]
    assert after.info["counts"] == before.info["counts"]


def test_inner_endings_and_asciidoc_give_titles_and_else_the_file_s_name_does(tmp_path, cache):
    texts = {
        "git-tag.txt": "git-tag(1)\n==========\n\nOPTIONS\n-------\nSigns a tag.\n",
        "intro.adoc": "= Intro\n\n== Code\n\n----\na = 1\n\nb = 2\n----\n",
        "modules.rst.txt": "Modules\n=======\n\nAll of them.\n",
        "notes.txt": "No heading at all.\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    rows = [(row["title"], row["text"]) for row in collections.load(tmp_path, cache=cache).passages]
    assert rows == [
        ("git-tag(1): OPTIONS", "Signs a tag."),
        ("Intro: Code", "```\na = 1\n\nb = 2\n```"),
        ("Modules", "All of them."),
        ("notes", "No heading at all."),
    ]


def test_code_and_tables_keep_their_lines_and_prose_goes_on_below(tmp_path, cache):
    text = "Run\nthis:\n\n    git tag\n      -s\n\nThen\npush.\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (found,) = collections.load(tmp_path, cache=cache).passages["text"][:]
    assert found == "Run this:\n    git tag\n      -s\nThen push."


def test_all_bad_files_are_named_at_once_with_a_way_out(text_folder, cache):
    for name in ("l1.txt", "l2.txt"):
        (text_folder / name).write_bytes(b"caf\xe9")
    with pytest.raises(
        InputError, match=r"2 files .*l1\.txt line 1: not UTF-8.*l2\.txt.*a dot"
    ) as bad:
        collections.load(text_folder, cache=cache)
    assert bad.value.fix.count("iconv -f windows-1252 -t utf-8") == 1  # a way out is said once
    for name in ("l1.txt", "l2.txt"):
        (text_folder / name).rename(text_folder / f".{name}")
    assert len(collections.load(text_folder, cache=cache)) == 5


def test_a_folder_of_collections_asks_which_and_one_of_readmes_is_too_small(
    beir_folder, cache, tmp_path
):
    for name in ("a", "b"):
        beir_folder(tmp_path / "both" / name)
        (tmp_path / "both" / name / "README.md").write_text("What it is.")
    with pytest.raises(InputError, match=r"a folder of collections \(a, b\)\. Give one .*both/a"):
        collections.load(tmp_path / "both", cache=cache)
    for name in ("a", "b"):
        (tmp_path / "readmes" / name).mkdir(parents=True)
        (tmp_path / "readmes" / name / "README.md").write_text("What it is.")
    with pytest.raises(InputError, match="nothing but 2 README files, too little"):
        collections.load(tmp_path / "readmes", cache=cache)


@pytest.mark.parametrize(
    "code",
    [
        "```\nif a:\n    b = 1\n\n\n    c  = 2\n```",
        "    if a:\n        b = 1\n\n        c  = 2",
        "| a   | b |\n|-----|---|\n| 1   |   |",
    ],
    ids=["fenced", "indented", "table"],
)
def test_code_and_tables_stay_as_they_are_written(tmp_path, cache, code):
    text = f"# Head\n\nBefore it.\n\n{code}\n\nAfter it.\n"
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    (row,) = collections.load(tmp_path, cache=cache).passages
    assert row["text"] == f"Before it.\n{code}\nAfter it."


def test_long_code_is_cut_at_lines_and_loses_none(tmp_path, cache):
    lines = [f"    value_{n} = {n}  # of {n}" for n in range(60)]
    code = [line for pair in zip(lines, [""] * 60, strict=True) for line in pair][:-1]
    (tmp_path / "a.md").write_text("\n".join(code), encoding="utf-8")
    texts = collections.load(tmp_path, cache=cache).passages["text"][:]
    assert len(texts) == 4 and all(text.startswith("    value_") for text in texts)
    assert [line for text in texts for line in text.split("\n") if line] == lines
    assert all(text.count("\n\n") == text.count("value_") - 1 for text in texts)


BESIDE = "<header>Library</header><div>We use cookies.</div>"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (f"{BESIDE}<main><h1>Sea</h1>Salt.</main><aside>Related</aside>", ["", "Salt."]),
        (f"{BESIDE}<div role=main>Salt.<main>Tide.</main></div>Related", ["Salt.\n\nTide."]),
        (f"<main> </main>{BESIDE}", ["Library\n\nWe use cookies."]),
        ("<main>Salt.</main><main>Tide.</main>", ["Salt.\n\nTide."]),
        ("<p>Salt.</p>", ["Salt."]),
    ],
)
def test_beside_the_main_part_of_a_page_nothing_is_read(body, texts):
    page = f"<html><body>{body}</body></html>"
    assert [text for _, text in html_sections(page.encode())] == texts


HIDDEN = ["<p hidden>x</p>", "<div aria-hidden=true>x<p>x</p></div>", "<template>x</template>"]


@pytest.mark.parametrize("hidden", [*HIDDEN, '<i hidden=""></i><span hidden=hidden>x</span>'])
def test_what_a_page_hides_is_not_read(hidden):
    page = f"<h1>Sea{hidden}</h1><p>Salt.</p>{hidden}<p hidden=until-found>Ice.</p>"
    page += "<p aria-hidden=false>Tide.</p>"
    rows = [("", ""), ("Sea", "Salt.\n\nIce.\n\nTide.")]
    assert html_sections(f"<html><body>{page}</body></html>".encode()) == rows


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.rst", "a.adoc", "a.html", "a.md.gz"])
def test_signs_that_nobody_sees_are_in_no_passage(tmp_path, cache, name):
    signs = "\x07\x1b\x9b\u200b\u200f\u202a\u202e\u2066\u2069\ufeff\ue000"
    text = f"Tides{signs}\n=====\n\nSa\u00adlt{signs}water\u200c,\n\u202e\n\x0cice.\n"
    text = f"<h1>Tides{signs}</h1><p>{text}</p>" if name.endswith("html") else text
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (tmp_path / "b.txt").write_text(signs, encoding="utf-8")
    collection = collections.load(tmp_path, cache=cache)
    rows = [(row["title"], row["text"].split()) for row in collection.passages]
    words = ["Sa\u00adlt", "water\u200c,", "ice."]
    assert [(title, found[-3:]) for title, found in rows] == [("Tides", words)]
    assert (
        not re.search(f"[{signs}]", str(rows)) and "without text: 1 .txt" in collection.info["read"]
    )


@pytest.mark.parametrize("code", [False, True])
def test_a_word_without_end_is_cut(tmp_path, cache, code):
    long = "A0b1" * 30_000
    text = f"Begin.\n\n```\nx = {long}\n```\n" if code else f"Begin. {long} End."
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    texts = collections.load(tmp_path, cache=cache).passages["text"][:]
    assert max(map(len, texts)) <= 1210 and long in "".join(texts).replace("\n", "")
    address = "https://example.org/" + "a" * 970  # long, and a word
    assert cut([f"See {address} there."]) == [f"See {address} there."]


def test_an_xhtml_page_is_read_without_a_warning(tmp_path, cache, recwarn):
    page = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>Salt.</p></body></html>'
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    assert collections.load(tmp_path, cache=cache).passages["text"][:] == ["Salt."]
    assert not [one for one in recwarn if "XML" in str(one.category)]


def test_a_packed_page_that_unpacks_without_end_is_named(tmp_path):
    """Pages are parsed as a whole, so a small file could use up all memory."""
    with gzip.open(tmp_path / "page.html.gz", "wb") as file:
        for _ in range(33):
            file.write(bytes(2**20))
    with pytest.raises(InputError, match="unpacks to over 32 MB"):
        sections_of(tmp_path / "page.html.gz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("faq.csv", "question,answer\nHow often is it oiled?,Every two weeks.\n"),
        ("parts.csv", "title,description\nPump,It moves water.\n"),
        ("faq.jsonl", '{"question": "How often?", "answer": "Every two weeks."}\n'),
        ("parts.jsonl", '{"title": "Pump", "description": "It moves water."}\n'),
    ],
)
def test_what_is_asked_or_called_is_not_taken_for_the_text(name, content, tmp_path):
    """Otherwise half of each line would be searched, unnoticed."""
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=r"field text is missing \(there are: .*(answer|descr)"):
        collections.load(tmp_path / name, cache=tmp_path / "cache")


def test_a_table_says_which_columns_are_not_read(tmp_path):
    (tmp_path / "parts.csv").write_text("id,title,text,price\na,Pump,It moves water.,7\nb,Fan,,8\n")
    found = collections.load(tmp_path / "parts.csv", cache=tmp_path / "cache")
    assert found.info["read"] == "read of each line: id, title, text; not read: price"
    assert [*found.passages["text"]] == ["It moves water.", ""]  # a title without text is a passage
    (tmp_path / "chunks.jsonl").write_text('{"page_content": "Salt.", "metadata": {"page": 1}}\n')
    found = collections.load(tmp_path / "chunks.jsonl", cache=tmp_path / "cache")
    assert [*found.passages["text"]] == ["Salt."] and found.info["read"].endswith("read: metadata")
    (tmp_path / "plain.jsonl").write_text('{"id": 1, "text": "Salt."}\n')
    assert "read" not in collections.load(tmp_path / "plain.jsonl", cache=tmp_path / "cache").info


def test_a_page_that_is_called_a_text_is_read_as_a_page(tmp_path):
    page = (
        "\ufeff<!DOCTYPE html>\n<html><head><title>x</title></head><h1>Sea</h1><p>Salt &amp; sand"
    )
    for name in ("a.html", "a.txt"):
        (tmp_path / name[2:]).mkdir()
        (tmp_path / name[2:] / name).write_text(page, encoding="utf-8")
    read = [
        collections.load(tmp_path / kind, cache=tmp_path / "c").passages for kind in ("html", "txt")
    ]
    assert [*read[1]["text"]] == [*read[0]["text"]] == ["Salt & sand"]
    (tmp_path / "txt" / "about.txt").write_text("<html> is how a page begins.")
    assert len(collections.load(tmp_path / "txt", cache=tmp_path / "c")) == 2


@pytest.mark.parametrize("way", ["base64", "quoted-printable"])
def test_an_e_mail_with_a_coded_text_is_refused_and_a_plain_one_read(tmp_path, way):
    head = "From: Ann <ann@x.org>\nSubject: tides\n"
    (tmp_path / "a.txt").write_text(f"{head}\nThe moon pulls.\n")
    (tmp_path / "b.txt").write_text(f"Of mail.\nContent-Transfer-Encoding: {way}\nis a line of it.")
    assert len(collections.load(tmp_path, cache=tmp_path / ".c")) == 2
    (tmp_path / "c.txt").write_text(f"{head}Content-Transfer-Encoding: {way}\n\nVGhlIG1vb24=\n")
    with pytest.raises(InputError, match=r"c\.txt: an e-mail as it is sent, its text coded"):
        collections.load(tmp_path, cache=tmp_path / ".c")


# Faults of real texts -----------------------------------------------------------------------------

README = """<!-- badges: start
# not a heading
-->
<p align="center">
  <a href="https://example.org"><img src="logo.png" alt="Logo"></a>
</p>
<h1 align="center">Tide <img src="wave.svg">gauge</h1>

Reads H<sub>2</sub>O levels &amp; writes <b>one</b> table&nbsp;an hour,<br>see <https://example.org/a?b=1&amp=2>.
Needs `<stdio.h>`, a `Vec<b>`, 3 < 4, a <file> and &copy 5 \\<b>.

<details>
<summary>Options</summary>

<table>
  <tr><th>flag</th><th>what it does</th></tr>
  <tr><td><code>-v</code></td><td>says<br>more</td></tr>
  <tr><td></td></tr>
</table>

</details>

----

## Code <a name="code"></a>

```html
<p>stays &amp; is</p> <!-- as it is -->
```

    <b>and</b>\tthis
      - it

<pre>
a  = 1
</pre>
<script>
never()
</script>
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_html_in_markdown_is_what_its_readers_see_and_code_stays(tmp_path, cache, end):
    (tmp_path / "a.md").write_bytes(README.replace("\n", end).encode())
    rows = [(row["title"], row["text"]) for row in collections.load(tmp_path, cache=cache).passages]
    said = "Reads H2O levels & writes one table an hour, see https://example.org/a?b=1&amp=2."
    said += " Needs `<stdio.h>`, a `Vec<b>`, 3 < 4, a <file> and &copy 5 \\<b>. Options"
    table = "| flag | what it does |\n| --- | --- |\n| -v | says more |"
    code = "```html\n<p>stays &amp; is</p> <!-- as it is -->\n```\n    <b>and</b>\tthis\n"
    code += "      - it\n```\na  = 1\n```"
    assert rows == [("Tide gauge", f"{said}\n{table}"), ("Tide gauge: Code", code)]


@pytest.mark.parametrize("start", ["<!--", "<table", "`", "<a ", "&", "<script", " " * 9])
def test_markup_that_never_ends_is_text_and_takes_no_time(start):
    text = start * 20_000
    began = time.monotonic()
    assert re.sub(r"\W", "", without_markup(text)) == re.sub(r"\W", "", text)
    assert time.monotonic() - began < 5


def table_of(rows: int, *, outer: str = "|") -> list[str]:
    cells = [["town", "height in metres"], ["---", ":-:"]]
    cells += [[f"town {n}", f"{n} and {n} more"] for n in range(rows)]
    return [f"{outer} {' | '.join(row)} {outer}".strip() for row in cells]


@pytest.mark.parametrize("outer", ["|", ""])
@pytest.mark.parametrize("rows", [1, 2, 20, 40])
def test_a_table_cut_over_passages_has_its_head_in_each(tmp_path, cache, rows, outer):
    lines = table_of(rows, outer=outer)
    text = "\n".join(["# Tides", "", "Measured heights:", *lines, "", "Salt."])
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    texts = collections.load(tmp_path, cache=cache).passages["text"][:]
    found = [[line for line in text.split("\n") if "|" in line] for text in texts]
    assert all(part[:2] == lines[:2] and len(part) > 2 for part in found if part)
    assert [line for part in found for line in part[2:]] == lines[2:]
    assert texts[0].startswith("Measured heights:\n") and texts[-1].endswith("\nSalt.")
    assert (sum(map(bool, found)) > 1) == (rows > 2)
    assert all(len(text.split()) <= 125 + 2 * text.count("|") for text in texts)


def test_the_head_of_a_grid_and_of_a_page_s_table_is_repeated_and_a_wide_one_is_not():
    grid = ["+----+----+", "| a  | b  |", "+====+====+"]
    rows = [f"| {n:02} | {' '.join(['x'] * 9)} |" for n in range(9)]
    for text in cut(["\n".join([*grid, *rows])], 40):
        assert text.split("\n")[:3] == grid
    cells = "".join(f"<tr><td>{n}</td><td>{'x ' * 40}</td></tr>" for n in range(4))
    page = f"<table><tr><th>a</th><th>b</th></tr>{cells}</table>"
    ((_, text),) = html_sections(page.encode())
    assert [text.split("\n")[:2] for text in cut([text])] == [["| a | b |", "| --- | --- |"]] * 2
    wide = ["| " + "w " * 90 + "|", "|---|", *["| " + "x " * 40 + "|"] * 3]
    assert [text.count("w") for text in cut(["\n".join(wide)])] == [90, 0, 0]


PAPER = """Dense retrieval of passages with a state-of-the-
art en-
coder. The encod-
er reads low-resource texts; we pre-
train it on cross-
lingual data, with low-
resource texts and pre-
and post-processing. BERT-
base, GPT-
4, non-
English and RECOG-
NITION, recog\u00ad
nition and end-
to-end, long-
ing for multi-dimen-
sional data and long-
term memory. A pre-training step; an encoder. It can pretrain
a hard prob-
lem, that is hard work, a hard-
work day; see Figure 1-
3 -
a dash.

    indented co-
    de stays
"""


def test_words_broken_at_line_ends_are_whole_and_compounds_keep_their_hyphen(tmp_path, cache):
    for end in ("\n", "\r\n"):
        (tmp_path / "a.txt").write_bytes(PAPER.replace("\n", end).encode())
        ((_, text),) = sections_of(tmp_path / "a.txt")
        whole, code = paragraphs(text.split("\n"))
        assert whole == (
            "Dense retrieval of passages with a state-of-the-art encoder. The encoder reads"
            " low-resource texts; we pretrain it on cross-lingual data, with low-resource texts"
            " and pre- and post-processing. BERT-base, GPT-4, non-English and RECOGNITION,"
            " recognition and end-to-end, longing for multi-dimensional data and long-term memory."
            " A pre-training step; an encoder. It can pretrain a hard problem, that is hard work,"
            " a hard-work day; see Figure 1-3 - a dash."
        )
        assert code == "    indented co-\n    de stays"
    (tmp_path / "a.md").write_text("```\nco-\nde\n```\n", encoding="utf-8")
    assert sections_of(tmp_path / "a.md")[0][1].strip() == "```\nco-\nde\n```"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["re-", "recog-", "a", "nition", "", "well-known", "```", "4-", "x -"])
    )
)
def test_no_letter_is_lost_where_words_are_made_whole(lines):
    text = "\n".join(lines)
    assert re.sub(r"[\s-]", "", unbroken(text)) == re.sub(r"[\s-]", "", text)
    assert unbroken(unbroken(text)).split() == unbroken(text).split() or "-\n" in unbroken(text)


PAGES = [
    "\nTides of the sea\n\nThe moon pulls the wa-\n\nAnn and Bob - 1 -\n",
    "Journal of Tides, Vol. 3\n\nter of all seas, and the\n\nAnn and Bob          - 2 -\n",
    "Journal of Tides, Vol. 3\n\nsun does.\n\n1 2 3\n4 5 6\n\nAnn and Bob          - 3 -\n",
    "Journal of Tides, Vol. 4\n\n1 2 3\n\nit is in Journal of Tides, Vol. 3\n\nAnn and Bob - 4 -\n",
]


def test_headers_and_footers_of_pages_are_no_text_and_a_sentence_goes_over(tmp_path):
    for text in ("\f".join([*PAGES, ""]), "\n\f\n".join(PAGES)):
        (tmp_path / "a.txt").write_text(text, encoding="utf-8")
        ((_, text),) = sections_of(tmp_path / "a.txt")
        assert paragraphs(text.split("\n")) == [
            "Tides of the sea",
            "The moon pulls the water of all seas, and the sun does.",
            "1 2 3 4 5 6",
            "1 2 3",
            "it is in Journal of Tides, Vol. 3",
        ]
    assert without_page_edges("a\n\fa\n") == "a\n\fa\n"  # two pages show no habit


def test_what_most_texts_begin_or_end_with_is_left_out_and_said(tmp_path, cache):
    def write(folder, texts):
        folder.mkdir()
        for n, text in enumerate(texts):
            (folder / f"{n}.md").write_text(text, encoding="utf-8")
        return collections.load(folder, cache=cache)

    notice, menu = "© Ann. All rights reserved.", "Home | About | Contact"
    both = [f"{menu}\n\n# T{n}\n\nText {n}.\n\n{notice}\n\nMade by hand." for n in range(6)]
    found = write(tmp_path / "six", [*both, f"# Law\n\nOf {notice}\n\n{notice}\n\nEnd.", notice])
    assert found.passages["text"][:] == [
        *(f"Text {n}." for n in range(6)),
        f"Of {notice} {notice} End.",
        notice,
    ]
    assert found.info["read"] == (
        "read 8 of 8 files: 8 .md; at the beginning or end of most texts, left out there:"
        f" “{menu}”, “Made by hand.”, “{notice}”"
    )
    mails = write(
        tmp_path / "mails", [f"Subject: {n}\n\nHi Bob,\n\nText {n}.\n\n{notice}" for n in range(6)]
    )
    assert mails.passages["text"][5] == "Subject: 5 Hi Bob, Text 5."
    assert mails.info["read"].endswith(f"left out there: “{notice}”")
    few = write(tmp_path / "four", both[:4])  # too few to say
    assert few.passages["text"][:].count(menu) == 4 and "left out" not in few.info["read"]
    copies = write(tmp_path / "copies", both[:1] * 9)
    assert len(copies) == 18 and "left out" not in copies.info["read"]
    code = write(tmp_path / "code", [f"Text {n}.\n\n```\nrun\n```\n" for n in range(9)])
    assert code.passages["text"][3] == "Text 3.\n```\nrun\n```"


def test_a_long_text_is_read_in_parts_and_comes_out_as_one(tmp_path, cache, monkeypatch):
    code = "```\n# none\n\n" + "x = 1\n\n" * 90 + "```"
    texts = [f"{sentence(f'word{n}', 40)} {sentence('sea', 30)}" for n in range(120)]
    file = tmp_path / "long.md"
    file.write_text("\n\n".join(["# Tides", *texts[:60], code, *texts[60:]]), encoding="utf-8")
    whole = collections.load(file, cache=cache)
    monkeypatch.setattr(plain, "PART", 3000)
    found = list(plain.sections_of(file))
    assert 5 < len(found) < 20 and {title for rows in found for title, _ in rows} == {
        "Tides",
        "long",
    }
    assert max(len(text) for rows in found for _, text in rows) < 6500
    parts = collections.load(file, cache=tmp_path / "another")
    assert " ".join(parts.passages["text"][:]) == " ".join(whole.passages["text"][:])
    assert len(set(parts.passages["id"][:])) == len(parts)
    (tmp_path / "line.txt").write_text("a sea\n" * 5000, encoding="utf-8")  # no blank line
    assert len(list(plain.sections_of(tmp_path / "line.txt"))) > 3


@pytest.mark.parametrize(
    ("name", "headings"),
    [
        ("long.md", "# {}\n\n## {}\n\n### {}\n\n"),
        ("long.adoc", "= {}\n\n== {}\n\n=== {}\n\n"),
        ("long.rst", "{}\n=====\n\n{}\n-----\n\n{}\n~~~~~\n\n"),
    ],
)
def test_headings_stand_above_the_later_parts_of_a_long_text_too(
    tmp_path, name, headings, monkeypatch
):
    file, texts = tmp_path / name, [f"Text {number} of it.\n\n" for number in range(90)]
    last = headings.split("\n\n")[2] + "\n\n"
    content = [headings.format("Tides", "Moon", "Pulls"), *texts, last.format("Storm"), *texts]
    file.write_text("".join(content), encoding="utf-8")

    def titles() -> list[str]:
        return [title for rows in plain.sections_of(file) for title, text in rows if text.strip()]

    whole = titles()
    monkeypatch.setattr(plain, "PART", 400)
    parts = titles()
    assert len(parts) > 3 + len(whole) and [*dict.fromkeys(parts)] == whole
    assert whole[-2:] == ["Tides: Moon: Pulls", "Tides: Moon: Storm"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_bar_says_how_much_of_a_large_file_is_read(tmp_path, packed, monkeypatch):
    class Bar(beir.tqdm):
        def update(self, n=1):
            super().update(n)
            seen.append(self.n)

    seen, content = [], os.urandom(40_000).hex().encode()
    content = b"\n".join(content[start : start + 50] for start in range(0, len(content), 50))
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    monkeypatch.setattr(beir, "SEEN_EVERY", 1000)
    monkeypatch.setattr(beir, "tqdm", Bar)
    assert len(list(beir.read_lines(path))) == 1600
    size = path.stat().st_size
    assert len(seen) > 50 and seen == sorted(seen) and 0.9 * size < seen[-1] <= size


@pytest.mark.parametrize("word", ["ACGT", "a-", "ACGT-", "é", "--"])
def test_a_word_of_any_length_is_read_in_time(tmp_path, word):
    (tmp_path / "genome.txt").write_text(f"{word * 50_000}\nand more", encoding="utf-8")
    started = time.process_time()
    ((_, text),) = sections_of(tmp_path / "genome.txt")
    assert time.process_time() - started < 5 and text.startswith(word)
