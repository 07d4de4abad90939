"""How a step's tasks ended: srun's exit code, its messages, and when it ends the others."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence

from slurmbridge.runtime.cgroups import OUT_OF_MEMORY_STATUS
from slurmbridge.slurm import hostlist


def worse(so_far: int | None, status: int) -> int:
    """The wait status that stands for the step: the highest signal, else the highest exit code."""
    if so_far is None:
        return status
    if os.WIFSIGNALED(status):
        if not os.WIFSIGNALED(so_far) or os.WTERMSIG(status) > os.WTERMSIG(so_far):
            return status
        return so_far
    if os.WIFSIGNALED(so_far) or os.WEXITSTATUS(so_far) >= os.WEXITSTATUS(status):
        return so_far
    return status


def exit_message(node: str, ranks: Sequence[int], status: int) -> str | None:
    """``n1: tasks 0-1: Exited with exit code 3``; None for success."""
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        return None
    who = f"{node}: task{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
    if status == OUT_OF_MEMORY_STATUS:
        return f"{who}: Out Of Memory"
    if os.WIFEXITED(status):
        return f"{who}: Exited with exit code {os.WEXITSTATUS(status)}"
    core = " (core dumped)" if os.WCOREDUMP(status) else ""
    return f"{who}: {signal.strsignal(os.WTERMSIG(status))}{core}"


def ranges(numbers: Iterable[int]) -> str:
    """``0-3,7``."""
    text = hostlist.compress([f"t{number}" for number in sorted(numbers)])
    return text[1:].strip("[]")


class TaskStates:
    """Which tasks run, ended well, or ended badly."""

    def __init__(self, num_tasks: int) -> None:
        self._states = dict.fromkeys(range(num_tasks), "unknown")

    def started(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if self._states[rank] == "unknown":
                self._states[rank] = "running"

    def ended(self, ranks: Iterable[int], status: int) -> None:
        for rank in ranks:
            self._states[rank] = "exited" if status == 0 else "exited abnormally"

    @property
    def left(self) -> list[int]:
        return [rank for rank, state in self._states.items() if not state.startswith("exited")]

    @property
    def not_started(self) -> bool:
        """Whether some are still being started."""
        return "unknown" in self._states.values()

    def still_left(self, ranks: Iterable[int]) -> list[int]:
        """Those of ``ranks`` that have not ended."""
        return [rank for rank in ranks if not self._states[rank].startswith("exited")]

    def report(self, step: str) -> list[str]:
        """``StepId=5.0 tasks 0-1: running``, one line a state."""
        lines = []
        for state in ("running", "exited abnormally", "exited", "unknown"):
            ranks = [rank for rank, now in self._states.items() if now == state]
            if ranks:
                lines.append(f"StepId={step} task{'s' if len(ranks) > 1 else ''} {ranges(ranks)}: {state}")
        return lines
