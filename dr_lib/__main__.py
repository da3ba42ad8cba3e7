"""The command line: `python -m dr_lib --help`. Every command is a few lines here and a function of the lab.

Page of the book: quickstart. Imports are late, so that help answers at once.
"""

import argparse
import sys
from pathlib import Path

from dr_lib.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return 0, or 1 with one clear line on stderr."""
    options = parser().parse_args(arguments)
    try:
        return options.command(options) or 0
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="python -m dr_lib", description="Dense retrieval, reproducible.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    status = commands.add_parser("status", help="stages and records there are, and their age against the code")
    status.add_argument("--verify", action="store_true", help="compare every file of every stage with its checksum")
    status.set_defaults(command=show_status)

    batch = commands.add_parser("batch", help="run notebooks through papermill, several side by side")
    batch.add_argument("notebooks", nargs="*", type=Path, help="notebooks or folders (default: notebooks/)")
    batch.add_argument("--scale", default="smoke", help="a name in notebooks/scales, or a YAML file (default: smoke)")
    batch.add_argument("-p", "--parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    batch.add_argument("--jobs", type=int, help="notebooks at once (default: cores / threads a notebook)")
    batch.add_argument("--threads", type=int, default=1, help="threads a notebook (default: 1)")
    batch.add_argument("--to", type=Path, help="folder for the executed notebooks (default: _build/source/notebooks)")
    batch.set_defaults(command=run_batch)

    ledger = commands.add_parser("ledger", help="what the papers claim, and what the records say to it")
    ledger.add_argument("--scale", help="records of one scale only")
    ledger.add_argument("--json", action="store_true", help="machine-readable")
    ledger.set_defaults(command=show_ledger)

    base = commands.add_parser("base", help="train a base model from a base recipe")
    base.add_argument("recipe", type=Path, help="for instance notebooks/scales/base-2x128.yaml")
    base.add_argument("--to", type=Path, help="put model and record into this folder too")
    base.set_defaults(command=train_base)

    publish = commands.add_parser("publish", help="copy this machine's records of a study into the book")
    publish.add_argument("study", help="for instance simlm/table08")
    publish.add_argument("--scale", required=True)
    publish.add_argument("--collection", help="records on one collection only")
    publish.set_defaults(command=publish_records)

    pages = commands.add_parser("pages", help="write the book's generated pages")
    pages.add_argument("--to", type=Path, required=True, help="the staged source of the book")
    pages.set_defaults(command=write_generated_pages)
    return top


def show_status(options: argparse.Namespace) -> None:
    """`status`"""
    from dr_lib.lab.status import status_lines

    print("\n".join(status_lines(verify=options.verify)))


def run_batch(options: argparse.Namespace) -> int:
    """`batch`"""
    from dr_lib.lab.batch import run_notebooks

    return run_notebooks(
        options.notebooks, scale=options.scale, parameters=dict(options.parameter), jobs=options.jobs,
        threads=options.threads, to=options.to,
    )  # fmt: skip


def show_ledger(options: argparse.Namespace) -> None:
    """`ledger`"""
    from dr_lib.lab.verdicts import ledger, ledger_lines

    entries = ledger(options.scale)
    if options.json:
        import json

        print(json.dumps(entries, indent=1, ensure_ascii=False))
    else:
        print("\n".join(ledger_lines(entries)))


def train_base(options: argparse.Namespace) -> None:
    """`base`"""
    from dr_lib.lab.base import build_base
    from dr_lib.lab.base_recipe import BaseRecipe

    print(build_base(BaseRecipe.load(options.recipe), to=options.to))


def publish_records(options: argparse.Namespace) -> None:
    """`publish`"""
    from dr_lib.lab.records import live_folder, load_records, publish

    records = load_records(live_folder(options.scale), options.study)
    found = [record for record in records if options.collection in (None, record.data["collection"]["name"])]
    if not found:
        raise InputError("no records", where=f"{options.study} at {options.scale}", fix="Run its notebook first.")
    print("\n".join(str(path) for path in publish(found)))


def write_generated_pages(options: argparse.Namespace) -> None:
    """`pages`"""
    from dr_lib.report.pages import write_pages

    print("\n".join(str(path) for path in write_pages(options.to)))


if __name__ == "__main__":
    sys.exit(main())
