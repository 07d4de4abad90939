"""What each option does with its argument. Returns False (after logging) where the client ends with 255.

One function a kind; ``SETTERS`` maps the kinds of options.OPTIONS to them. Kinds that are missing store plain text.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurmbridge.slurm import durations, memory, words
from slurmbridge.slurm import setters_special as special
from slurmbridge.slurm.option_values import OptionSet
from slurmbridge.slurm.options import Option
from slurmbridge.slurm.setters_special import try_words, uint16

Setter = Callable[[OptionSet, Option, "str | None"], bool]
NICE_LIMIT = 0x7FFFFFFD
PRIORITY_TOP = 0xFFFFFFFD
_SHARING = ("exclusive", "oversubscribe", "user", "mcs", "topo")


def _flag(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts[option.field] = True
    return True


def _integer(positive: bool) -> Setter:
    def set_it(opts: OptionSet, option: Option, argument: str | None) -> bool:
        opts[option.field] = opts.integer(option.label, argument, positive=positive)
        return True
    return set_it


def _optional(default: Any) -> Setter:
    """The argument, or ``default`` where there is none."""
    def set_it(opts: OptionSet, option: Option, argument: str | None) -> bool:
        opts[option.field] = default if argument is None else argument
        return True
    return set_it


def _optional_integer(default: int) -> Setter:
    def set_it(opts: OptionSet, option: Option, argument: str | None) -> bool:
        opts[option.field] = default if argument is None else opts.integer(option.label, argument, positive=False)
        return True
    return set_it


def _megabytes(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts[option.field] = memory.parse_mb(argument or "")
    return opts[option.field] is not None or opts.invalid(option)


def _mem(opts: OptionSet, option: Option, argument: str | None) -> bool:
    if not _megabytes(opts, option, argument):
        return False
    if opts.command == "srun":
        opts["mem_per_cpu"] = None
    return True


def _time(opts: OptionSet, option: Option, argument: str | None) -> bool:
    try:
        opts[option.field] = durations.parse_time(argument or "", opts.caller.now_s, opts.caller.zone)
    except durations.TimeSpecError as wrong:
        opts.log.raw(str(wrong))
        opts[option.field] = 0
    return bool(opts[option.field]) or opts.invalid(option)


def _seconds(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts[option.field] = durations.parse_seconds(argument or "")
    return opts[option.field] is not None or opts.invalid(option)


def _time_limit(opts: OptionSet, option: Option, argument: str | None) -> bool:
    minutes = durations.parse_minutes(argument or "")
    if minutes is None:
        return opts.invalid(option)
    opts[option.field] = (minutes or durations.INFINITE) & 0xFFFFFFFF
    return True


def _chdir(opts: OptionSet, option: Option, argument: str | None) -> bool:
    path = argument or ""
    opts["chdir"] = path if path.startswith("/") else f"{opts.caller.cwd}/{path}"
    return True


def _file(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts[option.field] = "/dev/null" if (argument or "").lower() == "none" else argument
    return True


def _core_spec(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["core_spec"] = opts.integer(option.label, argument, positive=False) & 0xFFFF
    opts["spec_is_threads"] = bool(opts["core_spec"] & 0x8000)
    return True


def _thread_spec(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["core_spec"] = opts.integer(option.label, argument, positive=True) & 0x7FFF
    opts["spec_is_threads"] = True
    return True


def _cpus_per_task(opts: OptionSet, option: Option, argument: str | None) -> bool:
    before = opts["cpus_per_task"]
    opts["cpus_per_task"] = opts.integer(option.label, argument, positive=True)
    if opts["cpus_set"] and opts.command == "srun" and before < opts["cpus_per_task"]:
        opts.log.info(f"Job step's --cpus-per-task value exceeds that of job ({opts['cpus_per_task']} > {before}). "
                      "Job step may never run.")
    opts["cpus_set"] = True
    return True


def _exclusive(opts: OptionSet, option: Option, argument: str | None) -> bool:
    how = (argument or "exclusive").lower()
    if how not in _SHARING:
        return opts.invalid(option)
    if how == "exclusive" and opts.command == "srun":
        opts["step_exclusive"] = opts["exact"] = True
    opts["shared"] = how
    return True


def _oversubscribe(opts: OptionSet, option: Option, argument: str | None) -> bool:
    if opts.command == "srun":
        opts["step_exclusive"] = False
    opts["shared"] = "oversubscribe"
    return True


def _overlap(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["overlap"], opts["step_exclusive"] = True, False
    return True


def _kill_on_invalid_dep(opts: OptionSet, option: Option, argument: str | None) -> bool:
    answer = {"yes": True, "no": False}.get((argument or "").lower())
    if answer is None:
        return opts.invalid(option)
    opts["kill_on_invalid_dep"] = opts["kill_on_invalid_dep"] or answer    # Slurm never takes a "yes" back
    return True


def _nice(opts: OptionSet, option: Option, argument: str | None) -> bool:
    parsed = memory.leading_int(argument) if argument is not None else (100, "")
    number = parsed[0] if parsed else 0
    if abs(number) > NICE_LIMIT:
        opts.log.error(f"Invalid --nice value, out of range (+/- {NICE_LIMIT})")
        return False
    opts["nice"] = number
    return True


def _no_kill(opts: OptionSet, option: Option, argument: str | None) -> bool:
    answer = {"set": True, "off": False, "no": False}.get((argument or "set").lower())
    if answer is None:
        return opts.invalid(option)
    opts["no_kill"] = answer
    return True


def _requeue(opts: OptionSet, option: Option, argument: str | None) -> bool:
    if option.kind == "no_requeue":
        opts["requeue"] = "no-requeue"
    elif (argument or "").lower() == "expedite" or opts["requeue"] == "expedite":
        opts["requeue"] = "expedite"
    else:
        opts["requeue"] = "requeue"
    return True


def _node_list(opts: OptionSet, option: Option, argument: str | None) -> bool:
    """-w and -F: the later one holds."""
    opts["nodefile"] = opts["nodelist"] = None
    opts[option.field] = argument
    return True


def _nodes(opts: OptionSet, option: Option, argument: str | None) -> bool:
    def check(text: str) -> None:
        opts["min_nodes"], opts["max_nodes"], opts.node_sizes = words.parse_node_count(text)
    opts["nodes_set"] = try_words(opts, check, argument)
    return bool(opts["nodes_set"])


def _ntasks(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["ntasks"] = opts.integer(option.label, argument, positive=True)
    opts["ntasks_set"] = True
    return True


def _oom_kill_step(opts: OptionSet, option: Option, argument: str | None) -> bool:
    number = 1 if argument is None else uint16(argument)
    if number not in (0, 1):
        return opts.invalid(option)
    opts["oom_kill_step"] = number
    return True


def _open_mode(opts: OptionSet, option: Option, argument: str | None) -> bool:
    mode = {"a": "append", "t": "truncate"}.get((argument or "")[:1].lower())
    if mode is None:
        return opts.invalid(option)
    opts["open_mode"] = mode
    return True


def _priority(opts: OptionSet, option: Option, argument: str | None) -> bool:
    parsed = memory.leading_int(argument or "")
    number = PRIORITY_TOP if (argument or "").lower() == "top" else parsed[0] if parsed else 0
    if number < 0:
        opts.log.error("Priority must be >= 0")
        return False
    if number >= durations.NO_VAL:
        opts.log.error(f"Priority must be < {durations.NO_VAL}")
        return False
    opts["priority"] = number
    return True


def _segment(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["segment"] = uint16(argument)
    return opts["segment"] is not None or opts.invalid(option)


def _wait_seconds(text: str) -> int:
    """-1: for ever, -2: not a time."""
    seconds = durations.parse_seconds(text)
    return -2 if seconds is None else -1 if seconds == durations.INFINITE else seconds


def _switch_wait(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["wait4switch"] = _wait_seconds(argument or "")
    return True


def _switches(opts: OptionSet, option: Option, argument: str | None) -> bool:
    count, at, wait = (argument or "").partition("@")
    if at:
        opts["wait4switch"] = _wait_seconds(wait)
    opts["req_switch"] = opts.integer(option.label, count, positive=True)
    return True


def _quiet(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["quiet"] += 1
    return True


def _verbose(opts: OptionSet, option: Option, argument: str | None) -> bool:
    """Counts -v; a number from the environment yields to the first -v."""
    if argument is None:
        if opts.verbose_by_env:
            opts["verbose"], opts.verbose_by_env = 0, False
        opts.verbose_by_cli = True
        opts["verbose"] += 1
    elif not opts.verbose_by_cli:
        opts.verbose_by_env = True
        opts["verbose"] = opts.integer("--verbose", argument, positive=False)
    return True


def _wait_all_nodes(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["wait_all_nodes"] = opts.integer(option.label, argument, positive=False) & 0xFFFF
    return opts["wait_all_nodes"] <= 1 or opts.invalid(option)


SETTERS: dict[str, Setter] = {
    "flag": _flag, "positive": _integer(True), "number": _integer(False), "megabytes": _megabytes, "mem": _mem,
    "time": _time, "seconds": _seconds, "time_limit": _time_limit, "chdir": _chdir, "file": _file,
    "core_spec": _core_spec, "thread_spec": _thread_spec, "cpus_per_task": _cpus_per_task, "exclusive": _exclusive,
    "oversubscribe": _oversubscribe, "overlap": _overlap, "immediate": _optional_integer(1),
    "kill_on_bad_exit": _optional_integer(1), "resv_ports": _optional_integer(0),
    "kill_on_invalid_dep": _kill_on_invalid_dep, "nice": _nice, "no_kill": _no_kill, "no_requeue": _requeue,
    "requeue": _requeue, "nodefile": _node_list, "nodelist": _node_list, "nodes": _nodes, "ntasks": _ntasks,
    "oom_kill_step": _oom_kill_step, "open_mode": _open_mode, "priority": _priority, "propagate": _optional("ALL"),
    "pty": _optional(""), "bcast": _optional(""), "segment": _segment, "switch_wait": _switch_wait,
    "switches": _switches, "quiet": _quiet, "verbose": _verbose, "wait_all_nodes": _wait_all_nodes,
    "acctg_freq": special.acctg_freq, "cpu_freq": special.cpu_freq, "distribution": special.distribution,
    "extra_node_info": special.extra_node_info, "uid": special.identity, "gid": special.identity,
    "gpu_bind": special.gpu_bind, "gpu_freq": special.gpu_freq, "gres": special.gres,
    "gres_flags": special.gres_flags, "jobid": special.jobid, "kill_command": special.kill_command,
    "mail_type": special.mail_type, "mem_bind": special.mem_bind, "profile": special.profile,
    "send_libs": special.send_libs, "signal": special.signal, "slurmd_debug": special.slurmd_debug,
    "treewidth": special.treewidth, "umask": special.umask, "accel_bind": special.accel_bind,
    "compress": special.compress, "x11": special.x11, "bell": special.bell, "no_bell": special.bell,
    "pyxis": special.pyxis, "help": special.informed, "usage": special.informed, "version": special.informed,
    "autocomplete": special.informed,
}
