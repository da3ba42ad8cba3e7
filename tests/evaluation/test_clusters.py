"""Clusters of queries: templates, documents, dialogues, or single queries; questions filled into
templates are distinguished from free ones.
"""

import datasets
import numpy as np
import pytest

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import Clusters, Exchange, clusters_of, dialogues_of, documents_of
from dr_lib.evaluation.clusters import question_templates

PASSAGES = [("a", "Ant", "ants"), ("b", "Bee", "bees"), ("c", "Cat", ""), ("d", "Bee 2", "bees")]


def collection(questions: dict[str, str], judged: list[tuple[str, str, int]]) -> Collection:
    """Four passages in documents, questions by id, and judgements (query, passage, grade)."""
    ids, titles, docs = zip(*PASSAGES, strict=True)
    columns = {"id": ids, "title": titles, "text": ids, "doc": docs, "position": [0] * 4}
    asked = {"id": [*questions], "text": [*questions.values()], "answers": [[]] * len(questions)}
    grades = dict(zip(("query", "passage", "grade"), zip(*judged, strict=True), strict=True))
    tables = [datasets.Dataset.from_dict(one) for one in (columns, asked, grades)]
    return Collection("tiny", "0" * 64, {}, *tables[:2], {"test": tables[2]})


QUESTIONS = {
    "q1": "What bites?",
    "q2": "Who hums?",
    "q3": "Who purrs?",
    "q4": "And flies?",
    "q5": "?",
}
JUDGED = [("q1", "a", 1), ("q2", "b", 2), ("q3", "c", 1), ("q4", "d", 1), ("q4", "a", 1)]
JUDGED += [("q5", "a", 0)]


def test_a_query_belongs_to_the_document_of_its_first_relevant_passage():
    found = clusters_of(collection(QUESTIONS, JUDGED), "test", ["q4", "q1", "q2", "q3", "q5"])
    assert (found.by, found.of) == ("document", (0, 1, 0, 2, 3))
    assert found.names == ("bees", "ants", "passage c", "query q5")


def test_a_grade_below_the_lowest_that_counts_names_no_document():
    found = clusters_of(collection(QUESTIONS, JUDGED), "test", ["q1", "q2", "q4"], grade=2)
    assert found == Clusters.alone(3)


def test_queries_that_share_no_document_stand_for_themselves():
    found = clusters_of(collection(QUESTIONS, JUDGED), "test", ["q1", "q2", "q3"])
    assert (found.by, found.names, found.of) == ("query", (), (0, 1, 2))


def test_a_question_from_a_template_belongs_to_its_template():
    questions = {"q1": "What is Ant?", "q2": "What is  Bee ?", "q3": "Who purrs?"}
    found = clusters_of(collection(questions, JUDGED[:3]), "test", ["q1", "q2", "q3"])
    assert found.by == "question template"
    assert found.names == ("What is …?", "Who purrs?") and found.of == (0, 0, 1)


def test_a_few_questions_that_read_alike_are_no_template():
    asked = ["What is gout?", "What is lupus?", "Who is ill?", "Why?", "When?"]
    assert question_templates(asked, ["gout", "lupus", "", "sleep", "sleep"]) == []


def test_passages_stand_in_their_documents():
    assert documents_of(collection(QUESTIONS, JUDGED), ["d", "c", "b"]).of == (0, 1, 0)


def test_rows_that_share_a_turn_with_the_one_before_are_one_dialogue():
    talks = [(["a b", "c d", "e f"], 3), (["x", "y", "a b"], 3)]
    rows, dialogue = [], []
    for number, (turns, length) in enumerate(talks):
        for end in range(1, length):
            rows.append(Exchange(tuple(turns[:end]), turns[end]))
            dialogue.append(number)
    assert dialogues_of(rows).of == tuple(dialogue)


def test_some_of_the_queries_keep_their_clusters():
    made = Clusters.named("document", ["ants", "bees", "ants", "cats"])
    assert made.chosen([3, 0, 2]) == Clusters.named("document", ["cats", "ants", "ants"])
    assert Clusters.alone(4).chosen([3, 1]) == Clusters.alone(2)


def test_names_and_numbers_say_the_same_of_random_clusters():
    rng = np.random.default_rng(0)
    for _ in range(50):
        names = [f"d{n}" for n in rng.integers(0, rng.integers(1, 9), rng.integers(0, 30))]
        made = Clusters.named("document", names)
        assert [made.names[place] for place in made.of] == names
        assert len({*made.names}) == len(made.names) == len({*names})


@pytest.mark.parametrize("of", [[0, 2], [-1, 0]])
def test_a_cluster_without_a_name_is_refused(of):
    with pytest.raises(InputError, match="no name"):
        Clusters(by="document", names=["a", "b"], of=of)


def test_templates_are_those_of_more_than_half_of_the_questions():
    asked = ["What is gout?", "What is lupus?", "Who has gout?", "When?"]
    titles = ["gout", "lupus", "gout", "x"]
    assert question_templates(asked, titles) == []
    assert question_templates(asked[:3], titles[:3])[0] == "What is …?"
