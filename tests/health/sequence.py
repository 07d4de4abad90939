"""Plays a timed sequence of what is said of nodes to a monitor, with the clock in its hand (tests/data/health.yaml)."""
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from slurmbridge.health.acting import JobFacts, concerned
from slurmbridge.health.monitor import Monitor
from slurmbridge.health.policy import WARN, BreakerLimits, Policy, Rule, Windows
from slurmbridge.health.rules import DEFAULTS
from slurmbridge.health.sight import read

CASES = Path(__file__).parents[1] / "data" / "health.yaml"
EPOCH = 1_800_000_000.0
TICK_S = 30.0
BEAT_S = 300.0
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def cases() -> list[dict[str, Any]]:
    return list(yaml.safe_load(CASES.read_text()))


def seconds(text: object) -> float:
    """``90``, ``10m``, ``1h`` or sums of them: ``10m30s``."""
    if isinstance(text, (int, float)):
        return float(text)
    total, number = 0.0, ""
    for letter in str(text):
        if letter in UNITS:
            total += float(number) * UNITS[letter]
            number = ""
        else:
            number += letter
    return total + float(number or 0)


def names(text: str) -> Iterator[str]:
    """``n1``, ``n2-n4``, and lists with commas."""
    for word in text.split(","):
        first, _, last = word.partition("-")
        for number in range(int(first[1:]), int((last or first)[1:]) + 1):
            yield f"n{number}"


class Play:
    """One case: nodes n1…, jobs, and what became of them."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.policy = Policy(
            rules=(*(Rule(**{**one, "bad": tuple(one["bad"])}) for one in case.get("rules", ())), *DEFAULTS),
            stage=case.get("stage", "act"), requires={name: tuple(types) for name, types in
                                                      case.get("requires", {}).items()},
            closed_zones=frozenset(case.get("closed_zones", ())),
            windows=replace(Windows(), **case.get("windows", {})),
            breaker=replace(BreakerLimits(), **case.get("breaker", {})))
        self.now = EPOCH
        self.nodes: dict[str, dict[str, Any]] = {}
        self.silent: dict[str, set[str]] = {}
        self.jobs = {int(job): facts for job, facts in case.get("jobs", {}).items()}
        self.killed: set[int] = set()
        self.warned: set[int] = set()
        self.acted_at: dict[int, float] = {}
        self.rows: dict[str, list[tuple[str, str]]] = {}
        self.alerts: list[str] = []
        self.monitor = self._monitor(EPOCH if case.get("fresh") else EPOCH - 86400)
        for number in range(1, int(case.get("nodes", 1)) + 1):
            self._add(f"n{number}", number)
        self._look()

    def _monitor(self, started_s: float) -> Monitor:
        monitor = Monitor(self.policy, started_s)
        for number in range(1, int(self.case.get("nodes", 1)) + 1):
            monitor.place(f"n{number}", self.case.get("partitions", ["p"]), "h100")
        return monitor

    def _add(self, name: str, number: int) -> None:
        zones = self.case.get("zones", [""])
        gpus = {"gpu:h100": 8} if self.case.get("gpus", True) else {}
        ready = self.case.get("ready", "True/KubeletReady")
        self.nodes[name] = {"uid": f"uid-{name}", "boot_id": "boot-1", "created_s": EPOCH - 86400,
                            "zone": zones[number % len(zones)], "conditions": [], "taints": [], "labels": {},
                            "capacity": gpus, "allocatable": dict(gpus), "pods": {}}
        self.silent[name] = set()
        self._condition(name, "Ready", ready)

    # ---- what happens -----------------------------------------------------------------------------------------------

    def _condition(self, name: str, kind: str, given: Any) -> None:
        node = self.nodes[name]
        before = next((one for one in node["conditions"] if one["type"] == kind), None)
        node["conditions"] = [one for one in node["conditions"] if one["type"] != kind]
        if given is None:
            return
        if not isinstance(given, dict):
            status, _, reason = str(given).partition("/")
            given = {"status": status, "reason": reason}
        one = {"type": kind, "heartbeat_s": self.now, "changed_s": self.now, **given, "status": str(given["status"])}
        if "ago" in one:
            one["changed_s"] = self.now - seconds(one.pop("ago"))
        elif before is not None and before["status"] == one["status"] and not one.pop("moves", False):
            one["changed_s"] = before["changed_s"]
        if one.pop("no_heartbeat", False):
            one["heartbeat_s"] = None
        node["conditions"].append(one)

    def apply(self, step: dict[str, Any]) -> None:
        for name in names(step.get("node", "n1")):
            node = self.nodes[name]
            for kind, given in step.get("conditions", {}).items():
                self._condition(name, kind, given)
            for key in ("uid", "boot_id", "zone", "unschedulable", "created_s"):
                if key in step:
                    node[key] = step[key]
            for key in ("labels", "capacity", "allocatable", "pods"):
                if step.get(key, {}) is None:
                    node[key] = None
                elif key in step:
                    node[key] = {**(node[key] or {}), **step[key]}
            for key, effect in step.get("taints", {}).items():
                node["taints"] = [one for one in node["taints"] if one["key"] != key]
                node["taints"] += [{"key": key, "effect": effect}] if effect else []
            for key, effect in step.get("device_taints", {}).items():
                node["device_taints"] = [{"key": key, "effect": effect}] if effect else []
            self.silent[name] |= set(step.get("silent", ()))
            self.silent[name] -= set(step.get("speaks", ()))
            if "gone" in step:
                node["gone"] = step["gone"]
                if step["gone"]:
                    self.monitor.gone(name, self.now)
            for _ in range(step.get("launch_failures", 0)):
                self.monitor.launch_failed(name, self.now)
            if step.get("launched"):
                self.monitor.launched(name)
            if step.get("cleared"):
                self.monitor.clear(name, self.now)
        if step.get("breaker_reset"):
            self.monitor.reset(self.now)
        for job in step.get("ended", ()):
            self.jobs.pop(job)
        if step.get("restart"):
            self._restart()

    def _restart(self) -> None:
        """The controller starts anew with what it had written down."""
        nodes = json.loads(json.dumps({name: memory.dump() for name, memory in self.monitor.nodes.items()}))
        rest = json.loads(json.dumps(self.monitor.dump()))
        self.monitor = self._monitor(self.now)
        self.monitor.load(rest, nodes)

    # ---- time -------------------------------------------------------------------------------------------------------

    def until(self, at_s: float) -> None:
        while self.now < EPOCH + at_s:
            self.now = min(self.now + TICK_S, EPOCH + at_s)
            self._beat()
            self._look()

    def _beat(self) -> None:
        for name, node in self.nodes.items():
            for one in node["conditions"]:
                if one["type"] not in self.silent[name] and one["heartbeat_s"] is not None \
                        and self.now - one["heartbeat_s"] >= BEAT_S:
                    one["heartbeat_s"] = self.now

    def _look(self) -> None:
        for name, node in self.nodes.items():
            if not node.get("gone"):
                self.monitor.see(read(name, node), self.now)
        self.monitor.tick(self.now)
        self.alerts += self.monitor.alerts
        self.monitor.alerts.clear()
        for name in self.nodes:
            self._carry_out(name)

    def _jobs_on(self, name: str) -> list[JobFacts]:
        return [JobFacts(job, facts.get("partition", "p"), facts.get("gpus", False), EPOCH + seconds(
            facts.get("start", 0)) - 1) for job, facts in self.jobs.items()
            if facts.get("node", "n1") == name and job not in self.killed]

    def _carry_out(self, name: str) -> None:
        verdict = self.verdict(name)
        pods = self.nodes[name]["pods"]
        for act in verdict.acts:
            for job in concerned(act, self._jobs_on(name), pods, self.policy):
                if act.action == WARN:
                    self.warned.add(job)
                else:
                    self.killed.add(job)
                    self.acted_at[job] = self.now - EPOCH
        row = (verdict.state, verdict.reason) if verdict.state else ("", "")
        rows = self.rows.setdefault(name, [("", "")])
        if rows[-1] != row:
            rows.append(row)

    def verdict(self, name: str) -> Any:
        pods = self.nodes[name]["pods"]
        return self.monitor.verdict(name, self.now, is_busy=pods is None or bool(self._jobs_on(name)))

    # ---- what is expected -------------------------------------------------------------------------------------------

    def check(self, step: dict[str, Any]) -> None:
        expected = step.get("expect", {})
        where = f"case {self.case['case']} at {step.get('at')}"
        for name in names(step.get("node", "n1")):
            verdict = self.verdict(name)
            seen = {
                "state": verdict.state, "takes_work": not (
                    verdict.state or verdict.blocked or verdict.not_responding or verdict.closed_partitions),
                "not_responding": verdict.not_responding, "last": verdict.last,
                "gpus": 0 if verdict.no_devices else 8 - verdict.closed.get("gpu:h100", 0),
                "rows": sum(bool(state) for state, _ in self.rows[name]),
                "closed_partitions": list(verdict.closed_partitions)}
            for key, value in expected.items():
                if key in seen:
                    assert seen[key] == value, f"{where}, {name}: {key} is {seen[key]!r}: {verdict}"
            if "reason" in expected:
                assert fnmatchcase(verdict.reason, expected["reason"]), f"{where}, {name}: {verdict.reason!r}"
        for key, got in (("killed", self.killed), ("warned", self.warned)):
            if key in expected:
                assert sorted(got) == sorted(expected[key]), f"{where}: {key} {sorted(got)}"
        for job, at in expected.get("killed_at", {}).items():
            assert abs(self.acted_at[job] - seconds(at)) <= TICK_S, f"{where}: job {job} at {self.acted_at[job]}"
        if "alert" in expected:
            assert any(expected["alert"] in text for text in self.alerts), f"{where}: {self.alerts}"
        if "tripped" in expected:
            assert bool(self.monitor.breaker.tripped) == expected["tripped"], f"{where}: {self.monitor.breaker.tripped}"
        if "schedulable" in expected:
            able = sum(not (one.state or one.blocked or one.not_responding) for one in map(self.verdict, self.nodes))
            assert able >= expected["schedulable"], f"{where}: {able} nodes take work"
        if "excluded" in expected:
            out = sum(bool(self.verdict(name).state) for name in self.nodes)
            assert out == expected["excluded"], f"{where}: {out} nodes are excluded"
        if "to_close" in expected:
            assert sorted(self.monitor.to_close) == expected["to_close"], where
