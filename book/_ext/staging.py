"""Stages the sources of the book for Sphinx, so that only changed pages are rendered. Run by `make
book`.

Under `_build/`: `executed` has the executed notebooks, `generated` the output of
`generated_pages.py`, `source` all sources together. Files with unchanged content keep their times
there, and Sphinx renders the rest.

    python book/_ext/staging.py generate   # write the generated pages, which need no notebook
    python book/_ext/staging.py begin      # the same unless they are as new, and stage everything
    python book/_ext/staging.py finish     # note that it was built without a warning
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ("_config.yml", "_toc.yml", "requirements.lock")
UNSEEN = ("weights", "records", "data", "dr_book")  # folders of the book without pages


def files(folder: Path, pattern: str = "*") -> dict[str, Path]:
    """The files in a folder, by relative path."""
    found = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob(pattern))
        if path.is_file()
    }
    return {name: path for name, path in found.items() if "__pycache__" not in name}


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 (hex) of names and contents."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(f"{path}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\0".encode())
    return whole.hexdigest()


def behind_pages(root: Path) -> str:
    """Digest of the sources of generated pages: library, papers, lesson plan, measurements,
    records, weights.

    Also the scales, since they determine which records have an older recipe than today's.
    """
    measured = [f"book/{name}/measured" for name in ("ideas", "practice", "reference")]
    shown = ["book/papers", "book/teaching", *measured, *(f"book/{name}" for name in UNSEEN)]
    folders = ["dr_lib", "book/_ext", *shown, "notebooks/scales"]
    parts = [files(root / name) for name in folders]
    return digest(
        [root / SETTINGS[-1], *(path for part in parts for path in part.values())]
    ) + os.environ.get("SEARCHED", "")


def generate(root: Path) -> None:
    """Write the generated pages, unless nothing behind them has changed."""
    folder = root / "_build" / "generated"
    # edits while they are written cause them to be written again
    key, now = folder.with_suffix(".key"), behind_pages(root)
    if key.is_file() and key.read_text() == now:
        return
    key.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # the library of this checkout first
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "book/_ext/generated_pages.py", folder]
    # two processes write them: more threads than cores would slow each other down
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=root, check=True, env={**os.environ, **own})
    key.write_text(now)


def sources(root: Path) -> dict[str, Path]:
    """Everything that Sphinx reads, by path in the book."""
    build, found = root / "_build", {name: root / name for name in SETTINGS[:2]}
    found |= {
        name: path
        for name, path in files(root / "book").items()
        if name.split("/")[0] not in UNSEEN
    }
    for name in files(root / "notebooks", "*.ipynb"):  # a notebook that is gone stays gone
        if (build / "executed" / name).is_file():
            found[f"notebooks/{name}"] = build / "executed" / name
    return found | files(build / "generated")


def lay_out(found: dict[str, Path], target: Path) -> None:
    """Make a folder contain exactly these files; files with unchanged content are not touched."""
    old = files(target) if target.is_dir() else {}
    for name, path in found.items():
        if name not in old or old[name].read_bytes() != path.read_bytes():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
    for name in old.keys() - found.keys():
        old[name].unlink()


def whole(root: Path) -> str:
    """Digest of everything whose change requires rendering all pages: settings, extensions and
    their templates, static files, and the list of files.
    """
    names = [*files(root / "_build" / "source"), *files(root / "dr_lib", "*.py")]
    # a name that moves would be on two pages until both are rendered
    doors = files(root / "dr_lib", "__init__.py")
    writing = [
        path
        for name in ("book/_ext", "book/dr_book")
        for path in files(root / name, "*.py").values()
    ]
    settings = [*(root / name for name in SETTINGS), *writing, *doors.values()]
    return digest(settings) + hashlib.sha256("\n".join(names).encode()).hexdigest()


def begin(root: Path) -> None:
    """Stage the sources, and remove the previous build if it cannot be reused.

    That is after a build that failed or was killed (a warning must be repeated until its cause is
    fixed), with another configuration, and if a file was added or removed (a removed page must not
    stay).
    """
    build = root / "_build"
    generate(root)
    lay_out(sources(root), build / "source")
    stamp, now = build / "built.key", whole(root)
    if not stamp.is_file() or stamp.read_text() != now:
        for name in ("html", ".doctrees"):
            shutil.rmtree(build / name, ignore_errors=True)
    stamp.unlink(missing_ok=True)
    (build / "building.key").write_text(now)  # edits during the build are not in it


def finish(root: Path) -> None:
    """Remove files that no reader loads, and note that the staged sources were built without a
    warning.
    """
    html = root / "_build" / "html"
    for unread in (
        html.rglob("*.map"),  # source maps of the theme's scripts, for debugging: 3 MB
        # fonts of symbols, whose woff2 every browser that shows this book can read: 0.7 MB
        html.glob("_static/vendor/**/*.ttf"),
        html.glob("_sources/**/*.md"),  # no page links there, as they do to notebooks
        # fonts of logos and outlines, which no page uses: 0.1 MB
        html.glob("_static/vendor/fontawesome/webfonts/fa-[!s]*.woff2"),
    ):
        for path in unread:
            path.unlink()
    only_used_symbols(html)
    (root / "_build" / "building.key").replace(root / "_build" / "built.key")


SYMBOL = re.compile(
    r'(?:"([^"]+)"|([A-Za-z_$][\w$]*)):\[\d+,\d+,\[[^\]]*\],"[0-9a-f]+",(?:"[^"]*"|\[[^\]]*\])\],?'
)
"""A symbol in the theme's script: name, width, height, other names, code point, outlines."""


def only_used_symbols(html: Path) -> None:
    """Keep, of the 2,000 symbols in the theme's script, those that a page or another script uses:
    1.4 MB less.
    """
    script = html / "_static" / "scripts" / "fontawesome.js"
    if not script.is_file():
        return
    naming = [
        path
        for pattern in ("**/*.html", "_static/**/*.js")
        for path in html.glob(pattern)
        if path != script
    ]
    used = {
        name
        for path in naming
        for name in re.findall(r"\bfa-([a-z0-9-]+)", path.read_text(encoding="utf-8"))
    }
    text = script.read_text(encoding="utf-8")
    script.write_text(
        SYMBOL.sub(lambda one: one[0] if (one[1] or one[2]) in used else "", text), encoding="utf-8"
    )


if __name__ == "__main__":
    # a shell makes its background processes ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    {"generate": generate, "begin": begin, "finish": finish}[sys.argv[1]](ROOT)
