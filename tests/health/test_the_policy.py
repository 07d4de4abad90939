"""The policy as data: what a site may write, what is refused, and whom nobody listens to."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmbridge.controller.config import Config, ConfigError, read_config
from slurmbridge.health.policy import Policy
from slurmbridge.health.rules import DEFAULTS
from slurmbridge.health.sight import Signal


def test_a_metric_is_nobody_to_listen_to(tmp_path: Any) -> None:
    """A level that stays (the last XID, for ever) must not keep a node off: a rule cannot even name one."""
    assert not Policy(DEFAULTS).knows(Signal("metric", "DCGM_FI_DEV_XID_ERRORS", "31"))
    file = tmp_path / "slurmbridge.yaml"
    file.write_text("health: {rules: [{type: DCGM_FI_DEV_XID_ERRORS, source: metric, bad: ['31'], class: H}]}")
    with pytest.raises(ConfigError, match="source 'metric'"):
        read_config(str(file))


@pytest.mark.parametrize(("kind", "status", "is_bad"), [
    ("Ready", "False", True), ("Ready", "Unknown", True), ("Ready", "True", False),
    ("KernelReady", "False", True), ("KernelReady", "True", False), ("KernelReady", "Unknown", False),
    ("KernelDeadlock", "True", True), ("KernelDeadlock", "False", False),
    ("MemoryPressure", "True", True), ("MemoryPressure", "Unknown", False),
    ("GpuMemWatch", "True", True), ("GpuMemWatch", "False", False),
    ("kubernetes.azure.com/NodeHealthy", "False", True), ("NetworkUnavailable", "False", False),
    ("SlurmNodeDrain", "True", False), ("SoperatorChecksNodeDegraded", "True", False), ("MyReady", "False", False)])
def test_polarity_is_of_the_type(kind: str, status: str, is_bad: bool) -> None:
    assert (Policy(DEFAULTS).rule_for(Signal("condition", kind, status)) is not None) is is_bad


@pytest.mark.parametrize(("reason", "message", "cls"), [
    ("DCGMError", "", "I"), ("NvidiaXID79Error", "", "H"),
    ("DCGMError", "NvidiaXID79Error: GPU fell off; DCGMError: lost", "H"), ("SomethingNew", "", "H")])
def test_the_worst_of_several_reasons_counts(reason: str, message: str, cls: str) -> None:
    rule = Policy(DEFAULTS).rule_for(Signal("condition", "AcceleratedHardwareReady", "False", reason, message))
    assert rule is not None and rule.cls == cls


def test_a_sites_rules_come_first(tmp_path: Any) -> None:
    file = tmp_path / "slurmbridge.yaml"
    file.write_text("""
health:
  stage: act
  stages: {debug: observe}
  requires: {gpu: [AcceleratedHardwareReady]}
  windows: {healthy_delay: 60, warm_up: 0}
  breaker: {share: 0.5}
  rules:
    - {type: StorageReady, bad: "False", reason: "EBS*", class: H, action: jobs, act_after_s: 60}
    - {type: MyProbe, bad: [True, Unknown], class: R, keeps_off: gpus, healthy_delay_s: -1}
""")
    policy = read_config(str(file)).health.policy({"SlurmdTimeout": "120"})
    assert policy.windows.down_after == 120 and policy.windows.healthy_delay == 60
    assert policy.stage_of("debug") == "observe" and policy.stage_of("other") == "act"
    ours = policy.rule_for(Signal("condition", "StorageReady", "False", "EBSGone"))
    default = policy.rule_for(Signal("condition", "StorageReady", "False", "Other"))
    assert ours is not None and (ours.cls, ours.act, ours.act_after_s) == ("H", "jobs", 60)
    assert default is not None and default.cls == "R"
    assert policy.rule_for(Signal("condition", "MyProbe", "True")) is not None


@pytest.mark.parametrize(("text", "error"), [
    ("{stage: sometimes}", "health.stage"), ("{rules: [{type: A, bad: 'True'}]}", "class"),
    ("{rules: [{type: A, bad: 'True', class: X}]}", "class 'X'"),
    ("{rules: [{type: A, bad: 'True', class: H, action: reboot}]}", "action 'reboot'"),
    ("{rules: [{type: A, bad: [], class: H}]}", "which status is bad"),
    ("{windows: {nap: 5}}", "nap is none of"), ("{breaker: {share: -1}}", "negative"), ("{bogus: 1}", "unknown key")])
def test_what_is_refused(tmp_path: Any, text: str, error: str) -> None:
    file = tmp_path / "slurmbridge.yaml"
    file.write_text(f"health: {text}")
    with pytest.raises(ConfigError, match=error) as found:
        read_config(str(file))
    assert "\n" not in str(found.value)


def test_nothing_given_is_the_default() -> None:
    assert Config().health.policy({}) == Policy(DEFAULTS)


def table() -> str:
    """The default rules as docs/health.md has them; run this file to print it."""
    lines = ["| says | type | bad | of these | class | new work | after | state | jobs |", "|" + "---|" * 9]
    for rule in DEFAULTS:
        of = ", ".join(one for one in (rule.reason, rule.message) if one != "*")
        jobs = "" if rule.act == "nothing" else f"{rule.act} {(rule.act_after_s or 0) / 60:g} min"
        if rule.warn_after_s is not None:
            jobs += f", warn {rule.warn_after_s / 60:g} min"
        off = {"all": "kept off", "gpus": "GPU work kept off", "last": "taken last", "none": ""}[rule.keeps_off]
        cells = [rule.source, rule.type, ", ".join(rule.bad), of, rule.cls, off,
                 f"{rule.exclude_after_s / 60:g} min" if rule.exclude_after_s else "", rule.state, jobs]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def test_the_documentation_has_the_table_as_it_is() -> None:
    assert table() in (Path(__file__).parents[2] / "docs" / "health.md").read_text()


if __name__ == "__main__":
    print(table())
