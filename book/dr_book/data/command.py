"""`dr-lib data`: list the collections, or make one from its public source."""

import argparse
from pathlib import Path
from typing import Any

from dr_lib import places
from dr_lib.errors import InputError


def add_parser(command: Any) -> None:
    """Add the command: `command` takes its name and what runs it, and gives what adds options."""
    option = command("data", run)
    option("name", nargs="?", help="a collection (default: list them)")
    option("--to", type=Path, metavar="FOLDER", help="the new folder (default: NAME under DR_DATA)")
    option(
        "--from",
        dest="source",
        type=Path,
        metavar="FOLDER",
        help="its public files, where they are here already",
    )
    option(
        "--allow-changes",
        action="store_true",
        help="keep it where its digest is not that of the sheet",
    )


def run(options: argparse.Namespace) -> None:
    """make a collection of the records from its public files, and check its digest"""
    from dr_book import data

    if not options.name:
        for sheet in data.sheets():
            print(f"{sheet.name:<24}{sheet.title}\n{'':<24}{sheet.command}")
        return
    sheet = data.sheet(options.name)
    to = options.to or (places.data_root() / sheet.name if places.data_root() else None)
    if to is None:
        raise InputError("no folder named", where="--to", fix="Give one, or set DR_DATA.")
    print(data.make(sheet, to, options.source, allow_changes=options.allow_changes))
