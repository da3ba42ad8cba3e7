"""The table of what was wanted and what was found, from the file that the comparisons of one run
have filled.

python benchmarks/speed_targets.py _build/speed.json
"""

import argparse
import json
from pathlib import Path

HEADING = "time as a share of the peer's"


def table(found: dict) -> str:
    """A comparison a line: shares of the peer's time by medians and by quickest rounds, and whether
    it is enough.

    "At least" is what the work itself takes at the speed of this machine: multiply-adds, memory, or
    random numbers.
    """
    rows, machine = found["rows"], found["machine"]
    dates, loads = sorted({row["date"] for row in rows}), [row["load"] for row in rows]
    width = max(len(row["what"]) for row in rows)
    lines = [
        (
            f"{machine['cpu']}, {found['threads']} thread(s), torch {machine['versions']['torch']};"
            f" {' to '.join(dates)}"
        ),
        f"load average of the machine during the run: {min(loads)} to {max(loads)}",
        "",
        f"{HEADING:{width}}  wanted  median  quickest  at least",
    ]
    for row in rows:
        bound = f"{row['at_least']:.3f}" if "at_least" in row else ""
        enough = "met" if row["by_median"] <= row["wanted"] else "not met"
        lines.append(
            f"{row['what']:{width}}  {row['wanted']:6.2f}  {row['by_median']:6.2f} "
            f" {row['by_quickest']:8.2f}  {bound:>8}  {enough}"
        )
        lines.append(f"{'':{width}}  {row['ours']} / {row['peer']}")
    return "\n".join(lines)


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    print(table(json.loads(parser.parse_args().file.read_text())))


if __name__ == "__main__":
    main()
