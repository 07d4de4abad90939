"""scontrol update of steps, of the controller's log level and of what is spared from power saving."""
from __future__ import annotations

import re
from collections.abc import Sequence

from slurmbridge.commands.scontrol_call import Call, starts
from slurmbridge.commands.scontrol_daemons import LEVELS, debug_level
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError

CONF_KEYS = (("SlurmctldDebug", 2), ("SuspendExcNodes", 11), ("SuspendExcParts", 11), ("SuspendExcStates", 11))


def update_step(call: Call, words: Sequence[str]) -> None:
    """The time limit of a step that runs stays as its srun set it."""
    step = limit = ""
    for word in words:
        tag, _, value = word.partition("=")
        if starts(tag, "StepId", 4):
            step = value
        elif starts(tag, "TimeLimit", 2):
            limit = value
        else:
            call.fail(f"Update of this parameter is not supported: {word}\nRequest aborted")
            return
    match = re.fullmatch(r"([0-9]{1,10})(\.[0-9]{1,10})?", step)
    if match is None:
        call.fail(f"Invalid StepID parameter: StepId={step}\nRequest aborted")
    elif not limit:
        call.fail("No changes specified")
    else:
        job = call.session.views.jobs.get(int(match[1]))
        identity = call.session.identity
        code = errors.ESLURM_NOT_SUPPORTED
        if job is None or (match[2] and match[2][1:] not in job.steps):
            code = errors.ESLURM_INVALID_JOB_ID
        elif not identity.is_admin and job.uid != identity.uid:
            code = errors.ESLURM_USER_ID_MISSING
        call.fail(f"slurm_update error: {errors.strerror(code)}")


async def update_conf(call: Call, words: Sequence[str]) -> None:
    """Values of slurm.conf that can be set: the controller's log level, and what is spared from power saving."""
    for word in words:
        tag, _, value = word.partition("=")
        name = next((name for name, least in CONF_KEYS if starts(tag.rstrip("+-"), name, least)), "")
        if name == "SlurmctldDebug":
            level = debug_level(value) if value[-1:].isdigit() else None
            if level is None:
                call.complain(f"invalid debug level: {value}")
                return
            value = LEVELS[level]
        if name:
            try:
                await call.session.acts.set_conf(call.session.identity, name, value)
            except SlurmError as error:
                call.fail(f"slurm_update error: {error.text}")
