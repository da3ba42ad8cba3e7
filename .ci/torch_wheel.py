"""Whether the file from which pip has installed torch is one that was tried: `torch.sha256` has the
digests, and this takes pip's report (`pip install --report`). A file of a known name with another
digest ends the installation.
"""

import json
import sys
from pathlib import Path
from urllib.parse import unquote

TRIED = Path(__file__).parents[1] / "torch.sha256"


def compare(report: Path, tried: Path = TRIED) -> str:
    """What is to be said of the wheel in a report; "" where torch was there already."""
    known = dict(line.split()[::-1] for line in tried.read_text(encoding="utf-8").splitlines())
    for package in json.loads(report.read_text(encoding="utf-8"))["install"]:
        if package["metadata"]["name"] == "torch":
            source = package["download_info"]
            name = unquote(source["url"].rpartition("/")[2])
            digest = source["archive_info"]["hashes"]["sha256"]
            if known.get(name, digest) != digest:
                sys.exit(f"error: {name}: not the file that was tried (its SHA-256 is {digest}).")
            return f"{name}: {'as tried' if name in known else f'not tried yet, SHA-256 {digest}'}"
    return ""


if __name__ == "__main__":
    print(compare(Path(sys.argv[1])))
