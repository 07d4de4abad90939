"""What administrators read: each verdict of a node, who said it, since when, and what will happen next."""
from __future__ import annotations

from collections.abc import Mapping

from slurmbridge.health.judge import recovery_s, rule_of
from slurmbridge.health.memory import BAD, GOOD, SignalMemory
from slurmbridge.health.monitor import Monitor, Place
from slurmbridge.health.policy import GPUS, LAST, NOTHING, OBSERVE, Rule
from slurmbridge.health.sight import READY
from slurmbridge.health.verdict import Verdict
from slurmbridge.slurm import durations

_WHO = {"condition": "condition", "taint": "taint", "cordon": "node object", "label": "label",
        "capacity": "device plugin", "device-taint": "device taint", "launch": "slurmbridge's own launches"}


def explain(monitor: Monitor, node: str, now: float, verdict: Verdict, foreign: str = "") -> str:
    """``foreign``: the reason of a state that is not ours."""
    memory, sight = monitor.nodes.get(node), monitor.sights.get(node)
    place = monitor.places.get(node, Place())
    stages = " ".join(f"{name}={monitor.policy.stage_of(name)}" for name in place.partitions)
    lines = [f"Node {node}: {summary(verdict)}", f"  stages: {stages or monitor.policy.stage}"]
    if foreign:
        lines.append(f"  somebody else set: {foreign} (left alone)")
    if memory is None:
        return "\n".join([*lines, "  nobody has said anything of it", ""])
    if memory.gone_s is not None:
        lines.append(f"  its node object was deleted {_ago(now - memory.gone_s)}")
    for kind, count in sorted(memory.short.items()):
        lines.append(f"  {count} {kind} not handed out")
    for key, one in sorted(memory.signals.items()):
        lines += _signal_lines(monitor, node, one, now) if one.bad_since_s is not None or one.muted is not None else [
            f"  {key[1]}: {one.verdict}"]
    known = set(memory.signals)
    for key, signal in sorted((sight.signals if sight is not None else {}).items()):
        if key not in known and key[0] not in ("label",):
            lines.append(f"  {key[1]}={signal.status}: no rule names it, never acted upon")
    return "\n".join([*lines, ""])


def summary(verdict: Verdict) -> str:
    words = [verdict.state] if verdict.state else []
    words += [word for word, holds in (
        ("not responding", verdict.not_responding), ("no new work", verdict.blocked),
        ("no devices", verdict.no_devices), ("suspect, taken last", verdict.last)) if holds]
    words += [f"closed for partition {name}" for name in verdict.closed_partitions]
    return f"{', '.join(words) or 'usable'}{': ' if verdict.reason else ''}{verdict.reason}"


def _signal_lines(monitor: Monitor, node: str, one: SignalMemory, now: float) -> list[str]:
    if one.bad_since_s is None:
        return [f"  {one.type}: {one.verdict}; cleared by an administrator, not heard of before it was good once"]
    rule = rule_of(one, monitor.policy)
    said = f"{one.type}={one.status}{'/' if one.reason else ''}{one.reason}"
    lines = [f"  {said}: class {rule.cls if rule else '?'}, said by {_WHO[one.source]}, since "
             f"{_ago(now - one.bad_since_s)}; now {one.verdict}"]
    if one.message:
        lines.append(f"    message: {' '.join(one.message.split())[:200]}")
    if rule is not None:
        lines += [f"    next: {text}" for text in _next(monitor, node, one, rule, now)]
    return lines


def _next(monitor: Monitor, node: str, one: SignalMemory, rule: Rule, now: float) -> list[str]:
    policy, found = monitor.policy, []
    spent_s, is_ready = one.bad_for_s(now), (one.source, one.type) == READY
    partitions = monitor.places.get(node, Place()).partitions
    if policy.strongest(partitions) == OBSERVE and not rule.is_hard:
        return ["nothing, the stage of its partitions is observe"]
    held = monitor.held(node, one)
    if not one.excluded:
        found.append(f"new work is kept off in {_span(rule.exclude_after_s - spent_s)}")
    elif rule.keeps_off == GPUS:
        found.append("new work with devices is kept off")
    elif rule.keeps_off == LAST:
        found.append("new work comes here last")
    if is_ready and spent_s < policy.windows.down_after:
        found.append(f"DOWN in {_span(policy.windows.down_after - spent_s)}")
    after_s = policy.windows.lost_jobs_after if is_ready else rule.act_after_s
    if held:
        found.append("nothing is done to jobs: too many nodes say the same, the breaker is open")
    elif rule.act != NOTHING and after_s is not None and one.verdict == BAD:
        whose = "" if rule.is_hard else " of partitions in stage act"
        found.append(f"{rule.act}{whose}: {'due now' if spent_s >= after_s else 'in ' + _span(after_s - spent_s)}")
    elif rule.act != NOTHING and one.verdict != BAD:
        found.append(f"{rule.act}: the clock stands while it is {one.verdict}")
    delay_s = recovery_s(one, policy, now)
    if delay_s is None:
        found.append("a human ends it (slurmbridge health --undo, or scontrol update State=RESUME)")
    elif one.verdict == GOOD and one.good_since_s is not None:
        found.append(f"over in {_span(delay_s - (now - one.good_since_s))}")
    else:
        found.append(f"over once it was good for {_span(delay_s)}" if delay_s else "over as soon as it is good")
    return found


def _span(seconds: float) -> str:
    return durations.format_seconds(max(0, int(seconds)))


def _ago(seconds: float) -> str:
    return f"{_span(seconds)} ago"


def overview(monitor: Monitor, verdicts: Mapping[str, Verdict], now: float) -> str:
    """One line for each node that is not as it should be, and what the breaker holds."""
    lines = [f"{name}: {summary(one)}" for name, one in sorted(verdicts.items()) if summary(one) != "usable"]
    for one in monitor.breaker.tripped:
        lines.append(f"breaker: {one.cause[0]} {one.cause[1] or '(all nodes at once)'} in {one.pool}: held since "
                     f"{_ago(now - (one.tripped_s or now))}")
    stages = sorted(monitor.policy.stages.items())
    lines.append(f"stages: {monitor.policy.stage}" + "".join(f", {name}={stage}" for name, stage in stages))
    well = len(monitor.sights) - sum(name in verdicts for name in monitor.sights)
    lines.append(f"{well} of {len(monitor.sights)} nodes are well")
    return "\n".join([*lines, ""])
