"""The command line: `dr-lib --help`. Every command is a few lines here that call a function
elsewhere.

Page of the book: quickstart. Imports are late, so that help appears at once.
"""

import sys

from dr_book import STOPPED, one_line_if_stopped

with one_line_if_stopped():  # these take half a second, in which a user may press Ctrl-C
    import argparse
    import errno
    import gc
    import io
    import json
    import math
    import os
    import re
    import reprlib
    import shutil
    import signal
    import threading
    import time
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import redirect_stdout, suppress
    from pathlib import Path
    from tempfile import TemporaryFile
    from typing import TYPE_CHECKING, Any, NoReturn

    from dr_book.hits import Searcher, check_queries, open_bm25
    from dr_book.plain_log import log_plainly
    from dr_book.systems import (
        check_encoders,
        check_outside,
        check_prompts,
        check_trained,
        methods,
        sort_systems,
        word_of,
    )
    from dr_lib import places
    from dr_lib.errors import InputError, similar, visible

if TYPE_CHECKING:
    from dr_lib.collections import Collection
    from dr_lib.lab import Record

UNFINISHED = 75  # the status that sysexits.h calls "try again"
EXAMPLES = """Examples:
  dr-lib try docs/ --ask "how do I install it"
  dr-lib try mydata --system all-MiniLM-L6-v2 --system simlm
  dr-lib search docs/ "how do I install it" --model all-MiniLM-L6-v2
  dr-lib search mydata --model intfloat/e5-small-v2 --prompts "query: " "passage: " --json < q.txt
  dr-lib export --study your_corpus/mydata-1f9c02 --label simlm --to my-retriever
  dr-lib export --study your_corpus/mydata-1f9c02 --label BM25 --run --to bm25.trec
  dr-lib ledger --scale laptop
  dr-lib pretrain docs/ --objective simlm --steps 2000 --to my-base --time-budget 60
  dr-lib publish simlm/table08 --scale laptop
  dr-lib verify --cheapest
  dr-lib verify methods/equal-budgets mlm
  dr-lib data squad --to data/squad
  dr-lib data squad --from folder-with-train-v1.1.json --to data/squad
"""
RECORDS = ".jsonl.xz", ".json"
"""Endings of the names of record files."""
WAYS_OUT = {
    FileNotFoundError: "the path",
    FileExistsError: "the path: a file is in the way of a folder",
    NotADirectoryError: "the path: a file is in the way of a folder",
    PermissionError: "the permissions",
}
WRITTEN = "index.html", "retriever", "to-judge.csv", "-judged"  # by `try`
# errors that no reader of a file has turned into an InputError
BEYOND = {
    UnicodeError: "some input is not valid text. Save it as UTF-8.",
    RecursionError: "some input is nested too deeply. Write it with fewer levels.",
    MemoryError: "not enough memory. Use less data, or a larger machine.",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return 0, or 1 with one clear line on stderr, 130 after Ctrl-C, 143 after
    SIGTERM.
    """
    if alone := arguments is None:  # otherwise the process belongs to the caller
        signal.signal(signal.SIGTERM, interrupt)
        sys.unraisablehook = interrupt_again
    # the libraries create a million permanent objects: collecting garbage among them took a second
    gc.set_threshold(100_000)
    for stream in (sys.stdout, sys.stderr):
        # a character that the terminal's encoding lacks is escaped, as `visible` escapes it
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # like arguments; see check_queries
    log_plainly()
    try:
        options = parser().parse_args(arguments)
        if given := getattr(options, "scale", None):
            places.find_scale(given)
        # before importing the model libraries, which takes seconds
        for path in missing(options):
            raise InputError("no such file or folder", where=path, fix="Check the path.")
        status = options.command(options) or 0
        sys.stdout.flush()  # a failed write is reported here, not at Python's exit
        return status
    except InputError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
    except tuple(BEYOND) as error:
        told = next(told for kind, told in BEYOND.items() if isinstance(error, kind))
        print(f"error: {told}", file=sys.stderr)
    except KeyboardInterrupt as stop:
        if alone:  # at Python's exit, another one would print a traceback or lose the status
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        print(STOPPED, file=sys.stderr)
        return int(str(stop) or 130)
    except BrokenPipeError:  # the reader of our output has closed it: `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        told = f"{error.filename or 'files'}: {error.strerror or error}"
        what = WAYS_OUT.get(type(error), "the path, its permissions and the free disk space")
        if error.errno == errno.ENOSPC:  # the error does not name a file written in pieces
            what = f"the disk that you write to, and that of {places.cache_root()} (DR_CACHE)"
        print(f"error: {visible(told)}. Check {what}.", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:  # otherwise Python reports it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        if alone:
            gc.freeze()  # otherwise Python searches those objects again at exit, for seconds
    return 1


def interrupt(number: int, _: object) -> NoReturn:
    """End as Ctrl-C does, so that what is being written is whole or absent."""
    raise KeyboardInterrupt(128 + number)


def interrupt_again(lost: "sys.UnraisableHookArgs") -> None:
    """Interrupt again if Python dropped the interrupt, inside an object's finaliser."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        # a signal to the thread wakes it if it is waiting
        here = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, (here, signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(lost)


def missing(options: argparse.Namespace) -> Iterator[Path]:
    """Paths given on the command line that do not exist; what could be the name of a model is
    checked later, by the code that looks it up.
    """
    for option in ("reranker", "model"):
        given = getattr(options, option, None) or []
        for path in map(Path, given if isinstance(given, list) else [given]):
            named = option == "model" and not path.name.endswith(RECORDS)
            named = named and str(path)[0] not in "./~"
            if not named and not path.expanduser().exists():
                yield path
    place = str(getattr(options, "collection", None) or "")
    # the code that reads a record's file looks for it
    path = place[:1] in ("/", ".", "~") and not place.endswith(RECORDS)
    if path and places.find_data(place) is None:
        yield Path(place)


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line, without the usage before it; `words` are its
    commands or options, `last` its optional positional arguments with their types.
    """

    words: Sequence[str] = ()
    last: Mapping[str, Callable[[str], Any]] = {}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Let each command refuse unknown arguments itself: it can suggest a similar one."""
        options, others = super().parse_known_args(args, namespace)
        # before Python 3.12.7 argparse does not accept such an argument after an option
        for name, kind in self.last.items():
            if others and others[0][:1] != "-" and getattr(options, name) is None:
                setattr(options, name, kind(others.pop(0)))
        if others:
            self.error(f"unrecognized arguments: {' '.join(others)}")
        return options, []

    def error(self, message: str) -> NoReturn:
        """Print the line, suggest a similar word, and exit."""
        wrong = re.search(r"(?:choice: '|arguments: )([^'\s=]+)", message)
        meant = similar(wrong[1], self.words) if wrong else ""
        self.exit(2, f"error: {visible(message)}. {meant}See: {self.prog} --help\n")


class Prompts(argparse.Action):
    """Prefixes of queries and passages for the preceding `--system` or `--model`."""

    def __call__(self, parser: Any, options: Any, texts: Any, name: str | None = None) -> None:
        """Add the pair of prefixes under that name."""
        encoders = getattr(options, "system", None) or getattr(options, "model", None)
        if not encoders:
            parser.error("argument --prompts: name the encoder before it")
        stated = dict(zip(("query", "passage"), texts, strict=True))
        options.prompts = (options.prompts or {}) | {str(encoders[-1]): stated}


def count(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def amount(text: str) -> float:
    """A number above 0."""
    with suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def parameters(given: list[list[str]]) -> dict[str, Any]:
    """The values of `-p KEY VALUE`, parsed as YAML; `InputError` names an invalid value's key."""
    from dr_lib.files import parse_yaml  # imports numpy, which help does not need

    return {name: parse_yaml(value, f"-p {name} {reprlib.repr(value)}") for name, value in given}


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    text = argparse.RawDescriptionHelpFormatter
    top = Parser(
        prog="dr-lib",
        description="Dense retrieval, reproducible.",
        epilog=EXAMPLES,
        formatter_class=text,
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    top.words = words = ["--help"]

    def command(name: str, run: Callable[[argparse.Namespace], int | None]) -> Callable[..., None]:
        own = "\n".join(
            line for line in EXAMPLES.splitlines() if line.startswith(f"  dr-lib {name} ")
        )
        examples = f"Examples:\n{own}" if own else None
        added = commands.add_parser(
            name, help=run.__doc__, description=run.__doc__, epilog=examples, formatter_class=text
        )
        added.set_defaults(command=run)
        words.append(name)
        added.words = options = ["--help"]
        added.last = last = {}

        def option(*names: str, **given: Any) -> None:
            added.add_argument(*names, **given)
            options.extend(name for name in names if name.startswith("-"))
            if given.get("nargs") == "?":
                last[names[0]] = given.get("type", str)

        return option

    tried = command("try", try_folder)
    formats = "corpus.jsonl with queries.jsonl and qrels/, or text (.txt .md .rst .adoc .html)"
    tried(
        "collection",
        help=f"a folder ({formats}), a .jsonl or .csv, or a known name; at least 10 passages",
    )
    tried(
        "--ask",
        action="append",
        default=[],
        metavar="TEXT",
        help="a question whose answers the page shows; may be repeated",
    )
    tried(
        "--system",
        action="append",
        default=[],
        help="an encoder (folder or name; `make models` installs all-MiniLM-L6-v2) or a"
        " pre-training method to compare; may be repeated",
    )
    prompts = {
        "nargs": 2,
        "action": Prompts,
        "metavar": ("QUERY", "PASSAGE"),
        "help": 'prefixes of texts for the encoder named before (E5: "query: " "passage: ")',
    }
    twice = "; an encoder named twice is compared without them too"
    tried("--prompts", **prompts | {"help": prompts["help"] + twice})
    tried(
        "--scale",
        default="laptop",
        help="amount of training (default: laptop, at most half an hour on two cores)",
    )
    tried(
        "--judged",
        type=Path,
        metavar="FILE",
        help="to-judge.csv of an earlier run, filled in: test on its judgements",
    )
    tried("--minutes", type=amount, default=30, help="time for everything (default: 30)")
    tried("--to", type=Path, help="folder for page and retriever (default: NAME-tried)")

    ledger = command("ledger", show_ledger)
    ledger("--scale", help="records of one scale only")
    ledger("--json", action="store_true", help="machine-readable")

    pretrain = command("pretrain", pretrain_base)
    pretrain("collection", help="the passages; queries are not needed")
    pretrain(
        "--base",
        default="embedded",
        help="masked LM to start from: a folder or a name on the hub (default: embedded)",
    )
    pretrain("--objective", default="retromae", help="pre-training method (default: retromae)")
    pretrain("--steps", type=count, required=True, help="updates of the weights")
    pretrain("--to", type=Path, required=True, help="the new folder")
    pretrain(
        "-p",
        "--parameter",
        nargs=2,
        action="append",
        default=[],
        metavar=("KEY", "VALUE"),
        help="any key of a recipe",
    )
    pretrain(
        "--time-budget",
        type=amount,
        metavar="MINUTES",
        help="stop after this time with status 75; the same command continues",
    )

    publish = command("publish", publish_records)
    publish("study", help="for instance simlm/table08; or a file of records from another machine")
    publish("--scale", help="scale of the study")
    publish("--collection", help="records on one collection only")
    publish(
        "--yes",
        action="store_true",
        help="also publish records on your own text: query ids and scores go into the book",
    )

    verify = command("verify", verify_record)
    verify("record", nargs="?", help="a study of the book, such as simlm/table08, or a file")
    verify("label", nargs="?", help="the configuration; for a file, a line number works too")
    verify("--seed", type=int, help="the seed (default: the lowest)")
    verify("--on", help="the collection that was searched, if the study has several")
    verify("--scale", help="scale of the record (default: the first that has the study)")
    verify(
        "--cheapest",
        action="store_true",
        help="of the trained records whose data are here, the one that took the least time",
    )
    verify(
        "--margin",
        type=amount,
        default=0.5,
        help="tolerated difference of a mean, in points (default: 0.5, or what two trainings"
        " differ by)",
    )
    verify("--collection", help="folder of its collection, if it is not found by name")
    verify("--keep", action="store_true", help="add the certificate to the record in the book")

    export = command("export", export_model)
    export(
        "model",
        nargs="?",
        type=Path,
        help="a record of this machine, or a folder with a saved model",
    )
    export("--study", help="instead of a record: its study, for instance simlm/table08")
    export("--label", help="... and configuration, for instance '30%% / 50%%'")
    export("--seed", type=int, help="... and seed (default: the lowest)")
    export("--scale", help="... and scale (default: laptop)")
    export("--name", help="title of the card")
    export(
        "--run",
        action="store_true",
        help="the run's ranking in place of the model: a TREC run file with judgements",
    )
    export("--to", type=Path, required=True, help="the new folder, or file")

    search = command("search", search_collection)
    search("collection", help="a collection, or a record: its collection and its model")
    search("query", nargs="?", help="the question (default: one a line from standard input)")
    search(
        "--model",
        type=Path,
        action="append",
        default=[],
        help="a retriever: folder, record, or name of an encoder",
    )
    search(
        "--reranker",
        type=Path,
        help="folder of a cross-encoder that re-ranks the first 100 passages",
    )
    search("--prompts", **prompts)
    search("--no-bm25", action="store_true", help="leave BM25 out")
    search("-k", type=count, default=5, help="passages shown (default: 5)")
    search("--json", action="store_true", help="one line of JSON per question")

    made = command("data", make_collection)
    made("name", nargs="?", help="a collection of the records (default: list them)")
    made("--to", type=Path, help="the new folder (default: NAME under DR_DATA)")
    made("--from", dest="source", type=Path, help="folder of its public files (default: download)")
    made("--allow-changes", action="store_true", help="keep it even if its digest differs")
    return top


def check_record(given: str | Path | None) -> None:
    """Refuse a file that is not a record, before the libraries are imported."""
    if given and Path(given).is_file() and not str(given).endswith(RECORDS):
        fix = "Give a record (.jsonl.xz or .json), a folder, or the name of a study."
        raise InputError("is not a record", where=given, fix=fix)


def check_public(records: Iterable["Record"], consent: bool) -> None:
    """Refuse to publish records on private text (`sheets.is_public`) without consent, and always
    those that could be mistaken for a collection of the book.
    """
    from dr_book.data.sheets import is_public, sheets

    own = [record for record in records if not is_public(record)]
    for name in (record.searched_on["name"] for record in own):
        if name in {sheet.name for sheet in sheets()}:
            problem = "the book has another collection of this name"
            raise InputError(problem, where=name, fix="Rename its folder and run again.")
        if not consent:
            problem = "query ids and scores of your own text would go into the book"
            raise InputError(problem, where=name, fix="Add --yes if they may be public.")


def check_collection(name: str, *written: Path) -> "Collection":
    """Load and check a collection before the model libraries are imported, which takes seconds, and
    its place before those that read it. Nothing may be written inside it, the cache included.
    """
    place = places.find_data(name)
    for target in (*written, places.cache_root()):
        check_outside(target, name)
    if name.strip() and place is None and not name.startswith(places.BUILT_IN):
        raise places.unknown_collection(name)
    if place and place.is_dir() and not any(place.iterdir()):
        fix = "Give a folder with text files (.txt, .md, .rst, .adoc, .html) or corpus.jsonl."
        raise InputError("the folder is empty", where=place, fix=fix)
    from dr_lib import collections

    collection = collections.load(name)
    if left_out(collection):
        print(visible(collection.info["read"]), file=sys.stderr)
    return collection


def announce(what: str) -> None:
    """Say on a terminal what the next seconds are for: the model libraries take long to load."""
    if sys.stderr.isatty():
        print(f"{visible(what)} ...", file=sys.stderr, flush=True)


def left_out(collection: "Collection") -> bool:
    """Whether files of a collection were not read: its `read` names them after a semicolon."""
    return "; " in collection.info.get("read", "")


def untaken(collection: str) -> Path:
    """Where `try` writes by default: NAME-tried in the current folder, or beside the collection if
    the current folder is inside it.
    """
    place = (places.find_data(collection) or Path(collection)).resolve()
    beside = place.is_dir() and Path.cwd().is_relative_to(place)
    return (place.parent if beside else Path()) / f"{place.name.split('.')[0]}-tried"


def try_folder(options: argparse.Namespace) -> int:
    """compare BM25, real models and trained retrievers on your text, and write a page of it"""
    started = time.monotonic()  # what follows may take half a minute on a busy machine
    announce(f"reading {options.collection}; this takes {options.minutes:g} minutes at most")
    os.environ.setdefault("TQDM_LEAVE", "")  # read when tqdm is imported: removes finished bars
    check_queries(options.ask, 1)
    sort_systems(options.system)
    folder = options.to or untaken(options.collection)
    check_collection(options.collection, folder)
    from dr_book import own_corpus
    from dr_book.export import EXPORT
    from dr_book.hand_judgements import judged_collection
    from dr_lib import collections
    from dr_lib.files import check_replaceable
    from dr_lib.lab import StudyError
    from dr_lib.stages import TimeIsUpError

    page, retriever, there = folder / "index.html", folder / "retriever", folder.exists()
    # the export will import as much again, on a machine that is as busy
    gone = 2 * (time.monotonic() - started) / 60
    try:
        if folder.exists() and not folder.is_dir():
            raise InputError("is a file", where=folder, fix="Name a new or empty folder (--to).")
        names = sorted(path.name for path in folder.glob("[!.]*"))
        others = [name for name in names if not name.endswith(WRITTEN)]
        if others and not page.exists():  # a user may keep other files beside a page of try
            problem = f"contains {others[0]}, which try did not write"
            raise InputError(problem, where=folder, fix="Name a new or empty folder (--to).")
        check_replaceable(retriever, EXPORT)
        if page.is_dir() or (
            page.is_file()
            and "<h1>Which retriever for " not in page.read_text(encoding="utf-8", errors="replace")
        ):
            raise InputError(
                "already exists and was not written by try",
                where=page,
                fix="Name a new folder (--to).",
            )
        # before half an hour of work: can anything be written there?
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
        with redirect_stdout(sys.stderr):  # progress; only the result goes to stdout
            source = options.collection
            if options.judged:
                whole = collections.load(source)
                source = judged_collection(whole, options.judged, folder / f"{whole.name}-judged")
            compared = own_corpus.compare(
                source,
                options.system,
                scale=options.scale,
                minutes=options.minutes,
                gone=gone,
                prompts=options.prompts,
                # the results so far, before anything is trained: the rest may be interrupted
                show=lambda first: first.save_page(page, options.ask),
            )
            exported = compared.export(retriever)
            pool = compared.save_to_judge(folder / "to-judge.csv")
            compared.save_page(page, options.ask, exported)
    except TimeIsUpError as unfinished:
        print(unfinished, file=sys.stderr)
        return UNFINISHED
    except StudyError as failed:
        print(f"error: {visible(str(failed))}", file=sys.stderr)
        return 1
    finally:
        if not there:
            with suppress(OSError):
                folder.rmdir()  # if nothing was written
    whole = compared.collection
    said = [None if left_out(whole) else whole.info.get("read")]  # otherwise said at the start
    said += [compared.uneven, *compared.hard_to_read, compared.trained_on_test]
    said += [compared.verdict.plain, compared.chosen_by, compared.untrainable]
    print(visible("\n".join(filter(None, said))))
    ready = exported / "search.py"
    if pool:
        print(f"to judge: {pool} (then run again with --judged and that file)")
    search = "search" if compared.runs else "search by BM25, not yet compared"
    ends = f"{search}: {ready}" if ready.is_file() else f"retriever: {exported}"
    print(f"page: {page}\n{ends}")
    return 0


def make_collection(options: argparse.Namespace) -> None:
    """make one of the records' collections from its public files, and check its digest"""
    from dr_book.data.sheets import sheet, sheets

    if not options.name:
        for known in sheets():
            print(f"{known.name:<22}{known.title}\n{'':<22}{known.command or 'made by a run'}")
        return
    known, root = sheet(options.name), places.data_root()
    if not options.to and not root:
        raise InputError("no folder given", where="--to", fix="Give one, or set DR_DATA.")
    from dr_book.data.make import make

    to = options.to or root / known.name
    print(make(known, to, options.source, allow_changes=options.allow_changes))


def show_ledger(options: argparse.Namespace) -> None:
    """list the papers' claims with their verdicts"""
    announce("judging each claim by the book's records")
    from dr_book.ledger import ledger, ledger_lines

    entries = ledger(options.scale)
    print(
        visible(json.dumps(entries, indent=1, ensure_ascii=False))
        if options.json
        else "\n".join(ledger_lines(entries))
    )


def pretrain_base(options: argparse.Namespace) -> int:
    """pre-train a masked LM on your own passages, for transformers and sentence-transformers"""
    announce(f"reading {options.collection}")
    check_collection(options.collection, options.to)
    from dr_book.pretrain import pretrain
    from dr_lib.lab import Recipe
    from dr_lib.stages import TimeIsUpError
    from dr_lib.training import TrainingError

    recipe = Recipe(collection=options.collection, base=options.base, objective=options.objective)
    recipe = recipe.with_(pretraining__steps=options.steps).with_(**parameters(options.parameter))
    try:
        print(
            "\n".join(
                str(path) for path in pretrain(recipe, options.to, minutes=options.time_budget)
            )
        )
    except TimeIsUpError as unfinished:
        print(unfinished, file=sys.stderr)
        return UNFINISHED
    except TrainingError as failed:  # a learning rate that is far too high
        print(f"error: {visible(str(failed))}", file=sys.stderr)
        return 1
    return 0


def publish_records(options: argparse.Namespace) -> None:
    """copy this machine's records of a study into the book, or those of a file"""
    is_file = options.study.endswith(RECORDS)
    check_record(options.study)
    if not is_file and not options.scale:
        fix = "Give --scale laptop, or that of its notebook."
        raise InputError("no scale given", where=options.study, fix=fix)
    announce(f"looking for the records of {options.study}")
    from dr_book.search import unknown_study
    from dr_lib.lab.records import live_folder, load_records, publish, read_all

    if is_file:
        records = read_all(Path(options.study))
    else:
        records = load_records(live_folder(options.scale), options.study)
        if not records:
            raise unknown_study(options.study, options.scale, live=True)
    found = [
        record for record in records if options.collection in (None, record.searched_on["name"])
    ]
    if not found:
        raise InputError(
            f"no records on {options.collection}",
            where=f"{options.study} at {options.scale}" if options.scale else options.study,
            fix=f"There are: {', '.join({one.searched_on['name']: 0 for one in records})}.",
        )
    check_public(found, options.yes)
    changed = publish(found)
    for path in changed:
        print(path)
    if not changed:
        print("unchanged: the book had these records already", file=sys.stderr)
    altered = [record for record in found if record.commit.get("changed")]
    if altered:
        print(
            f"{len(altered)} of {len(found)} records were made by uncommitted code, which nobody"
            " can check out. Commit it, run the study again and publish that.",
            file=sys.stderr,
        )


def verify_record(options: argparse.Namespace) -> int:
    """repeat a recorded run and say whether its scores come out again"""
    if options.cheapest == bool(options.record):
        problem, fix = "no record given", "Name a study or a file, or use --cheapest."
        if options.cheapest:
            problem, fix = "both a record and --cheapest are given", "Leave one of the two out."
        raise InputError(problem, where="verify", fix=fix)
    check_record(options.record)
    announce("looking for the record")
    from dr_book import verify
    from dr_lib.stages import spell_seconds

    record = (
        verify.cheapest()
        if options.cheapest
        else verify.find(
            options.record, options.label, seed=options.seed, scale=options.scale, on=options.on
        )
    )
    took = spell_seconds(verify.cost(record))
    made = f"{record.study}, {record.label}, seed {record.seed}"
    print(f"{made}: took {took} when it was recorded", flush=True)
    certificate = verify.verify(record, collection=options.collection, margin=options.margin)
    print("\n".join(verify.certificate_lines(record, certificate)))
    if options.keep:
        print(verify.keep(record, certificate))
    return 0 if certificate["outcome"] in verify.GOOD else 1


def export_model(options: argparse.Namespace) -> None:
    """write a trained model as a folder for sentence-transformers, with its card, or a run for
    trec_eval
    """
    if (options.model is None) == (options.study is None):
        raise InputError(
            "give a record, a folder, or --study",
            where="export",
            fix="Exactly one of them names the model.",
        )
    unread = {
        "label": options.model,
        "seed": options.model,
        "scale": options.model,
        "name": options.run,
    }
    for name in (
        one for one, other in unread.items() if other and getattr(options, one) is not None
    ):
        fix = (
            "It selects a run of --study."
            if name != "name"
            else "It is the title of a model's card: leave --run out."
        )
        raise InputError(f"--{name} has no effect here", where="export", fix=fix)
    check_record(options.model)
    announce(f"opening {options.model or options.study}")
    from dr_book.export import export, export_run
    from dr_book.search import find_record
    from dr_lib.lab.records import load_record

    model = options.model or find_record(
        options.study, options.label, seed=options.seed, scale=options.scale or "laptop"
    )
    if options.run and isinstance(model, Path) and model.is_dir():
        raise InputError(
            "the folder of a model has no run",
            where=model,
            fix="Give the record of a run, or --study.",
        )
    if options.run:
        written = export_run(load_record(model) if isinstance(model, Path) else model, options.to)
    else:
        written = export(model, options.to, name=options.name)
    print("\n".join(map(str, written)))


def search_collection(options: argparse.Namespace) -> None:
    """search a collection with BM25 and trained models"""
    # read when tqdm is imported: bars appear for long work only, and vanish at its end
    os.environ |= {"TQDM_LEAVE": "", "TQDM_DELAY": "1"}
    # mistakes are reported before the model libraries are imported, which takes seconds
    check_queries([] if options.query is None else [options.query], options.k)
    check_encoders(options.model)
    encoders = [
        str(path) for path in options.model if word_of(str(path), methods()) not in methods()
    ]
    check_prompts(options.prompts or {}, encoders)
    announce(f"reading {options.collection}")
    collection = None
    if not options.collection.endswith(RECORDS):  # otherwise perhaps a record
        collection = check_collection(options.collection)
        check_trained(options.model, collection)
    if collection and not (options.model or options.reranker or options.no_bm25):
        searcher = Searcher(collection, {"BM25": open_bm25(collection)})
    else:
        from dr_book.search import searcher_for

        searcher = searcher_for(
            options.collection,
            options.model,
            options.reranker,
            bm25=not options.no_bm25,
            prompts=options.prompts,
        )
    width, asked = shutil.get_terminal_size((100, 24)).columns, False
    for query in [options.query] if options.query is not None else questions():
        (result,) = searcher.search([query.strip()], options.k)
        print(result.as_json() if options.json else result.as_text(width) + "\n", flush=True)
        asked = True
    if not asked and not sys.stdin.isatty():
        raise InputError(
            "no question",
            where="standard input",
            fix="Write one a line, or give one after the collection.",
        )


def questions() -> Iterator[str]:
    """Questions from standard input, one a line; on a terminal each is prompted for, until an empty
    line or Ctrl-D.
    """
    if not sys.stdin.isatty():
        yield from filter(None, (line.strip().removeprefix("\ufeff") for line in sys.stdin))
        return
    with suppress(EOFError):
        while question := input("question (empty to leave): ").strip():
            yield question


if __name__ == "__main__":
    sys.exit(main())
