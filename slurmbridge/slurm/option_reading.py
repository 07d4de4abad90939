"""The steps that sbatch, salloc and srun share when they read their options."""
from __future__ import annotations

from collections.abc import Mapping

from slurmbridge.slurm.getopt import Parser
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.option_env import ENVIRONMENT
from slurmbridge.slurm.option_texts import text_of
from slurmbridge.slurm.option_values import Log, OptionSet
from slurmbridge.slurm.options import table_of


def error_exit_code(env: Mapping[str, str], variable: str, log: Log) -> int:
    """The exit code that SLURM_EXIT_ERROR or SLURM_EXIT_IMMEDIATE sets; 1 without it."""
    value = env.get(variable)
    if value is None:
        return 1
    code = (leading_int(value) or (0, ""))[0]
    if not code:
        log.error(f"{variable} has zero value")
        return 1
    return code & 0xFF


def read_options(opts: OptionSet, program: str, args: list[str], *, by_env: bool = False,
                 early: bool = False) -> int:
    """getopt over ``args``; returns where the operands begin. Raises ClientExit."""
    parser = Parser(program, args, table_of(opts.command))
    while (item := parser.next()) is not None:
        if item[0] == "?" and parser.error:
            opts.log.raw(parser.error)
        opts.process(item[0], item[1], by_env=by_env, early=early)
    return parser.index


def read_environment(opts: OptionSet, group: int | None = None) -> None:
    """The input variables of the command; with ``group`` also those of that het component. Raises ClientExit."""
    env = opts.caller.env
    for variable, key in ENVIRONMENT[opts.command]:
        if variable in env:
            opts.process(key, env[variable], by_env=True)
        if group is not None and variable != "SLURM_JOB_ID":
            for word in ("PACK", "HET"):
                name = f"{variable}_{word}_GROUP_{group}"
                if name in env:
                    opts.process(key, env[name], by_env=True)


def print_options(opts: OptionSet) -> None:
    """The table of -v."""
    line = "-------------------- --------------------"
    opts.log.info("defined options")
    opts.log.info(line)
    for option in opts.options.values():
        if (option.name or option.key) in opts.given:
            value = text_of(opts, option)
            opts.log.info(f"{option.name or '(null)':<20}: {'(null)' if value is None else value}")
    opts.log.info(line)
    opts.log.info("end of defined options")
