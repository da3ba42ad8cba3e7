"""The card of an exported model, `README.md`: what it is, how to use it, how it was made, what it scored, whose it is.

The lines under "How to use" are run by the tests. Whatever comes from a record or a collection is escaped. Page of the
book: practice/own-corpus.
"""

import html
import re
from collections.abc import Sequence
from typing import Any

import yaml

from dr_lib.lab.records import Record
from dr_lib.models import CrossEncoderSettings, DenseSettings
from dr_lib.report.comparison import spell
from dr_lib.report.measured import mean_intervals
from dr_lib.report.references import cited

USE_DENSE = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")  # the folder of this file
queries = model.encode(["why does the sea rise and fall"])
passages = model.encode([{passages}])
print(model.similarity(queries, passages))
"""
USE_STATES = """\
import torch
{imports}from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".").eval()
{weights}

def encode(*text, max_length):
    tokens = tokenizer(*text, truncation=True, max_length=max_length, return_tensors="pt")
    with torch.inference_mode():
        states = model(**tokens).last_hidden_state
    vector = {pooled}
{projected}    return {vector}


query = encode("why does the sea rise and fall", max_length={query_length})
passage = encode({passage}, max_length={passage_length})
print(query @ passage.T)
"""
PROJECTION = {
    "imports": "from safetensors.torch import load_file\n",
    "weights": 'weights = load_file("2_Dense/model.safetensors") | load_file("3_LayerNorm/model.safetensors")\n',
    "projected": """\
    vector = torch.nn.functional.linear(vector, weights["linear.weight"], weights["linear.bias"])
    vector = torch.nn.functional.layer_norm(vector, vector.shape[1:], weights["norm.weight"], weights["norm.bias"])
""",
}
USE_CROSS = """\
from sentence_transformers import CrossEncoder

model = CrossEncoder(".")  # the folder of this file
pairs = [("why does the sea rise and fall", {passage})]
print(model.predict(pairs))
"""
USE_LOGIT = """\
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSequenceClassification.from_pretrained(".").eval()
tokens = tokenizer(
    "why does the sea rise and fall", {passage}, truncation=True, max_length={length}, return_tensors="pt"
)
with torch.inference_mode():
    print(model(**tokens).logits)
"""
TITLES = {
    "pair": 'A passage with a title is read as a pair, title first: give `("title", "text")`. One without a title is'
    ' given as plain text, never as `("", "text")`, which would be read differently.',
    "joined": 'Title and text are read as one text: give `"title text"`.',
    "none": "Titles were not read: give the text alone.",
}


def dense_card(
    settings: DenseSettings, hidden: int, *, name: str, record: Record | None, data_licence: str, asked: str = ""
) -> str:
    """The card of a dense encoder.

    Args:
        settings: how it makes vectors.
        hidden: their length.
        name: what the model is called, one line.
        record: of the run that trained it, if it is known.
        data_licence: of the text that it was trained on.
        asked: who wrote the queries, where it was a model; empty where people did.
    """
    first, second = '"Tides"', '"The moon pulls the water of the sea."'
    one = {"pair": f"{first}, {second}", "joined": '"Tides The moon pulls the water of the sea."', "none": second}
    given = f"({one['pair']})" if settings.title == "pair" else one[settings.title]
    pooled = {"cls": "the state at the first position", "mean": "the mean of all states"}[settings.pooling]
    facts = {
        "a vector is": pooled + (", through a linear layer and LayerNorm" if settings.projection else ""),
        "numbers in it": hidden,
        "compared by": "cosine (vectors have length 1)" if settings.normalise else "inner product",
        "longest passage, pieces": settings.passage_length,
        "longest query in training, pieces": settings.query_length,
    }
    reads = [
        TITLES[settings.title],
        f"Queries were cut at {settings.query_length} pieces in training; `encode` cuts every text at"
        f" {settings.passage_length}. For the vectors of the record set `model.max_seq_length ="
        f" {settings.query_length}` while longer queries are encoded.",
    ]
    note = "transformers may say that weights of a `pooler` are new: no vector is made from them."
    if settings.projection:
        note += " The linear layer and LayerNorm lie in files of their own, which `AutoModel` does not read."
    states = _fence(lines_for_states(settings, one[settings.title]), "python")
    use = [_fence(USE_DENSE.format(passages=f"{given}, {second}"), "python"), states, note]
    what = (
        "A dense retriever: a text becomes one vector, and a passage is relevant where its vector is near the query's."
    )
    return _card(name, what, "sentence-similarity", use, facts, reads, record, data_licence, asked)


def lines_for_states(settings: DenseSettings, passage: str) -> str:
    """Lines of Python that make vectors with transformers alone; `passage` is an example as it is given, quoted."""
    projection = PROJECTION if settings.projection else dict.fromkeys(PROJECTION, "")
    return USE_STATES.format(
        pooled={"cls": "states[:, 0]", "mean": "states.mean(dim=1)"}[settings.pooling], **projection,
        vector="torch.nn.functional.normalize(vector, dim=1)" if settings.normalise else "vector", passage=passage,
        query_length=settings.query_length, passage_length=settings.passage_length,
    )  # fmt: skip


def cross_encoder_card(
    settings: CrossEncoderSettings, *, name: str, record: Record | None, data_licence: str, asked: str = ""
) -> str:
    """The card of a re-ranker; arguments as `dense_card`."""
    passage = '"Tides: The moon pulls the water of the sea."' if settings.title else '"The moon pulls the water."'
    facts = {"score": "one logit, higher for a better passage", "longest pair, pieces": settings.length}
    reads = ['Where a passage has a title, "title: " stands before its text.'] if settings.title else []
    use = [
        _fence(USE_CROSS.format(passage=passage), "python"),
        _fence(USE_LOGIT.format(passage=passage, length=settings.length), "python"),
    ]
    what = (
        "A re-ranker: query and passage are read together and get one score. It orders what a first search has found."
    )
    return _card(name, what, "text-ranking", use, facts, reads, record, data_licence, asked)


def _card(
    name: str, what: str, task: str, use: Sequence[str], facts: dict[str, Any], reads: Sequence[str],
    record: Record | None, data_licence: str, asked: str,
) -> str:  # fmt: skip
    parts = [
        _front_matter(task, record), f"# {plain(name)}", what, "## How to use", *use, "## What it reads", _table(facts),
        *reads, *(_origin(record, asked) if record else ["## How it was made", "No record was given with the model."]),
        "## Licences",
        f"The code that trained it is under the MIT licence. The text it was trained on: {plain(data_licence)}."
        " Whoever passes the weights on should respect both, and the licence of the base model.",
    ]  # fmt: skip
    method = record.recipe["objective"]["name"] if record else ""
    return "\n\n".join([*parts, "## References", _fence("\n\n".join(cited(method)), "bibtex")]) + "\n"


def _front_matter(task: str, record: Record | None) -> str:
    values: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": task,
        "tags": ["sentence-transformers", "transformers", "dense-retrieval"],
        "license": "other",
        "license_name": "see-licences-below",
    }
    if record:
        values["datasets"] = [plain(record.data.get("trained_on", record.data["collection"])["name"])]
        values["base_model"] = plain(record.data["base"]["name"])
    return f"---\n{yaml.safe_dump(values, sort_keys=False)}---"


def _origin(record: Record, asked: str) -> list[str]:
    recipe, searched = record.recipe, record.data["collection"]
    data = record.data.get("trained_on", searched)
    split = recipe["evaluation"]["split"]
    made = {
        "pre-training": recipe["objective"]["name"],
        "base model": record.data["base"]["name"],
        "collection": data["name"],
        "digest of the collection": data["digest"],
        "passages": data["passages"],
        "training queries": data["train_queries"],
        "seed": record.seed,
        "machine": ", ".join([str(record.machine.get("cpu")), *(record.machine.get("gpus") or [])]),
        "commit": f"{record.commit.get('id')}{' with changes' if record.commit.get('changed') else ''}",
        "made": record.created,
    }
    intervals = {name: mean_intervals({"": [record]}, name)[""] for name in record.means}
    scores = {f"{name}, %": spell(interval) for name, interval in intervals.items()}
    queries = f"{len(record.query_ids):,} queries of the split {plain(split)}"
    found = (
        f"On {queries} of {plain(searched['name'])}, with 95 % bootstrap intervals over queries. The record itself is"
        " `record.json`."
    )
    if asked:
        found += f" **The queries were generated**: {plain(asked)} The model has learnt the habits of their generator:"
        found += " how it serves people, such scores do not tell."
    whole = yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True)
    return [
        "## How it was made", _table(made),
        f"Study {plain(record.study)}, configuration {plain(record.label)}, {plain(record.scale)} scale. Whole recipe:",
        _fence(whole, "yaml"), "## Scores", found, _table(scores),
    ]  # fmt: skip


def _table(rows: dict[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {plain(name)} | {plain(value)} |" for name, value in rows.items())])


def _fence(text: str, language: str) -> str:
    """A block of code, whatever it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def plain(value: Any) -> str:
    r"""A value as Markdown that shows just its characters, on one line.

    Example:
        >>> plain("<b> | [a](b)")
        '&lt;b&gt; \\| \\[a\\](b)'
    """
    text = " ".join(str(value).split())
    return re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", html.escape(text, quote=False))
