"""What a user's shell starts for squeue, sbatch, srun and the others: sends the call, obeys the frames, exits.

It knows nothing of Slurm but where a command goes and what it says when nobody is there. Started as
``python -IS``: no third-party import, no site-packages, and modules that take time to import only where needed.
"""
from __future__ import annotations

import _signal as signal
import os
import sys

from slurmbridge.client import protocol, transport
from slurmbridge.client.exchange import Exchange, GoOn, Lost, terminal_size, write_all

SLURM_VERSION = "25.11.7"

UNREACHABLE = {
    "squeue": ("slurm_load_jobs error: {}", 1),
    "sbatch": ("sbatch: error: Batch job submission failed: {}", 1),
    "srun": ("srun: error: Unable to allocate resources: {}", 1),
    "salloc": ("salloc: error: Job submit/allocate failed: {}", 1),
    "sinfo": ("slurm_load_partitions: {}", 1),
    "sprio": ("Couldn't get priority factors from controller: {}", 255),
    "sshare": ("Couldn't get shares from controller: {}", 255),
    "sdiag": ("slurm_get_statistics: {}", 255),
    "sattach": ("sattach: error: Could not get job step info: {}", 1),
    "strigger": ("slurm_get_triggers: {}", 1),
}
SCONTROL_UNREACHABLE = {
    "job": "slurm_load_jobs error: {}", "node": "slurm_load_node error: {}",
    "partition": "slurm_load_partitions error: {}", "config": "slurm_load_ctl_conf error:{}",
    "step": "scontrol: error: scontrol_print_step: slurm_get_job_steps((null)) failed: {}",
    "reconfigure": "slurm_reconfigure error:{}",
}
IN_JOB = ("srun", "sattach", "sbcast", "sstat")
"""Commands that go to the step daemon when they are started inside a job."""

SRUN_FLAGS = "XHhlZOsEQuvV"
SRUN_OPTIONAL = "IKk"
SRUN_LONG_FLAGS = (
    "consolidate-segments", "contiguous", "debugger-test", "disable-status", "exact", "help", "hold", "interactive",
    "label", "multi-prog", "no-allocate", "overcommit", "oversubscribe", "preserve-env", "quiet", "quit-on-interrupt",
    "reboot", "spread-job", "spread-segments", "stepmgr", "test-only", "unbuffered", "usage", "use-min-nodes",
    "verbose", "version", "wait-for-children", "whole", "bcast", "compress", "exclusive", "external-launcher",
    "immediate", "kill-on-bad-exit", "nice", "no-kill", "oom-kill-step", "overlap", "propagate", "pty", "resv-ports",
    "send-libs", "x11")
"""srun's long options after which the next word is not their value."""


def srun_job(argv: list[str]) -> str:
    """The value of srun's --jobid, which may stand anywhere before the program; "" without one."""
    words = iter(argv)
    found = ""
    for word in words:
        if word == "--" or not word.startswith("-") or word == "-":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            is_job = len(name) >= 4 and "jobid".startswith(name)
            if not equals and (is_job or not any(flag.startswith(name) for flag in SRUN_LONG_FLAGS)):
                value = next(words, "")
            if is_job:
                found = value
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter in SRUN_FLAGS:
                continue
            if letter not in SRUN_OPTIONAL and place == len(word):
                next(words, "")
            break
    return found


def destination(command: str, argv: list[str], env: dict[str, str]) -> tuple[str, str]:
    """(address, credential) of who answers this command."""
    daemon = env.get("SLURMBRIDGE_STEPD", "")
    if daemon and command in IN_JOB:
        other = srun_job(argv) if command == "srun" else ""
        own = {env.get("SLURM_JOB_ID", ""), f"{env.get('SLURM_ARRAY_JOB_ID')}_{env.get('SLURM_ARRAY_TASK_ID')}"}
        if not other or other in own:
            return daemon, env.get("SLURMBRIDGE_CREDENTIAL", "")
    return transport.default_address(env), ""


def request_fields(command: str, argv: list[str], env: list[str], credential: str) -> dict[str, object]:
    """The ``R`` frame's content."""
    import resource
    limits: dict[str, object] = {}
    for name in ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS"):
        limits[name] = list(resource.getrlimit(getattr(resource, f"RLIMIT_{name}")))
    umask = os.umask(0o077)
    os.umask(umask)
    try:
        directory = os.getcwdb()
    except OSError:
        directory = b"."                      # it was removed
    size = terminal_size() if os.isatty(1) else None
    return {"v": protocol.VERSION, "command": command, "argv": argv, "env": env, "cwd": protocol.text(directory),
            "umask": umask, "host": os.uname().nodename.split(".")[0], "pid": os.getpid(), "sid": os.getsid(0),
            "rlimits": limits, "tty_columns": size[1] if size else None, "stdin_tty": os.isatty(0),
            "credential": credential}


def unreachable(command: str, argv: list[str], reason: str, env: dict[str, str]) -> tuple[str, int]:
    """(line, exit code): what the command says, as real Slurm, when nobody answers."""
    if command in ("sacct", "sacctmgr", "sreport"):
        if reason == transport.AWAY:
            reason = "Connection refused"
        return f"{command}: error: Problem talking to the database: {reason}", 1
    plain = [word for word in argv if not word.startswith("-")]
    if command == "scancel" and plain:
        return "\n".join([f"scancel: error: Kill job error on job id {word}: {reason}" for word in plain]), 8
    if command == "scancel":
        return f"slurm_load_jobs error: {reason}", 1
    if command == "squeue" and any(word in ("-s", "--steps") or word.startswith("--steps=") for word in argv):
        return f"slurm_get_job_steps error: {reason}", 1
    if command == "srun":
        job = srun_job(argv) or env.get("SLURM_JOB_ID", "")
        if job:
            return (f"srun: error: Unable to confirm allocation for job {job}: {reason}\n"
                    f"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job {job}"), 1
    if command == "scontrol":
        if plain[:1] == ["ping"]:
            return (f"Slurmctld(primary) at {os.uname().nodename.split('.')[0]} is DOWN\n" + "*" * 41 +
                    "\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n" + "*" * 41), 1
        entity = (plain[1:2] if plain[:1] == ["show"] else plain[:1]) or [""]
        for name, text in SCONTROL_UNREACHABLE.items():
            if entity[0].lower().rstrip("s") == name:
                return text.format(reason), 1
    text, code = UNREACHABLE.get(command, (command + ": error: {}", 1))
    return text.format(reason), code


def converse(command: str, argv: list[str], env: list[str]) -> int:
    """Sends the call and sees it through, from server to server where one hands over. Raises Unreachable, Lost."""
    variables = dict(entry.split("=", 1) for entry in env if "=" in entry)
    address, credential = destination(command, argv, variables)
    while True:
        try:
            stream, first = transport.connect(address)
        except transport.Unreachable:
            daemon = variables.get("SLURMBRIDGE_STEPD", "")
            if command != "scontrol" or not daemon or address == daemon:
                raise
            address, credential = daemon, variables.get("SLURMBRIDGE_CREDENTIAL", "")
            continue        # host lists are expanded next door too: jobs need no controller for that
        request = protocol.pack_request(request_fields(command, argv, env, credential))
        try:
            return Exchange(command, stream, request, first).run()
        except GoOn as order:
            import json
            stream.close()
            new = json.loads(order.args[0])
            address, credential = new["address"], new["credential"]
            argv, env = new.get("argv", argv), new.get("env", env)


def main(words: list[str] | None = None) -> None:
    """Never returns. ``words``: command name and arguments instead of this process's own."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    while (spare := os.open("/dev/null", os.O_RDWR)) <= 2:
        pass                            # a closed standard stream must not become the connection
    os.close(spare)
    command, *argv = [protocol.text(os.fsencode(word)) for word in words or sys.argv]
    command = command.rpartition("/")[2]
    env = [protocol.text(name + b"=" + value) for name, value in os.environb.items() if name not in protocol.OWN]
    if argv in (["-V"], ["--version"]):
        text, code = f"slurm {SLURM_VERSION}\n", 0
        write_all(1, text.encode())
        os._exit(0)
    variables = dict(entry.split("=", 1) for entry in env)
    try:
        code = converse(command, argv, env)
    except transport.Unreachable as error:
        text, code = unreachable(command, argv, str(error), variables)
    except (Lost, protocol.ProtocolError, ValueError, KeyError):
        text, code = unreachable(command, argv, transport.LOST, variables)
    else:
        os._exit(code)
    write_all(1 if text.startswith("Slurmctld(") else 2, protocol.raw(text + "\n"))
    os._exit(code)
