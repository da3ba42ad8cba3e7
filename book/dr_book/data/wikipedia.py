"""Articles of English Wikipedia as passages, and questions of NQ-open with silver judgements."""

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from dr_book.data.files import Files, Rows, collection
from dr_book.data.questions import nq_questions
from dr_book.data.text import letters, passages, sentences, share
from dr_lib import collections
from dr_lib.collections.plain import one_line
from dr_lib.errors import InputError

WORDS = 9_600_000
SHARE_ANSWERING = 0.75
"""Words of all articles, and the share of articles that contain an answer."""
SHORTEST, SHORTEST_FILL, SHORTEST_PASSAGE = 150, 300, 8
"""Minimum words of an article, of a filler article without an answer, and of a passage."""
DEPTH, RELEVANT = 100, 5
"""BM25's top passages that are searched for an answer, and the most that count as relevant."""
ARTICLE = re.compile(r'<doc id="(\d+)" url="[^"]*" title="([^"]*)">\n(.*?)</doc>', re.DOTALL)
VERB = re.compile(r"\b(is|was|are|were|has|had)\b")
LIST_LIKE = ("List of", "Demographics of", "Communications", "Transport in")


NUMERAL = re.compile(r"[\d ]+(s|BC)?")


class Passage(NamedTuple):
    """A passage with its article's number and title, and its position there."""

    article: int
    position: int
    title: str
    text: str


def wikipedia(files: Files) -> Rows:
    """Whole articles: first those with an answer, found by BM25, then random others."""
    titles, words, cut = {}, {}, []
    for number, title, lines in _articles(files):
        titles[number], words[number] = title, sum(len(line.split()) for line in lines)
        units = [sentence for line in _prose(lines) for sentence in sentences(line)]
        rows = enumerate(passages(units))
        cut += [Passage(number, position, title, text) for position, text in rows]
    if not cut:
        raise InputError("contains no article", where=files.folder, fix="Get its source again.")
    tested = _tested_titles()
    allowed = {number for number, title in titles.items() if title.lower() not in tested}
    questions = [
        *nq_questions(files, "nq_open/NQ-open.dev.jsonl", "nq-test"),
        *nq_questions(files, "nq_open/NQ-open.efficientqa.dev.1.1.jsonl", "nq-dev"),
    ]
    answering = [
        [row for row in rows if cut[row].article in allowed] for rows in _answering(questions, cut)
    ]
    chosen: dict[int, int] = {}
    for article in (cut[rows[0]].article for rows in answering if rows):
        if sum(chosen.values()) < SHARE_ANSWERING * WORDS:
            chosen[article] = words[article]
    for article in sorted(allowed, key=lambda number: share(str(number), "wiki-fill")):
        if sum(chosen.values()) < WORDS and not _is_odd(titles[article], words[article]):
            chosen[article] = words[article]
    corpus: dict[str, dict] = {}
    ids: dict[int, str] = {}
    for row, passage in enumerate(cut):
        text = passage.text.lower()
        long_enough = len(text.split()) >= SHORTEST_PASSAGE
        if passage.article in chosen and long_enough and text not in corpus:
            document = f"w{passage.article}"
            ids[row] = f"{document}#{passage.position}"
            own = {"_id": ids[row], "title": passage.title, "text": passage.text}
            corpus[text] = {**own, "doc": document, "position": passage.position}
    judged: dict[str, list[tuple]] = {"dev": [], "test": []}
    for question, rows in zip(questions, answering, strict=True):
        split = "test" if question["_id"].startswith("nq-test") else "dev"
        relevant = [ids[row] for row in rows if row in ids][:RELEVANT]
        judged[split] += [(question["_id"], id_, 1) for id_ in relevant]
    return collection(corpus.values(), questions, judged)


def _is_odd(title: str, words: int) -> bool:
    """Whether an article is short, a list, or about a number or a year."""
    listed = title.startswith(LIST_LIKE) or NUMERAL.fullmatch(title)
    return bool(listed) or words < SHORTEST_FILL


def _tested_titles() -> set[str]:
    """Lower-case titles of SQuAD's dev and test articles, which must be left out."""
    squad = collections.load("squad", allow_changes=True)
    judged = (squad.qrels(split) for split in ("dev", "test") if split in squad.splits)
    tested = {id_ for grades in judged for own in grades.values() for id_ in own}
    pairs = zip(squad.passages["id"][:], squad.passages["title"][:], strict=True)
    return {title.lower() for id_, title in pairs if id_ in tested}


def _answering(questions: Sequence[dict], cut: Sequence[Passage]) -> Iterator[list[int]]:
    """For each question, rows of BM25's top passages with a distinctive answer, best first."""
    try:
        import bm25s
        import Stemmer
    except ImportError as error:
        problem = f"the package {error.name}, which finds the answers, is not installed"
        raise InputError(problem, where="wikipedia-nq", fix="pip install bm25s PyStemmer") from None
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    index = bm25s.BM25(k1=0.9, b=0.4)
    texts = [f"{passage.title} {passage.text}" for passage in cut]
    index.index(bm25s.tokenize(texts, **options), show_progress=False)
    asked = bm25s.tokenize([question["text"] for question in questions], **options)
    ranked, _ = index.retrieve(asked, k=min(DEPTH, len(cut)), show_progress=False)
    plain = cache(lambda row: _plain(cut[row].text))
    for question, rows in zip(questions, ranked.tolist(), strict=True):
        answers = [own for own in map(_plain, question["answers"]) if _is_telling(own.strip())]
        yield [row for row in rows if any(answer in plain(row) for answer in answers)]


def _plain(text: str) -> str:
    """Lower-case letters without accents, and digits, with a blank at both ends."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return f" {letters(ascii_text, ' ')} "


def _is_telling(answer: str) -> bool:
    """Whether an answer is long enough not to occur by accident."""
    return len(answer) >= 4 and not re.fullmatch(r"[\d ]{1,4}", answer)


def _articles(files: Files) -> Iterator[tuple[int, str, list[str]]]:
    """Number, title and lines of each article; the first line, which repeats the title, is left
    out.
    """
    for name in files.names("*wiki_[0-9]*"):
        for number, title, body in ARTICLE.findall(files.text(name)):
            lines = [line.strip() for line in html.unescape(body).split("\n")]
            lines = [line for line in lines if line][1:]
            if sum(len(line.split()) for line in lines) >= SHORTEST:
                yield int(number), one_line(html.unescape(title)), lines


def _prose(lines: list[str]) -> Iterator[str]:
    """Lines without markup and without headings, which are short lines with a full stop."""
    for line in lines:
        text = one_line(re.sub(r"<[^>]{1,80}>", " ", line))
        if len(text.split()) > 8 or not text.endswith(".") or VERB.search(text):
            yield text
