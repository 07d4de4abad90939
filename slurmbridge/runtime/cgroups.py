"""Memory limits of jobs and steps by cgroup (v1 or v2), where the spawner is root and may write the hierarchy.

Each run has on each node ``slurmbridge/SITE/RUN.NODE`` with two groups below it: ``daemon`` for its step daemon, which
no limit touches, and ``job`` with the job's limit, which only root may change. In ``job`` the step daemon, by then the
user, makes a group for the batch script and for each step. Where any of this is not possible nothing is limited.
"""
from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

OUT_OF_MEMORY_STATUS = 125
"""The wait status of what the kernel's OOM killer has ended (sacct shows 0:125)."""
ROOTS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where the memory controller is. ``version``: 1 or 2."""

    root: str
    version: int

    def limit(self, group: str, limit_bytes: int) -> None:
        """Raises OSError."""
        if self.version == 2:
            _write(group, "memory.max", str(limit_bytes))
            with contextlib.suppress(OSError):
                _write(group, "memory.swap.max", "0")
        else:
            _write(group, "memory.limit_in_bytes", str(limit_bytes))
            with contextlib.suppress(OSError):
                _write(group, "memory.memsw.limit_in_bytes", str(limit_bytes))

    def pass_on(self, group: str) -> None:
        """Groups below may have limits of their own. Raises OSError."""
        if self.version == 2:
            _write(group, "cgroup.subtree_control", "+memory")

    def oom_kills(self, group: str) -> int:
        """Processes of this group that the kernel has killed for want of memory."""
        with contextlib.suppress(OSError), \
                open(os.path.join(group, "memory.events" if self.version == 2 else "memory.oom_control"),
                     encoding="ascii") as file:
            for line in file:
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0


def hierarchy(roots: tuple[str, ...] = ROOTS) -> Hierarchy | None:
    """None where there is none that this process may write."""
    for root in roots:
        if not os.access(root, os.W_OK):
            continue
        if os.path.exists(os.path.join(root, "memory.limit_in_bytes")):
            return Hierarchy(root, 1)
        with contextlib.suppress(OSError), open(os.path.join(root, "cgroup.controllers"), encoding="ascii") as file:
            if "memory" in file.read().split():
                return Hierarchy(root, 2)
    return None


def _write(group: str, name: str, text: str) -> None:
    with open(os.path.join(group, name), "w", encoding="ascii") as file:
        file.write(text)


def _site(tree: Hierarchy, site: str) -> str:
    return os.path.join(tree.root, "slurmbridge", hashlib.sha256(site.encode()).hexdigest()[:12])


def enter_run(site: str, name: str, limit_bytes: int, uid: int, gid: int) -> RunGroups | None:
    """Called as root by the process that becomes a step daemon: makes the run's groups and enters its own.

    ``site`` tells controllers of one machine apart. None where nothing can be limited.
    """
    tree = hierarchy()
    if tree is None or limit_bytes <= 0 or os.getuid() != 0:
        return None
    run = os.path.join(_site(tree, site), name)
    daemon, job = os.path.join(run, "daemon"), os.path.join(run, "job")
    try:
        os.makedirs(os.path.dirname(run), exist_ok=True)
        parent = tree.root
        for part in os.path.relpath(os.path.dirname(run), tree.root).split(os.sep):
            tree.pass_on(parent)
            parent = os.path.join(parent, part)
        tree.pass_on(parent)
        remove(run)
        os.mkdir(run)
        tree.pass_on(run)
        os.mkdir(daemon)
        os.mkdir(job)
        tree.limit(job, limit_bytes)
        tree.pass_on(job)
        for path in (run, job, os.path.join(run, "cgroup.procs"), os.path.join(job, "cgroup.procs")):
            os.chown(path, uid, gid)
        _write(daemon, "cgroup.procs", "0")
    except OSError:
        remove(run)
        return None
    return RunGroups(tree, job)


def leave_run(site: str, name: str) -> None:
    """The groups of a run of which nothing is left, on all nodes."""
    tree = hierarchy()
    if tree is not None:
        folder = _site(tree, site)
        for entry in _names(folder):
            if entry.rpartition(".")[0] == name:
                remove(os.path.join(folder, entry))


def _names(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]


def remove(group: str) -> None:
    """With all groups below it; those that still hold processes stay."""
    for name in _names(group):
        remove(os.path.join(group, name))
    with contextlib.suppress(OSError):
        os.rmdir(group)


@dataclass(frozen=True, slots=True)
class RunGroups:
    """What a step daemon may do with its run's group on its node."""

    tree: Hierarchy
    job: str

    def of_node(self, index: int) -> RunGroups:
        """The same run's on another virtual node of this machine, by its place in the allocation."""
        run = os.path.dirname(self.job)
        return RunGroups(self.tree, f"{run.rpartition('.')[0]}.{index}/{os.path.basename(self.job)}")

    def make(self, step: str, limit_bytes: int) -> StepGroup | None:
        """A group for the batch script or a step; no limit of its own with 0."""
        path = os.path.join(self.job, step)
        try:
            os.mkdir(path)
            if limit_bytes > 0:
                self.tree.limit(path, limit_bytes)
        except OSError:
            remove(path)
            return None
        return StepGroup(self.tree, path)


@dataclass(frozen=True, slots=True)
class StepGroup:
    tree: Hierarchy
    path: str

    @property
    def oom_kills(self) -> int:
        return self.tree.oom_kills(self.path)

    def complaint(self, step: str) -> str:
        """slurmstepd's line; "" when nothing was killed."""
        count = self.oom_kills
        return (f"Detected {count} oom_kill event{'' if count == 1 else 's'} in StepId={step}. "
                "Some of the step tasks have been OOM Killed.") if count else ""

    def remove(self) -> None:
        remove(self.path)
