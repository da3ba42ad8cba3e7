"""All measures of a run on a split of a collection: those that need judgements, and those that need answers.

SimLM, MASTER, PAIR and DPR-PAQ report Natural Questions by answers: the share of questions with an accepted answer in
one of the first k passages. Such a measure is named "accuracy@k" here; the others are those of `measures`. Page of the
book: ideas/evaluation.
"""

import re
from collections.abc import Sequence

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation.answers import answer_accuracy
from dr_lib.evaluation.measures import evaluate, parse
from dr_lib.evaluation.scores import Scores
from dr_lib.retrieval.ranking import Ranking

BY_ANSWER = re.compile(r"accuracy@([1-9]\d*)")


def evaluate_split(ranking: Ranking, collection: Collection, split: str, measures: Sequence[str]) -> Scores:
    """Score a run of a split's queries.

    Args:
        ranking: of the queries of `split`.
        collection: what was searched.
        split: name of the split.
        measures: names as `evaluate` takes them, or "accuracy@20" and the like.

    Returns:
        Values between 0 and 1 for every judged query, in the order of the judgements.

    Raises:
        InputError: what `check_measures` and `evaluate` refuse.
    """
    check_measures(measures, collection, split)
    cuts = [int(found[1]) for name in measures if (found := BY_ANSWER.fullmatch(name))]
    judged = collection.qrels(split)
    scores = evaluate(
        ranking, judged, collection.passages["id"], [name for name in measures if not BY_ANSWER.fullmatch(name)]
    )
    if not cuts:
        return scores
    asked = collection.queries(split)
    known = dict(zip(asked["id"][:], asked["answers"][:], strict=True))
    answers = [known.get(query, []) for query in ranking.query_ids]
    found = answer_accuracy(ranking, collection.passages, answers, cuts)
    places = {query: place for place, query in enumerate(found.query_ids)}
    rows = [places.get(query, -1) for query in judged]
    by_answer = {
        name: [float(column[row]) if row >= 0 else 0.0 for row in rows] for name, column in found.values.items()
    }
    values = {**scores.values, **by_answer}
    return Scores(list(judged), {name: values[name] for name in measures})


def check_measures(measures: Sequence[str], collection: Collection, split: str) -> None:
    """Refuse a measure that is unknown, or that needs answers where no query of the split has one.

    Raises:
        InputError: names the measure.
    """
    for name in measures:
        if not BY_ANSWER.fullmatch(name):
            parse(name)
        elif not any(collection.queries(split)["answers"]):
            problem = f"{name} needs answers, and no query of split {split!r} has one"
            fix = 'Measure by judgements, such as "R@20" or "Success@20".'
            raise InputError(problem, where=f"collection {collection.name}", fix=fix)
