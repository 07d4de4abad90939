"""The steps of one srun: one, or one a component of ``srun a : b`` and --het-group, numbered and shown as one whole."""
from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmbridge.runtime.client import Client
from slurmbridge.runtime.environment import BY_NAME, het_step_variables
from slurmbridge.runtime.parts import Part
from slurmbridge.runtime.step import RunningStep, SrunCall
from slurmbridge.runtime.stepoptions import StepOptions
from slurmbridge.runtime.steptypes import Place, StepPlan

if TYPE_CHECKING:
    from slurmbridge.runtime.daemon import StepDaemon


@dataclass(frozen=True, slots=True)
class Held:
    """A step that has its number and its nodes."""

    part: Part
    step: StepOptions
    step_id: str
    plan: StepPlan


def running_steps(daemon: StepDaemon, client: Client, call: SrunCall, held: Sequence[Held]) -> list[RunningStep]:
    """The steps, known to the jobs whose they are and ready to run."""
    result: list[RunningStep] = []
    for one, place in zip(held, places(daemon, held)):
        step = RunningStep(daemon, client, call, one.part, one.step, one.step_id, one.plan, place)
        one.part.begin(step)
        result.append(step)
        step.siblings = result
    return result


def places(daemon: StepDaemon, held: Sequence[Held]) -> list[Place]:
    """Tasks and nodes are counted through, in the order of the components; nodes are shown in the order of names."""
    counts = [(share.name, len(share.tasks)) for one in held for share in one.plan.shares]
    if len(held) > 1:
        counts.sort(key=lambda one: BY_NAME(one[0]))
    names, tasks = tuple(name for name, _ in counts), tuple(count for _, count in counts)
    own = daemon.order
    is_whole = not own.het_heads or (len(held) == 1 and held[0].part.order.job_id == own.job_id)
    job = {} if is_whole else het_step_variables([one.part.order for one in held], own.job_id)
    if job and len(held) > 1:
        job |= _component_variables(held)
    result: list[Place] = []
    first_task = first_node = 0
    for one in held:
        result.append(Place(names, tasks, first_task, first_node, job))
        first_task += one.plan.num_tasks
        first_node += len(one.plan.shares)
    return result


def _component_variables(held: Sequence[Held]) -> dict[str, str]:
    """What srun sets in its own environment for each component, so that later ones overwrite it, or by number."""
    found: dict[str, str] = {}
    for one in held:
        opts = one.step.opts
        if opts["cpus_set"]:
            found["SLURM_CPUS_PER_TASK"] = str(opts["cpus_per_task"])
        if opts["tres_per_task"]:
            found |= {f"SLURM_TRES_PER_TASK_{word}_GROUP_{one.part.order.het_offset}": opts["tres_per_task"]
                      for word in ("HET", "PACK")}
    return found


async def all_of(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Until all are over; the first error is raised then."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
