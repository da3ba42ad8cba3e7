"""A headless browser for tests: Debian's Chromium, without network. `.ci/run` installs it if
permitted.

`visit` starts one to look at a page once; `opened` returns a `Browser` that types, presses keys and
queries the page. It is driven by Chromium's DevTools protocol through a pipe, so that no package is
needed.
"""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)"
)
ALWAYS = (
    "--headless",
    "--no-sandbox",  # the superuser of a container has no other choice
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
OPTIONS = (*ALWAYS, "--enable-logging=stderr", "--virtual-time-budget=3000")
KEYS = {"Enter": (13, "\r"), "Tab": (9, "\t"), "Space": (32, " ")}
KEYS |= {"ArrowLeft": (37, ""), "ArrowUp": (38, "")}
KEYS |= {"ArrowRight": (39, ""), "ArrowDown": (40, "")}
LONGEST = 60.0  # seconds to wait for anything
SERVER_ERROR = -32000  # DevTools: the target, such as the page, has gone or does not exist yet


class PageLeftError(RuntimeError):
    """The page was left for another one before it answered."""


def visit(
    page: Path, profile: Path, *options: str, query: str = ""
) -> subprocess.CompletedProcess[str]:
    """Open a page from disk as a reader would; its messages are on stderr."""
    command = [
        CHROMIUM,
        *OPTIONS,
        f"--user-data-dir={profile}",
        *options,
        f"{page.as_uri()}{query}",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)


def complaints(visited: subprocess.CompletedProcess[str]) -> list[str]:
    """Errors of the page's scripts, styles and pictures."""
    lines = [
        line for line in visited.stderr.splitlines() if ":CONSOLE" in line or "Refused to" in line
    ]
    return [
        line
        for line in lines
        if any(word in line for word in ("Error", "error", "Failed", "Refused", "blocked"))
    ]


class Browser:
    """One tab of a running Chromium.

    Attributes:
        complaints: errors of scripts and of loading since the last visit.
        requested: addresses asked for since then.
    """

    def __init__(self, read: int, write: int):
        self._read, self._write, self._number, self._session, self._buffer = (
            read,
            write,
            0,
            None,
            b"",
        )
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self._loaded: set[str] = set()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)

    def send(self, method: str, *, within: float = LONGEST, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol; return its result, and note events of the page
        meanwhile. `TimeoutError` if it takes more than `within` seconds.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + within
        while (answer := self._next(deadline)).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            error = PageLeftError if answer["error"].get("code") == SERVER_ERROR else RuntimeError
            raise error(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("no answer from the browser")
            if not (part := os.read(self._read, 1 << 16)):
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        name, told = event.get("method"), event.get("params", {})
        if name == "Page.lifecycleEvent" and told["name"] == "load":
            self._loaded.add(told["loaderId"])
        elif name == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])
        elif name == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.complaints.append(
                details.get("exception", {}).get("description") or details["text"]
            )
        elif name == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif name == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.complaints.append(
                " ".join(str(one.get("value", one.get("description"))) for one in told["args"])
            )

    def visit(self, page: Path, query: str = "") -> None:
        """Open a page from disk and wait until it is loaded."""
        self.complaints, self.requested = [], []
        opening = self.send("Page.navigate", url=f"{page.as_uri()}{query}")
        deadline = time.monotonic() + LONGEST
        # of this page: the one before may still be loading
        while opening["loaderId"] not in self._loaded:
            self._note(self._next(deadline))

    def back(self) -> None:
        """Go back to the previous address, by the browser and not the page: a page that is left may
        end before it answers.
        """
        found = self.send("Page.getNavigationHistory")
        before = found["entries"][found["currentIndex"] - 1]
        self.send("Page.navigateToHistoryEntry", entryId=before["id"])

    def run(self, expression: str, *, within: float = LONGEST) -> Any:
        """The value of an expression in the page; a promise is awaited for `within` seconds, and an
        error is raised.
        """
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = self.send("Runtime.evaluate", within=within, **asked)
        if "exceptionDetails" in found:
            raise RuntimeError(
                found["result"].get("description", found["exceptionDetails"]["text"])
            )
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression, or its promise, is true in the page, or in one that replaces it
        meanwhile.
        """
        deadline = time.monotonic() + LONGEST
        while not self._holds(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def _holds(self, expression: str) -> bool:
        try:
            return self.run(f"Promise.resolve({expression}).then(Boolean)")
        except PageLeftError:
            return False

    def type(self, text: str) -> None:
        """Type text into the focused element."""
        self.send("Input.insertText", text=text)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key of `KEYS`, or a letter; modifiers: 2 is Ctrl, 8 is Shift."""
        code, text = KEYS.get(key, (ord(key[0].upper()), "" if modifiers & 2 else key))
        told = {
            "key": " " if key == "Space" else key,
            "windowsVirtualKeyCode": code,
            "modifiers": modifiers,
        }
        told |= {"code": key if key in KEYS else f"Key{key.upper()}"}
        with suppress(PageLeftError):  # a key that opens another page
            self.send(
                "Input.dispatchKeyEvent",
                type="keyDown" if text else "rawKeyDown",
                text=text,
                **told,
            )
            self.send("Input.dispatchKeyEvent", type="keyUp", **told)

    def resize(self, width: int, height: int = 900) -> None:
        """Resize the window, in CSS pixels."""
        options = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **options)


@contextmanager
def opened(profile: Path, width: int = 1200) -> Iterator[Browser]:
    """A browser with an empty profile, closed at the end."""
    pipes = [
        fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
        for pipe in (os.pipe(), os.pipe())
        for end in pipe
    ]
    theirs, ours = (pipes[0], pipes[3]), (pipes[2], pipes[1])

    def place() -> None:  # Chromium reads from 3 and writes to 4
        os.dup2(theirs[0], 3)
        os.dup2(theirs[1], 4)

    command = [CHROMIUM, *ALWAYS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, preexec_fn=place, pass_fds=(3, 4), **quiet)
    for end in theirs:
        os.close(end)
    try:
        browser = Browser(*ours)
        browser.resize(width)
        yield browser
    finally:
        process.kill()
        process.wait()
        for end in ours:
            os.close(end)
