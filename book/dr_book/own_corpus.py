"""The presentation of a comparison on your own collection: piece by piece in a notebook, or as one
page that opens from disk.

Page of the book: your_corpus. Text from a collection is escaped; the page loads nothing.
"""

import html
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
from IPython.display import HTML

from dr_book import corpus_study, search
from dr_book.comparison import Comparison
from dr_book.corpus_study import SECOND, WEIGHTS
from dr_book.export import EXPORT, export
from dr_book.findings import (
    BM25,
    JUDGED,
    KEPT,
    PAGES,
    Advice,
    advice,
    dense,
    next_steps,
    prose,
    unfinished,
)
from dr_book.hand_judgements import write_pool
from dr_book.measured import Pair, mean_intervals, presentable, recorded
from dr_book.systems import check_outside
from dr_book.tables import (
    FUSED,
    Cell,
    data_named,
    folded,
    interval_cell,
    named,
    search_table,
    table,
)
from dr_lib import lab, objectives, places
from dr_lib.collections.collection import IRREGULAR
from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, read_json, write_text
from dr_lib.lab import Record, open_sample
from dr_lib.models import Prompts
from dr_lib.places import PACKAGED, find_model, slug
from dr_lib.retrieval.bm25 import STOP_WORDS
from dr_lib.tokens import Legibility, legibility, load_tokenizer
from dr_lib.words import pieces, words_of

LOOKED_AT = 1000  # passages examined to judge whether their language can be read
# share of stop words: 0.25 to 0.36 in the English collections of the book, 0.18 in Python files
# with comments, 0.03 in German
ENGLISH = 0.08
SHOWN = ("MRR@10", "nDCG@10", "R@100")
STEPS = {
    "written": "written",
    "distinct": "not empty, and not a repetition about the same passage",
    "asked_once": "written for one passage only",
    "found_again": "passage found again by BM25",
}


class Compared(corpus_study.Compared):
    """The results of `corpus_study.Compared` as tables, figures and sentences."""

    @cached_property
    def verdict(self) -> Advice:
        """Which system to use, or what is missing to say so."""
        more = {"pairs": self.pairs, "unfinished": self.unfinished}
        return advice(self.runs, self.measure, generated=self.on_generated, **more)

    @property
    def trained_on_test(self) -> str:
        """How many training queries are also test queries, as a sentence; "" if none is."""
        named = IRREGULAR["left_out_of_train"], IRREGULAR["tested_too"]
        counts = self.collection.irregular if self.collection else {}
        return " ".join(f"{counts[name]:,} {name}." for name in named if name in counts)

    @property
    def pairs(self) -> list[Pair]:
        """The tested pairs: every system against BM25, every pre-training against none."""
        pairs = [(label, BM25) for label in self.runs if label != BM25]
        return pairs + [
            (name, "none")
            for name in self.trained
            if name != "none" and {name, "none"} <= {*self.runs}
        ]

    @property
    def unfinished(self) -> str:
        """What did not fit into the time, and its progress, as a sentence; "" if everything ran."""
        needed = self.pace * self.needed
        return unfinished(self.pending, needed, self.enough, further=self.further)

    @cached_property
    def _comparison(self) -> Comparison:
        return Comparison(
            self.study,
            self.runs,
            self.measure,
            records={},
            called="measured" if self.collection else "recorded",
        )

    @property
    def table(self) -> HTML:
        """One row per system: means with intervals, and who trained it; the caption says whose
        queries it was tested on.
        """
        runs = presentable(self.runs)
        caption = (
            f"BM25 and the retrievers on {self.tested_on}, in percent, with 95 % intervals"
            " (Student's, over clusters of queries and over seeds)."
        )
        if self.collection:
            caption += " ".join(["", *filter(None, [self.chosen_by, self.trained_on_test])])
        if not runs:
            return self._comparison.table(list(self.runs), caption)
        if self.on_generated:
            caption += (
                " BM25's R@100 says nothing: questions whose passage it missed among a hundred were"
                " dropped."
            )
        means = {
            name: mean_intervals(runs, name)
            for name in dict.fromkeys([self.measure, *SHOWN])
            if name in self.recipe.evaluation.measures
        }
        lines, several = [], any(len(records) > 1 for records in runs.values())
        for label, records in runs.items():
            cells = [interval_cell(intervals[label]) for intervals in means.values()]
            seeds = [len(records)] if several else []
            lines.append([named(label), *cells, *seeds, trained_by(records[0], self.learned_from)])
        columns = ["system", *means, *(["seeds"] if several else []), "trained by"]
        return table(columns, lines, caption=caption)

    @cached_property
    def learned_from(self) -> str:
        """How many questions retrievers were trained on here, and of what kind: "528 generated
        questions"; "" without the collection.
        """
        if not self.collection:
            return ""
        written = self.written
        collection = open_sample(self.generated.recipe.collection) if written else self.searched
        asked = "generated questions" if "train" in written else "queries of people"
        return f"{len(collection.qrels('train')):,} {asked}" if "train" in collection.splits else ""

    @property
    def figure(self) -> HTML:
        """The means with their intervals."""
        return self._comparison.figure(list(self.runs), rows="system")

    @property
    def differences(self) -> HTML:
        """Tests of all pairs by the deciding measure; the pair that the verdict names is first."""
        first, pairs, corrected = self.verdict.pair, self.pairs, {}
        if first:
            pairs = [first, *(pair for pair in pairs if {*pair} != {*first})]
            corrected[first] = self.verdict.p
        caption = f"First minus second, on {self.tested_on}."
        return self._comparison.differences(pairs, caption, tests=True, corrected=corrected)

    @cached_property
    def legible(self) -> Legibility:
        """How much of the first passages BM25 and the model to be trained can read."""
        base, tokenizer = self.recipe.base, None
        if not base.endswith((".yaml", ".yml")):  # such a base is trained here, on its own text
            tokenizer = load_tokenizer(find_model(base) if base in PACKAGED else base)
        return legibility(self.collection.passages["text"][:LOOKED_AT], tokenizer)

    @cached_property
    def hard_to_read(self) -> list[str]:
        """What BM25, the generator or a model cannot read in the text, one sentence each."""
        seen = [words_of(text) for text in self.collection.passages["text"][:LOOKED_AT]]
        words = Counter(chain.from_iterable(seen))
        share = sum(words[word] for word in STOP_WORDS) / max(1, words.total())
        foreign = (
            f"Only {share:.0%} of the words are English ones such as “the” and “of”, in English"
            " prose a quarter. If the text is in another language, generated questions and"
            " all-MiniLM-L6-v2 say nothing about it: name a multilingual encoder (--system), and"
            " judge questions of your own."
        )
        return [foreign] * (share < ENGLISH) + self.legible.warnings()

    @cached_property
    def uneven(self) -> str:
        """A sentence if one document makes up most of the passages, else ""."""
        passages = Counter(self.collection.passages["doc"][:])
        passages.pop("", None)
        document, most = max(passages.items(), key=lambda item: item[1], default=("", 0))
        if len(passages) < 2 or 2 * most <= len(self.collection.passages):
            return ""
        share = 100 * most / len(self.collection.passages)
        return f"One document, {document}, makes {share:.0f} % of the passages."

    @property
    def facts(self) -> HTML:
        """The collection in numbers, and the first of the passages that repeat another one."""
        whole, passages = self.collection, self.collection.passages
        lengths = np.array([len(pieces(text)) for text in passages["text"][:]])
        first, ids = whole.same_text, passages["id"][:]
        repeated = [
            f"{ids[row]} repeats {ids[first[row]]}"
            for row in ([] if first is None else np.flatnonzero(first != np.arange(len(first))))
        ]
        documents = len(set(passages["doc"][:]) - {""})
        searched = self.searched
        judged = {
            split: len(searched.qrels(split))
            for split in searched.splits
            if split not in self.written
        }
        irregular = dict(whole.irregular)
        irregular.pop(IRREGULAR["duplicate_texts"], None)
        values = {
            "files": whole.info.get("read"),
            "passages": len(passages),
            "compared here, as a sample": len(searched) if len(searched) < len(passages) else None,
            "passages that repeat another one": len(repeated),
            **irregular,
            "documents they come from": documents if 0 < documents < len(passages) else None,
            "passages with a title": sum(bool(title.strip()) for title in passages["title"][:]),
            "words per passage, median": int(np.median(lengths)),
            "words per passage, 95th percentile": int(np.quantile(lengths, 0.95)),
            **{f"queries judged, split {split}": len(whole.qrels(split)) for split in whole.splits},
            # a sample has only queries whose relevant passages are all in it, up to its limit
            **{
                f"of these in the sample, split {split}": count
                for split, count in judged.items()
                if count < len(whole.qrels(split))
            },
            "words that BM25 drops, of one character": f"{self.legible.lost:.1%}",
            "words that the model does not know": f"{self.legible.unknown:.1%}",
            "licence": whole.licence,
            "digest": whole.digest[:16],
            "study of its records": self.study,
        }
        # numbers become text, so that their column is aligned like the words
        lines = [
            [name, f"{value:,}" if isinstance(value, int) else value]
            for name, value in values.items()
            if value is not None
        ]
        sentences = [f"Collection {data_named(whole.name)}.", self.uneven]
        if not whole.splits:
            sentences.append("There are no judgements, so questions were generated first.")
        if repeated:
            more = ", …" * (len(repeated) > 5)
            sentences.append(f"Repeated: {', '.join(repeated[:5])}{more}.")
        caption = " ".join(filter(None, [*sentences, *self.hard_to_read]))
        return table(["property", "value"], lines, caption=caption)

    @property
    def questions(self) -> HTML:
        """How many generated questions were left after each step, and examples."""
        if not self.generated:
            reason = self.untrainable or "No questions were generated: those of people were enough."
            return HTML(f"<p>{html.escape(reason)}</p>")
        counts, written = self.generated.counts, open_sample(self.generated.recipe.collection)
        lines = [
            [step, counts[name], 100 * counts[name] / counts["written"]]
            for name, step in STEPS.items()
        ]
        lines += [
            [f"queries, split {split}", size, None] for split, size in counts["queries"].items()
        ]
        shared = (
            f"{100 * counts['shared_words']:.0f} % of a question's words are in its passage too"
        )
        caption = f"Questions about {counts['passages']:,} passages, step by step; {shared}."
        split = "test" if "test" in counts["queries"] else "train"
        texts = []
        for query in (
            written.queries(split).shuffle(seed=0).select(range(min(5, counts["queries"][split])))
        ):
            passage = written[next(iter(written.qrels(split)[query["id"]]))]
            text = f"{passage['title'].rstrip(' .')}: {passage['text']}".removeprefix(": ")
            texts.append([query["text"], shorten(text, 200, placeholder=" …")])
        drawn = f"Questions of the split {split}, drawn at random."
        shown = [
            table(["step", "questions", "% of the written"], lines, caption=caption),
            table(["question", "passage"], texts, caption=drawn),
        ]
        if not presentable(self.runs):
            shown = [folded("The questions of this smoke run", *shown)]
        return HTML("".join(part.data for part in shown))

    @property
    def chosen(self) -> str:
        """The system that the verdict names, else the best one; BM25's second setting is chosen
        only if the verdict names it.
        """
        others = [label for label in self.runs if label != SECOND]
        return self.verdict.label or self.best_of(others) or BM25

    @property
    def lexical(self) -> bool:
        """Whether only BM25 was run, in any setting, and the verdict names no system."""
        return self.verdict.label is None and not any(map(dense, self.runs.values()))

    def answers(self, questions: Sequence[str] = (), k: int = 3) -> list[HTML]:
        """The answers of BM25, the best ready-made encoder, the best retriever trained here and the
        chosen system to some questions.

        Args:
            questions: any; if empty, the first two test queries.
            k: passages per system.
        """
        shown = [
            label
            for label in (self.best_of([*self.given]), self.best_of(self.trained), self.chosen)
            if label and label != BM25
        ]
        systems = {BM25: BM25} | {named(label): label for label in shown}
        searcher = search.Searcher(
            self.searched, {name: self._system(label) for name, label in systems.items()}
        )
        asked = list(questions)
        if not asked and self.runs:
            asked = self.searched.queries(self.recipe.evaluation.split)["text"][:2]
        return [search_table(result) for result in searcher.search(asked, k)]

    def _system(self, label: str) -> search.System:
        """The searcher behind a row of the comparison."""
        if label in (BM25, SECOND):
            return search.open_bm25(self.searched, WEIGHTS if label == SECOND else None)
        alone, way = joined(label)
        # A record contains no paths, so an encoder given as a folder is opened from that folder.
        models = (
            lab.models_of(self.runs[alone][0])
            if alone in self.trained
            else {"retriever": find_model(self.given[alone])}
        )
        read = self.runs[alone][0].recipe.get("prompts")
        prompts = Prompts(**read) if read else None
        dense = search.open_dense(self.searched, models, prompts=prompts)
        if not way:
            return dense
        weight = None
        if way == "weight":
            fusion = lab.stage_folder(self.runs[label][0], "run") / "fusion.json"
            weight = read_json(fusion)["weight"]
        return search.fused(search.open_bm25(self.searched), dense, weight)

    def _outside(self, target: Path | str) -> Path:
        """A path to write to, which may not be inside the collection."""
        if self.collection and self.collection.place:
            check_outside(target, self.collection.place)
        return Path(target)

    def export(self, to: Path | str | None = None) -> Path:
        """Write the winner: a retriever trained here as a folder with its card; any other system as
        lines of Python that search with it, with the retriever trained here that it uses.

        If nothing won, the best retriever trained here is written, called an experiment on its
        card, or, without one, the best system.

        Args:
            to: the new folder; None: one under `exports` in the cache.
        """
        won = self.verdict.label or self.best_of(self.trained) or self.chosen
        place = f"{Path(self.study).name}-{slug(won)}"
        target = self._outside(to or places.cache_root() / "exports" / place)
        title = f"{named(won)} on {self.collection.name}"
        if won in self.trained:
            title += ", an experiment that won no comparison" * (self.verdict.label != won)
            return export(self.runs[won][0], target, name=title)[0]
        alone, way = joined(won)
        with fresh_folder(target, EXPORT) as draft:
            models: list[str] = [self.given[alone]] if alone in self.given else []
            if alone in self.trained:
                title = f"{named(alone)} on {self.collection.name}"
                export(self.runs[alone][0], draft / "retriever", name=title)
                models = ["retriever"]
            systems = {"bm25": True, "fuse": bool(way)}
            if alone in self.given and alone == won:
                systems = {"bm25": False, "fuse": False}
            place = Path(corpus_study.place_of(self.collection)).expanduser()
            source = str(place.resolve() if place.exists() else place)
            read = alone in self.given and self.runs[alone][0].recipe.get("prompts")
            lines = search_lines(source, models, prompts=read and {models[0]: read}, **systems)
            write_text(draft / "search.py", lines)
        return target

    def save_to_judge(self, file: Path | str) -> Path | None:
        """Write the pooled top ten passages of fifty test questions as a table to be judged, with
        the judgements there are; return its path, see `hand_judgements.write_pool`.
        """
        if not self.runs:
            return None
        qrels = self.searched.qrels(self.recipe.evaluation.split)
        rankings = [lab.ranking_of(records[0]) for records in self.runs.values()]
        grades = None if self.on_generated else qrels
        return write_pool(self.searched, rankings, self._outside(file), grades=grades)

    @property
    def next_steps(self) -> HTML:
        """What to do next, given the results."""
        return next_steps(
            self.runs,
            self.measure,
            best=self.best_of([*self.given, *self.trained]),
            questions=self.generated,
            passages=self.runs[BM25][0].searched_on["passages"] if self.runs else 0,
            enough=self.enough if self.pending else 0,
            place=corpus_study.place_of(self.collection) if self.collection else "FOLDER",
        )

    def winner(self, folder: Path | None) -> HTML:
        """Where the export is, and how to build the fusion if the verdict names one."""
        won, trained = self.verdict.label, self.best_of(self.trained)
        facts = {
            "won": won and named(won),
            "chosen": named(self.chosen),
            "way": joined(won or "")[1],
            "folder": folder,
            "searches": folder and (folder / "search.py").is_file(),
            "trained": trained and named(trained),
            "pending": self.pending,
            "untrainable": self.untrainable,
        }
        return HTML(prose("winner", **facts))

    def save_page(
        self, file: Path | str, asked: Sequence[str] = (), folder: Path | None = None
    ) -> Path:
        """Write everything as one self-contained HTML file.

        Args:
            file: to write.
            asked: questions whose answers are shown.
            folder: of the export.
        """
        facts = {
            "generated": self.on_generated and presentable(self.runs),
            "kept": KEPT,
            "lexical": self.lexical,
            "queries": JUDGED,
        }
        compared = [HTML(prose("before", **facts)), self.table]
        if not self.lexical:
            compared += [self.figure, self.differences]
        parts = {
            "The comparison": compared if self.runs else [],
            "Answers" + " side by side" * (not self.lexical): (
                self.answers(asked) if self.runs or asked else []
            ),
            "What to do next": [self.next_steps],
            "How to search with it": [self.winner(folder)],
            "The collection": [self.facts],
            "The questions": [self.questions] if self.generated else [],
        }
        values = {
            "title": self.collection.name,
            "verdict": self.verdict.text.data,
            "parts": {
                title: "".join(part.data for part in shown) for title, shown in parts.items()
            },
        }
        write_text(self._outside(file), PAGES.get_template("page.html").render(values))
        return Path(file)


def joined(label: str) -> tuple[str, str]:
    """The system that a fusion joins with BM25, and how; for any other system itself, and "".

    Example:
        >>> joined("BM25 + simlm, by rank"), joined("simlm")
        (('simlm', 'rank'), ('simlm', ''))
    """
    alone, _, way = label.removeprefix(FUSED).rpartition(", by ")
    return (alone, way) if label.startswith(FUSED) else (label, "")


def search_lines(
    place: str, models: Sequence[str], *, bm25: bool, fuse: bool, prompts: Any = None
) -> str:
    """A Python script that searches a collection, to be put beside the retriever's folder."""
    paths = ", ".join(
        "Path(__file__).parent / 'retriever'" if model == "retriever" else f"Path({model!r})"
        for model in models
    )
    more = f", prompts={prompts!r}" if prompts else ""
    return f"""from pathlib import Path

from dr_book.search import searcher_for

searcher = searcher_for({place!r}, [{paths}], bm25={bm25}, fuse={fuse}{more})
for result in searcher.search(["your question"], k=5):
    print(result.as_text())
"""


compare = Compared.run
"""Compare systems on a collection, as `corpus_study.Compared.run` says."""


class Recorded(Compared):
    """A comparison from the book's records, without the text: verdict, table, figure and
    differences.
    """

    study = ""  # a property in `Compared`, which has a collection

    def __init__(self, study: str):
        """Open the records of a study.

        Args:
            study: e.g. "your_corpus/medquad-935892".

        Raises:
            InputError: there are no such records.
        """
        if BM25 not in (runs := recorded(study)):
            raise InputError("no records of BM25", where=study, fix="Name a study of the book.")
        order = sorted(
            runs,
            key=lambda label: (
                label != BM25,
                label in objectives.names(),
                label.startswith(FUSED),
                label,
            ),
        )
        runs = {label: runs[label] for label in order}
        encoders = {
            label: name
            for label, (first, *_) in runs.items()
            if (name := first.recipe.get("retriever"))
        }
        trained = [label for label in runs if label in objectives.names()]
        super().__init__(
            None, lab.Recipe(**runs[BM25][0].recipe), None, encoders, trained, runs, {}
        )
        self.study = study


def trained_by(record: Record, learned_from: str = "") -> Cell:
    """Who trained a system, on what if that is known, and its prompts."""
    if record.evaluation["kind"] == "bm25":
        return "nobody"
    if not (name := record.recipe.get("retriever")):
        return "this comparison" + f", on {learned_from}" * bool(learned_from)
    trainer = "others: SQuAD, NQ, MS MARCO and more" if name.endswith((*PACKAGED,)) else "others"
    prompts = record.data["retriever"].get("prompts", {})
    read = ", ".join(f"{kind} {text!r}" for kind, text in prompts.items() if text)
    read = read.replace(" '", "\xa0'")  # keeps the blank at the end of a prompt on its line
    return f"{trainer}; prompts: {read or 'none'}"
