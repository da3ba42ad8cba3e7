"""MedQuAD and LiveQA-Med: consumers' questions on health, with answers from NIH web sites.

Ben Abacha and Demner-Fushman, BMC Bioinformatics 2019. MedQuAD's answers are cut into passages;
LiveQA-Med's are whole, judged on four grades.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from dr_book.data.files import Files, Rows, collection
from dr_book.data.text import decode, letters, passages, rows_of, sentences, share, split_of
from dr_lib.collections.plain import one_line

JUDGED = "QA-TestSet-LiveQA-Med-Qrels-2479-Answers.zip"
QUESTIONS = "TestDataset/TREC-2017-LiveQA-Medical-Test-Questions-w-summaries.xml"
LEFT_OUT = 0.135
"""Share of MedQuAD's groups of documents that are not part of the collection."""
SALT_LEFT_OUT = "medquad-hidden-2026"
HEADING = re.compile(
    r"(what|who|how|is|are|do|does|can|where|when|why|which)\b.*\?$", re.IGNORECASE
)
SET_PHRASE = re.compile(
    r"The Human Phenotype Ontology provides the following list|If the information is available, the"
    r" table below|You can use the MedlinePlus Medical Dictionary to look up|Frequently Asked"
    r" Questions \(FAQs\)$"
)


Answered = dict[str, list["Answer"]]
"""Document -> its questions with their answers."""


class Answer(NamedTuple):
    """A question of a document, and its answer."""

    id: str
    question: str
    text: str


def medquad(files: Files) -> Rows:
    """Answers as passages; documents that share a focus or a question are in the same split."""
    documents: Answered = {}
    focus: dict[str, str] = {}
    for name in files.names("*.xml"):
        root = _parsed(files.read(name))
        document = f"{root.get('source', '')}-{name.split('/')[-1][:-4]}"
        if answers := [*_answers(root)]:
            documents[document] = answers
            focus[document] = one_line(root.findtext("Focus") or "")
    group = _groups(documents, focus)
    openings, judged_texts = set(), set()
    for _, _, text in _judged_answers(files):
        openings.add(letters(text)[:80])
        whole = re.sub(r"\)\s*$", "", text.strip())
        judged_texts |= {letters(whole), *map(letters, passages(_units(whole)))}
    judged_groups = {
        group[document]
        for document, answers in documents.items()
        if any(letters(answer.text)[:80] in openings for answer in answers)
    }
    left = {
        document: answers
        for document, answers in documents.items()
        if share(group[document], SALT_LEFT_OUT) < LEFT_OUT and group[document] not in judged_groups
    }
    boilerplate = _boilerplate(documents, group)
    kept = {document: documents[document] for document in documents.keys() - left.keys()}
    split = {document: split_of(group[document], "medquad-split") for document in kept}
    corpus, queries, judged = _built(kept, focus, split, boilerplate)
    others, asked, pairs = _built(left, focus, dict.fromkeys(left, "test"), boilerplate)
    # A text or question that is left out may not come back through another document.
    texts = {row["_id"]: letters(row["text"]) for row in others}
    texts = {id_: text for id_, text in texts.items() if text not in judged_texts}
    answered = {query for _, query, id_ in pairs if id_ in texts}
    questions = {letters(row["text"]) for row in asked if row["_id"] in answered}
    corpus = [row for row in corpus if letters(row["text"]) not in {*texts.values()}]
    queries = [row for row in queries if letters(row["text"]) not in questions]
    rows: dict[str, list[tuple]] = {"train": [], "dev": [], "test": []}
    for split_name, query, id_ in judged:
        rows[split_name].append((query, id_, 1))
    return collection(corpus, queries, rows)


def _parsed(content: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError:
        return ElementTree.fromstring(decode(content).encode())


def _answers(root: ElementTree.Element) -> Iterator[Answer]:
    """Questions of a document with answers of at least three words."""
    for pair in root.iter("QAPair"):
        asked, text = pair.find("Question"), pair.findtext("Answer") or ""
        question = one_line(asked.text or "") if asked is not None else ""
        question = re.sub(r"[\s?]+$", "?", question)
        if question and len(text.split()) >= 3:
            yield Answer(asked.get("qid", ""), question, text)


def _groups(documents: Answered, focus: dict[str, str]) -> dict[str, str]:
    """Group of each document: the documents connected by a shared focus or question."""
    holders: dict[str, list[str]] = defaultdict(list)
    for document, answers in documents.items():
        holders[f"focus {letters(focus[document], ' ')}"].append(document)
        for answer in answers:
            holders[f"question {letters(answer.question, ' ')}"].append(document)
    group = {document: {document} for document in documents}
    for joined in holders.values():
        together = set().union(*(group[document] for document in joined))
        group |= dict.fromkeys(together, together)
    return {document: f"d:{min(together)}" for document, together in group.items()}


def _boilerplate(documents: Answered, group: dict[str, str]) -> tuple[set[str], set[str]]:
    """Answers, and passages, that occur verbatim in several groups."""
    answers, pieces = defaultdict(set), defaultdict(set)
    for document, given in documents.items():
        for answer in given:
            answers[letters(answer.text, " ")].add(group[document])
            for passage in passages(_units(answer.text)):
                pieces[letters(passage, " ")].add(group[document])
    found = [{text for text, of in known.items() if len(of) > 1} for known in (answers, pieces)]
    return found[0], found[1]


def _units(answer: str) -> list[str]:
    """Sentences and list items, without repetitions of the question and set phrases."""
    parts = map(one_line, re.split(r"\s{2,}|\n+", answer.strip()))
    units = [unit for part in parts for unit in sentences(part)]
    while units and HEADING.match(units[0]):
        units.pop(0)
    return [unit for unit in units if not SET_PHRASE.match(unit)]


def _built(
    documents: Answered,
    focus: dict[str, str],
    split: dict[str, str],
    boilerplate: tuple[set[str], set[str]],
) -> tuple[list[dict], list[dict], list[tuple[str, str, str]]]:
    """Passages, queries, and judgements (split, query, passage); equal texts are merged."""
    corpus, queries, judged = [], {}, []
    ids: dict[str, str] = {}
    home: dict[str, str] = {}
    for document in sorted(documents):
        answered: dict[str, list[str]] = {}
        position = 0
        for answer in documents[document]:
            whole = letters(answer.text, " ")
            if whole in boilerplate[0]:
                continue
            texts = passages(_units(answer.text)) if whole not in answered else []
            for text in texts:
                words = letters(text, " ")
                if len(text.split()) < 4 or words in boilerplate[1]:
                    continue
                if words not in ids:
                    ids[words] = id_ = f"{document}#{position}"
                    home[id_] = split[document]
                    row = {"_id": id_, "title": focus[document], "text": text}
                    corpus.append({**row, "doc": document, "position": position})
                    position += 1
                answered.setdefault(whole, []).append(ids[words])
            query = {"_id": f"{document}-q{answer.id}", "text": answer.question}
            query = queries.setdefault(letters(answer.question, " "), query)
            for id_ in answered.get(whole, []):
                if home[id_] == split[document]:
                    judged.append((split[document], query["_id"], id_))
    return corpus, [*queries.values()], [*dict.fromkeys(judged)]


def _judged_answers(files: Files) -> Iterator[tuple[str, str, str]]:
    """Id, question and text of each answer judged in LiveQA-Med."""
    name = "All-2479-Answers-retrieved-from-MedQuAD.csv"
    table = decode(files.unzipped(JUDGED, f"{JUDGED[:-4]}/{name}"))
    for row in rows_of(table):
        before, found, text = row["Answer"].partition("Answer:")
        if found:
            asked = re.search(r"Question:\s*(.*?)\n", before)
            question = one_line(asked[1]) if asked else ""
            yield row["AnswerID"].removesuffix(".txt"), question, text


def liveqa(files: Files) -> Rows:
    """Judged answers as passages; grades 0 incorrect, 1 related, 2 incomplete, 3 excellent."""
    answers = {id_: own for id_, *own in _judged_answers(files) if len(own[1].split()) >= 3}
    corpus = []
    for id_, (question, text) in sorted(answers.items()):
        document, _, section = id_.rpartition("_Sec")
        row = {"_id": id_, "title": re.sub(r"\s*\(Also called:.*", "", question)}
        row |= {"text": one_line(text), "doc": document or id_}
        corpus.append({**row, "position": int(section) if section.isdecimal() else 0})
    asked = {}
    for question in ElementTree.fromstring(files.read(QUESTIONS)).iter("NLM-QUESTION"):
        text = question.findtext("NLM-Summary") or question.findtext("NIST-PARAPHRASE")
        asked[question.get("qid", "").removeprefix("TQ")] = one_line(text or "")
    name = "All-qrels_LiveQAMed2017-TestQuestions_2479_Judged-Answers.txt"
    lines = decode(files.unzipped(JUDGED, f"{JUDGED[:-4]}/{name}")).splitlines()
    best: dict[tuple[int, str], int] = {}
    for query, grade, answer in (line.split() for line in lines if len(line.split()) == 3):
        pair = int(query), answer.removesuffix(".txt")
        if query in asked:
            best[pair] = max(best.get(pair, 0), int(grade.split("-")[0]) - 1)
    numbers = sorted({query for query, _ in best})
    queries = [{"_id": str(query), "text": asked[str(query)]} for query in numbers]
    judged = [(str(query), id_, grade) for (query, id_), grade in sorted(best.items())]
    return collection(corpus, queries, {"test": judged})
