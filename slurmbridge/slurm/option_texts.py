"""What the options look like when Slurm prints them: ``sbatch -v``, cli_filter's JSON, and the -h/-V family."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slurmbridge.slurm import durations, memory
from slurmbridge.slurm.getopt import completions
from slurmbridge.slurm.options import COMMANDS, OPTIONS, Option
from slurmbridge.slurm.version import SLURM_VERSION
from slurmbridge.slurm.words import signal_name

if TYPE_CHECKING:
    from slurmbridge.slurm.option_values import OptionSet

UNSET = "unset"


def text_of(opts: OptionSet, option: Option) -> str | None:
    """The value of one option as text; None where Slurm has none to show."""
    show = _TEXTS.get(option.kind)
    value = opts.values[option.field] if option.fields else None
    if show is None:
        return None if value is None else str(value)
    return show(opts, value)


def _flag(opts: OptionSet, value: Any) -> str:
    return "set" if value else UNSET


def _integer(opts: OptionSet, value: Any) -> str:
    return "-2" if value is None else str(value)      # NO_VAL as C prints it


def _megabytes(opts: OptionSet, value: Any) -> str | None:
    return None if value is None else memory.plain_mb(value)


def _time(opts: OptionSet, value: Any) -> str:
    return durations.time_formatter(opts.caller.env, opts.caller.now_s, opts.caller.zone)(value)


def _minutes(opts: OptionSet, value: Any) -> str | None:
    return None if value is None else durations.format_minutes(value)


def _switches(opts: OptionSet, value: Any) -> str:
    if opts["wait4switch"] != -1:
        return f"{opts['req_switch']}@{durations.format_seconds(opts['wait4switch'])}"
    return UNSET if opts["req_switch"] == -1 else str(opts["req_switch"])


def _nodes(opts: OptionSet, value: Any) -> str:
    low, high = opts["min_nodes"], opts["max_nodes"]
    return str(low) if low == high else f"{low}-{high}"


def _extra_node_info(opts: OptionSet, value: Any) -> str:
    sockets, cores, threads = opts["sockets_per_node"], opts["cores_per_socket"], opts["threads_per_core"]
    text = "" if sockets is None else str(sockets)
    text += "" if cores is None else f":{cores}"
    text += "" if threads is None else f":{threads}"
    return text or UNSET


def _distribution(opts: OptionSet, value: Any) -> str | None:
    if value is None:
        return None
    return f"{value}={value.plane_size}" if value.layout == "plane" else str(value) or None


def _spec(threads: bool) -> Callable[[OptionSet, Any], str]:
    def show(opts: OptionSet, value: Any) -> str:
        return UNSET if value is None or opts["spec_is_threads"] != threads else str(value)
    return show


def _or_unset(opts: OptionSet, value: Any) -> str:
    return UNSET if value is None else str(value)


def _text(opts: OptionSet, value: Any) -> str | None:
    return None if value is None else str(value) or None


def _signed(opts: OptionSet, value: Any) -> str:
    return str(value - (1 << 32) if value >= 1 << 31 else value)


_TEXTS: dict[str, Callable[[OptionSet, Any], str | None]] = {
    "positive": _integer, "number": _integer, "flag": _flag, "no_kill": _flag, "megabytes": _megabytes,
    "mem": _megabytes, "time": _time,
    "time_limit": _minutes, "seconds": lambda opts, v: None if v is None else durations.format_seconds(v),
    "switches": _switches, "nodes": _nodes, "extra_node_info": _extra_node_info, "distribution": _distribution,
    "core_spec": _spec(False), "thread_spec": _spec(True), "exclusive": _or_unset, "oversubscribe": _or_unset,
    "requeue": _or_unset, "no_requeue": _or_unset, "oom_kill_step": _or_unset, "jobid": _or_unset,
    "resv_ports": _or_unset, "x11": _or_unset, "priority": _signed,
    "kill_on_invalid_dep": lambda opts, v: UNSET if v is None else "yes" if v else "no",
    "gres_flags": lambda opts, v: ",".join(sorted(v)) or UNSET,
    "mem_bind": lambda opts, v: UNSET if v is None else str(v) or UNSET, "signal": _text, "cpu_freq": _text,
    "open_mode": lambda opts, v: v and v[0], "segment": lambda opts, v: str(v) if v else UNSET,
    "overlap": lambda opts, v: UNSET if v else "set", "kill_command": lambda opts, v: signal_name(v),
    "umask": lambda opts, v: f"0{v:o}", "send_libs": lambda opts, v: "set" if v else None,
    "bcast": lambda opts, v: None if v is None else v or "set",
}


def information(command: str, kind: str, query: str | None = None) -> str:
    """Standard output of ``-V``, ``--help``, ``--usage`` and ``--autocomplete``."""
    if kind == "version":
        return f"slurm {SLURM_VERSION}\n"
    mine = [option for option in OPTIONS if option.name and COMMANDS[command] in option.commands]
    if kind == "autocomplete":
        return completions(mine, query or "")
    operands = {"sbatch": "script [args...]", "salloc": "[command [args...]]", "srun": "executable [args...]"}[command]
    if kind == "usage":
        words = " ".join(f"[{_spelling(option)}]" for option in mine)
        return f"Usage: {command} {words} {operands}\n"
    lines = [f"Usage: {command} [OPTIONS(0)...] [ : [OPTIONS(N)...]] {operands}", "", "Options:"]
    for option in mine:
        letter = f"-{option.key}, " if len(option.key) == 1 else "    "
        lines.append(f"  {letter}{_spelling(option)}")
    lines += ["", f"See {command}(1) of Slurm 25.11 for what they mean; `slurmbridge lint SCRIPT` says what of a "
              "script is honoured here."]
    return "\n".join(lines) + "\n"


def _spelling(option: Option) -> str:
    value = option.field.replace("_", "-") if option.fields else "text"
    return f"--{option.name}" + ("", f"={value}", f"[={value}]")[option.argument]


def split_tokens(text: str) -> tuple[list[str], str]:
    """(tokens of a value of --export, what is left behind a quote that does not end): split at commas outside quotes; a
    token that is quoted as a whole loses its quotes."""
    tokens: list[str] = []
    start, rest = 0, ""
    single = double = False
    for index in range(len(text) + 1):
        char = text[index:index + 1]
        if char == "'":
            single = not single
        elif char == '"':
            double = not double
        elif char in (",", "") and not single and not double:
            token = text[start:index]
            if len(token) > 1 and token[0] == token[-1] and token[0] in "'\"":
                token = token[1:-1]
            tokens.append(token)
            start = index + 1
        elif char == "":
            rest = text[start:]
            tokens.append(rest)
    return [token for token in tokens if token], rest
