"""The append-only record of one run: what is written here is what happened, whoever is alive to hear of it.

One JSON object a line, each appended by a single write(2), so that lines of several writers never mix and a torn
last line is recognisable. The line number is the event's sequence.
"""
from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any


class JournalWriter:
    """Appends to an open descriptor (O_APPEND), which may have been opened by a more privileged process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def append(self, kind: str, at_s: float, **fields: Any) -> None:
        """Raises OSError (disk full): nothing was appended then, or a torn line that readers skip."""
        self.append_lines([{"kind": kind, "at_s": round(at_s, 6), **fields}])

    def append_lines(self, entries: list[dict[str, Any]]) -> None:
        data = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries).encode("ascii")
        if os.write(self.fd, data) != len(data):
            os.write(self.fd, b"\n")
            raise OSError("journal: short write")

    def sync(self) -> None:
        os.fdatasync(self.fd)


@dataclass(slots=True)
class JournalReader:
    """Reads what was appended since last time."""

    path: str
    offset: int = 0
    sequence: int = 0
    _rest: bytes = field(default=b"")

    def read_new(self) -> list[tuple[int, dict[str, Any]]]:
        """New complete lines as (sequence, entry). Raises FileNotFoundError when the run was forgotten."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        self.offset += len(data)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        entries = []
        for line in lines:
            self.sequence += 1
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and isinstance(entry.get("kind"), str):
                entries.append((self.sequence, entry))
        return entries
