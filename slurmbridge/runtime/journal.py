"""The append-only record of one run: what is written here is what happened, whoever is alive to hear of it.

One JSON object a line, each appended by a single write(2), so that lines of several writers never mix and a torn
last line is recognisable. The line number is the event's sequence.
"""
from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import Any


class JournalWriter:
    """Appends to an open descriptor (O_APPEND), which may have been opened by a more privileged process.

    What a full disk does not take is kept in order and written first by the next ``append`` or ``catch_up``.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._behind = b""

    def append(self, kind: str, at_s: float, **fields: Any) -> bool:
        """Whether all of it is written."""
        return self.append_lines([{"kind": kind, "at_s": round(at_s, 6), **fields}])

    def append_lines(self, entries: list[dict[str, Any]]) -> bool:
        """Whether all of it is written."""
        lines = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)
        self._behind += lines.encode("ascii")
        return self.catch_up()

    def catch_up(self) -> bool:
        """Whether nothing is left to write."""
        while self._behind:
            try:
                written = os.write(self.fd, self._behind)
            except OSError:
                return False
            self._behind = self._behind[written:]
        return True

    def sync(self) -> None:
        with contextlib.suppress(OSError):     # not every file system can
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
