"""A comparison on one's own collection as people see it: in a notebook piece by piece, or as one
page that opens from disk.

Page of the book: your_corpus. Whatever comes from a collection is escaped; the page loads nothing.
"""

import html
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from string import Template
from textwrap import shorten
from typing import Any

import numpy as np
from IPython.display import HTML

from dr_book import corpus_study, search
from dr_book.comparison import Comparison
from dr_book.export import export
from dr_book.findings import BM25, Advice, advice, next_steps, unfinished
from dr_book.measured import Pair, mean_intervals, presentable, recorded
from dr_book.tables import (
    FUSED,
    Cell,
    bullets,
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
from dr_lib.evaluation import templated
from dr_lib.files import write_text
from dr_lib.places import PACKAGED, find_encoder
from dr_lib.tokens import Legibility, legibility, load_tokenizer
from dr_lib.words import pieces

TEMPLATE = Path(__file__).with_name("page.html")
LOOKED_AT = 1000  # passages, to tell whether their language can be read
SHOWN = ("MRR@10", "nDCG@10", "R@100")
STEPS = {
    "written": "written",
    "distinct": "not empty, and not a repetition about the same passage",
    "asked_once": "written for one passage only",
    "found_again": "passage found again by BM25",
}


class Compared(corpus_study.Compared):
    """The same comparison with what is shown of it: `lab.Compared` has what is known."""

    @cached_property
    def verdict(self) -> Advice:
        """Which system to use, or what is missing to say so."""
        more = {"pairs": self.pairs, "unfinished": self.unfinished, "templated": self.templated}
        return advice(self.runs, self.measure, generated=self.on_generated, **more)

    @cached_property
    def templated(self) -> float:
        """The share of people's test queries that repeat the wording of training queries."""
        if self.on_generated or "train" not in self.searched.splits:
            return 0.0
        tested, trained = (
            self.searched.queries(split)["text"]
            for split in (self.recipe.evaluation.split, "train")
        )
        return templated(tested, trained)

    @property
    def pairs(self) -> list[Pair]:
        """What is tested: every system against BM25, every way to pre-train against none."""
        pairs = [(label, BM25) for label in self.runs if label != BM25]
        return pairs + [
            (name, "none")
            for name in self.trained
            if name != "none" and {name, "none"} <= {*self.runs}
        ]

    @property
    def unfinished(self) -> str:
        """What the time did not allow, and how far it is, as a sentence; empty where all was
        run.
        """
        return unfinished(self.pending)

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
        """One line a system: means with intervals, and who trained it; whose queries it was tested
        on stands above.
        """
        runs = presentable(self.runs)
        caption = (
            f"BM25 and the retrievers on {self.tested_on}, in percent, with 95 % bootstrap"
            " intervals over queries and seeds."
        )
        if not runs:
            return self._comparison.table(list(self.runs), caption)
        if self.on_generated:
            caption += (
                " BM25's R@100 says nothing: questions whose passage it missed among a hundred were"
                " dropped."
            )
        means = {
            name: mean_intervals(runs, name)
            for name in SHOWN
            if name in self.recipe.evaluation.measures
        }
        lines = []
        for label, records in runs.items():
            cells = [interval_cell(own[label]) for own in means.values()]
            lines.append([named(label), *cells, len(records), trained_by(records[0].recipe)])
        return table(["system", *means, "seeds", "trained by"], lines, caption=caption)

    @property
    def figure(self) -> HTML:
        """The means with their intervals."""
        return self._comparison.figure(list(self.runs), rows="system")

    @property
    def differences(self) -> HTML:
        """What is established."""
        return self._comparison.differences(
            self.pairs, f"First minus second, on {self.tested_on}.", tests=True
        )

    @cached_property
    def legible(self) -> Legibility:
        """What BM25 and the model that is trained can read of the first passages."""
        base, tokenizer = self.recipe.base, None
        if not base.endswith((".yaml", ".yml")):  # such a one is trained here, on text of its own
            tokenizer = load_tokenizer(find_encoder(base) if base in PACKAGED else base)
        return legibility(self.collection.passages["text"][:LOOKED_AT], tokenizer)

    @property
    def facts(self) -> HTML:
        """The collection in numbers, and the first of the passages that repeat another one."""
        found, passages = self.collection, self.collection.passages
        lengths = np.array([len(pieces(text)) for text in passages["text"][:]])
        first, repeated = {}, []
        for name, *parts in zip(
            passages["id"][:], passages["title"][:], passages["text"][:], strict=True
        ):
            if (earlier := first.setdefault(tuple(parts), name)) != name:
                repeated.append(f"{name} repeats {earlier}")
        documents = len(set(passages["doc"][:]) - {""})
        written, searched = (
            self.generated.counts["queries"] if self.generated else {},
            self.searched,
        )
        judged = {
            split: len(searched.qrels(split)) for split in searched.splits if split not in written
        }
        lines = [
            ["passages", len(passages)],
            *(
                [["compared here, as a sample", len(searched)]]
                if len(searched) < len(passages)
                else []
            ),
            ["passages that repeat another one", len(repeated)],
            *(
                [name, count]
                for name, count in found.irregular.items()
                if name != IRREGULAR["duplicate_texts"]
            ),
            *([["documents they come from", documents]] if 0 < documents < len(passages) else []),
            ["passages with a title", sum(bool(title.strip()) for title in passages["title"][:])],
            ["words per passage, median", int(np.median(lengths))],
            ["words per passage, 95th percentile", int(np.quantile(lengths, 0.95))],
            *(
                [f"queries judged, split {split}", len(found.qrels(split))]
                for split in found.splits
            ),
            # of a sample, no more than it was asked for and than have all their relevant passages
            # in it
            *(
                [f"of these in the sample, split {split}", n]
                for split, n in judged.items()
                if n < len(found.qrels(split))
            ),
            ["words that BM25 drops, of one character", f"{self.legible.lost:.1%}"],
            ["words that the model does not know", f"{self.legible.unknown:.1%}"],
            ["licence", found.licence],
            ["digest", found.digest[:16]],
            ["study of its records", self.study],
        ]
        missing = (
            "" if found.splits else " There are no judgements, so questions were generated first."
        )
        named_all = (
            f" Repeated: {', '.join(repeated[:5])}{', …' if len(repeated) > 5 else ''}."
            if repeated
            else ""
        )
        # text: beside the words
        values = [
            [name, f"{value:,}" if isinstance(value, int) else value] for name, value in lines
        ]
        warned = "".join(f" {warning}" for warning in self.legible.warnings())
        caption = f"Collection {data_named(found.name)}.{missing}{named_all}{warned}"
        return table(["property", "value"], values, caption=caption)

    @property
    def questions(self) -> HTML:
        """How many generated questions were left after each step, and some of them."""
        if not self.generated:
            return HTML(
                "<p>The collection has training and test queries, so none were generated.</p>"
            )
        counts, written = self.generated.counts, self.searched
        lines = [
            [told, counts[name], 100 * counts[name] / counts["written"]]
            for name, told in STEPS.items()
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
        tables = [table(["step", "questions", "% of the written"], lines, caption=caption)]
        tables += [
            table(
                ["question", "passage"],
                texts,
                caption=f"Questions of the split {split}, drawn at random.",
            )
        ]
        smoke = "The questions of this smoke run"
        return HTML(
            "".join(
                one.data
                for one in ([folded(smoke, *tables)] if not presentable(self.runs) else tables)
            )
        )

    def answers(self, questions: Sequence[str] = (), k: int = 3) -> list[HTML]:
        """What BM25, the best encoder used as it comes and the best one trained here find for some
        questions.

        Args:
            questions: any; none takes the first two of those tested on.
            k: passages of each system.
        """
        shown = filter(None, (self.best_of([*self.given]), self.best_of(self.trained)))
        # A record holds no path, so an encoder that was given as a folder is opened by what was
        # given.
        dense = {
            one: (
                lab.models_of(self.runs[one][0])
                if one in self.trained
                else find_encoder(self.given[one])
            )
            for one in shown
        }
        dense = {named(label): models for label, models in dense.items()}
        asked = list(questions) or self.searched.queries(self.recipe.evaluation.split)["text"][:2]
        return [
            search_table(one)
            for one in search.open_searcher(self.searched, dense=dense).search(asked, k)
        ]

    def export(self, to: Path | str | None = None) -> Path:
        """Write the best retriever trained here as a folder with its card, which calls it an
        experiment unless it won.

        Args:
            to: the new folder; None: one among `exports` in the cache.

        Raises:
            InputError: none was trained.
        """
        if not (own := self.best_of(self.trained)):
            raise InputError(
                "no retriever was trained",
                where="export",
                fix="Name a way to pre-train among the systems.",
            )
        title = (
            f"{named(own)} on {self.collection.name}"
            + ", an experiment that won no comparison" * (self.verdict.label != own)
        )
        target = to or places.cache_root() / "exports" / f"{Path(self.study).name}-{own}"
        return export(self.runs[own][0], target, name=title, collection=self.searched)[0]

    @property
    def next_steps(self) -> HTML:
        """What to do next, given the results."""
        best = self.best_of([*self.given, *self.trained])
        facts = {"questions": self.generated, "unfinished": bool(self.pending)}
        if not best:
            left = "Run the same command again: it continues with what is missing."
            return bullets([left if self.pending else "Compare a system with BM25."])
        return next_steps(
            self.runs,
            self.measure,
            best=best,
            passages=self.runs[BM25][0].data["collection"]["passages"],
            **facts,
        )

    def save_page(
        self, file: Path | str, asked: Sequence[str] = (), folder: Path | None = None
    ) -> Path:
        """Write everything as one HTML file that needs nothing beside it.

        Args:
            file: where to.
            asked: questions to show answers for.
            folder: of the exported retriever.
        """
        parts = {
            "The comparison": [self.table, self.figure, self.differences],
            "Answers side by side": self.answers(asked),
            "What to do next": [self.next_steps],
            "The retriever": [HTML(f"<p>{self._winner(folder)}</p>")],
            "The collection": [self.facts],
            "The questions": [self.questions],
        }
        body = "".join(
            f"<h2>{title}</h2>{''.join(part.data for part in own)}" for title, own in parts.items()
        )
        values = {
            "title": html.escape(self.collection.name),
            "verdict": self.verdict.text.data,
            "body": body,
        }
        write_text(
            file := Path(file), Template(TEMPLATE.read_text(encoding="utf-8")).substitute(values)
        )
        return file

    def _winner(self, folder: Path | None) -> str:
        """Where the retriever trained here lies, and how a fusion that the verdict names is
        made.
        """
        won, own = self.verdict.label or "", self.best_of(self.trained)
        told = "No training is finished yet." if self.pending else "Nothing was trained."
        if own and folder:
            told = (
                f"The best retriever trained here, {html.escape(named(own))}, lies in"
                f" <code>{html.escape(str(folder))}</code>: "
            )
            told += (
                "<code>sentence-transformers</code> opens it, and its README.md is the model's"
                " card."
            )
            told += "" if won == own else " It won no comparison: it is an experiment."
        if won.startswith(FUSED):
            joined = (
                "gets 1 / (60 + rank) from both"
                if won.endswith("rank")
                else "has both scores, scaled to [0, 1] and weighted"
            )
            told = f"Search with both, and join the two rankings: each passage {joined}. {told}"
        return told


compare = Compared.run
"""Compare systems on a collection, as `corpus_study.Compared.run` says."""


class Recorded(Compared):
    """A comparison of the book's records: verdict, table, figure and differences; the text itself
    is not at hand.
    """

    study = ""  # a property of those that have a collection

    def __init__(self, study: str, *, templated: float = 0.0):
        """Open the records of a study.

        Args:
            study: e.g. "your_corpus/medquad-935892".
            templated: as of `Compared.templated`, which needs the text.

        Raises:
            InputError: there are no such records.
        """
        if BM25 not in (runs := recorded(study)):
            raise InputError(
                "no records with BM25 among them", where=study, fix="Name a study of the book."
            )
        order = sorted(
            runs,
            key=lambda label: (
                label != BM25,
                label in objectives.names(),
                label.startswith(FUSED),
                label,
            ),
        )
        given = {
            label: runs[label][0].recipe["retriever"]
            for label in order
            if runs[label][0].recipe.get("retriever")
        }
        trained = [label for label in order if label in objectives.names()]
        recipe = lab.Recipe(**runs[BM25][0].recipe)
        super().__init__(
            None, recipe, None, given, trained, {label: runs[label] for label in order}, {}
        )
        self.study, self.templated = study, templated


def trained_by(recipe: Mapping[str, Any]) -> Cell:
    """Who trained a system, and on what where that is known."""
    if recipe["evaluation"]["kind"] == "bm25":
        return "nobody"
    if not (name := recipe.get("retriever")):
        return "this comparison"
    return "others: SQuAD, NQ, MS MARCO and more" if name.endswith("all-MiniLM-L6-v2") else "others"
