"""Small samples of the sources' formats, as files and archives."""

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

HEADER = ["query-id", "corpus-id", "score"]
"""First row of a file of judgements."""


def lay_out(folder: Path, files: dict[str, Any]) -> Path:
    """Write files into a folder; as JSON if the content is neither text nor bytes."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def packed(files: dict[str, str]) -> bytes:
    """A .tar.gz of text files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def zipped(files: dict[str, str]) -> bytes:
    """A .zip of text files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()
