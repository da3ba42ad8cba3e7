"""Sentence tasks: CoLA, MRPC and STS-B of GLUE, and SICK, as tables with a header."""

from collections.abc import Mapping, Sequence

from dr_book.data.files import Files, Rows
from dr_book.data.text import share
from dr_lib.collections.plain import one_line

COLA = "acceptability_corpus/cola_public/raw/{}.tsv"
SICK = "data/sts/sick2014/SICK_{}.txt"


def table(
    files: Files, columns: Mapping[str, int], splits: Mapping[str, Sequence[str]], header: int = 0
) -> Rows:
    """A table per split, each cell on one line; rows with missing cells are dropped.

    Args:
        files: with tab-separated cells.
        columns: name -> index in a row.
        splits: split -> files, concatenated.
        header: number of lines before the first row of a file.
    """
    made: Rows = {}
    for split, names in splits.items():
        lines = [line for name in names for line in files.lines(name)[header:]]
        rows = [cells for line in lines if len(cells := line.split("\t")) > max(columns.values())]
        kept = [[one_line(row[place]) for place in columns.values()] for row in rows]
        made[f"{split}.tsv"] = [[*columns], *(cells for cells in kept if all(cells[:2]))]
    return made


def cola(files: Files) -> Rows:
    """Acceptability; dev = in-domain and out-of-domain, as in GLUE."""
    splits = {"train": ["in_domain_train"], "dev": ["in_domain_dev", "out_of_domain_dev"]}
    places = {split: [*map(COLA.format, names)] for split, names in splits.items()}
    return table(files, {"sentence": 3, "label": 1, "source": 0}, places)


def mrpc(files: Files) -> Rows:
    """Paraphrases; dev = a tenth of the published train file, by a hash of the ids."""
    columns = {"sentence1": 3, "sentence2": 4, "label": 0, "id1": 1, "id2": 2}
    splits = {name: [f"msr_paraphrase_{name}.txt"] for name in ("train", "test")}
    made = table(files, columns, splits, header=1)
    head, *rows = made["train.tsv"]
    made |= {"train.tsv": [head], "dev.tsv": [head]}
    for row in rows:
        drawn = share(row[3] + row[4], "mrpc") < 0.1
        made["dev.tsv" if drawn else "train.tsv"].append(row)
    return made


def stsb(files: Files) -> Rows:
    """Similarity from 0 to 5, in the published splits."""
    splits = {split: [f"data/sts-{split}.csv"] for split in ("train", "dev", "test")}
    return table(files, {"sentence1": 5, "sentence2": 6, "score": 4, "genre": 0}, splits)


def sick(files: Files) -> Rows:
    """Relatedness from 1 to 5, and entailment."""
    names = {"train": "train", "dev": "trial", "test": "test_annotated"}
    splits = {split: [SICK.format(name)] for split, name in names.items()}
    columns = {"sentence1": 1, "sentence2": 2, "score": 3, "entailment": 4}
    return table(files, columns, splits, header=1)
