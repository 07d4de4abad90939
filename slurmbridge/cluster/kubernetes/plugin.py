"""What the engine expects of a scheduler plugin (entry point group ``slurmbridge.schedulers``)."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol

from slurmbridge.cluster.kubernetes.api import Api

GROUP = "slurmbridge.schedulers"


class BindError(Exception):
    """A pod could not be bound to ``node``. ``str()`` says why."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(text)
        self.node = node


@dataclass(frozen=True, slots=True)
class PodPlace:
    """A pod and its planned node."""

    pod: str
    uid: str
    node: str


class Binder(Protocol):
    scheduler_name: str                       # what the pods' schedulerName is

    async def bind(self, places: Sequence[PodPlace]) -> None:
        """Returns when all pods of a gang are bound as planned. Safe to repeat. Raises BindError."""
        ...


def load_binder(name: str, api: Api, namespace: str) -> Binder:
    """Raises LookupError for a plugin that is not installed."""
    for found in entry_points(group=GROUP, name=name):
        made: Binder = found.load()(api, namespace)
        return made
    raise LookupError(f"no scheduler {name!r} is installed (entry points {GROUP})")
