"""Every option of sbatch, salloc and srun, as data: spellings, who accepts them, what they set and how they reset.

The order is Slurm's own; glibc lists ambiguous abbreviations in it. Environment variables stand apart, since their
order decides which of two wins (sbatch(1), salloc(1), srun(1): INPUT ENVIRONMENT VARIABLES).
"""
from __future__ import annotations

from typing import Any, NamedTuple

from slurmbridge.slurm.getopt import LongOption, OptionTable

ALL, B, LB, R, BR, L, LBR_SUBMIT = "LBR", "B", "LB", "R", "BR", "L", "LBR"
COMMANDS = {"salloc": "L", "sbatch": "B", "srun": "R"}


class Option(NamedTuple):
    """One option.

    ``argument``: 0 none, 1 required, 2 optional. ``key``: its letter, or its long name. ``commands``: letters L
    (salloc), B (sbatch), R (srun). ``kind`` names the setter and getter in option_values; ``fields`` are what it sets,
    with the values they have when it was not given. ``each_component``: starts anew for every het component.
    ``early``: B or R where the command looks at it before everything else.
    """

    name: str
    argument: int
    key: str
    commands: str
    kind: str
    fields: tuple[tuple[str, Any], ...] = ()
    each_component: bool = False
    early: str = ""
    label: str = ""

    @property
    def field(self) -> str:
        return self.fields[0][0]


def _row(name: str, argument: int, letter: str, commands: str, kind: str, *fields: tuple[str, Any] | str,
         each: bool = False, early: str = "", label: str = "", key: str = "") -> Option:
    pairs = tuple((f, None) if isinstance(f, str) else f for f in fields)
    return Option(name, argument, letter or key or name, commands, kind, pairs, each, early, label or f"--{name}")


_SHARED = ("shared", None), ("step_exclusive", True)
_REQUEUE = (("requeue", None),)

OPTIONS: tuple[Option, ...] = (
    _row("accel-bind", 1, "", R, "accel_bind", ("accel_bind", ""), each=True),
    _row("account", 1, "A", ALL, "text", "account"),
    _row("acctg-freq", 1, "", ALL, "acctg_freq", "acctg_freq"),
    _row("", 1, "", R, "text", "alloc_nodelist", each=True, key="alloc-nodelist"),
    _row("array", 1, "a", B, "text", "array"),
    _row("autocomplete", 1, "", ALL, "autocomplete"),
    _row("batch", 1, "", B, "text", "batch_features"),
    _row("bcast", 2, "", R, "bcast", "bcast", each=True),
    _row("bcast-exclude", 1, "", R, "text", "bcast_exclude", each=True),
    _row("begin", 1, "b", ALL, "time", ("begin", 0)),
    _row("bell", 0, "", L, "bell", ("bell", "bell-after-delay")),
    _row("bb", 1, "", ALL, "text", "burst_buffer", each=True),
    _row("bbf", 1, "", ALL, "text", "burst_buffer_file"),
    _row("cluster-constraint", 1, "", ALL, "text", "cluster_constraint"),
    _row("chdir", 1, "D", ALL, "chdir", "chdir"),
    _row("cluster", 1, "", ALL, "text", "clusters"),
    _row("clusters", 1, "M", ALL, "text", "clusters"),
    _row("comment", 1, "", ALL, "text", "comment"),
    _row("compress", 2, "", R, "compress", ("compress", "none"), each=True),
    _row("consolidate-segments", 0, "", ALL, "flag", ("consolidate_segments", False), each=True),
    _row("container", 1, "", ALL, "text", "container"),
    _row("container-id", 1, "", ALL, "text", "container_id"),
    _row("context", 1, "", ALL, "text", "context"),
    _row("contiguous", 0, "", ALL, "flag", ("contiguous", False), each=True),
    _row("constraint", 1, "C", ALL, "text", "constraint", each=True),
    _row("core-spec", 1, "S", ALL, "core_spec", "core_spec", ("spec_is_threads", False), each=True),
    _row("cores-per-socket", 1, "", ALL, "positive", "cores_per_socket", each=True),
    _row("cpu-bind", 1, "", R, "text", "cpu_bind", each=True),
    _row("cpu_bind", 1, "", R, "text", "cpu_bind", each=True, key="cpu-bind"),
    _row("cpu-freq", 1, "", ALL, "cpu_freq", "cpu_freq", each=True),
    _row("cpus-per-gpu", 1, "", ALL, "positive", ("cpus_per_gpu", 0), each=True),
    _row("cpus-per-task", 1, "c", ALL, "cpus_per_task", ("cpus_per_task", 0), ("cpus_set", False), each=True),
    _row("deadline", 1, "", ALL, "time", ("deadline", 0)),
    _row("debugger-test", 0, "", R, "flag", ("debugger_test", False)),
    _row("delay-boot", 1, "", ALL, "seconds", "delay_boot"),
    _row("dependency", 1, "d", ALL, "text", "dependency"),
    _row("disable-status", 0, "X", R, "flag", ("disable_status", False)),
    _row("distribution", 1, "m", ALL, "distribution", "distribution", each=True),
    _row("epilog", 1, "", R, "text", "epilog"),
    _row("error", 1, "e", BR, "file", "error"),
    _row("exact", 0, "", R, "flag", ("exact", False)),
    _row("exclude", 1, "x", ALL, "text", "exclude"),
    _row("exclusive", 2, "", ALL, "exclusive", *_SHARED, each=True),
    _row("export", 1, "", BR, "text", "export"),
    _row("export-file", 1, "", B, "text", "export_file"),
    _row("external", 0, "", B, "flag", ("external", False)),
    _row("external-launcher", 2, "", R, "flag", ("external_launcher", False)),
    _row("extra", 1, "", ALL, "text", "extra"),
    _row("extra-node-info", 1, "B", ALL, "extra_node_info", "sockets_per_node", "cores_per_socket",
         "threads_per_core", ("extra_set", False), each=True),
    _row("get-user-env", 0, "", B, "flag", ("get_user_env", False)),
    _row("gid", 1, "", B, "gid", "gid"),
    _row("gpu-bind", 1, "", ALL, "gpu_bind", "gpu_bind", "tres_bind", each=True),
    _row("gpu-freq", 1, "", ALL, "gpu_freq", "gpu_freq", "tres_freq", each=True),
    _row("gpus", 1, "G", ALL, "text", "gpus", each=True),
    _row("gpus-per-node", 1, "", ALL, "text", "gpus_per_node", each=True),
    _row("gpus-per-socket", 1, "", ALL, "text", "gpus_per_socket", each=True),
    _row("gpus-per-task", 1, "", ALL, "text", "gpus_per_task", each=True),
    _row("gres", 1, "", ALL, "gres", "gres", each=True),
    _row("gres-flags", 1, "", ALL, "gres_flags", ("gres_flags", frozenset()), each=True),
    _row("help", 0, "h", ALL, "help", early="B"),
    _row("het-group", 1, "", R, "text", "het_group", early="R"),
    _row("hint", 1, "", ALL, "text", "hint", each=True),
    _row("hold", 0, "H", ALL, "flag", ("hold", False)),
    _row("ignore-pbs", 0, "", B, "flag", ("ignore_pbs", False)),
    _row("immediate", 2, "I", "LR", "immediate", ("immediate", 0), label="immediate"),
    _row("input", 1, "i", BR, "file", "input"),
    _row("interactive", 0, "", R, "flag", ("interactive", False)),
    _row("jobid", 1, "", R, "jobid", "jobid", "array_task_id"),
    _row("job-name", 1, "J", ALL, "text", "job_name"),
    _row("kill-command", 2, "K", L, "kill_command", ("kill_command", 0)),
    _row("kill-on-bad-exit", 2, "K", R, "kill_on_bad_exit", "kill_on_bad_exit"),
    _row("kill-on-invalid-dep", 1, "", B, "kill_on_invalid_dep", "kill_on_invalid_dep"),
    _row("label", 0, "l", R, "flag", ("label", False)),
    _row("licenses", 1, "L", ALL, "text", "licenses", each=True),
    _row("mail-type", 1, "", ALL, "mail_type", ("mail_type", "NONE"), each=True),
    _row("mail-user", 1, "", ALL, "text", "mail_user", each=True),
    _row("threads", 1, "T", R, "positive", ("max_threads", 60)),
    _row("mcs-label", 1, "", ALL, "text", "mcs_label"),
    _row("mem", 1, "", ALL, "mem", "mem"),
    _row("mem-bind", 1, "", ALL, "mem_bind", "mem_bind", each=True),
    _row("mem-per-cpu", 1, "", ALL, "megabytes", "mem_per_cpu", each=True),
    _row("mem-per-gpu", 1, "", ALL, "megabytes", "mem_per_gpu", each=True),
    _row("mincpus", 1, "", ALL, "positive", ("min_cpus", -1), each=True),
    _row("mpi", 1, "", R, "text", "mpi"),
    _row("msg-timeout", 1, "", R, "positive", "msg_timeout"),
    _row("multi-prog", 0, "", R, "flag", ("multi_prog", False)),
    _row("network", 1, "", ALL, "text", "network", each=True),
    _row("nice", 2, "", ALL, "nice", "nice"),
    _row("no-allocate", 0, "Z", R, "flag", ("no_allocate", False)),
    _row("no-bell", 0, "", L, "no_bell", ("bell", "bell-after-delay")),
    _row("no-kill", 2, "k", ALL, "no_kill", ("no_kill", False)),
    _row("no-shell", 0, "", L, "flag", ("no_shell", False)),
    _row("no-requeue", 0, "", B, "no_requeue", *_REQUEUE),
    _row("nodefile", 1, "F", ALL, "nodefile", "nodefile", each=True),
    _row("nodelist", 1, "w", ALL, "nodelist", "nodelist", each=True),
    _row("nodes", 1, "N", ALL, "nodes", ("min_nodes", 1), ("max_nodes", 0), ("nodes_set", False), each=True),
    _row("ntasks", 1, "n", ALL, "ntasks", ("ntasks", 1), ("ntasks_set", False), each=True),
    _row("ntasks-per-core", 1, "", ALL, "positive", "ntasks_per_core", each=True),
    _row("ntasks-per-gpu", 1, "", ALL, "positive", "ntasks_per_gpu", each=True),
    _row("ntasks-per-node", 1, "", ALL, "positive", "ntasks_per_node", each=True),
    _row("ntasks-per-socket", 1, "", ALL, "positive", "ntasks_per_socket", each=True),
    _row("ntasks-per-tres", 1, "", ALL, "positive", "ntasks_per_tres", each=True),
    _row("oom-kill-step", 2, "", ALL, "oom_kill_step", "oom_kill_step"),
    _row("open-mode", 1, "", BR, "open_mode", "open_mode"),
    _row("output", 1, "o", BR, "file", "output"),
    _row("overcommit", 0, "O", ALL, "flag", ("overcommit", False), each=True),
    _row("overlap", 2, "", R, "overlap", ("step_exclusive", True), ("overlap", False)),
    _row("oversubscribe", 0, "s", ALL, "oversubscribe", *_SHARED, each=True),
    _row("pack-group", 1, "", R, "text", "het_group", early="R", key="het-group"),
    _row("parsable", 0, "", B, "flag", ("parsable", False)),
    _row("partition", 1, "p", ALL, "text", "partition", each=True),
    _row("prefer", 1, "", ALL, "text", "prefer"),
    _row("preserve-env", 0, "E", R, "flag", ("preserve_env", False)),
    _row("priority", 1, "", ALL, "priority", ("priority", 0)),
    _row("profile", 1, "", ALL, "profile", "profile"),
    _row("prolog", 1, "", R, "text", "prolog"),
    _row("propagate", 2, "", BR, "propagate", "propagate"),
    _row("pty", 2, "", R, "pty", "pty"),
    _row("qos", 1, "q", ALL, "text", "qos"),
    _row("quiet", 0, "Q", ALL, "quiet", ("quiet", 0), early="B"),
    _row("quit-on-interrupt", 0, "", R, "flag", ("quit_on_interrupt", False)),
    _row("reboot", 0, "", ALL, "flag", ("reboot", False)),
    _row("relative", 1, "r", R, "number", "relative", each=True),
    _row("requeue", 2, "", B, "requeue", *_REQUEUE),
    _row("resources", 1, "", ALL, "text", "resources", each=True),
    _row("reservation", 1, "", ALL, "text", "reservation"),
    _row("resv-ports", 2, "", ALL, "resv_ports", "resv_ports", each=True, label="--resv-port"),
    _row("segment", 1, "", ALL, "segment", ("segment", 0), each=True),
    _row("send-libs", 2, "", R, "send_libs", ("send_libs", False), each=True),
    _row("signal", 1, "", ALL, "signal", "signal"),
    _row("slurmd-debug", 1, "", R, "slurmd_debug", ("slurmd_debug", "error")),
    _row("sockets-per-node", 1, "", ALL, "positive", "sockets_per_node", each=True),
    _row("spread-job", 0, "", ALL, "flag", ("spread_job", False), each=True),
    _row("spread-segments", 0, "", ALL, "flag", ("spread_segments", False), each=True),
    _row("stepmgr", 0, "", ALL, "flag", ("stepmgr", False)),
    _row("", 1, "", ALL, "positive", ("req_switch", -1), each=True, key="switch-req", label="--switches"),
    _row("", 1, "", ALL, "switch_wait", ("wait4switch", -1), ("req_switch", -1), each=True, key="switch-wait"),
    _row("switches", 1, "", ALL, "switches", ("req_switch", -1), ("wait4switch", -1), each=True),
    _row("task-epilog", 1, "", R, "text", "task_epilog"),
    _row("task-prolog", 1, "", R, "text", "task_prolog"),
    _row("tasks-per-node", 1, "", ALL, "positive", "ntasks_per_node", each=True, key="ntasks-per-node",
         label="--ntasks-per-node"),
    _row("test-only", 0, "", BR, "flag", ("test_only", False)),
    _row("thread-spec", 1, "", ALL, "thread_spec", "core_spec", ("spec_is_threads", False), each=True),
    _row("threads-per-core", 1, "", ALL, "positive", "threads_per_core", each=True),
    _row("time", 1, "t", ALL, "time_limit", "time_limit"),
    _row("time-min", 1, "", ALL, "time_limit", "time_min"),
    _row("tmp", 1, "", ALL, "megabytes", "tmp", each=True),
    _row("treewidth", 1, "", R, "treewidth", ("treewidth", 0)),
    _row("tres-bind", 1, "", ALL, "text", "tres_bind", each=True),
    _row("tres-per-task", 1, "", ALL, "text", "tres_per_task", each=True),
    _row("uid", 1, "", B, "uid", "uid"),
    _row("unbuffered", 0, "u", R, "flag", ("unbuffered", False)),
    _row("use-min-nodes", 0, "", ALL, "flag", ("use_min_nodes", False), each=True),
    _row("verbose", 0, "v", ALL, "verbose", ("verbose", 0), early="B"),
    _row("version", 0, "V", ALL, "version", early="B"),
    _row("", 0, "", B, "umask", ("umask", -1), each=True, key="umask"),
    _row("usage", 0, "", ALL, "usage", early="B"),
    _row("wait", 0, "W", B, "flag", ("wait", False)),
    _row("wait-all-nodes", 1, "", LB, "wait_all_nodes", "wait_all_nodes"),
    _row("wait", 1, "W", R, "number", "max_wait"),
    _row("wait-for-children", 0, "", R, "flag", ("wait_for_children", False)),
    _row("wckey", 1, "", ALL, "text", "wckey"),
    _row("whole", 0, "", R, "flag", ("whole", False)),
    _row("wrap", 1, "", B, "text", "wrap", early="B"),
    _row("x11", 2, "", "LR", "x11", "x11"),
)

PYXIS: tuple[Option, ...] = tuple(
    _row(name, argument, "", ALL, "pyxis", name) for name, argument in (
        ("container-image", 1), ("container-mounts", 1), ("container-workdir", 1), ("container-name", 1),
        ("container-save", 1), ("container-mount-home", 0), ("no-container-mount-home", 0),
        ("container-remap-root", 0), ("no-container-remap-root", 0), ("container-entrypoint", 0),
        ("no-container-entrypoint", 0), ("container-entrypoint-log", 0), ("container-writable", 0),
        ("container-readonly", 0), ("container-env", 1), ("container-unshare", 1)))
"""Pyxis' options. What is ambiguous in a Slurm without them is said in its words."""


def options_of(command: str) -> dict[str, Option]:
    """key -> the option that ``command`` runs for it (the first in Slurm's order)."""
    cached = _by_key.get(command)
    if cached is None:
        letter = COMMANDS[command]
        cached = {}
        for option in (*OPTIONS, *PYXIS):
            if letter in option.commands:
                cached.setdefault(option.key, option)
        _by_key[command] = cached
    return cached


def table_of(command: str) -> OptionTable:
    """The getopt table of sbatch, salloc or srun."""
    cached = _tables.get(command)
    if cached is None:
        letter = COMMANDS[command]
        mine = [option for option in OPTIONS if option.name and letter in option.commands]
        short = "".join(option.key + ":" * option.argument for option in mine if len(option.key) == 1)
        cached = _tables[command] = OptionTable(
            short, [LongOption(option.name, option.argument, option.key) for option in mine],
            [LongOption(option.name, option.argument, option.key) for option in PYXIS])
    return cached


_by_key: dict[str, dict[str, Option]] = {}
_tables: dict[str, OptionTable] = {}
