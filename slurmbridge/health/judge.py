"""One signal over time: from what is said now and what is remembered to one of good, bad, unknown, absent, stale.

An episode that began ends only by recovery: a reporter that falls silent, cannot tell, or is removed ends nothing.
The clock is an argument; what was seen is timed by it, whatever the reporter's clock says.
"""
from __future__ import annotations

from slurmbridge.health.memory import ABSENT, BAD, GOOD, STALE, UNKNOWN, SignalMemory
from slurmbridge.health.policy import HARDWARE, INFORMATION, MAINTENANCE, Policy, Rule
from slurmbridge.health.sight import CAPACITY, CONDITION, DEVICE_TAINT, READY, Signal

DAY_S = 86400.0


def judge(memory: SignalMemory, signal: Signal | None, policy: Policy, now: float, *, is_ready: bool) -> None:
    """Changes ``memory`` to what is known now. ``signal``: None where nobody says anything of it any more."""
    is_new = not memory.since_s
    verdict = _verdict(memory, signal, policy, now, is_ready)
    if verdict != memory.verdict or is_new:
        memory.verdict, memory.since_s = verdict, now
    if signal is not None and (verdict == BAD or (verdict == STALE and memory.bad_since_s is None)):
        _bad(memory, signal, policy, now, is_new=is_new)
    if verdict == GOOD:
        _good(memory, signal, policy, now)
    elif verdict != BAD:
        memory.good_since_s = None
        _freeze(memory, now)


def _verdict(memory: SignalMemory, signal: Signal | None, policy: Policy, now: float, is_ready: bool) -> str:
    if signal is None:
        return GOOD if is_gone_for_good(memory.source) else ABSENT
    rule = policy.rule_for(signal)
    if _is_silent(memory, signal, rule or policy.any_rule(signal), policy, now, is_ready):
        return STALE if rule is not None or memory.bad_since_s is not None else ABSENT
    if rule is not None:
        return BAD
    if signal.status not in ("Unknown", ""):
        return GOOD
    if memory.verdict == UNKNOWN:
        return UNKNOWN if now - memory.since_s < policy.windows.unknown_kept else ABSENT
    return ABSENT if memory.verdict == ABSENT else UNKNOWN


def is_gone_for_good(source: str) -> bool:
    """A taint, cordon, label or lack of devices that is not there is over; a condition that is not there says nothing.
    """
    return source not in (CONDITION, DEVICE_TAINT)


def _is_silent(memory: SignalMemory, signal: Signal, rule: Rule | None, policy: Policy, now: float,
               is_ready: bool) -> bool:
    """Its reporter was not heard for so long that what it said counts no more. Heartbeats are compared with each other
    only: a node's clock may be wrong."""
    if signal.source == CONDITION and signal.key != READY and not is_ready:
        return True
    if signal.heartbeat_s != memory.beat_s:
        memory.beat_seen_s = now if memory.beat_s is not None else min(now, signal.heartbeat_s or now)
        memory.beat_s = signal.heartbeat_s
    return rule is not None and rule.period_s is not None and signal.heartbeat_s is not None \
        and now - memory.beat_seen_s > policy.windows.stale_after_periods * rule.period_s


def _bad(memory: SignalMemory, signal: Signal, policy: Policy, now: float, *, is_new: bool) -> None:
    rule = policy.rule_for(signal)
    assert rule is not None
    if memory.muted is not None:
        if rule.rank >= memory.muted:
            return
        memory.muted = None
    if signal.heartbeat_s is None or signal.heartbeat_s != memory.bad_beat_s:
        memory.rebooted = False               # said after the reboot
    known = rule_of(memory, policy)
    if known is None or rule.rank < known.rank:
        memory.status, memory.reason, memory.message = signal.status, signal.reason, signal.message
    memory.missing, memory.bad_beat_s = signal.missing, signal.heartbeat_s
    if (memory.bad_since_s is None or memory.good_since_s is not None) and signal.source == CONDITION \
            and rule.cls not in (MAINTENANCE, INFORMATION):
        memory.starts = [at for at in memory.starts if now - at < DAY_S] + [now]
        recent = [at for at in memory.starts if now - at <= policy.windows.flap]
        memory.flapping = memory.flapping or len(recent) >= policy.windows.flap_count
    if memory.bad_since_s is None:
        seen = signal.changed_s if is_new else None
        memory.bad_since_s = seen if seen is not None and 0 < seen < now else now
        memory.frozen_s, memory.frozen_at_s, memory.restarted_s = 0.0, None, None
    memory.good_since_s = None
    if memory.frozen_at_s is not None:
        memory.frozen_s += now - memory.frozen_at_s
        memory.frozen_at_s = None
    if now - memory.bad_since_s >= rule.exclude_after_s:
        memory.excluded = True


def _good(memory: SignalMemory, signal: Signal | None, policy: Policy, now: float) -> None:
    memory.muted = None
    if memory.bad_since_s is None:
        return
    _freeze(memory, now)
    if memory.good_since_s is None:
        memory.good_since_s = now
    if not memory.excluded and not memory.flapping:
        end(memory, now)
        return
    if signal is not None and signal.heartbeat_s is not None and memory.bad_beat_s is not None \
            and signal.heartbeat_s < memory.bad_beat_s and not memory.rebooted:
        return                                # older than the bad verdict
    delay_s = recovery_s(memory, policy, now)
    if delay_s is not None and now - memory.good_since_s >= delay_s:
        end(memory, now)


def recovery_s(memory: SignalMemory, policy: Policy, now: float) -> float | None:
    """How long it must be good before the episode is over; None: until a human says so."""
    rule, windows = rule_of(memory, policy), policy.windows
    delay_s = windows.healthy_delay
    if rule is not None and rule.healthy_delay_s is not None:
        delay_s = rule.healthy_delay_s
    if delay_s < 0:
        return None
    if memory.flapping:
        return max(delay_s, min(windows.flap * (1 << memory.holds), windows.flap_most))
    if rule is not None and not rule.is_hard and rule.state and rule.cls != MAINTENANCE:
        if len([at for at in memory.lifted if now - at < windows.relapse]) >= windows.relapse_count:
            return None
        if rule.cls == HARDWARE and not memory.rebooted:
            return max(delay_s, windows.agent_restart)
    return delay_s


def rule_of(memory: SignalMemory, policy: Policy) -> Rule | None:
    """By which rule the signal is, or was last, bad; None outside an episode."""
    return policy.rule_for(signal_of(memory)) if memory.bad_since_s is not None else None


def signal_of(memory: SignalMemory) -> Signal:
    """As it was last seen bad."""
    return Signal(memory.source, memory.type, memory.status, memory.reason, memory.message, missing=memory.missing)


def end(memory: SignalMemory, now: float) -> None:
    """The episode is over."""
    memory.starts = [] if memory.flapping else [at for at in memory.starts if now - at < DAY_S]
    memory.holds = memory.holds + 1 if memory.flapping else memory.holds if memory.starts[:-1] else 0
    if memory.excluded:
        memory.lifted = [at for at in memory.lifted if now - at < 8 * DAY_S] + [now]
    memory.bad_since_s = memory.good_since_s = memory.frozen_at_s = memory.restarted_s = memory.bad_beat_s = None
    memory.frozen_s, memory.rebooted, memory.excluded, memory.flapping = 0.0, False, False, False
    memory.status, memory.reason, memory.message, memory.missing = "", "", "", 0


def machine_changed(memory: SignalMemory, now: float, *, is_other: bool) -> None:
    """Another boot of the machine, or another machine: what nobody says any more of the old one is over. A signal that
    is there is judged by itself: bad again at once, or good for its usual delay."""
    memory.rebooted = True
    if is_other or memory.verdict in (ABSENT, STALE):
        if memory.bad_since_s is not None:
            end(memory, now)
        memory.starts, memory.lifted, memory.holds = [], [], 0


def mute(memory: SignalMemory, policy: Policy, now: float) -> None:
    """A human ends the episode, and does not want to hear of the same again before it was good."""
    if memory.bad_since_s is not None:
        rule = rule_of(memory, policy)
        is_there = memory.verdict not in (GOOD, ABSENT)
        end(memory, now)
        if rule is not None and is_there and memory.source != CAPACITY:     # devices that are not there stay away
            memory.muted = rule.rank
        memory.starts, memory.lifted, memory.holds = [], [], 0


def _freeze(memory: SignalMemory, now: float) -> None:
    if memory.bad_since_s is not None and memory.frozen_at_s is None:
        memory.frozen_at_s = now
