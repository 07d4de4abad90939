"""The ``health:`` section of slurmbridge.yaml: a site's own rules, stages and windows over the defaults."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from slurmbridge.health.policy import BreakerLimits, Policy, Rule, Windows
from slurmbridge.health.rules import DEFAULTS

SLURMD_TIMEOUT_S = 300
"""Slurm's default: a node that has not answered for so long is DOWN."""
NEVER_S = 1e9
_STRICT = ConfigDict(extra="forbid", populate_by_name=True)
Stage = Literal["observe", "drain-only", "act"]


class RuleSettings(BaseModel):
    """One rule: a type that is bad in these statuses, with the reason or message where one is given."""

    model_config = _STRICT
    type: str
    bad: tuple[str, ...]
    cls: str = Field(alias="class")
    source: str = "condition"
    reason: str = "*"
    message: str = "*"
    keeps_off: str = "all"
    exclude_after_s: float = 0
    action: str = "nothing"
    act_after_s: float | None = None
    warn_after_s: float | None = None
    state: str = "DRAIN"
    short: str = ""
    period_s: float | None = None
    healthy_delay_s: float | None = None

    @field_validator("bad", mode="before")
    @classmethod
    def _words(cls, given: Any) -> Any:
        """YAML reads True and False without quotes as truth values; a status is a word."""
        return [str(one) for one in (given if isinstance(given, list | tuple) else [given])]

    @model_validator(mode="after")
    def _check(self) -> RuleSettings:
        self.rule()
        return self

    def rule(self) -> Rule:
        """Raises ValueError."""
        plain = self.model_dump()
        return Rule(act=plain.pop("action"), **plain)


class HealthSettings(BaseModel):
    """``windows`` and ``breaker``: keys of policy.Windows and policy.BreakerLimits, in seconds and shares."""

    model_config = _STRICT
    stage: Stage = "drain-only"
    stages: dict[str, Stage] = Field(default_factory=dict, description="by partition")
    rules: tuple[RuleSettings, ...] = ()
    requires: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="condition types by partition")
    closed_zones: tuple[str, ...] = ()
    windows: dict[str, float] = Field(default_factory=dict)
    breaker: dict[str, float] = Field(default_factory=dict)
    max_node_fail_requeue: int = Field(default=5, ge=0)
    node_fail_usage: Literal["charge", "refund_run"] = "charge"

    @field_validator("windows", "breaker")
    @classmethod
    def _known(cls, given: dict[str, float], info: Any) -> dict[str, float]:
        known = {field.name for field in fields(Windows if info.field_name == "windows" else BreakerLimits)}
        unknown = sorted(given.keys() - known)
        if unknown:
            raise ValueError(f"{unknown[0]} is none of {', '.join(sorted(known))}")
        if any(value < 0 for value in given.values()):
            raise ValueError("nothing here can be negative")
        return given

    def policy(self, conf_values: Mapping[str, Any]) -> Policy:
        """``conf_values``: slurm.conf's; a node that does not answer is DOWN after SlurmdTimeout (0: never)."""
        slurmd_timeout_s = float(conf_values.get("SlurmdTimeout", SLURMD_TIMEOUT_S)) or NEVER_S
        windows: dict[str, Any] = {"down_after": slurmd_timeout_s, **self.windows}
        breaker: dict[str, Any] = dict(self.breaker)
        return Policy(
            (*(one.rule() for one in self.rules), *DEFAULTS), self.stage, dict(self.stages), dict(self.requires),
            frozenset(self.closed_zones), replace(Windows(), **windows), replace(BreakerLimits(), **breaker),
            self.max_node_fail_requeue, self.node_fail_usage == "refund_run")
