"""sattach: a second terminal for a running step (sattach(1)). It sees what tasks write from now on."""
from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slurmbridge.runtime import stepfiles
from slurmbridge.runtime.client import RAW, START, Client
from slurmbridge.slurm import hostlist
from slurmbridge.slurm.sattach_options import Call, read_call
from slurmbridge.slurm.sbcast_options import Over

if TYPE_CHECKING:
    from slurmbridge.runtime.sessions import Sessions
    from slurmbridge.runtime.step import RunningStep

def layout_text(step: RunningStep) -> str:
    shares = step.plan.shares
    names = step.place.nodes if len(step.place.nodes) == len(shares) else [share.name for share in shares]
    lines = [f"Job step layout:\n\t{step.plan.num_tasks} tasks, {len(shares)} nodes "
             f"({hostlist.compress(names)})\n\n"]
    for index, share in enumerate(shares):
        tasks = "".join(f"{rank} " for rank in share.tasks)
        lines.append(f"\tNode {index} ({share.name}), {len(share.tasks)} task(s): {tasks}\n")
    return "".join(lines)


class Attached:
    """One sattach at a step, among the step's ``listeners``."""

    def __init__(self, call: Call, client: Client, step: RunningStep) -> None:
        self._call, self._client, self._step = call, client, step
        self._width = len(str(step.plan.num_tasks - 1))
        self._code = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def output(self, rank: int, stream: int, data: bytes) -> None:
        wanted = self._call.output_task if stream == 1 else self._call.error_task
        if rank >= 0 and wanted is not None and rank != wanted:
            return
        if self._call.label and rank >= 0:
            data = stepfiles.label(data, rank, self._width)
        await self._client.write(b"O" if stream == 1 else b"E", data)

    def tasks_ended(self, ranks: Sequence[int], status: int) -> None:
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            code = os.WEXITSTATUS(status)
            self._code = max(self._code, code)
            lines = "".join(f"sattach: error: task {rank} exited with exit code {code}\n" for rank in ranks)
            self._client.write_soon(b"E", lines.encode())

    def step_over(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    async def run(self) -> None:
        """Until the step is over or the client has gone."""
        self._step.listeners.append(self)
        self._client.write_soon(b"I", RAW if self._call.pty else START)
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait([reading, self.over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._step.listeners.remove(self)
        await self._client.exit(self._code)
        reading.cancel()

    async def _read(self) -> None:
        while (frame := await self._client.frame()) is not None:
            if frame[0] == b"i":              # its end is the tasks' end of input, too
                self._step.feed(frame[1], self._call.input_task)


async def run(sessions: Sessions, client: Client, argv: Sequence[str]) -> None:
    try:
        call = read_call(argv)
        step = sessions.own_step(call.step.step)
        if step is None:
            raise Over("", "sattach: error: Could not get job step info: Invalid job id specified\n", 1)
        if call.layout:
            raise Over(layout_text(step), "", 0)
        await Attached(call, client, step).run()
    except Over as over:
        await client.write(b"O", over.args[0].encode())
        await client.write(b"E", over.args[1].encode(errors="surrogateescape"))
        await client.exit(over.args[2])
