"""Write the table of papers into README.md: tables with a notebook, and the compared pairs by
state.

    dr-lib ledger --json | python book/_ext/readme_table.py
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from dr_book.ledger import PAIR_STATES, pair_state

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = ("<!-- ledger: made by book/_ext/readme_table.py -->", "<!-- end of ledger -->")
PAPERS = {
    "simlm": "SimLM",
    "cdmae": "CDMAE",
    "dpr_paq": "DPR-PAQ",
    "master": "MASTER",
    "pair": "PAIR",
}


def table(claims: list[dict[str, Any]]) -> str:
    """The rows of all papers in Markdown, without pairs that are not run or not testable here."""
    states: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in claims:
        states[claim["paper"]].update(map(pair_state, claim.get("pairs", [])))
    lines = [
        "| paper | tables with a notebook | pairs supported | open | wait for seeds"
        " | contradicted |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for paper, name in PAPERS.items():
        notebooks = len(list((ROOT / "notebooks" / paper).glob("*.ipynb")))
        cells = " | ".join(str(states[paper][state]) for state in PAIR_STATES)
        lines.append(f"| {name} | {notebooks} | {cells} |")
    return "\n".join(lines)


def with_table(readme: str, claims: list[dict[str, Any]]) -> str:
    """The README with the table between its markers."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{table(claims)}\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Write it."""
    path = ROOT / "README.md"
    claims = json.load(sys.stdin)
    path.write_text(with_table(path.read_text(encoding="utf-8"), claims), encoding="utf-8")


if __name__ == "__main__":
    main()
