"""The sections ``https``, ``identity``, ``leader`` and ``probes`` of slurmbridge.yaml: who may call, who leads."""
from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_STRICT = ConfigDict(extra="forbid")


def host_and_port(text: str) -> tuple[str, int]:
    """``0.0.0.0:6817``, ``[::]:6817`` or ``:6817`` (every address). Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError("ADDRESS:PORT is expected")
    return host.strip("[]"), int(port)


class HttpsSettings(BaseModel):
    """Without ``certificate`` one is made in the state, for the names of this machine and ``names``."""

    model_config = _STRICT
    listen: str
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = Field(default=(), description="DNS names and IP addresses of the certificate made here")
    url: str = Field(default="", description="where jobs reach this controller; default: nowhere")
    ca: Path | None = Field(default=None, description="what jobs check its certificate by; default: the certificate")

    @field_validator("listen")
    @classmethod
    def _address(cls, given: str) -> str:
        host_and_port(given)
        return given

    @model_validator(mode="after")
    def _both(self) -> HttpsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together")
        if self.url and not self.url.startswith("https://"):
            raise ValueError("url must be https://…")
        return self


class UserRule(BaseModel):
    """Which Unix user a cluster's user is: ``name`` (a regular expression for the whole name) and, where given,
    ``group`` (one of the caller's groups). ``user`` may use the groups of ``name`` (``\\1``)."""

    model_config = _STRICT
    name: str = ".*"
    group: str | None = None
    user: str

    @model_validator(mode="after")
    def _fits(self) -> UserRule:
        try:
            compiled = re.compile(self.name)
            for number in re.findall(r"\\(\d)", self.user):
                if int(number) > compiled.groups:
                    raise ValueError(f"user: \\{number} is no group of name")
        except re.error as error:
            raise ValueError(f"name: {error}") from None
        if not self.user:
            raise ValueError("user is empty")
        return self

    @property
    def is_literal(self) -> bool:
        return "\\" not in self.user


class Relay(BaseModel):
    """A cluster's user (its full name) whose word about its own callers counts: ``slurmbridge relay`` on a login node.
    ``root``: also about root and SlurmUser."""

    model_config = _STRICT
    name: str
    root: bool = False


class IdentitySettings(BaseModel):
    """Rules are tried in order; who fits none is refused. ``audiences``: of tokens; default: the API server's own."""

    model_config = _STRICT
    audiences: tuple[str, ...] = ()
    users: tuple[UserRule, ...] = ()
    relays: tuple[Relay, ...] = ()


class LeaderSettings(BaseModel):
    """Several controllers of one PostgreSQL ledger: who holds the Lease of this name works, the others stand by.
    ``service``: one without a selector, whose EndpointSlice ``NAME-leader`` the leader writes (its own address is
    ``$SLURMBRIDGE_POD_IP``)."""

    model_config = _STRICT
    lease: str = "slurmbridge"
    duration_s: float = Field(default=15.0, ge=1)
    namespace: str | None = Field(default=None, description="of lease and service; default: where this pod runs")
    service: str = ""
    port: int = 6817


class ProbeSettings(BaseModel):
    """/livez, /readyz and /metrics in plain HTTP, for the kubelet and Prometheus."""

    model_config = _STRICT
    listen: str

    @field_validator("listen")
    @classmethod
    def _address(cls, given: str) -> str:
        host_and_port(given)
        return given
