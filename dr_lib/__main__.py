"""The command line: `python -m dr_lib --help`. Every command is a few lines here and a function of the lab.

Page of the book: quickstart. Imports are late, so that help answers at once.
"""

import argparse
import os
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
    except BrokenPipeError:  # whoever reads our output has seen enough: `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        told = f"{error.filename or 'files'}: {error.strerror or error}"
        print(f"error: {told}. Check the place, its rights and the room on the disk.", file=sys.stderr)
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
    batch.add_argument("--to", type=Path, help="folder for the executed notebooks (default: _build/executed)")
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

    export = commands.add_parser("export", help="a trained model as a folder for sentence-transformers, with its card")
    export.add_argument("model", nargs="?", type=Path, help="a record of this machine, or a folder with a saved model")
    export.add_argument("--study", help="instead of a record: its study, for instance simlm/table08")
    export.add_argument("--label", help="... and configuration, for instance '30%% / 50%%'")
    export.add_argument("--seed", type=int, help="... and seed (default: the lowest)")
    export.add_argument("--scale", default="laptop", help="... and scale (default: laptop)")
    export.add_argument("--name", help="title of the card")
    export.add_argument("--to", type=Path, required=True, help="the new folder")
    export.set_defaults(command=export_model)

    search = commands.add_parser("search", help="search a collection: BM25 and trained models side by side")
    search.add_argument("collection", help="a collection, or a record: its collection and its model")
    search.add_argument("query", nargs="?", help="the question (default: one a line from standard input)")
    search.add_argument("--model", type=Path, action="append", default=[], help="a retriever: folder or record")
    search.add_argument("--reranker", type=Path, help="a cross-encoder's folder; orders each first 100 anew")
    search.add_argument("--no-bm25", action="store_true", help="leave BM25 out")
    search.add_argument("-k", type=int, default=5, help="passages shown (default: 5)")
    search.add_argument("--json", action="store_true", help="one line of JSON a question")
    search.set_defaults(command=search_collection)

    return top


def show_status(options: argparse.Namespace) -> None:
    """`status`"""
    from dr_lib.lab.status import status_lines

    print("\n".join(status_lines(verify=options.verify)))


def run_batch(options: argparse.Namespace) -> int:
    """`batch`"""
    from dr_lib.lab.batch import run_notebooks

    parameters, jobs = dict(options.parameter), {"jobs": options.jobs, "threads": options.threads}
    return run_notebooks(options.notebooks, scale=options.scale, parameters=parameters, to=options.to, **jobs)


def show_ledger(options: argparse.Namespace) -> None:
    """`ledger`"""
    from dr_lib.lab.ledger import ledger, ledger_lines

    entries = ledger(options.scale)
    if options.json:
        import json

        print(json.dumps(entries, indent=1, ensure_ascii=False))
    else:
        print("\n".join(ledger_lines(entries)))


def train_base(options: argparse.Namespace) -> None:
    """`base`"""
    from dr_lib.lab.base import BaseRecipe, build_base

    print(build_base(BaseRecipe.load(options.recipe), to=options.to))


def publish_records(options: argparse.Namespace) -> None:
    """`publish`"""
    from dr_lib.lab.records import live_folder, load_records, publish

    records = load_records(live_folder(options.scale), options.study)
    found = [record for record in records if options.collection in (None, record.data["collection"]["name"])]
    if not found:
        raise InputError("no records", where=f"{options.study} at {options.scale}", fix="Run its notebook first.")
    print("\n".join(str(path) for path in publish(found)))


def export_model(options: argparse.Namespace) -> None:
    """`export`"""
    from dr_lib.lab.records import find_record
    from dr_lib.report import export

    if (options.model is None) == (options.study is None):
        raise InputError("give a record, a folder, or --study", where="export", fix="One of the three says which model.")
    names = {"seed": options.seed, "scale": options.scale}
    model = options.model or find_record(options.study, options.label, **names)
    print("\n".join(str(path) for path in export(model, options.to, name=options.name)))


def search_collection(options: argparse.Namespace) -> None:
    """`search`"""
    import shutil

    from dr_lib.lab.search import check_queries, searcher_for
    from dr_lib.report import search_text

    check_queries([] if options.query is None else [options.query], options.k)
    searcher = searcher_for(options.collection, options.model, options.reranker, bm25=not options.no_bm25)
    width = shutil.get_terminal_size((100, 24)).columns
    for query in [options.query] if options.query is not None else filter(str.strip, sys.stdin):
        (result,) = searcher.search([query.strip()], options.k)
        print(result.as_json() if options.json else search_text(result, width) + "\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
