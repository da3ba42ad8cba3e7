"""Which code made a result: package versions and the commit of the checkout."""

import subprocess

from dr_lib import __version__, places


def versions() -> dict[str, str]:
    """Versions of this project, of Python and of the packages that can change a number."""
    from dr_lib.training.machine import machine_facts  # late: it brings in torch

    return {"dr_lib": __version__} | machine_facts()["versions"]


def _git(*arguments: str) -> str | None:
    if not (places.project_root() / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=places.project_root(), capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def commit() -> dict[str, str | bool | None]:
    """The commit of the checkout, and whether `dr_lib` differs from it; both None outside a checkout."""
    head = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", "dr_lib") if head else None
    return {"id": head, "changed": bool(changes) if changes is not None else None}


def commits_since(identity: str | None) -> int | None:
    """How many commits have touched `dr_lib` since `identity`; None where that cannot be said."""
    count = _git("rev-list", "--count", f"{identity}..HEAD", "--", "dr_lib") if identity else None
    return int(count) if count is not None else None
