"""Size of the two packages: `python tests/style/report.py` prints files, tokens, longest functions,
imports and hops.

The library is `dr_lib`, the apparatus of the book `book/dr_book`; each has its `BOUNDS`, in tokens:
names, operators, numbers and strings, without comments and docstrings, so that packing lines does
not help. Hops are traced in a real study at smoke scale, from its start to the first loss.
"""

import argparse
import ast
import io
import json
import os
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "dr_lib"
APPARATUS = ROOT / "book" / "dr_book"
BOUNDS = {
    "dr_lib: files": 90,
    "dr_lib: tokens": 125_000,
    "dr_book: tokens": 40_000,
    "files run before the first loss": 30,
}
PACKAGES = {"dr_lib": LIBRARY, "dr_book": APPARATUS}
COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
SHOWN = 12  # longest files and functions
Function = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def modules(*packages: Path) -> list[Path]:
    """All files of the packages (default both), the library's first."""
    return [path for package in packages or (LIBRARY, APPARATUS) for path in files(package)]


def files(package: Path) -> list[Path]:
    """All files of a package, by name."""
    return sorted(package.rglob("*.py"))


def name_of(path: Path) -> str:
    """Path inside the library, or from `dr_book` on."""
    return path.relative_to(APPARATUS.parent if APPARATUS in path.parents else LIBRARY).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def docstring_lines(path: Path) -> frozenset[int]:
    """Numbers of the lines of all docstrings."""
    documented = [
        node.body[0]
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.Module, *DEFINITIONS)) and ast.get_docstring(node) is not None
    ]
    return frozenset(
        line for text in documented for line in range(text.lineno, text.end_lineno + 1)
    )


@cache
def tokens(path: Path) -> tuple[tokenize.TokenInfo, ...]:
    """Names, operators, numbers and strings of a file; a formatted string counts as one in every
    version of Python.
    """
    counted, depth = [], 0
    begin, end = (getattr(tokenize, f"FSTRING_{name}", None) for name in ("START", "END"))
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.start[0] in docstring_lines(path):
            continue
        if not depth and token.type in (*COUNTED, begin):
            counted.append(token)
        depth += (token.type == begin) - (token.type == end)
    return tuple(counted)


@cache
def code_lines(path: Path) -> frozenset[int]:
    """Numbers of the lines with code on them."""
    spans = (range(token.start[0], token.end[0] + 1) for token in tokens(path))
    return frozenset(line for span in spans for line in span)


def import_lines(path: Path) -> int:
    """How many lines of code are imports."""
    nodes = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum(node.end_lineno - node.lineno + 1 for node in nodes)


def comments(path: Path) -> tuple[int, int]:
    """Number of comments in a file, and of `fmt: skip` among them."""
    read = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    texts = [token.string for token in read if token.type == tokenize.COMMENT]
    return len(texts), sum("fmt: skip" in text for text in texts)


def functions(path: Path) -> Iterator[tuple[str, int, Function]]:
    """Name, lines of code and node of all functions and methods."""
    for node in ast.walk(tree(path)):
        if isinstance(node, Function):
            yield (
                node.name,
                len(code_lines(path) & set(range(node.lineno, node.end_lineno + 1))),
                node,
            )


def public(path: Path) -> list[Function | ast.ClassDef]:
    """Public functions, classes, and methods of public classes, without dunder methods."""
    top = [
        node
        for node in tree(path).body
        if isinstance(node, DEFINITIONS) and not node.name.startswith("_")
    ]
    inner = [part for node in top if isinstance(node, ast.ClassDef) for part in node.body]
    return top + [
        part for part in inner if isinstance(part, DEFINITIONS) and not part.name.startswith("_")
    ]


def unannotated(path: Path) -> list[str]:
    """Public functions with an untyped argument."""
    found = []
    for node in public(path):
        if isinstance(node, Function):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            bare = [
                one.arg
                for one in arguments
                if one.annotation is None and one.arg not in ("self", "cls")
            ]
            found += [f"{name_of(path)}: {node.name}({', '.join(bare)})"] if bare else []
    return found


@cache
def imported(path: Path) -> frozenset[tuple[Path, str]]:
    """Files of the library that a file imports, anywhere in it, with the imported names."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            # from dr_lib.masking import superset: a file of that name, or a name of the folder
            for alias in node.names:
                inner = file_of(f"{node.module}.{alias.name}")
                found.add((inner, "") if inner else (file_of(node.module), alias.name))
        elif isinstance(node, ast.Import):
            found |= {
                (file_of(alias.name), "")
                for alias in node.names
                if alias.name.split(".")[0] in PACKAGES
            }
    return frozenset((target, name) for target, name in found if target not in (None, path))


@cache
def file_of(module: str) -> Path | None:
    """The file of a module of the packages; None if there is none of that name."""
    package, *inner = module.split(".")
    place = Path(PACKAGES[package], *inner)
    return next(
        (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None
    )


def circles() -> list[list[str]]:
    """Groups of files that import each other, directly or through others."""
    reach = {path: {target for target, _ in imported(path)} for path in modules()}
    while True:
        further = {
            path: near | {far for one in near for far in reach[one]} for path, near in reach.items()
        }
        if further == reach:
            break
        reach = further
    groups = {
        frozenset(one for one in near if path in reach[one])
        for path, near in reach.items()
        if path in near
    }
    return sorted(sorted(map(name_of, group)) for group in groups)


def fragments(least: int = 20) -> list[str]:
    """Files with fewer lines that only one other file imports: they are parts of it.

    Names exported by the folder's `__init__` are independent, however short.
    """
    importers: dict[Path, set[Path]] = {path: set() for path in modules()}
    for path in modules():
        for target, _ in imported(path):
            importers[target].add(path)
    short = [
        path
        for path in modules()
        if len(code_lines(path)) < least and not path.stem.startswith("__")
    ]
    return [
        f"{name_of(path)} ({len(code_lines(path))} lines, for {name_of(*importers[path])})"
        for path in short
        if len(importers[path]) == 1 and path.parent / "__init__.py" not in importers[path]
    ]


def inner_imports() -> list[str]:
    """Imports of a file inside another folder, instead of the folder itself."""
    pairs = {(path, target) for path in modules() for target, _ in imported(path)}
    apart = [
        (path, target)
        for path, target in pairs
        if path.parent != target.parent and target.parent not in PACKAGES.values()
    ]
    return sorted(
        f"{name_of(path)} <- {name_of(target)}"
        for path, target in apart
        if target.stem != "__init__"
    )


class FirstLoss(BaseException):
    """The loss that the trace waits for has been computed."""


def hops() -> tuple[list[str], int, list[str]]:
    """Trace a study at smoke scale up to SimLM's first loss.

    Returns:
        files of the library that ran before it, how many functions did, and the files that call one
        another from the study down to the loss.
    """
    ran: set[tuple[str, int, str]] = set()
    stack: list[str] = []

    def watch(frame, event: str, _) -> None:
        path = frame.f_code.co_filename
        if (
            event != "call"
            or not path.startswith(f"{LIBRARY}{os.sep}")
            or frame.f_code.co_name == "<module>"
        ):
            return
        ran.add((path, frame.f_code.co_firstlineno, frame.f_code.co_name))
        if Path(path).parent.name == "losses":
            while frame:
                stack.append(frame.f_code.co_filename)
                frame = frame.f_back
            sys.setprofile(None)
            raise FirstLoss

    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"DR_CACHE": f"{folder}/cache", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        sys.path.insert(0, str(ROOT))
        from dr_lib import lab

        write_collection(Path(folder) / "texts")
        recipe = lab.recipe_at("smoke", {}, f"{folder}/texts").with_(objective="simlm")
        study = lab.Study("style/hops", {"simlm": recipe}, [0], scale="smoke")
        with (
            Path(os.devnull).open("w") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            threading.setprofile(watch)
            sys.setprofile(watch)
            try:
                study.run()
            except FirstLoss:
                pass
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    way = [name_of(Path(path)) for path in reversed(stack) if path.startswith(f"{LIBRARY}{os.sep}")]
    return sorted({name_of(Path(path)) for path, _, _ in ran}), len(ran), list(dict.fromkeys(way))


def write_collection(folder: Path) -> None:
    """400 passages of a few words, and a query to each, in BEIR layout."""
    words = (
        "dense",
        "retriever",
        "maps",
        "queries",
        "and",
        "passages",
        "to",
        "vectors",
        "of",
        "equal",
        "length",
    )
    texts = [
        " ".join(words[(i + j * (1 + i % 7)) % len(words)] for j in range(12)) + f" {i}"
        for i in range(400)
    ]
    (folder / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        lines = [
            json.dumps({"_id": f"{name}{i}", "title": "", "text": text})
            for i, text in enumerate(texts)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    for split, numbers in (
        ("train", range(300)),
        ("dev", range(300, 330)),
        ("test", range(330, 400)),
    ):
        lines = ["query-id\tcorpus-id\tscore", *(f"queries{i}\tcorpus{i}\t1" for i in numbers)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def verdict(name: str, value: int) -> str:
    """One line: a number, its bound, and whether it holds."""
    return (
        f"{name:34}{value:>8,}  of {BOUNDS[name]:>7,} "
        f" {'within' if value <= BOUNDS[name] else 'ABOVE'}"
    )


def main() -> None:
    """Print it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--no-hops", action="store_true", help="do not run the study (a minute)")
    chosen = options.parse_args()
    weights, counts = Counter(), Counter()
    for path in modules():
        part = path.relative_to(ROOT).parts
        folder = "/".join(part[:2]) if len(part) > 2 else "dr_lib (top)"
        weights[folder] += len(tokens(path))
        counts[folder] += 1
    for folder, weight in weights.most_common():
        print(f"{folder:22}{counts[folder]:>5} files{weight:>9,} tokens")
    print()
    print(verdict("dr_lib: files", len(files(LIBRARY))))
    for name, package in PACKAGES.items():
        print(verdict(f"{name}: tokens", sum(len(tokens(path)) for path in files(package))))
    code = sum(len(code_lines(path)) for path in modules())
    noted = [comments(path) for path in modules()]
    print(
        f"{code:,} lines of code, of these imports"
        f" {sum(map(import_lines, modules())) / code:.1%}; comments {sum(n for n, _ in noted)},"
        f" fmt: skip {sum(n for _, n in noted)}"
    )
    bare = [text for path in modules() for text in unannotated(path)]
    print(f"public functions with an argument of no type: {len(bare)}", *bare, sep="\n    ")
    print("\nlongest files, in tokens")
    for path in sorted(modules(), key=lambda path: -len(tokens(path)))[:SHOWN]:
        print(f"{len(tokens(path)):>6,}  {name_of(path)}")
    print("\nlongest functions, in lines of code")
    lengths = [
        (lines, f"{name_of(path)}: {name}")
        for path in modules()
        for name, lines, _ in functions(path)
    ]
    for lines, where in sorted(lengths, reverse=True)[:SHOWN]:
        print(f"{lines:>6}  {where}")
    lists = {
        "import circles": circles(),
        "fragments": fragments(),
        "imports past a folder's door": inner_imports(),
    }
    for title, listed in lists.items():
        print(f"\n{title}: {len(listed)}", *listed, sep="\n    ")
    if not chosen.no_hops:
        ran, number, way = hops()
        print(f"\n{verdict('files run before the first loss', len(ran))}")
        print("    " + ", ".join(ran))
        print(f"functions run before it {number}")
        print(f"from the study to the loss, {len(way)} files: {' -> '.join(way)}")


if __name__ == "__main__":
    main()
