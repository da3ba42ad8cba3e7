"""MedQuAD's pages of questions and answers, and LiveQA-Med's grades."""

import pytest

from dr_book.data import health
from tests.dr_book.data.layouts import HEADER, zipped

LONG = "It can make the skin itch for days. " * 20
BOILERPLATE = "This condition is inherited in a pattern that nobody knows."


def page(source: str, focus: str, *pairs: tuple[str, str]) -> str:
    asked = "".join(
        f'<QAPair pid="{n}"><Question qid="q{n}" qtype="t">{question}</Question>'
        f"<Answer>{answer}</Answer></QAPair>"
        for n, (question, answer) in enumerate(pairs, start=1)
    )
    body = f"<Focus>{focus}</Focus><QAPairs>{asked}</QAPairs>"
    return f'<Document source="{source}" url="u">{body}</Document>'


def answers(*rows: tuple[str, str]) -> bytes:
    lines = "".join(f'{id_},"{text}"\n' for id_, text in rows)
    qrels = "1 1-Incorrect ADAM_1_Sec2.txt\n1 4-Excellent GARD_9.txt\n1 2-Related GARD_9.txt\n"
    qrels += "12 3-Incomplete GARD_9.txt\n2 1-Incorrect ADAM_1_Sec2.txt\n9 4-Excellent GARD_9.txt\n"
    qrels += "2 4-Excellent UNKNOWN.txt\nbroken line\n"
    folder = health.JUDGED.removesuffix(".zip")
    return zipped(
        {
            f"{folder}/All-2479-Answers-retrieved-from-MedQuAD.csv": f"AnswerID,Answer\n{lines}",
            f"{folder}/All-qrels_LiveQAMed2017-TestQuestions_2479_Judged-Answers.txt": qrels,
        }
    )


JUDGED = answers(
    (
        "GARD_9.txt",
        "Question: What causes X? (Also called: Y)\nURL: u\nAnswer: It\nis  caused by germs.",
    ),
    ("ADAM_1_Sec2.txt", "Question: Z ?\nAnswer: Summary : nothing known."),
    ("ADAM_2.txt", "Question: too short\nAnswer: Two words"),
    ("ADAM_3.txt", "no such fields"),
)
QUESTIONS = """<Set>
<NLM-QUESTION qid="TQ1"><NIST-PARAPHRASE>Not this?</NIST-PARAPHRASE><NLM-Summary> What is
 X?</NLM-Summary></NLM-QUESTION>
<NLM-QUESTION qid="TQ2"><NIST-PARAPHRASE>What is Z?</NIST-PARAPHRASE></NLM-QUESTION>
<NLM-QUESTION qid="TQ12"><NLM-Summary>Twelve?</NLM-Summary></NLM-QUESTION>
<NLM-QUESTION qid="TQ3"><NLM-Summary>Nobody judged this?</NLM-Summary></NLM-QUESTION>
</Set>"""


def test_liveqa_has_grades_from_nought_to_three_and_the_best_of_two(converted):
    made = converted("liveqa-med", {health.JUDGED: JUDGED, health.QUESTIONS: QUESTIONS})
    assert made["corpus.jsonl.gz"] == [
        {
            "_id": "ADAM_1_Sec2",
            "title": "Z ?",
            "text": "Summary : nothing known.",
            "doc": "ADAM_1",
            "position": 2,
        },
        {
            "_id": "GARD_9",
            "title": "What causes X?",
            "text": "It is caused by germs.",
            "doc": "GARD_9",
            "position": 0,
        },
    ]
    assert [row["text"] for row in made["queries.jsonl.gz"]] == [
        "What is X?",
        "What is Z?",
        "Twelve?",
    ]
    assert made["qrels/test.tsv"] == [
        HEADER,
        ("1", "ADAM_1_Sec2", 0),
        ("1", "GARD_9", 3),
        ("2", "ADAM_1_Sec2", 0),
        ("12", "GARD_9", 2),
    ]


@pytest.fixture
def all_kept(monkeypatch):
    monkeypatch.setattr(health, "LEFT_OUT", 0.0)


def medquad(converted, *pages: str) -> dict:
    files = {f"{number}_Set/{number:07}.xml": page for number, page in enumerate(pages, start=1)}
    return converted("medquad", files | {health.JUDGED: JUDGED})


def test_medquad_cuts_answers_and_all_their_passages_are_relevant(converted, all_kept):
    answer = f"What is Itch ?  {LONG} It hurts.   - Rash   - Fever and other signs of illness"
    made = medquad(converted, page("GARD", "Itch", ("What is  Itch ?", answer), ("Empty?", "")))
    first, second = made["corpus.jsonl.gz"]
    assert first == {
        "_id": "GARD-0000001#0",
        "title": "Itch",
        "text": LONG[: 15 * 36].strip(),  # 120 of 160 words: a fifth more than a hundred
        "doc": "GARD-0000001",
        "position": 0,
    }
    assert second["text"] == f"{LONG[: 5 * 36]}It hurts. - Rash - Fever and other signs of illness"
    assert second["position"] == 1
    assert made["queries.jsonl.gz"] == [{"_id": "GARD-0000001-qq1", "text": "What is Itch?"}]
    (judged,) = (rows for name, rows in made.items() if name.startswith("qrels/"))
    assert judged[1:] == [
        ("GARD-0000001-qq1", "GARD-0000001#0", 1),
        ("GARD-0000001-qq1", "GARD-0000001#1", 1),
    ]


def test_medquad_keeps_documents_that_share_focus_or_question_in_one_split(converted, all_kept):
    texts = [f"Answer {n} says what number {n} is about." for n in range(40)]
    pages = [page("A", f"Focus {n // 2}", (f"Question {n}?", texts[n])) for n in range(38)]
    pages += [page("A", "Alone", ("Question 0?", texts[38])), page("A", "alone", ("Q?", texts[39]))]
    made = medquad(converted, *pages)
    splits = {
        int(id_.split("-")[1].split("#")[0]): name
        for name, rows in made.items()
        if name.startswith("qrels")
        for _, id_, _ in rows[1:]
    }
    assert len(splits) == 40 and len({*splits.values()}) > 1
    assert all(splits[n] == splits[n + 1] for n in range(1, 39, 2))
    assert splits[1] == splits[39] == splits[40]
    merged = [row for row in made["queries.jsonl.gz"] if row["text"] == "Question 0?"]
    assert len(merged) == 1


def test_medquad_drops_what_stands_under_unrelated_pages(converted, all_kept):
    only = "Only here it is said that the moon is made of stone."
    made = medquad(
        converted,
        page("A", "First", ("How is First inherited?", BOILERPLATE), ("What is First?", only)),
        page("A", "Second", ("How is Second inherited?", BOILERPLATE)),
        page("A", "Third", ("What is Third?", f"{LONG}   {LONG} {BOILERPLATE}")),
        page("A", "Fourth", ("What is Fourth?", f"{LONG}   {LONG} {only}")),
    )
    texts = [row["text"] for row in made["corpus.jsonl.gz"]]
    assert only in texts and BOILERPLATE not in texts
    assert {row["text"] for row in made["queries.jsonl.gz"]} == {
        "What is First?",
        "What is Third?",
        "What is Fourth?",
    }
    assert len(texts) == 3  # the first passages of the last two are the same


def test_a_question_that_only_boilerplate_answers_leaves_its_id_to_the_next_page(
    converted, all_kept
):
    made = medquad(
        converted,
        page("A", "First", ("How is it inherited?", BOILERPLATE)),
        page("A", "Second", ("How is it inherited?", "By one gene of the mother alone.")),
        page("A", "Third", ("How is Third inherited?", BOILERPLATE)),
    )
    (query,) = made["queries.jsonl.gz"]
    assert query["_id"].startswith("A-0000002-")


def test_medquad_leaves_groups_out_but_none_that_liveqa_judges(converted, monkeypatch):
    monkeypatch.setattr(health, "LEFT_OUT", 1.0)
    made = medquad(
        converted,
        page("GARD", "X", ("What causes X?", "It is caused by germs.")),
        page("GARD", "Y", ("What causes Y?", "Something else causes it.")),
    )
    assert [row["text"] for row in made["corpus.jsonl.gz"]] == ["It is caused by germs."]
    assert [row["text"] for row in made["queries.jsonl.gz"]] == ["What causes X?"]
