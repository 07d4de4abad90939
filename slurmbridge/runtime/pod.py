"""The step daemon as the first process of a pod (docs/kubernetes.md).

It reads its order from a mounted file, listens on the pod's address, and does nothing before the engine says that the
gang is whole (``gang``). What happens is in the journal on the pod's own disk; the engine follows it (``follow``) and
says what it has written down; then, or when nobody has come for ``LINGER_S``, the first pod's daemon goes, and leaves
the essentials in the container's termination message.
"""
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

from slurmbridge.runtime import addresses, essentials, execution, frames, preload
from slurmbridge.runtime.daemon import StepDaemon
from slurmbridge.runtime.journal import JournalReader, JournalWriter
from slurmbridge.runtime.order import RunOrder
from slurmbridge.runtime.podmemory import pod_groups
from slurmbridge.runtime.spawner import write_script
from slurmbridge.runtime.wake import Waker

PORT = 6818
ORDER_FILE = "/run/slurmbridge/order"
SPOOL = "/var/spool/slurmbridge"
COMMANDS = "/slurmbridge/bin"
TERMINATION_LOG = "/dev/termination-log"
LINGER_S = 900.0
"""How long a finished run's records wait for an engine before the pod ends without it."""
EVICTED_GRACE_S = 20.0
_OWN = frozenset({"HOME", "HOSTNAME", "PWD", "SHLVL", "TERM", "JOB_COMPLETION_INDEX"})
_OWN_PREFIXES = ("SLURMBRIDGE_", "SLURM_", "KUBERNETES_")


class Bell(Waker):
    """Wakes those who follow the journal in this process."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def wake(self) -> bool:
        for event in self._waiting:
            event.set()
        return True

    @contextlib.contextmanager
    def listening(self) -> Any:
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            yield event
        finally:
            self._waiting.discard(event)

    def close(self) -> None:
        return


class PodDaemon(StepDaemon):
    """One run in one pod. ``journal_path``: of the first pod's journal."""

    linger_s = LINGER_S

    def __init__(self, order: RunOrder, index: int, listener: Any, journal: JournalWriter, journal_path: str,
                 script: str, termination_log: str = TERMINATION_LOG) -> None:
        self.bell = Bell()
        super().__init__(order, index, listener, journal, self.bell, script, frozenset(), pod_groups())
        self.journal_path = journal_path
        self.termination_log = termination_log
        self.log_fd = 1
        self.join_retry_s = 60.0
        self._acknowledged = 0
        self._released = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_say_mistake)
        self._gang_whole: asyncio.Future[bool] = loop.create_future()
        return await super().run()

    async def _run_head(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._evicted)
        if not await self._gang_whole:
            return 128 + signal.SIGTERM
        await super()._run_head()
        entries = self._entries()
        self._leave_message(entries)
        last, told = entries[-1]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.linger_s):
                while self._acknowledged < last:
                    self._released.clear()
                    await self._released.wait()
        return 1 if told["kind"] == "launch_failed" else execution.exit_code(int(told.get("exit_status", 0)))

    async def _run_member(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._member_evicted)
        return await super()._run_member()

    def _not_joined(self) -> None:
        """The engine ends a gang that does not become whole."""

    def _evicted(self) -> None:
        """The kubelet ends this pod: deleted, evicted, preempted, its node shut down."""
        if not self._gang_whole.done():
            self._gang_whole.set_result(False)
            return
        self.lost_node = self.lost_node or self.node.name
        self.terminate("NODE FAILURE", min(self.order.kill_wait_s, EVICTED_GRACE_S))

    def _member_evicted(self) -> None:
        """What runs here is asked to end; the first pod's daemon hears that this one goes."""
        for pid in self.children.others(set()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

        def go() -> None:
            if self._end_peer is not None and not self._end_peer.done():
                self._end_peer.set_result(None)
        asyncio.get_running_loop().call_later(min(self.order.kill_wait_s, EVICTED_GRACE_S), go)

    def _entries(self) -> list[tuple[int, dict[str, Any]]]:
        return JournalReader(self.journal_path).read_new()

    def _leave_message(self, entries: list[tuple[int, dict[str, Any]]]) -> None:
        with contextlib.suppress(OSError), open(self.termination_log, "wb") as file:
            file.write(essentials.pack(entries))

    # ---- orders of the engine ---------------------------------------------------------------------------------------

    async def _obey(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        op = request.get("op")
        if op == "gang" and self.index == 0:
            if not self._gang_whole.done():
                for node, address in zip(self.order.nodes, request["addresses"]):
                    node.address = str(address)
                if "end_by_s" in request:
                    self.end_by_s = request["end_by_s"]
                self._gang_whole.set_result(True)
            await frames.send(writer, frames.encode_json(b"k", {"ok": True}))
        elif op == "follow" and self.index == 0:
            await self._follow(int(request.get("after", 0)), reader, writer)
        else:
            await super()._obey(request, reader, writer)

    async def _follow(self, after: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Every entry behind ``after`` as it is written, until the engine goes; it says up to where all is durable."""
        listening = asyncio.create_task(self._hear_acknowledgements(reader))
        source = JournalReader(self.journal_path)
        try:
            with self.bell.listening() as rung:
                while not listening.done():
                    rung.clear()
                    for sequence, entry in source.read_new():
                        if sequence > after:
                            writer.write(frames.encode_json(b"k", {"sequence": sequence, "entry": entry}))
                    await writer.drain()
                    ringing = asyncio.ensure_future(rung.wait())
                    await asyncio.wait((ringing, listening), return_when=asyncio.FIRST_COMPLETED)
                    ringing.cancel()
        finally:
            listening.cancel()

    async def _hear_acknowledgements(self, reader: asyncio.StreamReader) -> None:
        while (frame := await frames.read_frame(reader)) is not None:
            self._acknowledged = max(self._acknowledged, int(frames.decode_json(frame[1]).get("acknowledge", 0)))
            self._released.set()


def _say_mistake(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Python 3.11's streams report a connection that was ended on purpose; this pod's log is the user's output."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


def image_environment(environ: dict[str, str]) -> dict[str, str]:
    """What the image itself sets, without what Kubernetes and this container's own start bring along."""
    return {name: value for name, value in environ.items()
            if name not in _OWN and not name.startswith(_OWN_PREFIXES)}


def with_image_environment(order: RunOrder, image: dict[str, str]) -> None:
    """As under Pyxis the image's own value of a variable wins over the submitter's, but for --container-env; the
    users' commands are on the PATH."""
    env = dict(line.split("=", 1) for line in order.request.environment if "=" in line)
    own = {word for value in (dict(order.request.pyxis).get("container-env") or "",) for word in value.split(",")}
    env |= {name: value for name, value in image.items() if name not in own}
    path = env.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    env["PATH"] = f"{path}:{COMMANDS}"
    order.request = dataclasses.replace(order.request, environment=tuple(f"{k}={v}" for k, v in env.items()))


def read_order(path: str = ORDER_FILE) -> RunOrder:
    """Raises OSError, ValueError, TypeError or KeyError."""
    with open(path, "rb") as file:
        return RunOrder.from_json(json.loads(gzip.decompress(file.read())))


def main(argv: list[str]) -> int:
    """Raises nothing: a daemon that cannot start says why in its pod's log and termination message."""
    try:
        order = read_order()
        index = int(os.environ["JOB_COMPLETION_INDEX"])
        with_image_environment(order, image_environment(dict(os.environ)))
        preload.everything()
        execution.find_starter()
        script, path = f"{SPOOL}/slurm_script", f"{SPOOL}/journal"
        if order.request.script is not None and index == 0:
            write_script(script, order.request.script, None)
        journal = JournalWriter(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
        listener = addresses.listen(f"tcp://0.0.0.0:{PORT}")
        return asyncio.run(_serve(order, index, listener, journal, path, script))
    except Exception as error:
        text = f"{time.time():.3f} {''.join(traceback.format_exception_only(error)).strip()}"
        print(traceback.format_exc(), file=sys.stderr, flush=True)
        with contextlib.suppress(OSError), open(TERMINATION_LOG, "w") as file:
            file.write(text)
        return 70


async def _serve(order: RunOrder, index: int, listener: Any, journal: JournalWriter, path: str, script: str) -> int:
    return await PodDaemon(order, index, listener, journal, path, script).run()
