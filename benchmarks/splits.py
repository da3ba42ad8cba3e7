"""Numbers of contexts, candidates and rows of the dialogues and sentence tasks, for "Data sheets".

DR_DATA=FOLDER python benchmarks/splits.py [--save FILE]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dr_lib import places
from dr_lib.evaluation import dialogue_file, read_exchanges
from dr_lib.evaluation.nlu import load_nlu, nlu_file
from dr_lib.files import file_digest, write_json

DIALOGUES = ("topical-chat", "sgd", "ubuntu-irc")
TASKS = {"glue-cola": "cola", "glue-mrpc": "mrpc", "glue-stsb": "stsb"}
SPLITS = ("train", "dev", "test")


def dialogue_splits(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each split with its contexts, candidates per context, and the digest of its file; the
    training split has no candidates.
    """
    for split in SPLITS:
        path, contexts, candidates = dialogue_file(folder, split), 0, set()
        for exchange in read_exchanges(path):
            contexts += 1
            candidates.add(len(exchange.candidates))
        yield (
            split,
            {"contexts": contexts, "candidates": max(candidates), "digest": file_digest(path)},
        )


def task_splits(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each existing split with its rows and the digest of its file."""
    for split in SPLITS:
        if (places.find_data(folder) / f"{split}.tsv").is_file():
            rows = len(load_nlu(TASKS[folder], folder, split))
            yield split, {"rows": rows, "digest": file_digest(nlu_file(folder, split))}


def main() -> None:
    """Print the counts, and save them on request; folders outside `DR_DATA` are left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    counts = {name: dict(dialogue_splits(name)) for name in DIALOGUES if places.find_data(name)}
    counts |= {name: dict(task_splits(name)) for name in TASKS if places.find_data(name)}
    for name, splits in counts.items():
        told = (
            f"{split} {one.get('contexts', one.get('rows')):,}" for split, one in splits.items()
        )
        print(f"{name:<15}{', '.join(told)}")
    if chosen.save:
        write_json(chosen.save, counts)


if __name__ == "__main__":
    main()
