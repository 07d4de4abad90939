"""What the less plain options do with their argument: bindings, devices, identities, words of a list.

See setters, which has the rest and the table.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurmbridge.slurm import bindings, memory, tres, words
from slurmbridge.slurm.option_values import EXIT_MINUS_ONE, ClientExit, OptionSet
from slurmbridge.slurm.options import Option

NOBODY = 99
"""A user nobody may submit as (SLURM_AUTH_NOBODY)."""
_GRES_FLAGS = ("allow-task-sharing", "disable-binding", "enforce-binding", "multiple-tasks-per-sharing",
               "one-task-per-sharing")


def try_words(opts: OptionSet, check: Callable[[str], Any], argument: str | None) -> bool:
    """Runs a check of words or bindings; logs what it says. Asked for help, the client prints it and ends."""
    try:
        check(argument or "")
    except words.WordError as wrong:
        for line in wrong.lines:
            opts.log.error(line)
        return False
    except bindings.HelpWanted as wanted:
        raise ClientExit(EXIT_MINUS_ONE, str(wanted)) from None
    return True


def acctg_freq(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["acctg_freq"] = argument
    return try_words(opts, words.check_accounting_frequency, argument)


def cpu_freq(opts: OptionSet, option: Option, argument: str | None) -> bool:
    conf = opts.caller.conf
    listed = conf.get("CpuFreqGovernors", "")
    allowed = tuple(words.governor_name(w) for w in listed.split(",")) if listed else words.DEFAULT_GOVERNORS

    def check(text: str) -> None:
        opts["cpu_freq"] = words.parse_cpu_frequency(text, words.governor_name(conf.get("CpuFreqDef", "")), allowed)

    if try_words(opts, check, argument):
        return True
    opts.log.error("Invalid --cpu-freq argument")
    return False


def distribution(opts: OptionSet, option: Option, argument: str | None) -> bool:
    def check(text: str) -> None:
        opts["distribution"] = words.parse_distribution(text, opts.caller.env.get("SLURM_DIST_PLANESIZE"))
    return try_words(opts, check, argument) or opts.invalid(option)


def extra_node_info(opts: OptionSet, option: Option, argument: str | None) -> bool:
    def check(text: str) -> None:
        sockets, cores, threads = words.parse_socket_core_thread(text)
        opts["sockets_per_node"], opts["cores_per_socket"], opts["threads_per_core"] = sockets, cores, threads
    if not try_words(opts, check, argument):
        raise ClientExit(1)
    opts["extra_set"] = True
    return True


def identity(opts: OptionSet, option: Option, argument: str | None) -> bool:
    """--uid and --gid."""
    if opts.caller.uid != 0:
        opts.log.error(f"{option.label} only permitted by root user")
        return False
    lookup = opts.caller.uid_of if option.kind == "uid" else opts.caller.gid_of
    number = lookup(argument or "")
    if number is None:
        return opts.invalid(option)
    if number == NOBODY:
        opts.log.error(f"Rejecting {option.label} as nobody specification")
        return False
    opts[option.field] = number
    return True


def gpu_bind(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["gpu_bind"], opts["tres_bind"] = argument, f"gres/gpu:{argument}"
    if try_words(opts, bindings.check_tres_bind, opts["tres_bind"]):
        return True
    opts.log.error(f"Invalid --gpu-bind argument: {argument}")
    return False


def gpu_freq(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["gpu_freq"], opts["tres_freq"] = argument, f"gpu:{argument}"
    if try_words(opts, bindings.check_gpu_freq, argument):
        return True
    opts.log.error(f"Invalid --gpu-freq argument: gpu:{argument}")
    return False


def gres(opts: OptionSet, option: Option, argument: str | None) -> bool:
    text = argument or ""
    if text.lower() in ("help", "list"):
        types = [name for name in opts.caller.conf.get("GresTypes", "").split(",") if name]
        raise ClientExit(0, "Valid gres options are:\n" + "".join(f"{name}[[:type]:count]\n" for name in types))
    opts["gres"] = text if text.lower() == "none" else tres.canonical_gres(text)
    return True


def gres_flags(opts: OptionSet, option: Option, argument: str | None) -> bool:
    flags = set(opts["gres_flags"]) - {"disable-binding", "enforce-binding", "one-task-per-sharing"}
    for word in (w for w in (argument or "").split(",") if w):
        flag = word.lower()
        if flag == "allow-task-sharing" and opts.command != "srun":
            opts.log.error("--gres-flags=allow-task-sharing is only used with srun.")
            return False
        if flag not in _GRES_FLAGS:
            opts.log.error(f"Invalid --gres-flags specification: {word}")
            return False
        flags.add(flag)
    for one, other in (("disable-binding", "enforce-binding"),
                       ("one-task-per-sharing", "multiple-tasks-per-sharing")):
        if one in flags and other in flags:
            opts.log.error(f"Invalid --gres-flags combo: {one} and {other} are mutually exclusive.")
            return False
    if "one-task-per-sharing" in flags and "MULTIPLE_SHARING_GRES_PJ" not in opts.caller.conf.get(
            "SelectTypeParameters", "").upper():
        opts.log.error("In order to use --gres-flags=one-task-per-sharing you must also have "
                       "SelectTypeParameters=MULTIPLE_SHARING_GRES_PJ in your slurm.conf")
        return False
    opts["gres_flags"] = frozenset(flags)
    return True


def jobid(opts: OptionSet, option: Option, argument: str | None) -> bool:
    parsed = memory.leading_int(argument or "")
    opts["jobid"] = parsed[0] if parsed else 0
    task = memory.leading_int(parsed[1][1:]) if parsed and parsed[1].startswith("_") else None
    opts["array_task_id"] = task[0] if task else None
    return True


def kill_command(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["kill_command"] = 15 if argument is None else words.signal_number(argument)
    return bool(opts["kill_command"]) or opts.invalid(option)


def mail_type(opts: OptionSet, option: Option, argument: str | None) -> bool:
    types = words.parse_mail_type(argument or "")
    if types is None:
        return opts.invalid(option)
    opts["mail_type"] = types
    return True


def mem_bind(opts: OptionSet, option: Option, argument: str | None) -> bool:
    def check(text: str) -> None:
        opts["mem_bind"] = bindings.parse_mem_bind(text, opts["mem_bind"] or bindings.MemBind())
    return try_words(opts, check, argument)


def profile(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["profile"] = words.parse_profile(argument or "")
    if opts["profile"] is None:
        opts.log.error(f"invalid --profile={argument} option")
        return False
    return True


def signal(opts: OptionSet, option: Option, argument: str | None) -> bool:
    before: words.WarnSignal | None = opts["signal"]
    warn = words.parse_warn_signal(argument or "")
    if warn is None:
        return opts.invalid(option)
    if before is not None:                    # R and B stay once they were said
        warn = warn._replace(batch=warn.batch or before.batch, reservation=warn.reservation or before.reservation)
    opts["signal"] = warn
    return True


def umask(opts: OptionSet, option: Option, argument: str | None) -> bool:
    """#PBS -W umask=: octal where it begins with 0, as C reads numbers."""
    text = (argument or "").strip()
    try:
        number = int(text, 16) if text[:2].lower() == "0x" else int(text, 8 if text[:1] == "0" else 10)
    except ValueError:
        number = 0
    if not 0 <= number <= 0o777:
        opts.log.error("Invalid -W umask= specification")
        return False
    opts["umask"] = number
    return True


def uint16(text: str | None) -> int | None:
    """parse_uint16: None where it is none."""
    parsed = memory.leading_int(text or "")
    if parsed is None:
        return 0 if text == "" else None
    return parsed[0] if not parsed[1] and 0 <= parsed[0] < 0xFFFE else None


def treewidth(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["treewidth"] = 0xFFFD if (argument or "").lower() == "off" else uint16(argument)
    if opts["treewidth"] is None:
        opts.log.error(f"Invalid --treewidth value: {argument}")
        return False
    return True


def send_libs(opts: OptionSet, option: Option, argument: str | None) -> bool:
    answer = {"yes": True, "y": True, "no": False, "n": False}.get((argument or "yes").lower())
    opts["send_libs"] = answer
    return answer is not None or opts.invalid(option)


def accel_bind(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["accel_bind"] = "".join(c for c in "vgn" if c in opts["accel_bind"] or c in (argument or ""))
    return bool(opts["accel_bind"]) or opts.invalid(option)


def compress(opts: OptionSet, option: Option, argument: str | None) -> bool:
    word = "lz4" if argument is None else argument.lower()
    if word not in ("lz4", "none"):
        opts.log.error(f"Compression type '{argument}' unknown, disabling compression support.")
    opts["compress"] = "lz4" if word == "lz4" else "none"
    return True


def x11(opts: OptionSet, option: Option, argument: str | None) -> bool:
    word = "all" if argument is None else argument.lower()
    opts["x11"] = word if word in ("all", "batch", "first", "last") else None
    return True


def bell(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts["bell"] = "bell-never" if option.kind == "no_bell" else "bell-always"
    return True


def pyxis(opts: OptionSet, option: Option, argument: str | None) -> bool:
    opts[option.field] = "" if argument is None else argument
    return True


def informed(opts: OptionSet, option: Option, argument: str | None) -> bool:
    """-h, -V, --usage, --autocomplete."""
    from slurmbridge.slurm.option_texts import information
    raise ClientExit(0, information(opts.command, option.kind, argument))


def slurmd_debug(opts: OptionSet, option: Option, argument: str | None) -> bool:
    admin = opts.caller.conf.get("SlurmUser", "root")
    if opts.caller.uid not in (0, opts.caller.uid_of(admin)) and (argument or "").lower() not in ("error", "2"):
        opts.log.error(f"Use of --slurmd-debug is allowed only for root and SlurmUser({admin})")
        return False
    opts["slurmd_debug"] = argument
    return True
