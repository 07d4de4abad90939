"""One task of a step at its keeper: its number, its process, and its standard files as they are opened for it."""
from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmbridge.runtime.taskio import LabelledFile, Output, StdinPipe


@dataclass(slots=True)
class Task:
    rank: int
    local: int
    node: str
    pid: int = 0
    stdin: StdinPipe | None = None
    outputs: list[Output] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)       # descriptors that are its own once it has started

    def close_passed(self) -> None:
        for fd in self.passed:
            os.close(fd)
        self.passed.clear()

    def abandon(self) -> None:
        """It cannot be started."""
        self.close_passed()
        if self.stdin is not None:
            self.stdin.close()
        for output in self.outputs:
            output.abandon()


class TaskFiles:
    """Opens the files of a step's tasks. ``request`` is the keeper's; ``consumed`` see StdinPipe."""

    def __init__(self, request: dict[str, Any], writer: asyncio.StreamWriter, consumed: Callable[[int], None]) -> None:
        self._request, self._writer, self._consumed = request, writer, consumed
        self.terminal: int | None = None

    def open(self, task: Task, entry: dict[str, Any]) -> tuple[int, int, int]:
        """Its standard descriptors, of which those it alone has are in ``passed``. Raises OSError."""
        if entry.get("pty"):
            return self._open_terminal(task)
        return self._open_input(task, entry["stdin"]), *self._open_outputs(task, entry)

    def can_open(self, entries: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the files of all these tasks can be opened, which makes those for output."""
        append = bool(self._request["append"])
        try:
            for entry in entries:
                if entry.get("pty"):
                    continue
                if entry["stdin"] not in _NO_FILES:
                    os.close(os.open(entry["stdin"], os.O_RDONLY))
                for wanted in {entry["stdout"], entry["stderr"]} - _NO_FILES:
                    os.close(open_output(wanted, _output_flags(append), self._request["umask"]))
        except OSError:
            return False
        return True

    def _open_terminal(self, task: Task) -> tuple[int, int, int]:
        master, slave = pty.openpty()
        os.set_inheritable(master, False)
        self.terminal = master
        if window := self._request.get("window"):
            self.resize(window[0], window[1])
        task.passed.append(slave)
        task.outputs.append(Output(self._writer, task.rank, 1, master, lines=False))
        task.stdin = StdinPipe(os.dup(master), self._consumed, is_terminal=True)
        return slave, slave, slave

    def _open_input(self, task: Task, wanted: str) -> int:
        if wanted != "stream":
            task.passed.append(os.open(wanted, os.O_RDONLY))
            return task.passed[-1]
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        task.passed.append(read_end)
        task.stdin = StdinPipe(write_end, self._consumed)
        return read_end

    def _open_outputs(self, task: Task, entry: dict[str, Any]) -> tuple[int, int]:
        fds = []
        lines = not self._request.get("unbuffered")
        opened: dict[str, int] = {}
        for stream, wanted in ((1, entry["stdout"]), (2, entry["stderr"])):
            if wanted == "stream":
                read_end, write_end = os.pipe2(os.O_CLOEXEC)
                task.passed.append(write_end)
                task.outputs.append(Output(self._writer, task.rank, stream, read_end, lines=lines))
                fds.append(write_end)
            elif wanted in opened:
                fds.append(opened[wanted])
            else:
                file_fd = open_output(wanted, _output_flags(bool(self._request["append"])), self._request["umask"])
                opened[wanted] = self._labelled(task, file_fd, wanted)
                task.passed.append(opened[wanted])
                fds.append(opened[wanted])
        return fds[0], fds[1]

    def _labelled(self, task: Task, file_fd: int, name: str) -> int:
        """What the task writes to: the file, or with -l a pipe whose lines go there with labels."""
        width = int(self._request["label_width"])
        if not width or name == "/dev/null":
            return file_fd
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        rank = int(self._request["first_task"]) + task.rank
        task.outputs.append(LabelledFile(self._writer, rank, read_end, file_fd, width))
        return write_end

    def resize(self, rows: int, columns: int) -> None:
        if self.terminal is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


_NO_FILES = frozenset({"stream", "/dev/null"})


def _output_flags(append: bool) -> int:
    return os.O_CREAT | os.O_WRONLY | os.O_APPEND | (0 if append else os.O_TRUNC)


def open_output(name: str, flags: int, umask: int) -> int:
    """Opens an output file, making missing directories as srun does. Raises OSError."""
    old = os.umask(umask)
    try:
        try:
            return os.open(name, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            return os.open(name, flags, 0o666)
    finally:
        os.umask(old)
