"""What ``squeue -v`` says about what it was asked."""
from __future__ import annotations

from slurmbridge.commands.squeue_options import Options
from slurmbridge.commands.squeue_rows import WantedJob
from slurmbridge.slurm import hostlist


def verbose_text(options: Options) -> str:
    """What -v prints about the options."""
    def flag(value: bool) -> str:
        return "true" if value else "false"

    def text(value: str | None) -> str:
        return "(null)" if value is None else value

    nodes = hostlist.compress(sorted(options.node_set), unique=True) if options.node_set else ""
    lines = [
        "-" * 29, f"all         = {flag(options.all)}", f"array       = {flag(options.array)}",
        f"federation  = {flag(options.federation)}", f"format      = {text(options.format)}",
        f"iterate     = {options.iterate_s}", f"job_flag    = {int(options.job_flag)}",
        f"jobs        = {text(options.jobs)}", f"licenses    = {text(options.licenses)}",
        f"local       = {flag(options.local)}", f"names       = {text(options.names)}", f"nodes       = {nodes}",
        f"only_job_state = {flag(options.only_state)}", f"partitions  = {text(options.partitions)}",
        f"priority    = {flag(options.priority)}", f"reservation = {text(options.reservation)}",
        f"sibling      = {flag(options.sibling)}", f"sort        = {text(options.sort)}",
        f"start_flag  = {int(options.start)}", f"states      = {text(options.states)}",
        f"step_flag   = {int(options.step_flag)}", f"steps       = {text(options.steps)}",
        f"users       = {text(options.users)}", f"verbose     = {options.verbose}"]
    if options.verbose > 1:
        lines += _verbose_lists(options)
    return "\n".join([*lines, "-" * 29, "", "", ""])


def _verbose_lists(options: Options) -> list[str]:
    def job(entry: WantedJob) -> str:
        return str(entry.job_id) if entry.task_id is None else f"{entry.job_id}_{entry.task_id}"

    lines = [f"job_list[{i}] = {job(entry)}" for i, entry in enumerate(options.wanted or ())]
    names = filter(None, (options.names or "").split(","))
    lines += [f"name_list[{i}] = {ord(name[0])}" for i, name in enumerate(names)]     # as Slurm prints them
    for name, value in (("licenses_list", options.licenses), ("part_list", options.partitions)):
        lines += [f"{name}[{i}] = {word}" for i, word in enumerate(filter(None, (value or "").split(",")))]
    if options.all_states:
        lines.append("state_list = all")
    lines += [f"state_list[{i}] = {state}" for i, state in enumerate(options.state_list or ())]
    lines += [f"step_list[{i}] = {job(entry)}.{entry.step}" for i, entry in enumerate(options.wanted_steps or ())]
    return lines + [f"user_list[{i}] = {uid}" for i, uid in enumerate(options.uids or ())]
