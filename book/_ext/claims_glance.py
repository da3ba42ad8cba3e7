"""All pairs of the claims as dots: the paper's difference on the horizontal axis, ours on the
vertical one.

Its script is `book/extra/explorers/claims.js`. Page: reference/claims.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from IPython.display import HTML
from pieces import write_data

from dr_book.ledger import PAIR_STATES, pair_state
from dr_book.statistics import Interval
from dr_book.tables import Markup, folded, interval_cell, link, named, table

NUMBERS = ("paper", "difference", "low", "high")
"""Fields of a pair: the paper's difference, ours, and the ends of its interval."""


def drawn_pairs(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The pairs that have the paper's difference and ours in points, in the order of the claims.

    Args:
        entries: from `ledger.ledger`.

    Returns:
        One mapping per pair: `claim`, `of` (key of the paper), `source`, `said`, `measure`,
        `relation`, `protocol`, `state`, `seeds`, `missing` (whether it waits for seeds, by the rule
        of the verdicts), `because` (what it waits for, or ""), and `NUMBERS`, which are rounded
        only when displayed.
    """
    found = []
    for entry in entries:
        for pair in entry["pairs"]:
            numbers = [pair[name] for name in NUMBERS]
            if None in numbers or pair["unit"] != "points":
                continue
            about = {name: pair[name] for name in ("measure", "relation", "state", "seeds")}
            about |= {name: entry[name] for name in ("claim", "source", "protocol")}
            said = f"{named(pair['better'])} {pair['relation']} {named(pair['worse'])}"
            about |= {"of": entry["paper"], "said": said}
            about["state"] = pair_state(pair)
            about["missing"] = bool(pair.get("waits"))
            about["because"] = pair.get("because", "") if about["missing"] else ""
            found.append(about | dict(zip(NUMBERS, numbers, strict=True)))
    return found


def write_claims_glance(
    to: Path, entries: Sequence[Mapping[str, Any]], papers: Mapping[str, str]
) -> Path:
    """Write the data of the dots into the staged source of the book.

    Args:
        to: the staged source.
        entries: from `ledger.ledger`.
        papers: key of each paper -> its name.
    """
    data = {"papers": dict(papers), "pairs": drawn_pairs(entries)}
    return write_data(to, "claims", data)


def left_out(entries: Sequence[Mapping[str, Any]]) -> str:
    """Which tested pairs have no dot, and why, in a sentence; "" if all have one."""
    tested = [
        pair
        for one in entries
        for pair in one["pairs"]
        if pair_state(pair) in PAIR_STATES and pair["difference"] is not None
    ]
    silent = sum(pair["paper"] is None for pair in tested)
    other = sum(pair["paper"] is not None and pair["unit"] != "points" for pair in tested)
    if not silent + other:
        return ""
    return (
        f"Of the {len(tested)} pairs that were tested, as the first page and the table count them,"
        f" {silent} have no dot since the paper's table has no number for their difference, and"
        f" {other} since they are not in points."
    )


def in_words(pairs: Sequence[Mapping[str, Any]]) -> str:
    """A description of the picture, in two sentences."""
    agreeing = sum(pair["paper"] * pair["difference"] > 0 for pair in pairs)
    apart = sum(pair["paper"] != 0 for pair in pairs)
    nearer = sum(abs(pair["difference"]) < abs(pair["paper"]) for pair in pairs)
    return (
        f"Each of the {len(pairs)} dots is a pair of rows that a paper compares and we ran: the"
        " further right it lies, the larger the paper's difference; the further up, the larger"
        f" ours. Of {apart} pairs that differ in the paper, {agreeing} have the paper's sign here,"
        f" and {nearer} of all lie nearer to zero than in the paper."
    )


def pairs_table(pairs: Sequence[Mapping[str, Any]], papers: Mapping[str, str]) -> HTML:
    """The same as a folded table, also for browsers without JavaScript."""
    rows = []
    for pair in pairs:
        paper = Markup(f"{pair['paper']:+.1f}".replace("-", "\N{MINUS SIGN}"), number=True)
        ours = Interval(pair["difference"], pair["low"], pair["high"])
        where = link(f"{papers[pair['of']]}, {pair['source']}", f"#{pair['claim']}")
        state = ", ".join((pair["state"], pair["protocol"]))
        state += f": {pair['because']}" * bool(pair["because"])
        # a claim over several collections has a pair of rows on each
        counts = pair["seeds"]
        each = [counts] if len(counts) % 2 else zip(counts[::2], counts[1::2], strict=True)
        seeds = "; ".join(dict.fromkeys(" and ".join(map(str, own)) for own in each))
        numbers = (paper, interval_cell(ours, sign=True))
        rows.append([where, pair["said"], pair["measure"], *numbers, seeds, state])
    columns = ["where", "pair", "measure", "paper", "ours", "seeds", "state"]
    caption = (
        "Differences of the pairs, in points, with 95 % intervals of ours (90 % inside a margin),"
        " and the seeds of the two rows. A pair of a block of the plan is judged when both rows"
        " have the block's seeds."
    )
    return folded("The same as a table", table(columns, rows, caption=caption))
