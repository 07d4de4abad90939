"""/livez, /readyz and /metrics in plain HTTP: for the kubelet and Prometheus, on a port that no user needs.

Alive is who answers. Ready is who can do its part: its view of the cluster is current and its ledger can be written, or
it stands by for another. One that is not ready is not ended for it: a new one would wait for the same API server.
"""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurmbridge import __version__
from slurmbridge.api import http
from slurmbridge.api.http import HttpError
from slurmbridge.views.session import Views

STALE_S = 30.0
"""How old the engine's view of the cluster may be."""
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Condition:
    """What the process knows of itself. ``stale_s``: of the engine; ``trouble``: of the ledger ("": none)."""

    views: Callable[[], Views | None] = lambda: None
    stale_s: Callable[[], float] = lambda: 0.0
    trouble: Callable[[], str] = lambda: ""
    connections: Callable[[], int] = lambda: 0
    is_leader: bool = False
    stands_by: bool = False                   # for a lease that another controller holds
    refused: dict[str, str] = field(default_factory=dict)     # file of the configuration -> why it is not used

    def why_not_ready(self) -> str:
        """"" when it is."""
        if self.views() is None:
            return "" if self.stands_by else "starting"
        if self.trouble():
            return self.trouble()
        stale_s = self.stale_s()
        return f"the cluster was seen last {stale_s:.0f} s ago" if stale_s > STALE_S else ""


def metrics(condition: Condition) -> str:
    """Prometheus' text format."""
    lines: list[str] = []

    def gauge(name: str, text: str, values: Mapping[str, float]) -> None:
        """``values``: by label text, "" for none."""
        lines.append(f"# HELP slurmbridge_{name} {text}\n# TYPE slurmbridge_{name} gauge")
        lines.extend(f"slurmbridge_{name}{f'{{{label}}}' if label else ''} {value:.10g}"
                     for label, value in sorted(values.items()))

    gauge("info", "Version of the controller.", {f'version="{__version__}"': 1})
    gauge("leader", "Whether this process decides.", {"": float(condition.is_leader)})
    gauge("ready", "Whether commands are served and the view of the cluster is current.",
          {"": float(condition.is_leader and not condition.why_not_ready())})
    gauge("watch_stale_seconds", "Since when the cluster has not been seen.", {"": condition.stale_s()})
    gauge("ledger_trouble", "Whether the ledger cannot be written.", {"": float(bool(condition.trouble()))})
    gauge("connections", "Commands that are being served.", {"": float(condition.connections())})
    gauge("config_refused", "Configuration files that changed and are not used.",
          {f'file="{_label(name)}"': 1.0 for name in condition.refused} or {"": 0.0})
    views = condition.views()
    if views is not None:
        jobs: Counter[str] = Counter()
        for job in views.jobs.values():
            jobs[job.state] += job.array_pending.bit_count() if job.array_pending else 1
        gauge("jobs", "Jobs that are not forgotten yet, by state; tasks of arrays count one by one.",
              {f'state="{state}"': float(count) for state, count in jobs.items()} or {'state="PENDING"': 0.0})
        nodes: Counter[str] = Counter()
        for node in views.nodes.values():
            nodes["DRAIN" if "DRAIN" in node.flags else node.base_state] += 1
        gauge("nodes", "Nodes by state.", {f'state="{state}"': float(count) for state, count in nodes.items()})
        gauge("cpus", "CPUs of nodes that can be used, and those that jobs have.", {
            'what="total"': float(sum(node.cpus for node in views.nodes.values())),
            'what="allocated"': float(sum(node.cpus_alloc for node in views.nodes.values()))})
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def answer(condition: Condition, path: str) -> bytes:
    if path == "/livez":
        return http.answer(200, "ok\n")
    if path == "/readyz":
        why = condition.why_not_ready()
        return http.answer(503, f"{why}\n") if why else http.answer(200, "ok\n")
    if path == "/metrics":
        return http.answer(200, metrics(condition), PROMETHEUS)
    return http.answer(404)


class Probe(asyncio.Protocol):
    """One question, one answer."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(http.HEAD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            found = http.read_head(self._buffer)
            if found is None:
                return
            if found[0].method != "GET":
                raise HttpError(405)
            said = answer(self._condition, found[0].path)
        except HttpError as error:
            said = http.answer(error.status, f"{error}\n")
        self._buffer = b""
        self._transport.write(said)
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()


async def listen(condition: Condition, host: str, port: int) -> asyncio.Server:
    """Raises OSError."""
    return await asyncio.get_running_loop().create_server(lambda: Probe(condition), host or None, port)
