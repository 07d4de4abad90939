"""Where the standard streams of a step's tasks go: srun, one task of srun, a file of srun's, or a file a task."""
from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from slurmbridge.runtime.order import RunOrder
from slurmbridge.slurm import patterns


@dataclass(frozen=True, slots=True)
class Target:
    """``kind``: "all" (srun's own stream), "one" (only ``task``'s), "file" (opened by srun), "each" (by the node)."""

    kind: str
    pattern: str = ""
    task: int = 0


def target(text: str | None, num_tasks: int) -> Target:
    """What an argument of -i, -o or -e means (srun(1), IO Redirection)."""
    if text is None or text[:3].lower() == "all" or text.startswith("-"):
        return Target("all")
    if text == "/dev/null":
        return Target("each", text)
    if (text.isdigit() or not text) and int(text or 0) < num_tasks:    # Slurm reads an empty name as a number
        return Target("one", text, int(text or 0))
    return Target("each" if patterns.is_per_task(text) else "file", text)


@dataclass(frozen=True, slots=True)
class Names:
    """Expands the patterns of one step."""

    order: RunOrder
    step_id: str
    env: Mapping[str, str]
    cwd: str

    def file(self, pattern: str) -> str:
        return self._expand(pattern, "", 0, 0)

    def each(self, pattern: str, node: str, node_index: int, rank: int) -> str:
        return self._expand(pattern, node, node_index, rank)

    def _expand(self, pattern: str, node: str, node_index: int, rank: int) -> str:
        return patterns.expand(
            pattern, job_id=self.order.job_id, work_dir=self.cwd, step=int(self.step_id.partition("+")[0]),
            array_job_id=_number(self.env.get("SLURM_ARRAY_JOB_ID")),
            array_task_id=_number(self.env.get("SLURM_ARRAY_TASK_ID")), node_name=node, node_index=node_index,
            task_rank=rank, user_name=self.order.user_name, job_name=self.env.get("SLURM_JOB_NAME", ""),
            restarts=self.order.restart)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def stream_of(where: Target, names: Names, node: str, node_index: int, shown_rank: int, rank: int) -> str:
    """What the keeper is told: "stream", or the file that the node opens. ``shown_rank``: among all components'."""
    if where.kind == "each":
        return names.each(where.pattern, node, node_index, shown_rank)
    if where.kind == "one" and rank != where.task:
        return "/dev/null"
    return "stream"


def label(data: bytes, rank: int, width: int) -> bytes:
    """Each line behind its task's number (srun -l); a last line without its end gets one."""
    prefix = f"{rank:{width}d}: ".encode()
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return b"".join(prefix + line + b"\n" for line in lines)


def write_all(fd: int, data: bytes) -> None:
    """Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
