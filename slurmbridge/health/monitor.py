"""All nodes of a cluster over time: sights come in, a verdict per node comes out. No I/O, no clock of its own.

``see`` and ``gone`` take what an engine tells, ``tick`` lets time pass, ``verdict`` says what a node's state is to be
and what is due. ``dump`` and ``load`` carry what was seen over a restart.
"""
from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from slurmbridge.health.breaker import CLUSTER, STORM, Breaker, Circuit
from slurmbridge.health.judge import is_gone_for_good, judge, machine_changed, mute, rule_of
from slurmbridge.health.memory import ABSENT, GOOD, NodeMemory, SignalMemory
from slurmbridge.health.policy import HARDWARE, Policy
from slurmbridge.health.sight import CAPACITY, LAUNCH, READY, Sight, Signal
from slurmbridge.health.verdict import Verdict, compose, takes_work_away

ZONE = "zone "
SPREAD, TURNS = 200, 5
"""More open nodes than this are judged in so many turns."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node belongs. ``kind``: what nodes of one make have in common (devices, size)."""

    partitions: tuple[str, ...] = ()
    kind: str = ""

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(f"{name}/{self.kind}" for name in self.partitions) or (f"/{self.kind}",)


class Monitor:
    """``nodes`` by name. ``alerts``: lines for the log since they were last taken."""

    def __init__(self, policy: Policy, started_s: float) -> None:
        self.policy = policy
        self.started_s = started_s
        self.nodes: dict[str, NodeMemory] = {}
        self.sights: dict[str, Sight] = {}
        self.places: dict[str, Place] = {}
        self.breaker = Breaker(policy.breaker)
        self.alerts: list[str] = []
        self.boots: Counter[str] = Counter()      # failed ones in a row, by partition
        self.to_close: set[str] = set()           # partitions whose nodes do not come up
        self._open: set[str] = set()
        self._not_ready: set[str] = set()
        self._flagged: dict[str, tuple[tuple[str, str], ...]] = {}      # nodes that soft faults keep off, and causes
        self._suspects: frozenset[str] = frozenset()
        self._sizes: dict[str, int] = {}

    def configure(self, policy: Policy, now: float) -> None:
        """Other rules, windows and limits from now on; what was seen, and since when, stands."""
        self.policy = policy
        self.breaker.limits = policy.breaker
        self._sizes = {}
        for name in self.sights:
            self._judge(name, now)

    # ---- what is told -----------------------------------------------------------------------------------------------

    def place(self, node: str, partitions: Iterable[str], kind: str) -> None:
        self.places[node] = Place(tuple(partitions), kind)
        self._sizes = {}

    def see(self, sight: Sight, now: float) -> None:
        memory = self.nodes.setdefault(sight.node, NodeMemory(first_s=now))
        if memory.gone_s is not None or (memory.uid and sight.uid and memory.uid != sight.uid):
            self._other_machine(memory, sight, now)
        elif memory.boot_id and sight.boot_id and memory.boot_id != sight.boot_id:
            for one in memory.signals.values():
                machine_changed(one, now, is_other=False)
        memory.uid, memory.boot_id = sight.uid or memory.uid, sight.boot_id or memory.boot_id
        if self.sights.get(sight.node) is None:
            self._sizes = {}
        self.sights[sight.node] = sight
        self._judge(sight.node, now)

    def _other_machine(self, memory: NodeMemory, sight: Sight, now: float) -> None:
        is_same = memory.gone_s is not None and sight.uid == memory.uid
        memory.gone_s = None
        if is_same:
            return
        for one in memory.signals.values():
            machine_changed(one, now, is_other=True)
        memory.replaced_s, memory.first_s = now, now
        memory.returned_s = now if sight.boot_id and sight.boot_id == memory.boot_id else None
        memory.launch_failures, memory.short, memory.never_ready, memory.boot_failed = [], {}, True, False

    def gone(self, node: str, now: float) -> None:
        """Its node object was deleted."""
        memory = self.nodes.setdefault(node, NodeMemory(first_s=now))
        if memory.gone_s is None:
            memory.gone_s = now
            if memory.never_ready and node in self.sights:
                self._boot_failed(node, memory)
        self.sights.pop(node, None)
        self._open.discard(node)
        self._not_ready.discard(node)
        self._flagged.pop(node, None)
        self._sizes = {}

    def launch_failed(self, node: str, now: float) -> None:
        """A gang could not start, and this node was to blame."""
        memory = self.nodes.setdefault(node, NodeMemory(first_s=now))
        memory.launch_failures = [*self._launch_failures(memory, now), now]
        self._judge(node, now)

    def launched(self, node: str) -> bool:
        """A gang started there; whether that clears anything."""
        memory = self.nodes.get(node)
        if memory is None or not memory.launch_failures:
            return False
        memory.launch_failures = []
        return True

    def _launch_failures(self, memory: NodeMemory, now: float) -> list[float]:
        return [at for at in memory.launch_failures if now - at < self.policy.windows.launch]

    def clear(self, node: str, now: float) -> bool:
        """A human says the node is well: whatever is said of it now counts no more before it was good once."""
        memory = self.nodes.get(node)
        if memory is None:
            return False
        had = bool(memory.short or memory.launch_failures)
        for one in memory.signals.values():
            rule = rule_of(one, self.policy)
            if one.flapping and (one.source, one.type) == READY:
                one.flapping, one.starts, one.holds, had = False, [], 0, True
            elif rule is not None and not rule.is_hard:
                mute(one, self.policy, now)
                had = True
        memory.launch_failures, memory.short = [], {}
        self._judge(node, now)
        return had

    def reset(self, now: float) -> int:
        """A human releases the breaker."""
        released = self.breaker.reset(now)
        self._restart_timers(released, now)
        return len(released)

    # ---- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[str]:
        """Judges every node of which something is open; of many a part each second. Returns their names."""
        opened = list(self._open) if not self.policy.requires else list(self.sights)
        if len(opened) > SPREAD:
            opened = [name for name in opened if zlib.crc32(name.encode()) % TURNS == int(now) % TURNS]
        for name in opened:
            self._judge(name, now)
        storms = self._storm()
        if storms and self.breaker.trip(CLUSTER, STORM, now):
            self.alerts.append("all nodes of the cluster or of two zones stopped answering at once: "
                               "held as a fault of the control plane")
        released = self.breaker.tick(self.sizes, storms, now)
        self._restart_timers(released, now)
        self._find_suspects()
        return opened

    def _note_open(self, name: str, memory: NodeMemory) -> None:
        """Whether time alone can change anything of the node."""
        if memory.short or memory.launch_failures or memory.returned_s is not None or (
                memory.never_ready and not memory.boot_failed) or any(
                not one.is_quiet or one.verdict != GOOD for one in memory.signals.values()):
            self._open.add(name)
        else:
            self._open.discard(name)

    @property
    def sizes(self) -> dict[str, int]:
        """Nodes by pool, and of the cluster."""
        if not self._sizes:
            self._sizes = dict(Counter(pool for name in self.sights if not self._is_closed(name)
                                       for pool in self.pools(name)))
            self._sizes[CLUSTER] = len(self.sights)
        return self._sizes

    def pools(self, node: str) -> tuple[str, ...]:
        """What a breaker counts by: partition and kind, and the zone."""
        zone = self.sights[node].zone if node in self.sights else ""
        return (*self.places.get(node, Place()).pools, *((ZONE + zone,) if zone else ()))

    def _is_closed(self, node: str) -> bool:
        return node in self.sights and self.sights[node].zone in self.policy.closed_zones

    def _restart_timers(self, released: Iterable[Circuit], now: float) -> None:
        for circuit in released:
            self.alerts.append(f"{circuit.cause[0]} in {circuit.pool}: no longer held")
            for name, memory in self.nodes.items():
                if circuit.pool != CLUSTER and circuit.pool not in self.pools(name):
                    continue
                for one in memory.signals.values():
                    if one.bad_since_s is not None and (circuit.cause == (one.type, one.reason) or (
                            circuit.cause == STORM and (one.source, one.type) == READY)):
                        one.restart(now)

    def _storm(self) -> bool:
        """All nodes of the cluster, or of two zones, turned NotReady within a short time."""
        if len(self._not_ready) <= self.policy.breaker.least:
            return False
        zones: dict[str, list[float | None]] = {}
        for name, sight in self.sights.items():
            if not self._is_closed(name):
                ready = self.nodes[name].signals.get(READY)
                zones.setdefault(sight.zone, []).append(ready.bad_since_s if ready is not None else None)
        lost = [since for since in zones.values() if None not in since]
        starts = sorted(at for since in lost for at in since if at is not None)
        if len(starts) <= self.policy.breaker.least or (len(lost) < 2 and len(lost) < len(zones)):
            return False
        return starts[-1] - starts[0] <= self.policy.breaker.storm

    # ---- judgement --------------------------------------------------------------------------------------------------

    def _judge(self, node: str, now: float) -> None:
        memory, sight = self.nodes[node], self.sights.get(node)
        if sight is None:
            return
        signals = {key: one for key, one in sight.signals.items() if self.policy.knows(one)}
        memory.launch_failures = self._launch_failures(memory, now)
        if len(memory.launch_failures) >= self.policy.windows.launch_count:
            failing = Signal(LAUNCH, "launches", "failing")
            signals[failing.key] = failing
        for key in {*signals, *memory.signals}:
            one = memory.signals.get(key)
            if one is None:
                one = memory.signals[key] = SignalMemory(*key)
            was = one.bad_since_s
            judge(one, signals.get(key), self.policy, now, is_ready=sight.is_ready)
            if was is None and one.bad_since_s is not None:
                self._turned_bad(node, one, now)
            if one.is_quiet and key not in signals and (one.verdict == ABSENT or is_gone_for_good(key[0])):
                del memory.signals[key]
        if memory.returned_s is not None and now - memory.returned_s >= self.policy.windows.orphans:
            memory.returned_s = None
        self._ready(node, memory, sight, now)
        self._devices(memory, now)
        self._note_open(node, memory)
        (self._not_ready.discard if sight.is_ready else self._not_ready.add)(node)
        causes = tuple((one.type, one.reason) for one in memory.signals.values() if takes_work_away(one, self.policy))
        if causes != self._flagged.get(node, ()) and not self._is_closed(node):
            self._flagged[node] = causes
            if not causes:
                del self._flagged[node]
            if len(self._flagged) <= self.policy.breaker.least:
                self._suspects = frozenset()

    def _turned_bad(self, node: str, one: SignalMemory, now: float) -> None:
        rule = rule_of(one, self.policy)
        if rule is None or (rule.is_hard and (one.source, one.type) != READY) or self._is_closed(node):
            return
        for pool in self.pools(node):
            if self.breaker.note(pool, self.sizes.get(pool, 1), (one.type, one.reason), node, now):
                self.alerts.append(f"{one.type} {one.reason or one.status} on many nodes of {pool} at once: nothing is "
                                   "done to jobs for it (slurmbridge health)")

    def _ready(self, node: str, memory: NodeMemory, sight: Sight, now: float) -> None:
        if not memory.never_ready:
            return
        if sight.is_ready:
            memory.never_ready = False
            for partition in self.places.get(node, Place()).partitions:
                self.boots[partition] = 0
        elif not memory.boot_failed and now - memory.first_s >= self.policy.windows.boot:
            self._boot_failed(node, memory)

    def _boot_failed(self, node: str, memory: NodeMemory) -> None:
        memory.boot_failed = True
        for partition in self.places.get(node, Place()).partitions:
            self.boots[partition] += 1
            if self.boots[partition] >= self.policy.windows.boot_count:
                self.boots[partition] = 0
                self.to_close.add(partition)
                self.alerts.append(f"partition {partition}: {self.policy.windows.boot_count} nodes in a row did not "
                                   "come up")

    def _devices(self, memory: NodeMemory, now: float) -> None:
        """Missing devices are closed at once, and handed out again one by one, not while hardware is suspected."""
        missing = {one.type: one.missing for one in memory.signals.values()
                   if one.source == CAPACITY and one.verdict != GOOD}
        suspected = any(one.bad_since_s is not None and (rule := rule_of(one, self.policy)) is not None
                        and rule.cls == HARDWARE for one in memory.signals.values())
        for kind in {*missing, *memory.short}:
            lacking, closed = missing.get(kind, 0), memory.short.get(kind, 0)
            if lacking >= closed:
                memory.short[kind], memory.readmitted_s = lacking, now
            elif not suspected and now - memory.readmitted_s >= self.policy.windows.readmit:
                memory.short[kind], memory.readmitted_s = closed - 1, now
            elif suspected:
                memory.readmitted_s = now
            if not memory.short[kind]:
                del memory.short[kind]

    def _find_suspects(self) -> None:
        """Past the floor, nodes that soft faults would keep off stay in use as the last choice: those of a cause that
        hit many first, then those flagged last."""
        if len(self._flagged) <= self.policy.breaker.least:
            self._suspects = frozenset()
            return
        flagged: dict[str, list[tuple[bool, float, str]]] = {}
        for name, causes in self._flagged.items():
            held = all(self.breaker.holds(self.pools(name), cause) for cause in causes)
            since = min(one.bad_since_s for one in self.nodes[name].signals.values() if one.bad_since_s is not None)
            for pool in self.places.get(name, Place()).pools:
                flagged.setdefault(pool, []).append((held, since, name))
        suspects: set[str] = set()
        for pool, nodes in flagged.items():
            most = max(self.policy.breaker.least, math.floor(self.policy.breaker.floor * self.sizes.get(pool, 0)))
            suspects |= {name for _, _, name in sorted(nodes)[most:]}
        self._suspects = frozenset(suspects)

    def verdict(self, node: str, now: float, *, is_busy: bool = True) -> Verdict:
        """``is_busy``: a job has the node, or nobody can tell."""
        memory = self.nodes.get(node)
        if memory is None:
            return Verdict(node)
        partitions = self.places.get(node, Place()).partitions
        found = compose(node, memory, self.sights.get(node), partitions, self.policy, now,
                        is_suspect=node in self._suspects, is_busy=is_busy, is_closed=self._is_closed(node),
                        is_held=lambda one: self.held(node, one))
        return replace(found, acts=tuple(
            act for act in found.acts if not act.can_be_held or self._may(node, act.cause, now)))

    def held(self, node: str, one: SignalMemory) -> bool:
        return self.breaker.holds(self.pools(node), (one.type, one.reason))

    def _may(self, node: str, cause: tuple[str, str], now: float) -> bool:
        pools = self.pools(node)
        if now - self.started_s < self.policy.windows.warm_up or self.breaker.holds(pools, cause):
            return False
        still = {name for name, memory in self.nodes.items() if any(
            one.bad_since_s is not None and (one.type, one.reason) == cause for one in memory.signals.values())}
        return self.breaker.lets_go(pools, self.sizes, cause, node, still, now)

    # ---- over a restart ---------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """What is not of one node."""
        return {"breaker": self.breaker.dump(), "boots": dict(self.boots)}

    def load(self, plain: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> None:
        self.breaker.load(plain.get("breaker", ()))
        self.boots.update(plain.get("boots", {}))
        self.nodes = {name: NodeMemory.load(values) for name, values in nodes.items()}
