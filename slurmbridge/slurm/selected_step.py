"""Jobs and steps as sacct, sstat, sattach and sbcast read them: ``12``, ``12_3``, ``12+1``, ``12.0``, ``12.batch+1``.

The reading is a C program's: what follows a number is ignored (``12x`` is 12), and a number too large wraps.
"""
from __future__ import annotations

from dataclasses import dataclass

from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.words import quoted_list

SPECIAL_STEPS = ("batch", "extern", "interactive", "TBD")


class StepSpecError(ValueError):
    """``str(error)`` is what Slurm says."""


@dataclass(frozen=True, slots=True)
class SelectedStep:
    """``step`` is "" where only a job is named, else a number or one of SPECIAL_STEPS."""

    job_id: int
    task: int | None = None
    het_offset: int | None = None
    step: str = ""


def parse_selected_step(text: str) -> SelectedStep:
    """Raises StepSpecError."""
    job, dot, step = text.partition(".")
    has_step_component = dot and "+" in step
    if dot and step not in SPECIAL_STEPS:
        if not _begins_with_digit(step):
            raise StepSpecError(f"Bad step specified: {job}")
        step = str(_number(step))
    task = het_offset = None
    job, under, array_task = job.partition("_")
    if under:
        if not _begins_with_digit(array_task):
            raise StepSpecError(f"Bad job array element specified: {job}")
        task = _number(array_task)
    elif not has_step_component:
        job, plus, offset = job.partition("+")
        if plus:
            if not _begins_with_digit(offset):
                raise StepSpecError(f"Bad hetjob offset specified: {job}")
            het_offset = _number(offset)
    return SelectedStep(_number(job), task, het_offset, step)


def parse_listed_step(text: str) -> SelectedStep:
    """The same in a list of jobs, where each must begin with a number. Raises StepSpecError."""
    if not _begins_with_digit(text):
        raise StepSpecError(f"Bad job/step specified: {text}")
    return parse_selected_step(text)


def _begins_with_digit(text: str) -> bool:
    return text[:1].isascii() and text[:1].isdigit()


def _number(text: str) -> int:
    """atoi, kept in 32 bits."""
    return (leading_int(text) or (0, ""))[0] & 0xFFFFFFFF


def listed_steps(text: str) -> list[SelectedStep]:
    """A list of them, each once; empty words are passed over. Raises StepSpecError."""
    return list(dict.fromkeys(parse_listed_step(word) for word in quoted_list(text)))
