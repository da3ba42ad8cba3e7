"""Everything that `make gpu` needs without a network, in a folder to copy with the checkout.

    python benchmarks/carry.py pack [--to .carry] [--python 3.12] [--mib 64] [--lacks NAME ...]
    python3 benchmarks/carry.py run [options of gpu.py]        there, with that machine's Python

`pack` writes the collections of the queue, those needed by its first rows first, as far as they
fit; the packages that the machine lacks, as wheels of the locked versions; and a list with digests.
Checkout and folder together are limited to `--mib`. `run` checks the files, unpacks them in place
and starts gpu.py. The base model `embedded` is part of the checkout; a run with another base model
trains that first.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# a training machine has torch, transformers, accelerate, pandas, scikit-learn and pytest
LACKS = ["annotated-types", "bm25s", "datasets", "dill", "hypothesis", "ir-datasets", "ir-measures"]
LACKS += ["lz4", "multiprocess", "pydantic", "pydantic-core", "pystemmer", "pytrec-eval-terrier"]
LACKS += ["sortedcontainers", "typing-inspection", "xxhash"]
LIST = "carried.json"
# best compression ratio: a collection that would be too large even so is skipped
LEAST = {".gz": 0.4}
LEAST_OF_TEXT = 0.15


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# Here ---------------------------------------------------------------------------------------------


def wheels(to: Path, names: Sequence[str], python: str) -> None:
    """Download wheels of the locked versions for Linux on x86-64."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, flags=re.MULTILINE))
    wanted = [f"{name}=={pins[name]}" if name in pins else name for name in names]
    tags = ["manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux2014_x86_64"]
    platforms = [word for tag in tags for word in ("--platform", tag)]
    there = ["--python-version", python, "--implementation", "cp", "--only-binary", ":all:"]
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--dest", str(to)]
    pip = [sys.executable, "-m", "pip", "download", *options, *there, *platforms, *wanted]
    subprocess.run(pip, check=True)


def collections() -> list[Path]:
    """Folders of the collections that the queue's trainings read, in the order of its rows; then
    those that are searched zero-shot, the smallest first.
    """
    sys.path.insert(0, str(ROOT))
    from plan_queue import searched, tasks  # imports torch, so only here

    from dr_lib.places import find_data

    queue = tasks()
    trained = dict.fromkeys(name for task in queue for name in task.reads())
    asked = {task.entry.collection for task in queue}
    others = {name for trained_on in asked for name in searched(trained_on)} - trained.keys()

    first, then = (
        [path for path in map(find_data, names) if path and path.is_dir()]
        for names in (trained, sorted(others))
    )
    return first + sorted(then, key=size)


def packed(folder: Path, to: Path) -> Path:
    """A collection as one file, with plain text inside, which compresses far better than files that
    are already compressed.
    """
    target = to / f"{folder.name}.tar.xz"
    with tarfile.open(target, "w:xz", preset=9) as tar:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder.parent)
            if path.is_file() and path.suffix == ".gz":
                content = gzip.decompress(path.read_bytes())
                member = tarfile.TarInfo(name.with_suffix("").as_posix())
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            elif path.is_file():
                tar.add(path, name.as_posix())
    return target


def least(folder: Path) -> float:
    """A lower bound for the compressed bytes of a collection."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sum(path.stat().st_size * LEAST.get(path.suffix, LEAST_OF_TEXT) for path in files)


def checkout_size() -> int:
    """Bytes of the files tracked by git."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT).decode().split("\0")
    return sum((ROOT / name).stat().st_size for name in listed if (ROOT / name).is_file())


def pack(to: Path, names: Sequence[str], python: str, mib: float) -> list[str]:
    """Fill the folder; return the names of the collections that did not fit."""
    to.mkdir(parents=True, exist_ok=True)
    for kind in ("*.whl", "*.tar.xz"):
        for earlier in to.glob(kind):
            earlier.unlink()
    wheels(to, names, python)
    room = mib * 2**20 - checkout_size() - sum(path.stat().st_size for path in to.glob("*.whl"))
    left_out = []
    for folder in collections():
        if least(folder) > room:
            left_out.append(folder.name)
            continue
        path = packed(folder, to)
        if path.stat().st_size > room:
            path.unlink()
            left_out.append(folder.name)
        else:
            room -= path.stat().st_size
    files = sorted(path for path in to.iterdir() if path.suffix in (".whl", ".xz"))
    if room < 0:
        raise SystemExit(f"checkout and wheels alone are {-room / 2**20:.1f} MiB too large")
    content = {path.name: digest(path) for path in files}
    (to / LIST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    carried = sum(path.stat().st_size for path in files)
    print(f"{to}: {len(files)} files, {carried / 2**20:.1f} MiB; {room / 2**20:.1f} MiB are left")
    if left_out:
        print(f"left out, as they do not fit: {', '.join(left_out)}")
    return left_out


# There --------------------------------------------------------------------------------------------


def unpack(to: Path) -> dict[str, str]:
    """Check and unpack the folder; return the environment variables that point to its parts."""
    known = json.loads((to / LIST).read_text(encoding="utf-8"))
    for name, expected in known.items():
        if not (to / name).is_file() or digest(to / name) != expected:
            raise SystemExit(f"{to / name} differs from what was packed: copy the folder again")
    site, data = to / "site", to / "data"
    if not (to / "unpacked").is_file():
        carried = [str(to / name) for name in known if name.endswith(".whl")]
        options = ["--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(site)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *carried], check=True)
        for name in known:
            if name.endswith(".tar.xz"):
                with tarfile.open(to / name) as tar:
                    tar.extractall(data, filter="data")
        (to / "unpacked").touch()
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
        "DR_DATA": str(data),
        "HF_HUB_OFFLINE": "1",
    }


def run(to: Path, options: Sequence[str]) -> int:
    """Unpack, check whether anything is missing, and start gpu.py."""
    env = os.environ | unpack(to)
    path = os.pathsep.join([str(ROOT), env["PYTHONPATH"]])
    look = [sys.executable, "-c", "import dr_lib.lab"]
    found = subprocess.run(look, env=env | {"PYTHONPATH": path}, capture_output=True, text=True)
    if missing := re.search(r"No module named '([\w.]+)'", found.stderr):
        raise SystemExit(f"this machine lacks {missing[1]} too: pack it with --lacks")
    if found.returncode:
        raise SystemExit(found.stderr)
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *options]
    return subprocess.run(command, env=env, check=False).returncode


def main() -> int:
    """Pack here, or run there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pack", "run"))
    parser.add_argument("--to", type=Path, default=ROOT / ".carry", help="the folder")
    parser.add_argument("--python", default="3.12", help="version there")
    parser.add_argument("--mib", type=float, default=64, help="checkout and folder together")
    parser.add_argument("--lacks", nargs="+", default=[], help="further packages that it lacks")
    chosen, others = parser.parse_known_args()
    if chosen.what == "run":
        return run(chosen.to.resolve(), others)
    pack(chosen.to.resolve(), [*LACKS, *chosen.lacks], chosen.python, chosen.mib)
    return 0


if __name__ == "__main__":
    sys.exit(main())
