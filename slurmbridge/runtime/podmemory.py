"""Whether the kernel killed processes of a pod for want of memory. The pod's own limit counts for all of its steps."""
from __future__ import annotations

import os
from dataclasses import dataclass

from slurmbridge.runtime.cgroups import ROOTS, Hierarchy, RunGroups, StepGroup


def container_hierarchy(roots: tuple[str, ...] = ROOTS) -> Hierarchy | None:
    """The container's own group, which it sees as the root and may only read."""
    for root, file, version in ((roots[0], "memory.oom_control", 1), (roots[1], "memory.events", 2)):
        if os.path.exists(os.path.join(root, file)):
            return Hierarchy(root, version)
    return None


@dataclass(frozen=True, slots=True)
class PodGroups(RunGroups):
    """Nothing is limited beyond the container; each step only counts what is killed while it runs."""

    def make(self, step: str, limit_bytes: int) -> StepGroup | None:
        return PodStep(self.tree, "", self.tree.oom_kills(self.tree.root))


@dataclass(frozen=True, slots=True)
class PodStep(StepGroup):
    """``path`` is empty: there is no group to enter."""

    before: int = 0

    @property
    def oom_kills(self) -> int:
        return self.tree.oom_kills(self.tree.root) - self.before

    def remove(self) -> None:
        return


def pod_groups() -> PodGroups | None:
    tree = container_hierarchy()
    return PodGroups(tree, "") if tree is not None else None
