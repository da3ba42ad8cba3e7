"""A headless browser for tests: Debian's Chromium, without network. `.ci/run` installs it where it may."""

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # the superuser of a container has no other choice
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=3000",
)


def visit(page: Path, profile: Path, *options: str, query: str = "") -> subprocess.CompletedProcess[str]:
    """Open a page from disk as a reader would; what it says stands on stderr."""
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", *options, f"{page.as_uri()}{query}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)


def complaints(visited: subprocess.CompletedProcess[str]) -> list[str]:
    """Errors that the page's scripts, styles and pictures met."""
    lines = [line for line in visited.stderr.splitlines() if ":CONSOLE" in line or "Refused to" in line]
    return [line for line in lines if any(word in line for word in ("Error", "error", "Failed", "Refused", "blocked"))]
