"""One conversation with sacctmgr: what it says, what it asks, and the changes that wait for the answer."""
from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from slurmbridge.commands.conversation import Conversation
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.associations import Tree
from slurmbridge.views.directory import Draft
from slurmbridge.views.session import Session

PATIENCE_S = 30.0
COMMIT = "Would you like to commit changes?"


class Talk(Conversation):
    """Flags of the command line, collected output, and the state of standard input."""

    def __init__(self, session: Session, env: Mapping[str, str]) -> None:
        super().__init__(session)
        self.env = env
        self.immediate = False
        self.readonly = False
        self.with_assoc = False
        self.quiet = False
        self.verbosity = 0
        self.coming_qos: frozenset[str] = frozenset()   # that the file being loaded will add
        self._input = b""
        self._at_end = False

    # ---------------------------------------------------------------------------------------------------- speaking
    def log_error(self, text: str) -> None:
        self._err.append(f"sacctmgr: error: {text}\n")

    # ----------------------------------------------------------------------------------------------------- asking
    async def _more(self) -> bool:
        """Waits for standard input. False at its end. Raises TimeoutError."""
        if self._at_end:
            return False
        chunk = await asyncio.wait_for(self.session.read_stdin(), PATIENCE_S)
        self._input += chunk
        self._at_end = not chunk
        return bool(chunk)

    async def ask(self, question: str) -> bool:
        """Yes with -i; else the answer on standard input, as typed: one of Y, N or just Enter (no)."""
        if self.immediate:
            return True
        self.say(f"{question} (You have 30 seconds to decide)\n")
        char = ""
        while char not in ("y", "n", "\n"):
            self.say("Y or N please\n(N/y): " if char else "(N/y): ")
            await self.flush()
            try:
                if not self._input and not await self._more():
                    self.say("\nerror: Inappropriate ioctl for device\n")
                    return False
            except TimeoutError:
                self.say("timeout\n")
                return False
            self.say("\n")
            char, self._input = chr(self._input[0]).lower(), self._input[1:]
        return char == "y"

    async def line(self) -> str | None:
        """The next line of standard input; None at its end."""
        while b"\n" not in self._input:
            try:
                if not await self._more():
                    break
            except TimeoutError:
                continue
        if not self._input:
            return None
        line, _, self._input = self._input.partition(b"\n")
        return line.decode("utf-8", "surrogateescape")

    # --------------------------------------------------------------------------------------------------- the data
    @property
    def cluster(self) -> str:
        return self.data.cluster

    def tree(self) -> Tree:
        return Tree(self.data)

    def draft(self) -> Draft:
        """A draft of the data; jobs of the controller count as use of their associations."""
        return Draft(self.data, self.session.now(), {job.assoc_id for job in self.session.views.jobs.values()})

    @property
    def user(self) -> str:
        return self.session.identity.user_name

    @property
    def is_super(self) -> bool:
        """Administrator: root, SlurmUser, or the level Administrator."""
        return self.session.identity.is_admin or self._level() == "Administrator"

    @property
    def is_operator(self) -> bool:
        return self.is_super or self._level() == "Operator"

    def _level(self) -> str:
        record = self.data.users.get(self.user)
        return record.admin_level if record and not record.deleted else "None"

    def coordinated(self) -> set[str]:
        """Accounts that the caller coordinates."""
        return self.tree().coordinated(self.user)

    async def commit(self, operations: Sequence[Mapping[str, Any]], question: str = COMMIT) -> bool:
        """Asks, then has the controller carry the operations out. False: discarded or refused (said so)."""
        if not await self.ask(question):
            self.say(" Changes Discarded\n")
            return False
        try:
            await self.session.acts.change_accounting(self.session.identity, operations)
        except SlurmError as error:
            self.complain(f" Error committing changes: {error.text}\n")
            return False
        return True
