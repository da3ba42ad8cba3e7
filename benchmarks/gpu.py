"""This project on a GPU, in one call of at most nine minutes: `make gpu`.

    python benchmarks/gpu.py [--minutes 9] [--only queue] [--to _build/gpu] [--smoke]

The parts, in order: facts and two ceilings of the device; a training that has it alone, eager,
compiled and with CUDA graphs; the tests that need a GPU; the speed of steps (bench_device.py);
encoding and search compared with other libraries; then missing runs of the plan, several in
parallel (plan_queue.py).
Half of the time is reserved for the queue, as only a finished run is worth something; parts that do
not fit into the other half are left for the next call. If there are many cores, one of them
meanwhile builds shared inputs of the first runs that need no GPU (tokens, BM25's rankings). Each
part has a time limit, and its file is written when it ends, so that an interrupted call keeps its
results. The next call skips finished parts and continues with the queue.
`--smoke` tries all of it at the smallest size, also on a processor, with one thread: on a busy
machine, threads that wait for each other take minutes. Page: practice/gpu.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "benchmarks"
FILES = (  # the files of a call, in the order of writing
    "facts.json",
    "parts.json",
    "training.json",
    "profile.txt",
    "bench.json",
    "peers.json",
    "records.jsonl.xz",
    "summary.md",
)
TAIL = 3000  # characters of a part's output that are kept
MOST_WORKERS, GIB_EACH = 17, 4  # in parallel on one GPU; memory that each may need
FEW = 4  # with up to this many cores, none is taken away from the measured parts
LAST = 12  # seconds at the end for stopping workers and writing results
QUEUE_SHARE = 0.5  # the queue's least share of a call's time
ONE_THREAD = {"OMP_NUM_THREADS": "1", "DR_THREADS": "1"}
IN_PART = 75  # exit status of a part that ran out of time (EX_TEMPFAIL of sysexits.h)


class Part(NamedTuple):
    """A part of a call.

    Attributes:
        name: as in the summary.
        seconds: time limit of its commands together.
        least: with fewer seconds left, it is postponed to the next call.
        commands: run in order; SECONDS in an option stands for the seconds that the part has.
    """

    name: str
    seconds: int
    least: int
    commands: list[list[str]]


def script(name: str, *options: Any) -> list[str]:
    """The command that runs a script in this folder."""
    return [sys.executable, str(HERE / f"{name}.py"), *map(str, options)]


def parts(to: Path, smoke: bool, cuda: bool) -> list[Part]:
    """All parts but the queue."""
    small = ["--smoke"] if smoke else []
    device = ["--device", "cuda"] if cuda else []
    model = ["--passages", 4000, "--repeats", 2, "--layers", 6, "--hidden", 384]
    vectors = ["--passages", 100_000, "--queries", 50, "--hidden", 768, "--threads", cores()]
    if smoke:
        model = ["--passages", 200, "--repeats", 1]
        vectors = ["--passages", 500, "--queries", 5, "--hidden", 32]
    kept = ["--save", to / "peers.json"]
    searching = script("bench_search", *vectors, "--repeats", 1, "--top", 100, *kept)
    if not importlib.util.find_spec("faiss"):
        searching = [sys.executable, "-c", "print('no faiss here: search was not compared')"]
    alone = script("gpu_parts", "training", "--to", to, *small)
    bench = script("bench_device", "--to", to, "--seconds", "SECONDS", "--go-on", *small)
    return [
        Part("facts", 40, 5, [script("gpu_parts", "facts", "--to", to)]),
        Part("training", 130, 60, [alone]),
        Part("tests", 100, 50, [cuda_tests(smoke)]),
        Part("bench", 150, 30, [bench]),
        Part("peers", 70, 50, [script("bench_encode", *device, *model, *kept), searching]),
    ]


def cuda_tests(smoke: bool) -> list[str]:
    """The tests marked for a GPU, in parallel if xdist is installed."""
    files = [
        str(path)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "mark.cuda" in path.read_text(encoding="utf-8")
    ]
    beside = importlib.util.find_spec("xdist") and not smoke
    workers = ["-n", str(min(8, cores()))] if beside else []
    # one line per failure, with place and message
    shown = ["--tb=line", "--show-capture=no", "--disable-warnings"]
    options = ["-q", "-m", "cuda", "-p", "no:cacheprovider", *shown, *workers]
    return [sys.executable, "-m", "pytest", *options, *files]


def cores() -> int:
    """Processor cores that this process may use."""
    usual = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if usual else os.cpu_count() or 1


def environment() -> dict[str, str]:
    """This process's environment, with this checkout first on the import path."""
    path = [str(ROOT), str(ROOT / "book"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def run(part: Part, seconds: float) -> dict[str, Any]:
    """Run the commands of a part; one that exceeds its time is stopped with its child processes."""
    began, told, code = time.monotonic(), "", 0
    for command in part.commands:
        left = began + seconds - time.monotonic()
        process = subprocess.Popen(
            [word.replace("SECONDS", str(int(left))) for word in command],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=max(left, 0.1))
        except subprocess.TimeoutExpired:
            stop([process])
            printed, _ = process.communicate()
            printed += f"\nstopped after {seconds:.0f} s\n"
        finally:
            stop([process])
        told += printed
        code = code or process.returncode
    took = round(time.monotonic() - began, 1)
    return {"seconds": took, "code": code, "output": told[-TAIL:]}


def stop(processes: Sequence[subprocess.Popen], patience: float = 0) -> None:
    """End processes together with their children."""
    for sent in (signal.SIGTERM, signal.SIGKILL) if patience else (signal.SIGKILL,):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, sent)
        end = time.monotonic() + patience
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            time.sleep(0.1)


@contextmanager
def shared_device(folder: Path) -> Iterator[dict[str, str]]:
    """Nvidia's MPS inside a block, if it can be started: it lets kernels of several processes run
    at the same time instead of in turn. Yields the environment variables that point to it.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    places = {"CUDA_MPS_PIPE_DIRECTORY": "pipe", "CUDA_MPS_LOG_DIRECTORY": "log"}
    variables = {name: str(folder / f"mps-{inside}") for name, inside in places.items()}
    for place in variables.values() if control else ():
        Path(place).mkdir(parents=True, exist_ok=True)
    asked = {"env": os.environ | variables, "capture_output": True, "timeout": 20}
    try:
        started = control and not subprocess.run([control, "-d"], **asked).returncode
    except subprocess.TimeoutExpired:
        started = False
    try:
        yield variables if started else {}
    finally:
        if started:
            subprocess.run([control], input=b"quit\n", **asked)


@contextmanager
def preparing(claims: Path, seconds: float) -> Iterator[None]:
    """While a block runs, one process builds the queue's inputs that need no GPU: tokens, BM25's
    rankings, negatives.
    """
    claims.mkdir(parents=True, exist_ok=True)
    command = script("plan_queue", "--prepare", "--seconds", int(seconds))
    with (claims / "prepare.log").open("w") as log:
        options = {"stdout": log, "stderr": log, "start_new_session": True}
        process = subprocess.Popen(command, cwd=ROOT, env=environment() | ONE_THREAD, **options)
    try:
        yield
    finally:
        stop([process], patience=2)


def claims_of(to: Path) -> Path:
    """The folder where workers note which tasks they have taken, and how these ended."""
    return to.parent / f"{to.name}-queue"


def work(to: Path, seconds: float, smoke: bool, count: int) -> dict[str, Any]:
    """Work on the queue with several processes, and keep the new records."""
    claims = claims_of(to)
    claims.mkdir(parents=True, exist_ok=True)
    for place in claims.glob("*.end"):
        if not place.read_text(encoding="utf-8").startswith("done"):
            place.unlink()  # failed tasks are tried again
    began = time.monotonic()
    options = ["--work", claims, "--seconds", int(seconds - LAST), "--keep", to / FILES[-2]]
    command = script("plan_queue", *options, *(["--smoke"] if smoke else []))
    with shared_device(claims) as found:
        env = environment() | found | ONE_THREAD
        processes: list[subprocess.Popen] = []
        try:
            for number in range(count):
                with (claims / f"worker-{number}.log").open("w") as log:
                    options = {"stdout": log, "stderr": log, "start_new_session": True}
                    processes.append(subprocess.Popen(command, cwd=ROOT, env=env, **options))
            while any(process.poll() is None for process in processes):
                if time.monotonic() - began > seconds:
                    break
                time.sleep(0.5)
        finally:
            stop(processes, patience=2)
    lines = [
        line
        for number in range(count)
        for line in (claims / f"worker-{number}.log").read_text(errors="replace").splitlines()
        if re.match(r"(done|stopped|failed|refused|lacks|left|kept) ", line)
    ]
    return {
        "seconds": round(time.monotonic() - began, 1),
        "code": int(any(line.startswith("failed") for line in lines)),
        "workers": count,
        "shared by MPS": bool(found),
        "output": "\n".join(sorted(set(lines)))[-TAIL:],
    }


# The summary --------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty if there is none yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(path: Path, text: str) -> None:
    """Write a file atomically, so that an interrupted call leaves the earlier one."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def summary(to: Path) -> str:
    """All results so far, as a page of Markdown."""
    facts, done = read(to / "facts.json"), read(to / "parts.json").get("parts", {})
    lines = [f"# {facts.get('device', 'A device')}, {facts.get('date', 'not finished')}", ""]
    if read(to / "parts.json").get("smoke"):
        lines += ["A trial at the smallest sizes: no time of it says anything about speed.", ""]
    if facts:
        here, most = facts["machine"], facts["ceilings"]
        versions = here["versions"]
        card = [f"{name} {value}" for name, value in facts["card"].items()]
        host = [here["cpu"], f"{here['cores']} cores", f"torch {versions.get('torch')}"]
        lines += [
            ", ".join([*card, *host, f"CUDA {facts['cuda']}", f"commit {facts['commit']['id']}"])
            + ".",
            "",
            f"Ceilings: {most['bf16 operations a second'] / 1e12:.3g} TFLOP/s in bfloat16,"
            f" {most['bytes a second'] / 1e9:.3g} GB/s copied.",
            "",
        ]
    lines += ["| part | seconds | ended |", "|---|---:|---|"]
    for name, found in done.items():
        endings = {0: "well", IN_PART: "in part"}
        ended = endings.get(found["code"], f"with an error ({found['code']})")
        lines.append(f"| {name} | {found['seconds']} | {ended} |")
    if rows := read(to / "training.json").get("rows"):
        lines += ["", "One SimLM pre-training alone:", ""]
        lines += ["| | tokens/s | ms a step | GiB | seconds in all |", "|---|---:|---:|---:|---:|"]
        lines += [
            f"| {row['way']} | {row['tokens a second']:,.0f} |"
            f" {1e3 * row['seconds a step']:.1f} | {row['memory, GiB']:.2f} |"
            f" {row['seconds in all']:.0f} |"
            for row in rows
        ]
    if rows := read(to / "peers.json").get("rows"):
        lines += ["", "Beside other libraries (share of the other's time):", ""]
        lines += [f"- {row['what']}: {row['by_median']:.2f} of {row['peer']}" for row in rows]
    if rows := read(to / "bench.json").get("rows"):
        lines += ["", "| step or way | | unit | goal | |", "|---|---:|---|---:|---|"]
        lines += [
            f"| {row['what']} | {row['value']:,.1f} | {row['unit']}, {row['how']} |"
            f" {'' if row['goal'] is None else row['goal']} |"
            f" {'' if 'met' not in row else 'met' if row['met'] else 'not met'} |"
            for row in rows
        ]
    for name, last in (("tests", 40), ("queue", 40)):
        if found := done.get(name):
            shown = found["output"].strip().splitlines()[-last:]
            lines += ["", f"{name}:", "", "```", *shown, "```"]
    for name, found in done.items():
        if found["code"] not in (0, IN_PART) and name not in ("tests", "queue"):
            lines += ["", f"{name}:", "", "```", *found["output"].splitlines()[-15:], "```"]
    if (to / FILES[-2]).is_file():
        place = Path(os.path.relpath(to / FILES[-2], ROOT)).as_posix()
        lines += ["", f"Into the book: `dr-lib publish {place}`."]
    return "\n".join(lines) + "\n"


def begin(to: Path, smoke: bool) -> dict[str, Any]:
    """The results of an earlier call at this commit and size; those of another one are removed."""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    earlier, same = read(to / "parts.json"), {"commit": head, "smoke": smoke}
    to.mkdir(parents=True, exist_ok=True)
    if {name: earlier.get(name) for name in same} != same:
        for name in FILES:
            (to / name).unlink(missing_ok=True)
        earlier = same | {"parts": {}}
    return earlier


def main() -> int:
    """Run the unfinished parts, then the queue; print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--only", nargs="+", help="parts to run, `queue` among them")
    parser.add_argument("--to", type=Path, default=ROOT / "_build" / "gpu")
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *received: sys.exit(143))  # what was started is stopped
    if chosen.smoke:
        os.environ |= ONE_THREAD
    end, to = time.monotonic() + 60 * chosen.minutes, chosen.to.resolve()

    def seconds(part: Part, left: float) -> float:
        return left if chosen.smoke else min(part.seconds, left)

    state = begin(to, chosen.smoke)

    def keep(name: str, found: dict[str, Any]) -> None:
        state["parts"][name] = found
        write(to / "parts.json", json.dumps(state, indent=1, ensure_ascii=False) + "\n")
        write(to / "summary.md", summary(to))
        print(f"{name}: {found['seconds']} s, exit {found['code']}", flush=True)

    def wanted(name: str) -> bool:
        if chosen.only and name not in chosen.only and name != "facts":
            return False
        return state["parts"].get(name, {"code": 1})["code"] != 0

    (first, *_) = parts(to, chosen.smoke, False)
    if wanted("facts"):
        keep("facts", run(first, seconds(first, end - time.monotonic())))
    facts = read(to / "facts.json")
    gpus = facts.get("machine", {}).get("gpus", [])
    if not gpus and not chosen.smoke:
        print(summary(to) + "\nNo GPU that torch sees. `make gpu SMOKE=1` tries all of it here.")
        return 1
    queued = not chosen.only or "queue" in chosen.only
    queue_time = 60 * chosen.minutes * (QUEUE_SHARE if queued and not chosen.smoke else 0)
    prepares = queued and not chosen.smoke and cores() > FEW
    with preparing(claims_of(to), end - time.monotonic()) if prepares else nullcontext():
        for part in parts(to, chosen.smoke, bool(gpus))[1:]:
            left = end - time.monotonic() - LAST - queue_time
            if wanted(part.name) and left >= (5 if chosen.smoke else part.least):
                keep(part.name, run(part, seconds(part, left)))
            elif wanted(part.name):
                print(f"{part.name}: left for the next call", flush=True)
        left = end - time.monotonic()
        if queued and left > 2 * LAST:
            keep("queue", work(to, left, chosen.smoke, workers(facts, chosen.smoke)))
    print(summary(to))
    return int(any(found["code"] not in (0, IN_PART) for found in state["parts"].values()))


def workers(facts: dict[str, Any], smoke: bool) -> int:
    """Number of workers that share the device: one per core, as far as its memory allows."""
    memory = re.match(r"\d+", facts.get("card", {}).get("memory.total", ""))
    room = int(memory[0]) // 1024 // GIB_EACH if memory else MOST_WORKERS
    return min(2 if smoke else MOST_WORKERS, cores(), max(1, room))


if __name__ == "__main__":
    sys.exit(main())
