"""What a command with many questions says in the course of one call: output kept apart, tables, and the exit code.

sacctmgr and sreport build their conversations on it.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from slurmbridge.slurm.columns import ColumnField, ColumnPrinter
from slurmbridge.views.records import AssociationData
from slurmbridge.views.session import Reply, Session

T = TypeVar("T")


class Conversation:
    """Collected output of one caller, printed as the flags -n, -p and -P want it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.header = True
        self.parsable = ""
        self.exit_code = 0
        self._out: list[str] = []
        self._err: list[str] = []

    @property
    def data(self) -> AssociationData:
        return self.session.views.accounting

    def say(self, text: str) -> None:
        self._out.append(text)

    def warn(self, text: str) -> None:
        """On standard error, without effect on the exit code."""
        self._err.append(text)

    def complain(self, text: str) -> None:
        """On standard error; the command will exit with 1."""
        self._err.append(text)
        self.exit_code = 1

    def table(self, columns: Sequence[ColumnField[T]], rows: Sequence[T]) -> None:
        printer = ColumnPrinter(columns, parsable=self.parsable, header=self.header)
        self.say(printer.header_text() + printer.rows(rows))

    def reply(self) -> Reply:
        """What was said since the last reply."""
        reply = Reply("".join(self._out), "".join(self._err), self.exit_code)
        self._out, self._err = [], []
        return reply

    async def flush(self) -> None:
        """Shows at once what was said so far."""
        reply = self.reply()
        if reply.stdout:
            await self.session.write_stdout(reply.stdout)
        if reply.stderr:
            await self.session.write_stderr(reply.stderr)
