"""Generated pages: status, claims, data sheets, the base model, and content of the first page.

    python book/_ext/generated_pages.py FOLDER    # `book/_ext/staging.py` does it

Everything comes from records, installed packages or the plan of lessons; nothing is typed here.
Pages: reference/status, reference/records, reference/claims, reference/data, reference/base-model,
reference/api for packages that need no text of their own, teaching/routes, practice/cite.
"""

import html
import json
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # a shell makes its background processes ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from claims_glance import drawn_pairs, in_words, left_out, pairs_table, write_claims_glance
from data_sheets import anchor, here_table, sheet_sections
from explorers import write_explorers
from home import searched, write_home
from IPython.display import HTML
from masks_explorer import write_explorer
from pieces import place
from pretrain_tab import write_tab
from price_piece import write_price
from rankings import write_rankings
from search_page import SEARCHED, write_search
from supplied import write_supplied
from teaching import load_plan, routes_page

from dr_book.comparison import notebook_of, pairs_cell, title_of
from dr_book.figures import Series, curves, intervals
from dr_book.ledger import (
    PAIR_STATES,
    SHOWN,
    counts,
    direction_held,
    ledger,
    pair_state,
    sizes_of,
    state_of,
)
from dr_book.ledger import pairs as pairs_of
from dr_book.measured import (
    SCALES,
    all_recorded,
    by_configuration,
    difference,
    made_by,
    recorded,
    recorded_collections,
)
from dr_book.plan import Block
from dr_book.statistics import Interval, mean_interval
from dr_book.tables import (
    Cell,
    Markup,
    data_named,
    folded,
    interval_cell,
    link,
    minus,
    named,
    named_in,
    per_cent,
    scientific,
    soft,
    spell,
    table,
    times,
    typographic,
    verdict_badge,
)
from dr_book.verdicts import COUNTED, WAITS, pairs_counted
from dr_book.verify import compare, measure_of, seed_noise
from dr_lib import places
from dr_lib.files import read_json, read_yaml, write_json, write_text
from dr_lib.lab import BaseRecipe, Record, load_records, recorded_folder
from dr_lib.lab.records import PACKED
from dr_lib.stages import spell_seconds
from dr_lib.training import machine

DOCUMENTED = (
    "evaluation",
    "losses",
    "masking",
    "materials",
    "models",
    "retrieval",
    "tokens",
    "training",
)
"""Packages of the library whose page consists of their docstrings."""
SPEEDS = ("speed", "speed-quiet")
"""Files of comparisons with other libraries, in book/reference/measured."""
PARTS = (
    "extra/found/papers.inc",
    "extra/found/interval.inc",
    *(f"extra/found/{name}.inc" for name in SPEEDS),
)
"""Parts of the first page and of the page on speed, in the staged source of the book."""
RECORDS = "../book/records"
"""Path of the records from a page in the folder `reference`."""
FAULTS = places.project_root() / "book" / "practice" / "measured" / "faults.json"
"""A copy of the file that `make test-faults` writes into `_build`."""
VULNERABILITIES = FAULTS.with_name("vulnerabilities.yaml")
SPLITS = places.project_root() / "book" / "reference" / "measured" / "splits.json"
"""The counts of `benchmarks/splits.py`: sizes of dialogues and sentence tasks, which records lack.
"""
MACHINE = {
    "cpu": "processor",
    "cores": "processor cores",
    "threads": "threads",
    "memory_gib": "memory, GiB",
}
MACHINE |= {"gpus": "graphics cards", "bf16": "computes in bfloat16", "system": "system"}
"""A fact about a machine -> its name on pages."""
MEASURE = "MRR@10"
HYPHENATED = {"supported": "sup\u00adported", "contradicted": "contra\u00addicted"}
HYPHENATED |= {"untested": "un\u00adtested"}
"""Column headings with soft hyphens, for phones."""
COUNTED_AS = {WAITS: COUNTED[WAITS]}
"""State -> its plural, if different."""
CAPTION = "Collections that records were made on."
DIGEST = 10
"""Displayed letters of a digest."""

Entry = Mapping[str, Any]
"""A claim with its verdict, from `ledger.ledger`."""


def write_pages(to: Path) -> list[Path]:
    """Write the generated pages and parts of pages, and copy the records that pages link to.

    Args:
        to: the staged source of the book.

    Returns:
        The pages written.
    """
    (to / "extra").mkdir(exist_ok=True)
    with ProcessPoolExecutor(1) as beside:
        working = beside.submit(write_what_works, to)
        copy_records(to / "extra" / "book" / "records")
        entries = ledger()
        pages = {
            "reference/claims.md": claims_page(entries),
            "reference/status.md": status_page(),
            "reference/records.md": records_page(),
            "reference/data.md": data_page(),
            "reference/base-model.md": base_page(),
            "teaching/routes.md": routes_page(load_plan()),
            "practice/cite.md": cite_page(),
            **{f"reference/api/{name}.md": api_page(f"dr_lib.{name}") for name in DOCUMENTED},
        }
        working.result()
    write_json(to / "extra" / "claims.json", entries)
    write_claims_glance(to, entries, {key: short_name(key) for key in IDEAS})
    measured = places.project_root() / "book" / "reference" / "measured"
    speeds = [speed_table(read_json(measured / f"{name}.json")).data for name in SPEEDS]
    parts = zip(PARTS, (paper_cards(entries), interval_figure().data, *speeds), strict=True)
    for name, text in (*pages.items(), *parts):
        write_text(to / name, text)
    return [to / name for name in pages]


def write_what_works(to: Path) -> None:
    """Write the data of interactive pages: the search, the explorers, the model that learns in a
    tab.
    """
    write_explorer(to)
    write_search(to)
    asked = searched(SEARCHED)  # shown on two pages
    write_home(to, asked)
    write_explorers(to)
    write_price(to)
    write_rankings(to, asked)
    write_supplied(to)
    write_tab(to)


def copy_records(to: Path) -> None:
    """Copy the files of records that pages link to."""
    for scale in SCALES:
        for file in recorded_folder(scale).glob(f"*{PACKED}"):
            (to / scale).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to / scale / file.name)


def _page(title: str, *parts: str | HTML, wide: bool = False) -> str:
    """A MyST page; HTML is in separate blocks, without the blank lines that would end them.

    A wide page uses the margin, without the list of its headings there.
    """
    blocks = [part.data.replace("\n", " ") if isinstance(part, HTML) else part for part in parts]
    head = "---\nhtml_theme.sidebar_secondary.remove: true\n---\n\n" if wide else ""
    return f"{head}# {title}\n\n" + "\n\n".join(block for block in blocks if block) + "\n"


def status_page() -> str:
    """Versions, machine, run times of the notebooks in this copy, and all records."""
    facts = machine.machine_facts()
    host = [[name, str(_plain(facts[fact]))] for fact, name in MACHINE.items()]
    versions = [[name, number] for name, number in facts["versions"].items()]
    return _page(
        "Status",
        "This page lists what this copy of the book was built with, how long its notebooks took,"
        " and which of its {doc}`records <records>` were made again from nothing.",
        "## This copy",
        table(
            ["property", "value"],
            host,
            caption="The machine on which the notebooks of this copy were executed.",
        ),
        table(["package", "version"], versions, caption="Packages that can change a number."),
        "## Notebooks",
        "```{notebook-times}\n```",
        "## Faults",
        *faults_section(FAULTS),
        "## Known vulnerabilities",
        vulnerabilities(VULNERABILITIES),
        "## Collections",
        folded("How to get each of them", here_table(recorded_collections())),
        "## Rows that were made twice",
        *rebuilt_section(all_recorded()),
        wide=True,
    )


def vulnerabilities(file: Path) -> str:
    """When the pinned versions were last checked for known vulnerabilities, and the result."""
    look = read_yaml(file)
    said = "; ".join(f"{name} {text}" for name, text in look["packages"].items())
    return (
        f"Somebody looked last on {look['date']}, at {look['looked_at']}. What was found is closed"
        f" in the pinned versions: {said}."
    )


def faults_section(file: Path) -> list[str | HTML]:
    """The faults injected by `make test-faults`, with counts, and that they did no harm."""
    told = (
        "`make test-faults` kills processes, fills disks, damages files and feeds in malformed"
        " folders."
    )
    if not file.is_file():
        return [f"{told} Its counts are not measured yet."]
    found = read_json(file)
    good = (
        "no number was wrong, nothing finished was lost, and every exception was one of the"
        " project's own"
    )
    bad = (
        f"{len(found['failed'])} of its tests failed:"
        f" {', '.join(one.rpartition('::')[2] for one in found['failed'])}"
    )
    day = found["date"].replace("-", "\N{NON-BREAKING HYPHEN}")
    end = (
        f"Of {sum(found['counts'].values()):,} trials on {day}, at commit"
        f" {str(found['commit']['id'])[:10]}: "
    )
    rows = [[what, times] for what, times in found["counts"].items()]
    return [
        f"{told} {end}{bad if found['failed'] else good}.",
        folded(
            f"{len(rows)} kinds of fault",
            table(["fault", "times"], rows, caption="Faults made on purpose."),
        ),
    ]


FOUND_COMMIT = "f7f50f08"
"""The commit of records that did not know it, found by the digests of their code."""
READING = """\
import json, lzma
import numpy, pandas

with lzma.open("book/records/laptop/simlm-table08.jsonl.xz", "rt") as file:
    records = [json.loads(line) for line in file]
for record in records:
    scores, clusters = record["scores"], record["clusters"]
    values = numpy.array(scores["values"])[scores["row"]]
    table = pandas.DataFrame(values, scores["queries"], scores["measures"])
    table["cluster"] = clusters["of"]
    print(record["label"], record["seed"], table["MRR@10"].mean())
"""
"""How to read a file of records without this project."""


def records_page() -> str:
    """What a record is, how to read and rebuild one, and all records of the book."""
    commits = [str(record.commit.get("id")) for record in all_recorded()]
    found = sum(commit.startswith(FOUND_COMMIT) for commit in commits)
    return _page(
        "Records",
        "Every number that is called *recorded* comes from a record, from which the run can be made"
        " again. A record is a line of JSON. It has the whole recipe of a run, the"
        " score and the cluster of every query, the loss of every training, the digests of the data"
        " and of every stage, and the versions, machine and commit.",
        "A record also has a {term}`code number`, which rises when a change of code has moved the"
        " scores that the tests hold: *code 5* in a table, `epoch` in the file. Runs of one number"
        " may be compared seed by seed. A row may hold runs of several numbers: what the code moved"
        " between them counts as noise of training.",
        f"The {found} records with the commit {FOUND_COMMIT} were made on an H200, in a copy of the"
        " project without its history. Their commit was found afterwards: there the digest of the"
        " code of every stage, taken with Python 3.12 as on that machine, is the one that they"
        " hold.",
        "The records of a study are one file. Ten lines of Python read it; so does"
        ' `pandas.read_json(file, lines=True)`, and `lab.load_records("book/records/laptop",'
        ' "simlm/table08")` gives objects with `.per_query("MRR@10")`, `.clusters` and'
        " `.training`.",
        "## Three numbers for one cell",
        "A page about a table shows up to three. *Paper* is what the paper reports, with its own"
        " data and model. *Recorded* was measured with this book's code and kept as a record."
        " *Live* is what the machine that built your copy measured, from laptop scale on; a smoke"
        " run only shows that everything works, so its numbers are hidden. The three have different"
        " data and models: compare the *order* of the rows and the *differences* between them,"
        " which a {term}`verdict` judges, rather than the levels.",
        "## Reading them",
        f"```python\n{READING}```",
        "A query belongs to a *cluster*: the document that its passage stands in, the dialogue, or"
        " the template that its question was made from. Queries of one cluster are easy or hard"
        " together, so {doc}`errors and tests <../ideas/statistics>` count clusters.",
        "`dr-lib verify` makes a run again from its record alone and says how the two compare. The"
        " column *rebuilt* has the outcomes, with the machine that each was made on.",
        *[part for scale in SCALES for part in records_tables(scale)],
        wide=True,
    )


class Twice(NamedTuple):
    """A training that the book has recorded twice, and the result of `compare`."""

    record: Record
    again: Record
    found: dict[str, Any]


def made_twice() -> list[Twice]:
    """Trainings of the same recipe, data digest and seed by different machines or commits: each
    against the earliest, on the collection that it was trained on, by method.
    """
    found: dict[tuple[str, str], Twice] = {}
    for records in by_configuration().values():
        earliest: dict[int, Record] = {}
        for record in sorted(records, key=lambda record: (record.seed, record.created)):
            at_home = record.trained_on["digest"] == record.searched_on["digest"]
            if not record.training or not at_home:
                continue
            first = earliest.setdefault(record.seed, record)
            places = {(str(run.machine), run.commit.get("id")) for run in (first, record)}
            if len(places) > 1 and _trainings(first) != _trainings(record):
                noise = seed_noise(first, measure_of(first, record))
                pair = Twice(first, record, compare(first, record, noise))
                found.setdefault((_trainings(first), _trainings(record)), pair)
    return sorted(found.values(), key=lambda pair: (_method(pair.record), pair.record.seed))


def _trainings(record: Record) -> str:
    """Identifies a run's trainings among all others, by how long each took."""
    return str({name: log.get("wall_seconds") for name, log in record.training.items()})


def _method(record: Record) -> str:
    return record.recipe["objective"]["name"]


def rebuilt_section(records: Sequence[Record]) -> list[str | HTML]:
    """Trainings that were repeated, by `dr-lib verify` or as another study's rows, and how the two
    compare; then the methods without a repetition.
    """
    rows, again = [], {}
    for record in records:
        for found in record.rebuilt:
            chip = f"{_chip(found['machine'])}, by dr-lib verify on {found['created'][:10]}"
            rows.append(_remade(record, found, chip))
            again |= {record.recipe["objective"]["name"]: None} if record.training else {}
    for pair in made_twice():
        rows.append(_remade(pair.record, pair.found, made_by(pair.again)))
        again[pair.record.recipe["objective"]["name"]] = None
    if not rows:
        return ["No record was made again yet."]
    trained = {record.recipe["objective"]["name"] for record in records if record.training}
    sides = trained & {*again}, trained - {*again}
    twice, once = (", ".join(map(named, sorted(own))) for own in sides)
    columns = ["record", "made by", "made again by", "recorded", "again", "difference", "outcome"]
    about = (
        "Runs of one recipe, data digest and seed by other machines or other code, each against the"
        " earliest. The difference has the interval in which two trainings of one recipe lie in 95"
        " of 100 cases; the outcome is that of `dr-lib verify`, with a margin of half a point, or"
        " what 95 of 100 pairs of trainings keep where they scatter by more."
    )
    outcomes = Counter(row[-1] for row in rows)
    spelled = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return [
        f"Methods with a training that was made twice: {twice or 'none'}."
        f" Without: {once or 'none'}.",
        folded(
            f"{len(rows)} pairs: {spelled}",
            table(columns, rows, caption=about.replace("`", ""), digits=2),
        ),
    ]


def _remade(record: Record, found: Mapping[str, Any], again: str) -> list[Cell]:
    """A run and its repetition, as a row of the table."""
    name = f"{record.study}, {named(record.label)}, seed {record.seed}"
    target = f"{RECORDS}/{record.scale}/{record.file_name}"
    if record.training:
        means = found["means"][found["measure"]]
        ends = [found[end] for end in ("difference", "low", "high")]
    else:  # nothing was drawn, so a difference has no interval
        scores = next(iter(found["measures"].values()))
        means = [100 * scores["recorded"], 100 * scores["rebuilt"]]
        ends = [means[1] - means[0]] * 3
    gap = interval_cell(Interval(*ends), sign=True, digits=2) if ends and None not in ends else None
    made = made_by(record) or _chip(record.machine)
    return [link(name, target), made, again, *means, gap, found["outcome"]]


def records_tables(scale: str) -> list[HTML]:
    """All records of a scale: their number, and a folded table per page; [] if there are none."""
    if not (records := load_records(recorded_folder(scale))):
        return []
    studies = {record.study: _page_of(record.study) for record in records}
    runs = len({one.keys["evaluation"] for one in records})
    words = (
        f"{len(records):,} records of {runs:,} runs at {scale} scale, by page: a run that several"
        " tables show has one in each. What all rows of a table share stands above them."
    )
    parts = [HTML(f'<p class="dr-caption">{words}</p>')]
    for title, target in sorted(set(studies.values()), key=lambda page: (not page[1], page[::-1])):
        shown = [record for record in records if studies[record.study] == (title, target)]
        count = f"{len(shown)} record{'s' * (len(shown) > 1)}"
        page = link(title, target).html if target else html.escape(title)
        files = {record.file_name: None for record in shown}
        links = ", ".join(link(file, f"{RECORDS}/{scale}/{file}").html for file in files)
        parts.append(
            folded(
                f"{title} ({count})",
                HTML(f"<p>Page: {page}. Download: {links}</p>"),
                _records_table(shown, f"{title}: {count} at {scale} scale."),
            )
        )
    return parts


RECORD_COLUMNS = (
    "configuration",
    "seed",
    "collection",
    "queries",
    "time",
    "machine",
    "commit",
    "code",
    "made",
    "rebuilt",
)


def _records_table(records: Sequence[Record], caption: str) -> HTML:
    """One row per record; values that all share are in the caption, which saves three cells in ten
    on so long a page.
    """
    columns = dict(zip(RECORD_COLUMNS, zip(*map(_record_row, records), strict=True), strict=True))
    shared = {
        name: column[0]
        for name, column in columns.items()
        if name != "configuration" and len(records) > 1 and len({*column}) == 1
    }
    told = "; ".join(
        f"{name} {'none' if cell is None else f'{cell:,}' if isinstance(cell, int) else cell}"
        for name, cell in shared.items()
    )
    names = [name for name in RECORD_COLUMNS if name not in shared]
    rest = [[*row] for row in zip(*(columns[name] for name in names), strict=True)]
    return table(names, rest, caption=f"{caption} All: {told}." if told else caption)


PLAN_PAGE = "notebooks/methods/what_the_bottleneck_buys"
QUERIES = {"dev": "dev queries", "elsewhere": "other collections"}
"""Suffix of a study's name -> what was searched."""


def _page_of(study: str) -> tuple[str, str]:
    """Title and address of the page that shows a study; without such a page, a name in words and no
    address.
    """
    if notebook := notebook_of(study):
        return title_of(notebook), f"../{notebook.removesuffix('.ipynb')}.html"
    folder, _, name = study.partition("/")
    if folder == "plan":
        block, _, end = name.rpartition("-")
        words = f"{block}, {QUERIES[end]}" if end in QUERIES else name
        return f"The plan of runs: {re.sub('-(?!ranker)', ' ', words)}", f"../{PLAN_PAGE}.html"
    whole, _, end = study.rpartition("-")
    if notebook := notebook_of(whole):
        return f"{title_of(notebook)} ({end})", f"../{notebook.removesuffix('.ipynb')}.html"
    page = places.project_root() / "book" / f"{study}.md"
    if page.is_file():
        return _first_heading(page), f"../{study}.html"
    return f"{data_named(folder)}: {name}", ""


def _record_row(record: Record) -> list[Cell]:
    data, split = record.searched_on, record.evaluation["split"]
    return [
        named(record.label),
        record.seed,
        f"{data_named(data['name'])} ({data['digest'][:DIGEST]})",
        data.get(f"{split}_queries"),
        spell_seconds(sum(record.seconds.values())),
        _chip(record.machine),
        str(record.commit.get("id") or "unknown")[:10]
        + (" (changed)" if record.commit.get("changed") else ""),
        record.epoch,
        record.created[:10],
        "; ".join(
            f"{one['outcome']} on {_chip(one['machine'])}, {one['created'][:10]}"
            for one in record.rebuilt
        )
        or None,
    ]


def _chip(facts: Mapping[str, Any]) -> str:
    """The GPU of a machine, else its processor."""
    return (facts.get("gpus") or [str(facts.get("cpu"))])[0]


FILTERS = ("paper", "verdict", "data", "waits for")
FILTER_SCRIPT = Path(__file__).with_name("claims_filter.js")
PLAN = places.project_root() / "book" / "plan.yaml"
PROTOCOLS = {
    "same": "the paper's data, measure and stage",
    "scaled": "that kind of data, smaller",
    "stand-in": "other data",
}
"""What a claim is judged on, compared with the paper."""


def claims_page(entries: Sequence[Entry]) -> str:
    """Every claim of the five papers, one line each with folded details; a filter, and a heading
    for each paper.
    """
    blocks = {block["number"]: block["of"] for block in read_yaml(PLAN)["blocks"]}
    parts: list[str | HTML] = []
    for key in dict.fromkeys(entry["paper"] for entry in entries):
        own = [_claim_line(entry, blocks) for entry in entries if entry["paper"] == key]
        parts += [f"## {short_name(key)}", HTML(f'<div class="dr-claim-list">{"".join(own)}</div>')]
    drawn = drawn_pairs(entries)
    return _page(
        "All claims",
        f"The five papers make {len(entries)} claims about their tables and figures, and a claim is"
        " one or more *pairs*: two rows in an order, several within a margin, a share in a range."
        " Our records support a pair, contradict it, or leave it open; a pair that they cannot"
        " test, whatever their numbers, decides nothing. A claim is *held* where all pairs that"
        " its sentence is about are supported, *contradicted* where one of them is, else *open*.",
        in_words(drawn),
        place("claims"),
        left_out(entries),
        pairs_table(drawn, {key: short_name(key) for key in IDEAS}),
        "A pair *waits for seeds* where it is open because a row has too few seeds, whatever its"
        " interval. *Direction held* is said of a held claim where the size that its sentence names"
        " is not tested, or the paper's difference lies outside of our interval. *Scaled* is the"
        " paper's kind of data, smaller; a *stand-in* is other data.",
        "Click a claim for its pairs. The {doc}`rules <../ideas/statistics>` are applied when the"
        " book is built, to the records that `book/papers` names; `dr-lib ledger` prints the"
        ' same, and `--json` everything that is known, as in <a href="../claims.json"'
        f" download>claims.json</a>. {survivors(entries)}",
        counts_table(entries),
        _bm25(entries),
        HTML(_filter(entries, blocks)),
        *parts,
        wide=True,
    )


def survivors(entries: Sequence[Entry]) -> str:
    """How many decisions survive control of the false discovery rate, and links to the others."""
    judged = [entry for entry in entries if entry["verdict"] in ("held", "contradicted", "open")]
    decided = [entry for entry in judged if entry["verdict"] != "open"]
    fallen = [entry for entry in decided if entry["p_over_claims"] >= 0.05]
    links = ", ".join(f'<a href="#{one["claim"]}">{one["claim"]}</a>' for one in fallen)
    return (
        f"Of the {len(decided)} decided claims {len(decided) - len(fallen)} stay significant when"
        f" the share of false ones is held at 5 % over all {len(judged)} judged claims (Benjamini"
        " and Hochberg; an open claim counts with p = 1)."
        + (f" The others are less sure: {links}." if fallen else "")
    )


def _claim_line(entry: Entry, blocks: Mapping[int, str]) -> str:
    """A claim on one line, and folded below it its pairs, their evidence, and the untested part."""
    facts = html.escape(json.dumps(_facts(entry, blocks)), quote=True)
    shown = entry_badge(entry).html
    statement = soft(typographic(per_cent(entry["statement"])))
    labels = {pair[side] for pair in entry["pairs"] for side in ("better", "worse")}
    told = [named_in(note, labels) for note in entry["notes"]]
    if entry["scale"]:
        listed = entry["collection"]
        places_ = ", ".join(map(data_named, [listed] if isinstance(listed, str) else listed))
        protocol = PROTOCOLS[entry["protocol"]]
        days = f"{entry['looks']} day{'s' * (entry['looks'] > 1)}"
        told.append(
            f"Judged on {places_}, {entry['scale']} scale ({protocol}); its runs came in on {days},"
            " each of which allowed a look."
        )
    told += filter(None, (entry["lacks"], entry["why"]))
    if entry["unchecked"]:
        told.append(f"Not checked: {entry['unchecked']}.")
    if entry["block"]:
        awaited = blocks[entry["block"]]
        told.append(f"Waits for runs of the plan: {awaited} (block {entry['block']}).")
    lines = "".join(f"<p>{soft(typographic(per_cent(line)))}</p>" for line in told)
    pairs = pairs_cell(entry["pairs"])
    listed_pairs = f"<p>{pairs.html}</p>" if pairs else ""
    source = _source(entry)
    where = source.html if isinstance(source, Markup) else html.escape(str(source))
    counted = html.escape(counted_pairs(entry))
    return (
        f'<details class="dr-claim" id="{html.escape(entry["claim"])}"'
        f' data-claim="{facts}"><summary>{shown} {statement}'
        f" <small>{counted}</small></summary><div><p><small>{where};"
        f' <span class="claim-id">{html.escape(entry["claim"])}</span></small></p>'
        f"{listed_pairs}{lines}</div></details>"
    )


def entry_badge(entry: Entry) -> Markup:
    """The badge of a claim's verdict."""
    return verdict_badge(
        entry["verdict"], entry["protocol"] if entry["scale"] else None, told=state_of(entry)
    )


def counted_pairs(entry: Entry) -> str:
    """Counts of the pairs of a claim: ``3 pairs for, 1 against, 2 open``; "" if none was tested.

    For a claim that is held only in its direction, by several pairs, the paper's differences and
    ours are added.
    """
    number = Counter(map(pair_state, entry["pairs"]))
    if not sum(number[state] for state in PAIR_STATES):
        return ""
    told = [pairs_counted(number)]
    # of one pair the badge has the sizes
    if entry.get("verdict") == "held" and direction_held(entry) and len(sizes_of(entry)) > 1:
        ours, paper = (
            " and ".join(f"{size:+.1f}" for size in sizes)
            for sizes in zip(*sizes_of(entry), strict=True)
        )
        units = {pair.get("unit", "points") for pair in entry["pairs"] if pair["carrying"]}
        unit = "".join(f" {unit}" for unit in units - {"points"})
        told += [minus(f"paper {paper}, here {ours}{unit}")]
    return ", ".join(told)


def _facts(entry: Entry, blocks: Mapping[int, str]) -> dict[str, str]:
    """The attributes that the filter uses."""
    values = (
        short_name(entry["paper"]),
        entry["verdict"],
        {"same": "the paper's"}.get(entry["protocol"], entry["protocol"] or "not judged"),
        blocks[entry["block"]] if entry["block"] else "no further runs",
    )
    return dict(zip(FILTERS, values, strict=True))


def _filter(entries: Sequence[Entry], blocks: Mapping[int, str]) -> str:
    """Choices above the claims; without JavaScript they stay hidden, and every claim is shown."""
    facts, choices = [_facts(entry, blocks) for entry in entries], []
    for name in FILTERS:
        values = sorted({one[name] for one in facts})
        options = "".join(f"<option>{html.escape(value)}</option>" for value in values)
        choices.append(
            f'<label>{name} <select name="{name}"><option'
            f' value="">all</option>{options}</select></label>'
        )
    about = "<span>The claims below:</span>"
    form = f'<form class="dr-filter" hidden>{about}{"".join(choices)}<output></output></form>'
    return f"{form}<script>{FILTER_SCRIPT.read_text(encoding='utf-8')}</script>"


IDEAS = {
    "simlm": "Replace words on both sides of a bottleneck, recover the originals.",
    "cdmae": "Hide the words that matter, and make the decoder's work hard.",
    "dpr_paq": "Pre-train on 65 million generated questions.",
    "master": "One encoder, five decoders with a task each.",
    "pair": "Compare passages with passages, not only with the query.",
}


def bar(entries: Sequence[Entry]) -> str:
    """A bar of the pairs of some claims by state, hollow if only tested on stand-ins."""
    parts, words = [], []
    for state in PAIR_STATES:
        each = {
            hollow: sum(
                pair_state(pair) == state
                for pair in pairs_of(entries)
                if (pair["protocol"] == "stand-in") is hollow
            )
            for hollow in (False, True)
        }
        parts += [
            f'<i class="{state.split()[0]}{" hollow" * hollow}" style="flex:{number}"></i>'
            for hollow, number in each.items()
            if number
        ]
        if sum(each.values()):
            words.append(f"{sum(each.values())} {COUNTED_AS.get(state, state)}")
    told = ", ".join(words) or "none tested"
    return f'<span class="bar" role="img" aria-label="{told}">{"".join(parts)}</span>'


def paper_cards(entries: Sequence[Entry]) -> str:
    """The first page's summary: a card with a bar of its pairs for each paper, and a sentence on
    the pairs of all five.
    """
    cards = []
    for key, idea in IDEAS.items():
        own = [entry for entry in entries if entry["paper"] == key]
        number = counts(own)
        tested = sum(number[state] for state in SHOWN)
        cards.append(
            f'<a class="dr-paper" href="papers/{key}.html"><strong>{short_name(key)}</strong>'
            f"<span>{html.escape(typographic(idea))}</span>{bar(own)}<small>{tested} pairs"
            f" tested, of {len(own)} claims</small></a>"
        )
    number = counts(entries)
    said = Counter(map(pair_state, pairs_of(entries)))
    hollow = sum(
        pair["protocol"] == "stand-in" and pair["state"] in SHOWN for pair in pairs_of(entries)
    )
    key = {
        state.split()[0]: f"{said[state]} {COUNTED_AS.get(state, state)}" for state in PAIR_STATES
    }
    key["hollow"] = f"outlined: {hollow} of these, on other data than the paper's"
    legend = "".join(f'<li><i class="{kind}"></i>{text}</li>' for kind, text in key.items())
    tested = sum(number[state] for state in SHOWN)
    words = (
        f"Claims compare rows of tables, pair by pair. Of these pairs {tested} are tested here,"
        f" {number['not testable here'] + number['not run']} are not."
    )
    claims = Counter(entry["verdict"] for entry in entries)
    words += (
        f" Of {len(entries)} claims {claims['held']} are held,"
        f" {sum(map(bool, map(direction_held, entries)))} of them in their direction alone;"
        f" {claims['contradicted']} are contradicted, {claims['open']} open, and"
        f" {claims['not testable here'] + claims['not run']} have no verdict."
    )
    return (
        f'<div class="dr-papers">{"".join(cards)}</div><ul class="dr-legend">{legend}</ul><p'
        f' class="dr-note">{typographic(words)} <a href="reference/claims.html">Every claim with'
        " its pairs</a></p>"
    )


def counts_table(entries: Sequence[Entry]) -> HTML:
    """Counts of the pairs and of the claims of each paper: two tables, which fit a phone."""
    untested = ("not testable here", "not run")
    verdicts = ("held", "open", "contradicted")
    pair_rows: list[list[Cell]] = []
    claim_rows: list[list[Cell]] = []
    for key in [*dict.fromkeys(entry["paper"] for entry in entries), None]:
        own = [entry for entry in entries if key in (None, entry["paper"])]
        name = link(short_name(key), f"#{short_name(key).lower()}") if key else "all"
        pairs = Counter(map(pair_state, pairs_of(own)))
        claims = Counter(entry["verdict"] for entry in own)
        states = [*(pairs[state] for state in PAIR_STATES), sum(pairs[state] for state in untested)]
        pair_rows.append([name, *(number or None for number in states)])
        claim_rows.append([name, len(own), *(claims[word] or None for word in verdicts)])
    about = "Pairs of the papers, by our records; untested: not testable here, or not run."
    heads = [HYPHENATED.get(state, state) for state in (*PAIR_STATES, "untested")]
    shown = table(["paper", *heads], pair_rows, caption=about)
    judged = table(
        ["paper", "claims", *verdicts], claim_rows, caption="Claims of the papers, by their pairs."
    )
    return HTML(shown.data + judged.data)


def bm25_pairs(entries: Sequence[Entry]) -> int:
    """How many pairs of recorded tables put a dense retriever above BM25."""
    return sum(
        not pair["testable"] and "BM25" in pair["worse"] and entry["study"] is not None
        for entry in entries
        for pair in entry["pairs"]
    )


def _bm25(entries: Sequence[Entry]) -> HTML:
    """BM25 against dense retrievers, stated once: it decides nothing about a method."""
    return HTML(
        f'<p class="dr-note">{bm25_pairs(entries)} pairs compare a dense retriever with BM25. They'
        " decide nothing here, since SQuAD's questions were written with the passage in view and"
        ' repeat its words. <a href="../notebooks/evaluation/bm25.html">BM25 and dense retrievers'
        "</a> tells where the order turns.</p>"
    )


def _source(entry: Entry) -> Cell:
    """Where the paper says it, with a link if a page of the book runs that table."""
    source = re.sub(r" (?=\d)", "\N{NO-BREAK SPACE}", entry["source"])
    return link(source, f"../{entry['page']}.html") if entry["page"] else source


def short_name(key: str) -> str:
    """A paper's name on pages: the title of its own page.

    Example:
        >>> short_name("dpr_paq"), short_name("simlm")
        ('DPR-PAQ', 'SimLM')
    """
    return _first_heading(places.project_root() / "book" / "papers" / f"{key}.md")


def _first_heading(page: Path) -> str:
    """The title of a page, which is its first line."""
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def interval_figure() -> HTML:
    """One difference of ideas/statistics with three intervals: as if queries were independent, over
    articles, and over articles and seeds.
    """
    runs = recorded("simlm/table07")
    if not {"SimLM", "MLM"} <= runs.keys():
        return HTML("<p>Nothing is recorded yet.</p>")
    block = Block(runs)
    gaps = block.differences("SimLM", "MLM", MEASURE)
    steps = {
        "as if queries were independent": mean_interval(gaps),
        "over articles": mean_interval(gaps, block.clusters),
        "over articles and seeds": difference(
            runs["SimLM"], runs["MLM"], MEASURE
        ).estimate.interval(),
    }
    told = "; ".join(f"{name} {spell(step, sign=True)}" for name, step in steps.items())
    return intervals(
        [Series("SimLM minus masked LM", "recorded", steps, f"points of {MEASURE}")],
        [*steps],
        zero=True,
        rows="interval",
        alt=f"SimLM minus masked LM with three intervals: {told}.",
    )


def speed_table(found: Mapping[str, Any]) -> HTML:
    """Times of this project as shares of other libraries' times, and whether each is within its
    bound.

    Args:
        found: machine, threads and rows, as written by the benchmarks.
    """
    dates = sorted({row["date"] for row in found["rows"]})
    loads = [row["load"] for row in found["rows"]]
    rows: list[list[Cell]] = []
    bounded = any("at_least" in row for row in found["rows"])
    for row in found["rows"]:
        what, ours, peer = (
            html.escape(typographic(_spelled(row[name]))) for name in ("what", "ours", "peer")
        )
        names = Markup(f'{what}<br><small class="dr-note">{ours} / {peer}</small>')
        shares = [
            row["wanted"],
            row["by_median"],
            row["by_quickest"],
            *([row.get("at_least")] if bounded else []),
        ]
        rows.append([names, *shares, "yes" if row["by_median"] <= row["wanted"] else "no"])
    days = " to ".join(dates).replace("-", "\N{NON-BREAKING HYPHEN}")
    caption = (
        f"Time as a share of the peer's. {found['machine']['cpu']}, {found['threads']}"
        f" thread{'s' * (found['threads'] > 1)}, torch {found['machine']['versions']['torch']};"
        f" {days}; load average of the machine {min(loads)} to {max(loads)}."
    )
    columns = [
        "what, and ours / peer",
        "target",
        "median",
        "quickest",
        *["at least"] * bounded,
        "met",
    ]
    met = sum(row[-1] == "yes" for row in rows)
    summary = f"{met} of {len(rows)} targets are met on {found['machine']['cpu']}: each path"
    return folded(summary, table(columns, rows, caption=caption, digits=2))


def _spelled(text: str) -> str:
    """The name of a benchmark's case on pages: sizes with commas and signs, words for identifiers.

    Example:
        >>> (
        ...     _spelled("search, 100000 x 384, top 1000").replace("\N{NO-BREAK SPACE}", " "),
        ...     _spelled("mask: whole_word"),
        ... )
        ('search, 100,000 × 384, top 1,000', 'mask: whole word')
    """
    text = re.sub(r"(?<![\w.])\d{4,}(?![\w.])", lambda found: f"{int(found[0]):,}", text)
    words = {
        "per_row": "RetroMAE's, one a row",
        "whole_word": "whole word",
        "bf16_weights": "bf16 weights",
    }
    words |= {
        r"^ours$": "this project",
        r"^plain$": "all logits",
        r" (eager|sdpa)$": r", \1 attention",
    }
    words |= {r"\btop ": "top\N{NO-BREAK SPACE}"}
    for code, word in words.items():
        text = re.sub(code, word, text)
    return times(text)


def data_page() -> str:
    """The collections behind the records, with sizes and digests, and the data sheet of each."""
    sizes = ("passages", "train_queries", "test_queries")
    known, counted = recorded_collections(), read_json(SPLITS)
    rows: dict[bool, list[list[Cell]]] = {True: [], False: []}
    largest = max_by_name(known)
    for data in known:
        if data["name"] not in counted:
            digest, pages = data["digest"][:DIGEST], _pages_of(data["studies"])
            row = [_loaded_by(data["name"]), *map(data.get, sizes), digest, pages]
            rows[data is largest[data["name"]]].append(row)
    columns = ["collection", "passages", "training queries", "test queries", "digest", "used by"]
    studies: dict[str, set[str]] = {}
    for data in known:
        studies.setdefault(data["name"], set()).update(data["studies"])
    used_by = {name: _pages_of(own) for name, own in studies.items()}
    return _page(
        "Data sheets",
        "Most records were made on SQuAD; begin with Primer, which comes with the book."
        " A collection consists of passages, queries and"
        " judgements. Its digest is computed from the content alone: a compressed and a plain copy"
        " have the same digest, and a changed comma gives another.",
        "Each sheet below says where a collection comes from and what was changed. `dr-lib data"
        " NAME --to FOLDER` makes the folder from the public files, `--from FOLDER` from files that"
        " you have already; both check the digest. A folder under `DR_DATA` is found by its name.",
        "## Behind the records",
        table(columns, rows[True], caption=CAPTION) if rows[True] else "There is no record yet.",
        folded(
            f"{len(rows[False])} parts and earlier states of them",
            table(columns, rows[False], caption="Smaller than the collection above of their name."),
        )
        if rows[False]
        else "",
        *splits_tables([data for data in known if data["name"] in counted], counted),
        "## Sheets",
        "Every conversion has a test. The published files were not at hand for most collections:"
        " there the test converts small made-up files of the same format and compares the result"
        " with that of the script that first made the collection. The other sheets say what their"
        " digest was compared with.",
        *sheet_sections([data["name"] for data in known], used_by),
    )


def max_by_name(known: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The state with the most passages of each collection."""
    largest: dict[str, Mapping[str, Any]] = {}
    for data in sorted(known, key=lambda data: -(data.get("passages") or 0)):
        largest.setdefault(data["name"], data)
    return largest


def splits_tables(
    known: Sequence[Mapping[str, Any]], counted: Mapping[str, Mapping[str, Any]]
) -> list[HTML]:
    """Dialogues with contexts and candidates, sentence tasks with rows, by split; counts of files
    other than those that the runs read are left out.

    Args:
        known: from `recorded_collections`; the digest is that of the files that the runs read.
        counted: name -> split -> counts and digest, from `SPLITS`.
    """
    rows: dict[str, list[list[Cell]]] = {"contexts": [], "rows": []}
    for data in known:
        splits, digests = counted[data["name"]], data["digest"].split()
        same = {*digests} <= {one["digest"] for one in splits.values()}
        kind = "contexts" if "contexts" in splits["train"] else "rows"
        counts: list[Cell] = [
            splits.get(split, {}).get(kind) if same else None for split in ("train", "dev", "test")
        ]
        each: list[Cell] = (
            [splits["test"]["candidates"] if same else None] if kind == "contexts" else []
        )
        ends = [", ".join(digest[:DIGEST] for digest in digests), _pages_of(data["studies"])]
        rows[kind].append([_loaded_by(data["name"]), *counts, *each, *ends])
    heads = {kind: ["train", "dev", "test"] for kind in rows}
    heads["contexts"].append("candidates")
    captions = {
        "contexts": (
            "Dialogues that records were made on: contexts of each split, and candidates of a test"
            " context. The digest is that of the test file."
        ),
        "rows": (
            "Sentence tasks that records were made on: rows of each split. Records are of training"
            " and dev rows; the digests are those of these two files."
        ),
    }
    return [
        table(["collection", *heads[kind], "digest", "used by"], rows[kind], caption=captions[kind])
        for kind in rows
        if rows[kind]
    ]


def _loaded_by(name: str) -> Cell:
    """A collection's name, linked to its sheet, and the name that it is loaded by if different;
    synthetic data of a page have none.
    """
    shown = data_named(name)
    full = shown if shown == name or " " in name else f"{shown} ({name})".replace(") (", "; ")
    return link(full, f"data.html#{anchor(name)}") if anchor(name) else full


def _notebook_of(study: str) -> str:
    """Path of the notebook that shows a study; "" if none does."""
    return notebook_of(study) or f"{PLAN_PAGE}.ipynb" * study.startswith("plan/")


def _pages_of(studies: Iterable[str]) -> Cell:
    """Links to the notebooks that run these studies, named by the beginnings of their titles if
    these differ; many are folded.
    """
    pages = {
        page: title_of(page) for page in sorted({_notebook_of(study) for study in studies} - {""})
    }
    short = [title.partition(":")[0] for title in pages.values()]
    names = [
        title if short.count(one) > 1 else one
        for one, title in zip(short, pages.values(), strict=True)
    ]
    links = "; ".join(
        link(name, f"../{page.removesuffix('.ipynb')}.html").html
        for name, page in zip(names, pages, strict=True)
    )
    if not pages:
        return "no page of its own"
    return Markup(
        f"<details><summary>{len(pages)} pages</summary>{links}</details>"
        if len(pages) > 4
        else links
    )


def _plain(value: Any) -> Cell:
    """A fact as one line."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_plain(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def base_page() -> str:
    """The embedded base model's card: its data, its training, and its loss curve."""
    record = read_json(places.embedded_base() / "record.json")
    sheet = (places.embedded_base() / "README.md").read_text(encoding="utf-8")
    recipe, training, held_out = record["recipe"], record["training"], record["held_out"]
    text = [
        [
            _loaded_by(part["name"]),
            part["passages"],
            ", ".join(part["without_documents_of"]) or "nothing",
            part["digest"][:DIGEST],
        ]
        for part in record["text"]
    ]
    facts = [
        ["layers, hidden units", f"{recipe['layers']}, {recipe['hidden']}"],
        ["WordPiece pieces", recipe["vocabulary"]],
        ["training steps", recipe["training"]["steps"]],
        ["padded tokens per step", recipe["training"]["tokens_per_batch"]],
        ["peak learning rate", scientific(recipe["training"]["learning_rate"])],
        ["mask rate", f"{recipe['objective']['params']['rate']:g}"],
        ["precision", training["precision"]],
        ["wall time", spell_seconds(training["wall_seconds"])],
        ["machine", record["machine"]["cpu"]],
        ["held-out loss, nats", round(held_out["loss"], 3)],
        ["held-out accuracy at masked pieces", round(held_out["encoder_accuracy"], 3)],
        ["commit", str(record["commit"]["id"])[:10]],
        ["made", record["created"][:10]],
    ]
    planned = BaseRecipe.load(places.scale_file(recipe["name"])).portable()
    # with today's defaults for keys that are younger than the record
    made = BaseRecipe.model_validate(recipe).portable()
    told = "The recipe is" if planned == made else "The recipe is an earlier and shorter one than"
    # one column, one edge
    words = [[name, f"{fact:,}" if isinstance(fact, int | float) else fact] for name, fact in facts]
    steps, losses = record["curve"]["step"], record["curve"]["loss"]
    alt = (
        f"Masked-LM loss from {losses[0]:.1f} nats at the start to {losses[-1]:.1f} after"
        f" {steps[-1]:,.0f} steps."
    )
    return _page(
        "The base model",
        "Smoke and laptop runs start from a small BERT that comes with the book. The book's own"
        " loop (`lab.build_base`) trained its vocabulary and weights, as the table"
        f" shows. {told} `notebooks/scales/{recipe['name']}.yaml`. It is also the frozen generator"
        " that replaces tokens for SimLM. It has never read a query.",
        f"#{sheet}",
        table(["property", "value"], words, caption="How it was made."),
        table(
            ["text", "passages", "left out: documents of", "digest"],
            text,
            caption="What it has read.",
        ),
        "## Loss",
        HTML(f'<p class="dr-caption">{alt}</p>'),
        curves({"training": (steps, losses)}, x="training step", y="masked-LM loss, nats", alt=alt),
    )


def page_entry(page: str, title: str, repository: str = "") -> str:
    """The BibTeX entry of a page of the book, with its link if the project has an address."""
    words = re.sub(r"([&%#_$])", r"\\\1", title)
    facts = book_facts()
    fields = {
        "title": f"{{{words}}}",
        "author": facts["author"],
        "booktitle": facts["title"],
        "year": facts["year"],
        "note": f"Version {facts['version']}, page {page}",
    }
    if repository:
        fields["url"] = f"{repository.removesuffix('/')}/blob/main/{page}.ipynb"
    return entry("incollection", f"denseretrievalbook-{page.rpartition('/')[2]}", fields)


def entry(kind: str, key: str, fields: Mapping[str, Any]) -> str:
    """A BibTeX entry, one line per field."""
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}}}\n"


@cache
def book_facts() -> dict[str, Any]:
    """Fields of the book's BibTeX entry, from `CITATION.cff`."""
    facts = read_yaml(places.project_root() / "CITATION.cff")
    return {
        "title": f"{{{facts['title']}}}",
        "author": " and ".join(f"{{{author['name']}}}" for author in facts["authors"]),
        "year": facts["date-released"].year,
        "version": facts["version"],
        "note": f"{facts['license']} licence",
    }


@cache
def bibtex() -> dict[str, str]:
    """Key -> entry of the book's bibliography."""
    text = (places.project_root() / "book" / "references.bib").read_text(encoding="utf-8")
    return {
        key: entry
        for entry, key in re.findall(r"^(@\w+\{(\w+),.*?^\}\n)", text, re.MULTILINE | re.DOTALL)
    }


def cite_page() -> str:
    """How to cite the book, from `CITATION.cff`, and the papers, from the book's bibliography."""
    facts = book_facts()
    title, names = (re.sub(r"[{}]", "", facts[name]) for name in ("title", "author"))
    page, shown = "notebooks/methods/what_the_bottleneck_buys", "What each method gains"
    one_figure = page_entry(page, title_of(f"{page}.ipynb")).replace(
        f"page {page}", f'page {page}, figure "{shown}", records plan/core'
    )
    return _page(
        "Cite this book",
        f"{names} ({facts['year']}). *{title}*, version {facts['version']}. {facts['note']}.",
        f"```bibtex\n{entry('software', 'denseretrievalbook', facts)}```",
        "Please cite the paper whose method you use as well. `CITATION.cff` in the project has the"
        " same for programs that read it.",
        "## A page, a figure, a number",
        "*BibTeX* at the top of a notebook's page gives the entry of the page, and after it the"
        " entry of its paper. For one figure add its heading and the records that the grey line"
        " below it names:",
        f"```bibtex\n{one_figure}```",
        "A number is one row of these records: name its study, label and seed. The record has the"
        " commit that made it, which {doc}`../reference/records` lists.",
        "## The five papers",
        "```bibtex\n" + "\n".join(bibtex()[key] for key in IDEAS) + "```",
        "## Licences",
        "Text, figures and code of the book are under the MIT licence, and so are the weights of"
        " {doc}`the base model <../reference/base-model>` and of the question generator: use them,"
        " also in teaching, and name the source. The collections have licences of their own, which"
        " their {doc}`sheets <../reference/data>` name. The card of a model that you export has the"
        " licences of its data.",
    )


def api_page(package: str) -> str:
    """The public names of a package with their docstrings."""
    # `lazily` gives a package its names and is none of them
    options = "   :members:\n   :imported-members:\n   :exclude-members: lazily"
    return _page(package, f"```{{eval-rst}}\n.. automodule:: {package}\n{options}\n```")


if __name__ == "__main__":
    print("\n".join(map(str, write_pages(Path(sys.argv[1])))))
