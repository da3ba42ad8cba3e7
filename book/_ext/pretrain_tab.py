"""The data of pre-training in a tab: the passages of Primer, their words and a question about each;
and its results.

The page trains in the reader's browser (`book/extra/pretrain-tab/model.js`, with the layers of
`book/extra/search-page/bert.js`); its passages are written here when the book is built. Results
over several seeds are in `book/ideas/measured/pretrain_tab.json`, computed by the same scripts with

    python book/_ext/pretrain_tab.py       # with node; minutes

Page: ideas/pretrain-explorer.
"""

import hashlib
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from IPython.display import HTML

from dr_book.tables import Cell, Markup, stop_words, table
from dr_lib import collections, places
from dr_lib.files import read_json, write_json, write_text
from dr_lib.retrieval import Bm25
from dr_lib.training import machine

FOLDER = "extra/pretrain-tab"
WRITTEN = ("data.js", "measured.inc")
SCRIPT = places.project_root() / "book" / FOLDER / "model.js"
LAYERS = places.project_root() / "book" / "extra" / "search-page" / "bert.js"
MEASURED = places.project_root() / "book" / "ideas" / "measured" / "pretrain_tab.json"
ASKED = "words"
"""The kind of questions used: those that repeat words of their passage. So small a model does not
find the others.
"""
LONGEST, FEWEST = 20, 3
"""Most tokens of a passage with [CLS] and [SEP], and minimum count of a word in the vocabulary."""
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
SIZES = {"longest": LONGEST, "hidden": 32, "inner": 64, "heads": 4, "gain": 3}
SETTINGS = {"batch": 8, "rate": 0.006, "warm": 20, "held": 60, "rates": [0.3, 0.8]}
SHOWN = 12
"""Displayed words of each passage."""
SEEDS, STEPS, EVERY = 3, 1000, 250
WORD = re.compile(r"[a-z]{2,}").findall


def write_tab(to: Path) -> list[Path]:
    """Write the passages and the table of results into the staged source of the book."""
    data = json.dumps(tab_data(), separators=(",", ":"))
    write_text(to / FOLDER / WRITTEN[0], f"window.pretrainData = {data};\n")
    write_text(to / FOLDER / WRITTEN[1], measured_table(read_json(MEASURED)).data + "\n")
    return [to / FOLDER / name for name in WRITTEN]


def tab_data() -> dict[str, Any]:
    """The training data of the page.

    Returns:
        `sizes` and `settings` of the training, `passages` and `queries` as ids of words (query i is
        judged relevant only to passage i), and the `titles`, beginnings (`texts`) and queries
        (`asked`) that the page shows. In `settings`, `guess` is the loss of a model that knows only
        the frequencies of words, `bm25` the MRR@10 of BM25.
    """
    collection = collections.load("primer")
    questions = {
        row["id"]: row["text"] for split in collection.splits for row in collection.queries(split)
    }
    chosen = collection.passages[:]
    asked = [questions[f"{passage}-{ASKED}"] for passage in chosen["id"]]
    words = [content_words(text) for text in chosen["text"]]
    counts = Counter(word for one in words for word in one[: 2 * LONGEST])
    known = [*SPECIAL, *sorted(word for word, count in counts.items() if count >= FEWEST)]
    ids = {word: i for i, word in enumerate(known)}

    def cut(one: Sequence[str]) -> list[int]:
        """Known words between [CLS] and [SEP]."""
        return [
            ids["[CLS]"],
            *[ids[word] for word in one if word in ids][: LONGEST - 2],
            ids["[SEP]"],
        ]

    passages, queries = [cut(one) for one in words], [cut(content_words(text)) for text in asked]
    shares = np.array(list(Counter(i for one in passages for i in one[1:-1]).values()), float)
    shares /= shares.sum()
    guess = round(float(-(shares * np.log(shares)).sum()), 3)
    return {
        "sizes": SIZES | {"vocabulary": len(known)},
        "settings": SETTINGS | {"guess": guess, "bm25": round(_bm25(passages, queries, known), 3)},
        "passages": passages,
        "queries": queries,
        "titles": chosen["title"],
        "texts": [" ".join(text.split()[:SHOWN]) for text in chosen["text"]],
        "asked": asked,
    }


def content_words(text: str) -> list[str]:
    """The words of a text in order, lower case, without stop words: a vector of 32 numbers has no
    room for "the".
    """
    return [word for word in WORD(text.lower()) if word not in stop_words()]


def _bm25(
    passages: Sequence[Sequence[int]], queries: Sequence[Sequence[int]], known: Sequence[str]
) -> float:
    """MRR@10 of BM25 on the same words of passages and queries."""
    texts, asked = (
        [" ".join(known[i] for i in one[1:-1]) for one in side] for side in (passages, queries)
    )
    index = Bm25.build(datasets.Dataset.from_dict({"title": [""] * len(texts), "text": texts}))
    hits = index.search(asked, 10).rows == np.arange(len(asked))[:, None]
    return float((hits / np.arange(1, 11)).sum(1).mean())


def measured_table(found: Mapping[str, Any]) -> HTML:
    """Means over seeds, with minimum and maximum: a column for each kind of pre-training, narrow
    enough for a phone.
    """
    steps = ["before", *[f"after {step:,} steps" for step in found["steps"][1:]]]
    columns = [[_spread(now) for now in zip(*one["mrr"], strict=True)] for one in found["runs"]]
    rows: list[list[Cell]] = [[step, *cells] for step, *cells in zip(steps, *columns, strict=True)]
    worth = [
        float(np.mean([line[-1] for line in one["worth"]])) if one["worth"] else None
        for one in found["runs"]
    ]
    rows.append(
        [
            "worth of the vector, nats",
            *(None if one is None else Markup(f"{one:.2f}", number=True) for one in worth),
        ]
    )
    made = found["machine"]
    caption = (
        f"MRR@10 in percent: mean, lowest and highest of {found['seeds']} seeds. BM25 on the same"
        f" words: {100 * found['bm25']:.1f}. The vector's worth is the decoder's loss with another"
        " passage's vector less that with its own, at the end. All runs together took"
        f" {made['processor_seconds']} seconds of one core ({made['cpu']}, node {made['node']})."
    )
    return table(["training", *(one["name"] for one in found["runs"])], rows, caption=caption)


def _spread(values: Sequence[float]) -> Cell:
    """Mean, lowest and highest of shares, in percent."""
    mean, least, most = (100 * one for one in (np.mean(values), min(values), max(values)))
    return Markup(
        f'{mean:.1f} <span class="interval">{least:.1f} to {most:.1f}</span>', number=True
    )


def script_digest() -> str:
    """SHA-256 (hex) of the training scripts, without comments and spaces, and of the settings."""
    scripts = "".join(path.read_text(encoding="utf-8") for path in (LAYERS, SCRIPT))
    code = re.sub(r"/\*.*?\*/|//[^\n]*|\s+", "", scripts, flags=re.DOTALL)
    return hashlib.sha256(f"{code}{SIZES}{SETTINGS}{FEWEST}{ASKED}".encode()).hexdigest()


RUN = """
globalThis.bert = require(%s);
const pretrain = require(%s), data = JSON.parse(require("fs").readFileSync(%s, "utf8")),
  { seed, bottleneck, rates, steps } = %s;
const training = pretrain.training(data, { seed, bottleneck, rates }), found = [];
for (let step = 0; step <= steps.at(-1); step += 1) {
  if (steps.includes(step)) {
    const { mrr, worth } = training.measure();
    found.push([mrr, worth]);
  }
  if (step < steps.at(-1)) training.step();
}
console.log(JSON.stringify({ found, seconds: process.cpuUsage().user / 1e6 }));
"""


def measure() -> None:
    """Train with all seeds and write the results."""
    data, steps = tab_data(), [*range(0, STEPS + 1, EVERY)]
    encoder, decoder = SETTINGS["rates"]
    kinds = {
        f"masked LM, {100 * encoder:g} %": (False, [encoder, encoder]),
        f"bottleneck, {100 * encoder:g} % and {100 * decoder:g} %": (True, [encoder, decoder]),
    }
    runs, seconds = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.json"
        file.write_text(json.dumps(data))
        for name, (bottleneck, rates) in kinds.items():
            lines = []
            for seed in range(SEEDS):
                options = {"seed": seed, "bottleneck": bottleneck, "rates": rates, "steps": steps}
                program = RUN % (
                    json.dumps(str(LAYERS)),
                    json.dumps(str(SCRIPT)),
                    json.dumps(str(file)),
                    json.dumps(options),
                )
                told = json.loads(
                    subprocess.run(
                        ["node", "-e", program], capture_output=True, text=True, check=True
                    ).stdout
                )
                lines.append(told["found"])
                seconds += told["seconds"]
                print(
                    name,
                    seed,
                    [round(one[0], 3) for one in told["found"]],
                    round(told["seconds"]),
                    file=sys.stderr,
                    flush=True,
                )
            mrr = [[round(mrr, 4) for mrr, _ in one] for one in lines]
            worth = [[round(worth, 4) for _, worth in one] for one in lines] if bottleneck else []
            runs.append({"name": name, "rates": rates, "mrr": mrr, "worth": worth})
    about = {
        "cpu": machine.machine_facts()["cpu"],
        "node": subprocess.check_output(["node", "--version"], text=True).strip(),
    }
    about |= {"python": platform.python_version(), "processor_seconds": round(seconds)}
    found = {
        "script": script_digest(),
        "steps": steps,
        "seeds": SEEDS,
        "bm25": data["settings"]["bm25"],
        "runs": runs,
    }
    write_json(MEASURED, found | {"machine": about})


if __name__ == "__main__":
    measure()
