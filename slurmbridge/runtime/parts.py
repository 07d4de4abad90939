"""The components of a heterogeneous step: each is a step of one job, at the step daemon of that job's first node.

The srun's own step daemon has the step in hand. What it needs of the others' it asks for over one connection each:
the nodes' resources, a place in that job's journal, and to hear of signals and of that job's end. Tasks are started at
the nodes directly. When the connection goes, the other daemon gives back what it lent.
"""
from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime import addresses, frames
from slurmbridge.runtime.layout import Distribution
from slurmbridge.runtime.order import RunOrder
from slurmbridge.runtime.steptypes import StepPlan, StepRefused, StepRequest, StepShare

if TYPE_CHECKING:
    from slurmbridge.runtime.sessions import Sessions

CONNECT_TIMEOUT_S = 30.0
"""How long a component's step daemon may take to be there."""
POLL_S = 0.2


class PartLost(ConnectionError):
    """The step daemon of a component cannot be had."""


class OwnPart:
    """A component that is a step of this daemon's own job."""

    def __init__(self, sessions: Sessions) -> None:
        self.order = sessions.daemon.order
        self._sessions = sessions

    async def allocate(self, request: StepRequest, step_id: str | None) -> tuple[str, StepPlan]:
        """Raises StepRefused."""
        return self._sessions.allocate(request, step_id)

    def wait_for_room(self, request: StepRequest, step_id: str | None) -> asyncio.Future[tuple[str, StepPlan]]:
        """Resolved as ``allocate`` once there is room; cancelled by who does not wait any more."""
        return self._sessions.wait_for_room(request, step_id)

    def begin(self, step: Any) -> None:
        self._sessions.running[step.step_id] = step

    def tell(self, kind: str, **data: Any) -> None:
        self._sessions.daemon.tell(kind, **data)

    def release(self, step_id: str, plan: StepPlan) -> None:
        self._sessions.running.pop(step_id, None)
        self._sessions.release(plan)


class LentPart:
    """A component that is a step of another job: the asking side."""

    order: RunOrder

    def __init__(self) -> None:
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._step: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, address: str, credential: str) -> None:
        """Raises PartLost."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CONNECT_TIMEOUT_S
        while True:
            try:
                reader, self._writer = await addresses.connect(address)
                break
            except OSError as error:
                if loop.time() > until:
                    raise PartLost(str(error)) from None
                await asyncio.sleep(POLL_S)
        self._reading = asyncio.create_task(self._read(reader))
        answer = await self._ask({"credential": credential, "op": "part"})
        self.order = RunOrder.from_json(answer["order"])

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._writer is not None
        if self._reading is None or self._reading.done():
            raise PartLost("the step daemon is gone")
        self._answer = asyncio.get_running_loop().create_future()
        self._writer.write(frames.encode_json(b"K", request))
        return await self._answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (frame := await frames.read_frame(reader)) is not None:
            said = frames.decode_json(frame[1])
            if "order_keepers" in said:
                if self._step is not None:
                    self._step.order_keepers(said["order_keepers"])
            elif "signal" in said:
                if self._step is not None:
                    self._step.signal_by_request(int(said["signal"]), quiet=bool(said.get("quiet")))
            elif "job_ends" in said:
                if self._step is not None:
                    self._step.job_ends(str(said["job_ends"]))
            elif self._answer is not None and not self._answer.done():
                self._answer.set_result(said)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(PartLost("the step daemon is gone"))

    async def allocate(self, request: StepRequest, step_id: str | None) -> tuple[str, StepPlan]:
        """Raises StepRefused, PartLost."""
        answer = await self._ask({"op": "allocate", "request": request_json(request), "step_id": step_id})
        if not answer.get("ok"):
            raise StepRefused(int(answer["code"]))
        return str(answer["step_id"]), plan_from_json(answer["plan"])

    def wait_for_room(self, request: StepRequest, step_id: str | None) -> asyncio.Future[tuple[str, StepPlan]]:
        """As OwnPart's; raises PartLost too."""
        return asyncio.ensure_future(self._poll(request, step_id))

    async def _poll(self, request: StepRequest, step_id: str | None) -> tuple[str, StepPlan]:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                return await self.allocate(request, step_id)
            except StepRefused as refused:
                if not refused.retry:
                    raise

    def begin(self, step: Any) -> None:
        self._step = step

    def tell(self, kind: str, **data: Any) -> None:
        if self._writer is not None:
            with contextlib.suppress(ConnectionError):
                self._writer.write(frames.encode_json(b"K", {"op": "tell", "kind": kind, "data": data}))
        if kind == "step_ended":              # the other job may be ending: it does not wait for the rest of the step
            self.close()

    def release(self, step_id: str, plan: StepPlan) -> None:
        self._step = None
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reading is not None:
            self._reading.cancel()


class LentStep:
    """The lending side: stands among the sessions and running steps of the job that lends its nodes."""

    owns_allocation = False
    client_pid = 0                            # its srun is of another job

    def __init__(self, sessions: Sessions, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._sessions, self._reader, self._writer = sessions, reader, writer
        self._held: dict[str, StepPlan] = {}
        self._told: str | None = None         # a step that was told as begun and not as ended
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        self._sessions.sessions.add(self)
        self._sessions.ever_attached = True
        try:
            self._say({"ok": True, "order": self._sessions.daemon.order.to_json()})
            while (frame := await frames.read_frame(self._reader)) is not None:
                asked = frames.decode_json(frame[1])
                if asked.get("op") == "allocate":
                    self._allocate(asked)
                elif asked.get("op") == "tell":
                    self._tell(str(asked["kind"]), dict(asked["data"]))
        finally:
            if self._told is not None:
                # whoever leads the step is gone without a word: a run that is being ended has had its SIGTERM
                ended_by = signal.SIGTERM if self._sessions.daemon.ending else signal.SIGKILL
                self._sessions.daemon.tell("step_ended", step_id=self._told, exit_status=int(ended_by), usage={})
            for step_id, plan in self._held.items():
                self._sessions.running.pop(step_id, None)
                self._sessions.release(plan)
            self._sessions.sessions.discard(self)
            self.over.set_result(None)

    def _allocate(self, asked: dict[str, Any]) -> None:
        try:
            step_id, plan = self._sessions.allocate(request_from_json(asked["request"]), asked.get("step_id"))
        except StepRefused as refused:
            self._say({"ok": False, "code": refused.code})
            return
        self._held[step_id] = plan
        self._sessions.running[step_id] = self
        self._say({"ok": True, "step_id": step_id, "plan": plan_json(plan)})

    def _tell(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "step_started":
            self._told = str(data["step_id"])
        elif kind == "step_ended":
            self._told = None
        else:
            return
        self._sessions.daemon.tell(kind, **data)

    def _say(self, what: dict[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(frames.encode_json(b"k", what))

    def order_keepers(self, order: dict[str, Any]) -> None:
        self._say({"order_keepers": order})

    def signal_by_request(self, number: int, *, quiet: bool = False) -> None:
        self._say({"signal": number, "quiet": quiet})

    def job_ends(self, cause_text: str) -> None:
        self._say({"job_ends": cause_text})


Part = OwnPart | LentPart


async def parts_of(groups: list[int], own: OwnPart) -> list[Part]:
    """The daemons of these components, by number. Raises PartLost, IndexError for a component that is not there."""
    heads = own.order.het_heads
    result: list[Part] = []
    try:
        for group in groups:
            if group == own.order.het_offset:
                result.append(own)
                continue
            part = LentPart()
            result.append(part)
            await part.connect(*heads[group])
    except (PartLost, IndexError):
        close_all(result)
        raise
    return result


def close_all(parts: list[Part]) -> None:
    for part in parts:
        if isinstance(part, LentPart):
            part.close()


# ---- as JSON ---------------------------------------------------------------------------------------------------------

def request_json(request: StepRequest) -> dict[str, Any]:
    plain = {item.name: getattr(request, item.name) for item in fields(StepRequest)}
    plain["distribution"] = [request.distribution.base, request.distribution.plane_size, request.distribution.pack]
    return plain


def request_from_json(plain: dict[str, Any]) -> StepRequest:
    """Raises TypeError for what is no request."""
    made = {name: _tuples(value) if isinstance(value, list) else value for name, value in plain.items()}
    made["distribution"] = Distribution(*plain["distribution"])
    return StepRequest(**made)


def plan_json(plan: StepPlan) -> dict[str, Any]:
    shares = [{item.name: getattr(share, item.name) for item in fields(StepShare)} for share in plan.shares]
    return {"shares": shares, "next_node": plan.next_node, "ports": list(plan.ports)}


def plan_from_json(plain: dict[str, Any]) -> StepPlan:
    shares = [StepShare(**{**share, "tasks": tuple(share["tasks"]), "cpu_ids": tuple(share["cpu_ids"]),
                           "gres": {name: tuple(devices) for name, devices in share["gres"].items()}})
              for share in plain["shares"]]
    return StepPlan(tuple(shares), int(plain["next_node"]), tuple(plain["ports"]))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value
