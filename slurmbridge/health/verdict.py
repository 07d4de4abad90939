"""From what is known of a node's signals to its state in Slurm's terms, the reason shown, and what its jobs are due."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurmbridge.health.judge import rule_of
from slurmbridge.health.memory import BAD, GOOD, UNKNOWN, NodeMemory, SignalMemory
from slurmbridge.health.policy import ACT, ALL, GPUS, JOBS, LAST, LOST, NOTHING, OBSERVE, WARN, Policy, Rule
from slurmbridge.health.sight import CONDITION, LAUNCH, READY, TAINT, Sight

NOT_RESPONDING = "Not responding"
"""Slurm's own words, which others look for."""
PREFIX = "kh:"
"""Begins every other reason of ours: a drain with another reason is somebody else's."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_XID = re.compile(r"[Xx][Ii][Dd]\D{0,2}(\d+)")


@dataclass(frozen=True, slots=True)
class Act:
    """Due now, as long as it is told: ``action`` is one of the policy's. ``is_hard``: in every stage.
    ``started_before_s``: only jobs that started before."""

    action: str
    cause: tuple[str, str]
    reason: str
    is_hard: bool = False
    can_be_held: bool = True
    started_before_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the node is to be. ``state``: "" (as it is), DRAIN, FAIL or DOWN. ``blocked``: no new work, without a state.
    ``closed``: devices by kind that are not handed out; ``no_devices``: none is. ``last``: taken last."""

    node: str
    state: str = ""
    reason: str = ""
    not_responding: bool = False
    blocked: bool = False
    no_devices: bool = False
    closed: Mapping[str, int] = field(default_factory=dict)
    closed_partitions: tuple[str, ...] = ()
    last: bool = False
    acts: tuple[Act, ...] = ()


def is_ours(reason: str) -> bool:
    return reason.startswith((PREFIX, NOT_RESPONDING))


def short_word(one: SignalMemory, rule: Rule) -> str:
    xid = _XID.search(one.reason) or _XID.search(one.message)
    if rule.short:
        return rule.short
    if xid is not None:
        return f"xid{xid[1]}"
    return "taint" if one.source == TAINT else one.reason or one.type


def reason_text(one: SignalMemory, rule: Rule) -> str:
    """Class and cause within the 20 characters that ``sinfo -R`` shows; nothing in it moves while the cause stays."""
    if (one.source, one.type) == READY and not one.flapping:
        return NOT_RESPONDING
    detail = f"{one.type}={one.status}" if one.source != LAUNCH and one.type != rule.short else ""
    detail += (f"/{one.reason}" if one.reason else "")
    short = "" if (one.source, one.type) == READY else f"{short_word(one, rule)} "
    text = f"{PREFIX}{rule.cls}:{'flap ' if one.flapping else ''}{short}{detail}"
    return _CONTROL.sub(" ", text).strip()


def takes_work_away(one: SignalMemory, policy: Policy) -> bool:
    """Whether the signal is soft and keeps all new work off its node."""
    rule = rule_of(one, policy)
    return one.excluded and rule is not None and not rule.is_hard and rule.keeps_off == ALL


def compose(node: str, memory: NodeMemory, sight: Sight | None, partitions: Sequence[str], policy: Policy, now: float,
            *, is_suspect: bool, is_busy: bool, is_closed: bool, is_held: Callable[[SignalMemory], bool]) -> Verdict:
    """Acts that the breaker may hold are marked so; the DOWN that it holds is left out."""
    if memory.gone_s is not None:
        reason = f"{PREFIX}{LOST}:deleted node object is gone"
        act = Act(JOBS, ("node", "deleted"), reason, is_hard=True, can_be_held=False)
        return Verdict(node, "DOWN", reason, acts=(act,))
    found = _Composer(policy, now, policy.strongest(partitions), is_suspect, is_busy, is_closed, is_held)
    if memory.replaced_s is not None:
        found.acts.append(Act(JOBS, ("node", "replaced"), f"{PREFIX}{LOST}:replaced another machine has its name",
                              is_hard=True, can_be_held=False, started_before_s=memory.replaced_s))
    if memory.returned_s is not None:         # nobody tells any more of the containers that it ran: their pods are gone
        found.reasons["DRAIN"].append(f"{PREFIX}{LOST}:orphans may be left, the node object was deleted")
    for one in memory.signals.values():
        rule = rule_of(one, policy)
        if rule is not None and (one.excluded or one.flapping):
            found.add(one, rule)
    if sight is not None and not sight.is_ready:
        found.lost(memory.signals.get(READY), sight)
    if is_closed:
        found.reasons["DRAIN"].append(f"{PREFIX}M:zone-closed {sight.zone if sight is not None else ''}")
    return found.verdict(node, dict(memory.short), _uncovered(memory, sight, partitions, policy, now))


class _Composer:
    def __init__(self, policy: Policy, now: float, stage: str, is_suspect: bool, is_busy: bool,
                 is_closed: bool, is_held: Callable[[SignalMemory], bool]) -> None:
        self._policy, self._now = policy, now
        self._stage, self._is_suspect, self._is_busy, self._is_closed = stage, is_suspect, is_busy, is_closed
        self._is_held = is_held
        self.reasons: dict[str, list[str]] = {"DOWN": [], "FAIL": [], "DRAIN": [], "": []}
        self.acts: list[Act] = []
        self.not_responding = self.blocked = self.no_devices = self.last = False

    def add(self, one: SignalMemory, rule: Rule) -> None:
        if self._stage == OBSERVE and not rule.is_hard:
            return
        reason, is_ready = reason_text(one, rule), (one.source, one.type) == READY
        acts_now = self._act(one, rule, reason)
        if is_ready:
            if one.flapping:
                self.reasons["DRAIN"].append(reason)
            return                            # the rest of it is in ``lost``
        if rule.keeps_off == GPUS:
            self.no_devices = True
        elif rule.keeps_off == LAST:
            self.last = True
        elif rule.keeps_off == ALL and self._is_suspect and not rule.is_hard:
            self.last = True
            self.reasons[""].append(reason)
            return
        elif rule.keeps_off == ALL:
            self.blocked = True
        if rule.keeps_off == ALL and rule.state:
            is_down = rule.down_when_empty and not self._is_busy and (rule.act == NOTHING or acts_now) and (
                rule.is_hard or (self._stage == ACT and not self._is_held(one)))
            self.reasons["DOWN" if is_down else rule.state].append(reason)
        elif rule.cls not in ("P", "I") or rule.keeps_off == GPUS:
            self.reasons[""].append(reason)

    def _act(self, one: SignalMemory, rule: Rule, reason: str) -> bool:
        """Whether its time has come."""
        if one.verdict != BAD or rule.act == NOTHING or self._is_closed or (one.source, one.type) == READY:
            return False
        cause, spent_s = (one.type, one.reason), one.bad_for_s(self._now)
        if rule.warn_after_s is not None and spent_s >= rule.warn_after_s:
            self.acts.append(Act(WARN, cause, reason))
        if rule.act_after_s is None or spent_s < rule.act_after_s:
            return False
        self.acts.append(Act(rule.act, cause, reason, rule.is_hard, can_be_held=not rule.is_hard))
        return True

    def lost(self, ready: SignalMemory | None, sight: Sight) -> None:
        """NotReady, or never heard of: no new work at once; DOWN and the loss of jobs take their time."""
        self.not_responding = True
        if ready is None or ready.bad_since_s is None or self._is_closed:
            return
        spent_s, windows = ready.bad_for_s(self._now), self._policy.windows
        if ready.frozen_s:                    # it answered in between
            spent_s = min(spent_s, self._now - ready.since_s)
        cause = (ready.type, ready.reason)
        if spent_s >= windows.down_after and not self._is_held(ready):
            self.reasons["DOWN"].append(NOT_RESPONDING)
        given_up = sight.status(CONDITION, "MaintenanceInProgress") == "True"
        if given_up or spent_s >= windows.lost_jobs_after:
            self.acts.append(Act(JOBS, cause, NOT_RESPONDING, is_hard=True, can_be_held=not given_up))

    def verdict(self, node: str, closed: Mapping[str, int], uncovered: tuple[str, ...]) -> Verdict:
        state = next((name for name in ("DOWN", "FAIL", "DRAIN") if self.reasons[name]), "")
        if state == "DOWN" and NOT_RESPONDING in self.reasons["DOWN"]:
            reason = NOT_RESPONDING
        else:
            texts = self.reasons["DOWN"] + self.reasons["FAIL"] + self.reasons["DRAIN"] if state else self.reasons[""]
            reason = "; ".join(sorted(set(texts)))
        return Verdict(node, state, reason, self.not_responding, self.blocked and not state, self.no_devices, closed,
                       uncovered, self.last, tuple(self.acts))


def _uncovered(memory: NodeMemory, sight: Sight | None, partitions: Sequence[str], policy: Policy, now: float,
               ) -> tuple[str, ...]:
    """Partitions that require somebody to watch the node, and nobody does."""
    if sight is None or not policy.requires:
        return ()
    since = sight.created_s if sight.created_s is not None else memory.first_s
    if now - since < policy.windows.coverage:
        return ()
    return tuple(name for name in partitions if any(
        (one := memory.signals.get((CONDITION, kind))) is None or one.verdict not in (GOOD, BAD, UNKNOWN)
        for kind in policy.requires.get(name, ())))
