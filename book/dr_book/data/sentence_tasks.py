"""Sentence tasks: CoLA, MRPC and STS-B of GLUE, and SICK, as tables with a header."""

from collections.abc import Iterable

from dr_book.data.files import Files, Made
from dr_book.data.text import share
from dr_lib.collections.plain import one_line


def cola(files: Files) -> Made:
    """Acceptability; dev = in-domain and out-of-domain, as in GLUE."""
    names = {"train": ["in_domain_train"], "dev": ["in_domain_dev", "out_of_domain_dev"]}
    folder = "acceptability_corpus/cola_public/raw"
    parts = {
        split: [
            [one_line(row[3]), row[1], row[0]]
            for name in own
            for row in _rows(files, f"{folder}/{name}.tsv")
        ]
        for split, own in names.items()
    }
    return _tables(["sentence", "label", "source"], parts)


def mrpc(files: Files) -> Made:
    """Paraphrases; dev = a tenth of the published train file, by a hash of the ids."""
    parts: dict[str, list] = {"train": [], "dev": [], "test": []}
    for name in ("train", "test"):
        for row in _rows(files, f"msr_paraphrase_{name}.txt")[1:]:
            if len(row) == 5:
                label, first, second, *texts = row
                drawn = name == "train" and share(first + second, "mrpc") < 0.1
                cells = [*map(one_line, texts), label, first, second]
                parts["dev" if drawn else name].append(cells)
    return _tables(["sentence1", "sentence2", "label", "id1", "id2"], parts)


def stsb(files: Files) -> Made:
    """Similarity from 0 to 5, in the published splits."""
    parts = {
        split: [
            [one_line(row[5]), one_line(row[6]), row[4], row[0]]
            for row in _rows(files, f"data/sts-{split}.csv")
            if len(row) >= 7 and row[5].strip() and row[6].strip()
        ]
        for split in ("train", "dev", "test")
    }
    return _tables(["sentence1", "sentence2", "score", "genre"], parts)


def sick(files: Files) -> Made:
    """Relatedness from 1 to 5, and entailment."""
    names = {"train": "SICK_train", "dev": "SICK_trial", "test": "SICK_test_annotated"}
    parts = {
        split: [
            [one_line(row[1]), one_line(row[2]), row[3], row[4].strip()]
            for row in _rows(files, f"data/sts/sick2014/{name}.txt")[1:]
        ]
        for split, name in names.items()
    }
    return _tables(["sentence1", "sentence2", "score", "entailment"], parts)


def _rows(files: Files, name: str) -> list[list[str]]:
    return [line.split("\t") for line in files.lines(name)]


def _tables(header: list[str], parts: dict[str, Iterable[list[str]]]) -> Made:
    return {f"{split}.tsv": [header, *rows] for split, rows in parts.items()}
