"""Tables of a page: plain HTML, every cell escaped, numbers aligned; and the passages that systems
found for a query.

Queries and passages are untrusted text: in HTML all of it is escaped, and no control character
reaches a terminal. Pages: ideas/evaluation, practice/own-corpus.
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from datasets import Dataset
from IPython.display import HTML

from dr_book.hits import Hit, Result, shortened
from dr_book.measured import unit_of
from dr_book.search import collection_of
from dr_book.statistics import Interval
from dr_book.verdicts import Case, flips
from dr_lib.collections import Collection, judged_rows
from dr_lib.lab import Record, ranking_of, recorded_folder
from dr_lib.objectives import NAMES
from dr_lib.retrieval import Ranking
from dr_lib.words import LETTER, PAIRS, RUN, words_of

LONG_WORD, JOINT = re.compile(r"\S{25,}"), re.compile(r"(?<=[._/])(?=[^._/])")
TAG, SHORT, RANKS = re.compile(r"<[^>]+>"), 14, 3  # letters of short names, and of ranks
"""Longest name, in letters, that needs no explicit column width (book/_static/book.css)."""
TIMES = "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}"
RAISED = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HYPHEN = re.compile(r"(?<![\w.-])-(?=\d)")
"""A hyphen that stands for a minus sign: before a digit, and not inside a word or range."""
DATA = {
    "primer": "Primer",
    "squad": "SQuAD",
    "medquad": "MedQuAD",
    "liveqa-med": "LiveQA-Med",
    "scifact": "SciFact",
    "liveqa-med-questions": "LiveQA-Med, generated training questions",
    "cacm": "CACM",
    "cranfield": "Cranfield",
    "medline": "Medline",
    "npl": "NPL",
    "trecdl-mini": "TREC DL (sample)",
    "dbpedia-mini": "DBpedia-Entity (sample)",
    "wikipedia-nq": "Wikipedia and NQ",
    "reddit-retrieval": "Reddit",
    "topical-chat": "Topical-Chat",
    "ubuntu-irc": "Ubuntu IRC",
    "sgd": "SGD",
    "msmarco-passage": "MS MARCO",
    "made tokens": "Made-up sequences of tokens",
    "glue-cola": "CoLA",
    "glue-mrpc": "MRPC",
    "glue-stsb": "STS-B",
}
"""Name that a collection is loaded by -> its name on pages."""
QUESTION_KINDS = {
    "words": "repeats words",
    "paraphrase": "paraphrases",
    "meaning": "shares no content word",
}
"""Last part of the id of one of Primer's questions -> its kind on pages."""
FUSED = "BM25 + "
SIDE_BY_SIDE = (
    "display: grid; gap: 0 1.5rem;"
    " grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr))"
)
"""Columns of at least 17 rem, as many as fit."""
OTHER_NAMES = {
    "None": "no pre-training",
    "none alone": "without pre-training alone",
    "paq alone": "with PAQ alone",
    "Ours": "MASTER",
    "Retriever1": "retriever 1",
    "Retriever2": "retriever 2",
    "Retriever_distil": "distilled",
    "MLM": "masked LM",
    "AutoEncoder": "auto-encoder",
    "Autoencoder": "auto-encoder",
    "retriever 2 on a pupil's negatives": "retriever 2 on a student's negatives",
}
"""Label in a paper or in our records -> its name on pages."""


def data_named(name: str) -> str:
    """The name of a collection on pages; an unknown collection keeps its name.

    Example:
        >>> data_named("trecdl-mini"), data_named("squad, dev"), data_named("my-folder")
        ('TREC DL (sample)', 'SQuAD, dev', 'my-folder')
        >>> data_named("npl, trained on squad")
        'NPL, trained on SQuAD'
    """
    whole, comma, more = name.partition(", ")
    split, learned, source = more.partition("trained on ")
    return DATA.get(whole, whole) + comma + split + learned + DATA.get(source, source)


def minus(text: str) -> str:
    """Text or HTML with minus signs instead of hyphens before numbers.

    Example:
        >>> minus("-1.3 [-2.0, +0.4], 2-4, bm25-3").replace("\N{MINUS SIGN}", "~")
        '~1.3 [~2.0, +0.4], 2-4, bm25-3'
    """
    return HYPHEN.sub("\N{MINUS SIGN}", text)


@dataclass(frozen=True)
class Markup:
    """A cell that is already safe HTML (a link, a badge, a value with its interval), set as a
    number or as text.
    """

    html: str
    number: bool = False


Cell = str | float | int | Markup | None


def soft(text: str) -> str:
    """Text as safe HTML in which a long dotted name may break after a dot, an underscore or a
    slash.

    Example:
        >>> soft("a < b"), soft("transformers.models.bert.modeling_bert")
        ('a &lt; b', 'transformers.<wbr>models.<wbr>bert.<wbr>modeling_<wbr>bert')
    """
    return html.escape(LONG_WORD.sub(lambda word: JOINT.sub("\0", word[0]), text)).replace(
        "\0", "<wbr>"
    )


def typographic(text: str) -> str:
    """A text with typographic apostrophes.

    Example:
        >>> typographic("CDMAE's Table 1, 'as is'")
        "CDMAE\u2019s Table 1, 'as is'"
    """
    return re.sub(r"(?<=\w)'(?=\w)", "\N{RIGHT SINGLE QUOTATION MARK}", text)


def per_cent(text: str) -> str:
    """Text with no-break spaces: before a per cent sign, around a slash between numbers, after w/o,
    in ``s(p, q)``, whose signs become superscripts.

    Example:
        >>> per_cent("30% of 95 %, 0.9 / 0.1, w/o PT, s(q, p-)").replace("\N{NO-BREAK SPACE}", "_")
        '30_% of 95_%, 0.9_/_0.1, w/o_PT, s(q,_p⁻)'
    """
    fixed = re.sub(
        r"(?<=\d) ?%",
        "\N{NO-BREAK SPACE}%",
        re.sub(r"(?<=\bw/o) |(?<=\bw/) ", "\N{NO-BREAK SPACE}", text),
    )
    fixed = re.sub(r"(?<=[\d%]) / (?=\d)", "\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}", fixed)
    fixed = re.sub(r"(?<=\bs\()(\S{1,2}), (?=\S{1,2}\))", "\\1,\N{NO-BREAK SPACE}", fixed)
    return re.sub(r"\bp[+-](?=[,)])", lambda sign: sign[0].translate(RAISED), fixed)


def times(text: str) -> str:
    """Text with a multiplication sign instead of the letter x between two numbers.

    Example:
        >>> times("4 x 256, max 2 x").replace("\N{NO-BREAK SPACE}", "_")
        '4_×_256, max 2 x'
    """
    return re.sub(r"(?<=\d) x (?=\d)", TIMES, text)


def scientific(value: float) -> str:
    """A number as text: below 0.001 and from a million on as a multiple of a power of ten.

    Example:
        >>> (
        ...     scientific(0.25),
        ...     *(scientific(one).replace("\N{NO-BREAK SPACE}", " ") for one in (2e-05, 1.34e17)),
        ... )
        ('0.25', '2 × 10⁻⁵', '1.3 × 10¹⁷')
    """
    if not value or 1e-3 <= abs(value) < 1e6:
        return f"{value:g}"
    factor, power = f"{value:.1e}".split("e")
    return f"{factor.removesuffix('.0')}{TIMES}10{str(int(power)).translate(RAISED)}"


def link(text: str, target: str) -> Markup:
    """A link as a table cell; both parts are escaped."""
    return Markup(f'<a href="{html.escape(target, quote=True)}">{html.escape(text)}</a>')


def badge(state: str, told: str = "") -> Markup:
    """A verdict's state as a coloured badge that is also readable in black and white; `told` is its
    text, by default the state.
    """
    kind, words = html.escape(state.replace(" ", "-")), html.escape(told or state)
    return Markup(f'<span class="verdict verdict-{kind}">{words}</span>')


def verdict_badge(verdict: str, protocol: str | None = None, *, told: str = "") -> Markup:
    """The badge of a verdict, with a second one if it rests on other data than the paper's.

    Args:
        verdict: of a claim.
        protocol: as in `AnsweredBy`.
        told: text of the badge instead of the verdict, whose colour it keeps: `ledger.state_of`.
    """
    badges = [badge(verdict, told)]
    badges += [badge(protocol)] if protocol in ("scaled", "stand-in") else []
    return Markup(" ".join(part.html for part in badges))


def spell(interval: Interval, sign: bool = False, digits: int = 1) -> str:
    """A value with its interval as safe text.

    Example:
        >>> spell(Interval(1.26, -0.04, 2.0), sign=True)
        '+1.3 [−0.0, +2.0]'
        >>> spell(Interval(1.26, float("-inf"), float("inf")))
        '1.3 (no interval yet)'
    """
    form = f"{{:{'+' if sign else ''},.{digits}f}}"
    if not np.isfinite([interval.low, interval.high]).all():
        return minus(f"{form.format(round(interval.mean, digits) + 0.0)} (no interval yet)")
    ends = (round(end, digits) + (-0.0 if sign else 0.0) for end in (interval.low, interval.high))
    # no "-0.0" as mean; as the lower end it is kept, to show that zero is inside
    mean = round(interval.mean, digits) + 0.0
    return minus("{} [{}, {}]".format(*map(form.format, (mean, *ends))))


PLURALS = {
    "value": "values",
    "round of timing": "rounds of timing",
    "query": "queries",
    "passage": "passages",
    "example": "examples",
    "context": "contexts",
}
"""What the scores of a record may be of."""


def seeds_in(records: Iterable[Record]) -> int:
    """Number of distinct seeds of some records."""
    return len({record.seed for record in records})


def counted(record: Record) -> str:
    """What each score of a record is of: usually a query; sizes and times are repeated measurements
    without queries.
    """
    evaluation = record.evaluation
    units = {unit_of(name)[1] for name in record.means}
    if units <= {"GB", "ms"}:
        return "value" if "GB" in units else "round of timing"
    # the ids that notebooks give to scores without a query
    if next(iter(record.query_ids), "").startswith("passage "):
        return "passage"
    return (
        "example" if evaluation.get("nlu") else "context" if evaluation.get("dialogue") else "query"
    )


def data_of(record: Record) -> str:
    """The name on pages of the collection that a record was measured on; your own collection with
    generated questions is named by `generated_queries.generated_name`.
    """
    name = record.searched_on["name"]
    text, end, _ = name.rpartition("-questions")
    if end and record.study.rpartition("-")[0] == f"your_corpus/{text}":
        return f"{data_named(text)}, generated questions"
    return data_named(name)


def spell_data(runs: Mapping[str, Sequence[Record]]) -> str:
    """The data that some runs were measured on, in words: ``SQuAD, 20,958 passages, 10,534 queries,
    laptop scale``.

    Different collections are listed one after the other; different numbers of queries on the same
    collection, and scales with the same data, are joined. Without runs the text is empty. Scores
    need not be of queries, see `counted`.
    """
    counts: dict[tuple[str, str, str], list[int]] = {}
    for record in (record for of_label in runs.values() for record in of_label):
        collection = record.searched_on
        size = f"{collection['passages']:,} passages, " if "passages" in collection else ""
        place = f"{data_of(record)}, {size}", counted(record), record.scale
        counts.setdefault(place, []).append(len(record.query_ids))
    spelled: dict[str, list[str]] = {}
    for (where, thing, scale), numbers in counts.items():
        things = (
            "of them"
            if thing == "passage" and "passages" in where
            else thing
            if max(numbers) == 1
            else PLURALS[thing]
        )
        spelled.setdefault(f"{where}{_from_to(numbers)} {things}", []).append(scale)
    return "; ".join(f"{data}, {' and '.join(scales)} scale" for data, scales in spelled.items())


def provenance(*sources: Mapping[str, Sequence[Record]]) -> str:
    """Where numbers come from, for the line below a figure: ``SQuAD, 20,958 passages, 10,534
    queries, laptop scale; 1 to 3 seeds a row. With uncommitted changes: 5 of 8 runs. Records:
    plan/core.`` More than three collections are summarised by their number and sizes. Studies in
    the book are named with their file, which `figures.sourced` turns into a link.

    Args:
        sources: runs by label, one mapping for each collection or study of the figure.
    """
    runs = {
        f"{number} {label}": records
        for number, source in enumerate(sources)
        for label, records in source.items()
    }
    everything = [record for records in runs.values() for record in records]
    seeds = [
        seeds_in(records) for records in runs.values() if any(record.training for record in records)
    ]
    files = {
        record.study: f"[{record.study}](book/records/{record.scale}/{record.file_name})"
        for record in everything
        if (recorded_folder(record.scale) / record.file_name).is_file()
    }
    line = spell_data(runs)
    if line.count("; ") > 2:
        collections = [record.searched_on for record in everything]
        names = {data_of(record) for record in everything}
        passages = _from_to([facts["passages"] for facts in collections if "passages" in facts])
        queries = _from_to([len(record.query_ids) for record in everything])
        scales = ", ".join(
            f"{name} scale" for name in sorted({record.scale for record in everything})
        )
        line = f"{len(names)} collections, {passages} passages, {queries} queries, {scales}"
    line += f"; {spell_seeds(seeds)} a row" if seeds else ""
    changed = [bool(record.commit.get("changed")) for record in everything]
    line += f". With uncommitted changes: {sum(changed):,} of {len(changed):,} runs" * any(changed)
    line += f". Records: {', '.join(files.values())}" if files else ""
    return f"{line}." if runs else ""


def _from_to(numbers: Iterable[int]) -> str:
    """The smallest and the largest of some numbers: ``3``, ``1 to 3``."""
    ordered = sorted(numbers)
    least, most = f"{ordered[0]:,}", f"{ordered[-1]:,}"
    return most if least == most else f"{least} to {most}"


def spell_seeds(numbers: Sequence[int]) -> str:
    """Numbers of seeds: ``1 seed``, ``1 to 3 seeds``."""
    return f"{_from_to(numbers)} seed{'s' * (max(numbers) != 1)}"


def interval_cell(
    interval: Interval | None, sign: bool = False, digits: int = 1, best: bool = False
) -> Cell:
    """A value with its interval as a cell: the interval small, the value in bold if it is the best
    of its column; an interval of zero width is omitted.
    """
    if interval is None:
        return None
    mean, bounds = spell(interval, sign, digits).split(" ", 1)
    mean = f"<strong>{mean}</strong>" if best else mean
    return Markup(
        mean + f' <span class="interval">{bounds}</span>' * (interval.low < interval.high),
        number=True,
    )


def p_cell(p: float) -> Markup:
    """A p-value with four decimals; a dash if nothing was tested (NaN)."""
    if p != p:
        return Markup("&ndash;", number=True)
    spelled = "&lt; 0.0001" if p < 0.0001 else f"{p:.4f}".removesuffix(".0000")
    return Markup(spelled, number=True)


def _cell(value: Cell, digits: int) -> str:
    if value is None:
        return '<td class="empty">&ndash;</td>'
    if isinstance(value, Markup):
        return (
            f'<td class="number">{minus(value.html)}</td>'
            if value.number
            else f"<td>{value.html}</td>"
        )
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, str):
        return f"<td>{soft(typographic(value))}</td>"
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    return f'<td class="number">{minus(number)}</td>'


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    caption: str,
    digits: int = 1,
    layout: str = "",
) -> HTML:
    """Make a table.

    Args:
        columns: headings.
        rows: cells; strings are escaped, floats rounded to `digits`, None becomes a dash.
        caption: what the table shows and in which unit; printed above the table.
        digits: decimals of floats.
        layout: a further class of the table, for its style.
    """
    cells = [[_cell(cell, digits) for cell in row] for row in rows]
    numbers = [any('class="number"' in row[i] for row in cells) for i in range(len(columns))]
    kinds = [' class="number"' if is_number else "" for is_number in numbers]
    printed = [html.escape(typographic(per_cent(name))) for name in columns]
    head = "".join(
        f'<th scope="col"{kind}>{name}</th>' for name, kind in zip(printed, kinds, strict=True)
    )
    # a dash in a column of words is left-aligned; a word in a column of numbers is right-aligned
    sides = {True: ("<td>", '<td class="text-right">')}
    sides[False] = ('<td class="empty">', '<td class="empty words">')
    rows_html = (
        [cell.replace(*sides[kind], 1) for cell, kind in zip(row, numbers, strict=True)]
        for row in cells
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows_html)
    longest = max((len(html.unescape(TAG.sub("", row[0]))) for row in cells), default=0)
    names = longest if any(numbers[1:]) or not columns[2:] else 0
    style = f' style="--names:{names}"' if names > SHORT and "verdict" not in body else ""
    style = ' style="--least:3rem"' if 0 < longest <= RANKS else style
    classes = f"table {layout}".strip()
    return HTML(
        f'<div class="dr-table"><table class="{classes}"{style}>'
        f"<caption>{html.escape(typographic(caption))}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def bullets(sentences: Sequence[str]) -> HTML:
    """Sentences of safe HTML as a list."""
    return HTML(
        '<ul class="dr-list">'
        + "".join(f"<li>{typographic(sentence)}</li>" for sentence in sentences)
        + "</ul>"
    )


def folded(summary: str, *parts: HTML) -> HTML:
    """A part of a page that opens with a click: an escaped summary line above hidden content."""
    inside = "".join(part.data for part in parts)
    line = html.escape(typographic(summary))
    return HTML(f'<details class="dr-folded"><summary>{line}</summary>{inside}</details>')


def named(label: str) -> str:
    """A label as a page shows it: a method's identifier, alone or before a comma, is replaced by
    its name.

    Example:
        >>> (
        ...     named("encdec_mlm"),
        ...     named("none, verbatim questions"),
        ...     named("30% / 50%").replace("\N{NO-BREAK SPACE}", " "),
        ... )
        ('Enc-Dec MLM', 'no pre-training, verbatim questions', '30 % / 50 %')
        >>> (
        ...     named("BM25 + simlm, by rank"),
        ...     named("General -> MS"),
        ...     named("none, 4 x 256").replace("\N{NO-BREAK SPACE}", " "),
        ... )
        ('BM25 + SimLM, by rank', 'General → MS', 'no pre-training, 4 × 256')
        >>> named("SimLM / + distillation"), named("PAIR / BERT")
        ('SimLM + distillation', 'PAIR, BERT')
    """
    joined = FUSED if label.startswith(FUSED) else ""
    # the slash between rates stays
    plain = re.sub(r" / (?=[A-Za-z])", ", ", label.removeprefix(joined).replace(" / + ", " + "))
    word, comma, rest = plain.partition(", ")
    # the rest may name a collection
    rest = re.sub(
        r"(?<=by more on )\S+", lambda match: data_named(match[0]), OTHER_NAMES.get(rest, rest)
    )
    shown = joined + per_cent((NAMES | OTHER_NAMES).get(word, word) + comma + rest).replace(
        " -> ", " → "
    )
    return re.sub(
        r"(?<=\bretriever) (?=\d)|(?<=\btemperature) (?=\d)|(?<=\d) (?=steps\b)",
        "\N{NO-BREAK SPACE}",
        times(shown),
    )


def named_in(text: str, labels: Iterable[str]) -> str:
    """A text with each of some labels replaced by `named`.

    Example:
        >>> named_in("Not run: none, another.", ["none", "another"])
        'Not run: no pre-training, another.'
    """
    names = {label: named(label) for label in sorted(labels, key=len, reverse=True)}
    whole = rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)"
    text = (
        re.sub(rf"({whole}), (?={whole})", r"\1; ", text)
        if any(", " in name for name in names.values())
        else text
    )
    return re.sub(whole, lambda match: names[match[0]], text) if names else text


def flips_table(
    first: Record, second: Record, measure: str, collection: str | None = None, *, shown: int = 3
) -> HTML:
    """The queries that a change of the recipe wins and loses: those that only one of two runs
    answers, and their number.

    Both kinds are counted and shown by the same rule (widest gap first): examples of only one kind
    would prove whatever they were chosen for.

    Args:
        first, second: records of this machine's runs on the same queries.
        measure: a query counts as answered if this is above 0, e.g. "MRR@10".
        collection: the folder of the collection that both were measured on, if it is not found by
            name.
        shown: cases of each kind.

    Raises:
        InputError: the runs are on different queries, or were not made on this machine.
    """
    searched = collection_of(first, place=collection, searched=True)
    split = first.evaluation["split"]
    rankings = {named(record.label): ranking_of(record) for record in (first, second)}
    parts = []
    for missed, answered in ((first, second), (second, first)):
        cases = flips(missed.measured, answered.measured, measure)
        part = f"; the {shown} with the widest gap" if len(cases) > shown else ""
        number = f"{len(cases)} of {len(missed.query_ids)} queries"
        caption = (
            f"Answered by {named(answered.label)}, missed by {named(missed.label)} ({measure} 0):"
            f" {number}{part}."
        )
        parts.append(cases_table(cases[:shown], rankings, searched, split, caption).data)
    together = HTML("".join(parts))
    return (
        folded(f"Queries of this build's smoke run: {' and '.join(rankings)}", together)
        if first.scale == "smoke"
        else together
    )


def cases_table(
    cases: Sequence[Case],
    rankings: Mapping[str, Ranking],
    searched: Collection,
    split: str,
    caption: str,
) -> HTML:
    """One row per query and system: rank of the first relevant passage, and the passage ranked
    first, with shared words marked.

    Args:
        cases: queries to show, such as the first few of `verdicts.flips`.
        rankings: system -> its ranking.
        searched: the collection.
        split: the split of the queries.
        caption: what is shown, and by which rule the cases were chosen.
    """
    ids = [case.query_id for case in cases]
    texts = {row["id"]: row["text"] for row in searched.queries(split) if row["id"] in set(ids)}
    judged = judged_rows(searched.qrels(split), ids, searched.passages["id"])
    rows: list[list[Cell]] = []
    for query, relevant in zip(ids, judged, strict=True):
        for number, (system, ranking) in enumerate(rankings.items()):
            ranked = np.asarray(ranking.rows[ranking.query_ids.index(query)])
            # a query is printed once, in the first of its rows
            name = "" if number else texts[query]
            rows.append(
                [
                    name,
                    system,
                    *_first_found(ranked[ranked >= 0], relevant, texts[query], searched.passages),
                ]
            )
    columns = ["query", "system", "first relevant", "first is relevant", "put first"]
    return table(columns, rows, caption=caption)


def _first_found(
    ranked: np.ndarray, relevant: np.ndarray, query: str, passages: Dataset
) -> list[Cell]:
    """Rank of the first relevant passage, whether the top passage is relevant, and an excerpt."""
    hits = np.flatnonzero(np.isin(ranked, relevant))
    rank: Cell = int(hits[0]) + 1 if len(hits) else f"not in {len(ranked)}"
    if not len(ranked):
        return [rank, None, None]
    first = passages[int(ranked[0])]
    title = f"<b>{soft(first['title'])}</b> " if first["title"] else ""
    return [
        rank,
        "yes" if ranked[0] in relevant else "no",
        Markup(title + marked(first["text"], query)),
    ]


@cache
def stop_words() -> frozenset[str]:
    """scikit-learn's list of English stop words, lower case."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # takes a second to load

    return ENGLISH_STOP_WORDS


def marked(text: str, query: str) -> str:
    """An excerpt of a text as safe HTML (`hits.shortened`), with words of the query in `<mark>`
    except stop words and single letters.

    Example:
        >>> marked("The cat <b>sat</b> on a mat.", "Where sat the cat?")
        'The <mark>cat</mark> &lt;b&gt;<mark>sat</mark>&lt;/b&gt; on a mat.'
    """
    excerpt = shortened(" ".join(text.split()), query)
    pieces = matches(excerpt, set(words_of(query)) - stop_words())
    safe = ((html.escape(piece), hit) for piece, hit in pieces)
    return "".join(f"<mark>{piece}</mark>" if hit else piece for piece, hit in safe)


def search_table(answer: Result) -> HTML:
    """The passages that several systems found for a query, side by side if there is room, else one
    below the other; relevant passages are marked, scores below the text.
    """
    caption = " ".join(
        [f"Found for: {answer.query}", *([f"({answer.judged})"] if answer.judged else [])]
    )
    lists = []
    for system, hits in answer.hits.items():
        passages = "".join(f"<li>{_hit(hit, answer.query)}</li>" for hit in hits)
        passages = f"<ol>{passages}</ol>" if hits else "<p>nothing found</p>"
        lists.append(f"<div><strong>{soft(system)}</strong>{passages}</div>")
    return HTML(
        f'<div class="dr-search"><p class="dr-note">{soft(caption)}</p>'
        f'<div style="{SIDE_BY_SIDE}">{"".join(lists)}</div></div>'
    )


def _hit(hit: Hit, query: str) -> str:
    title = f"<strong>{soft(hit.title)}</strong><br>" if hit.title.strip() else ""
    mark = ' <span class="verdict verdict-held">relevant</span>' if hit.relevant else ""
    return (
        f"{title}{marked(hit.text, query)}<br><small>{hit.score:.3f},"
        f" <bdi>{soft(hit.id)}</bdi></small>{mark}"
    )


def matches(text: str, wanted: set[str]) -> list[tuple[str, bool]]:
    """A text in pieces, each with whether it matches a wanted word of `words_of` and is to be
    marked.

    Returns:
        Pieces whose concatenation is the text in composed form (NFC).

    Example:
        >>> matches("Many foxes, 東京 and 京都", {"foxes", "東京"})
        [('Many ', False), ('foxes', True), (', ', False), ('東京', True), (' and 京都', False)]
    """
    text = unicodedata.normalize("NFC", text)
    pieces: list[tuple[str, bool]] = []

    def add(piece: str, wanted: bool) -> None:
        if pieces and pieces[-1][1] == wanted:
            piece = pieces.pop()[0] + piece
        if piece:
            pieces.append((piece, wanted))

    end = 0
    for run in RUN.finditer(text):
        add(text[end : run.start()], False)
        end, run = run.end(), run[0]
        letters = LETTER(run) if PAIRS(run) else [run]
        hits = [not wanted.isdisjoint(words_of(run))] * len(letters)
        if len(letters) > 1:
            pairs = [not wanted.isdisjoint(words_of(a + b)) for a, b in pairwise(letters)]
            hits = [a or b for a, b in zip([False, *pairs], [*pairs, False], strict=True)]
        for letter, hit in zip(letters, hits, strict=True):
            add(letter, hit)
    add(text[end:], False)
    return pieces
