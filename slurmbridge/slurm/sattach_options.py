"""sattach's command line (sattach(1)), read by the server outside a job and by the step daemon inside."""
from __future__ import annotations

import getopt
from collections.abc import Sequence
from dataclasses import dataclass

from slurmbridge.slurm.sbcast_options import Over

USAGE = "Usage: sattach [options] <jobid.stepid>\n"
HELP = USAGE + """      --input-filter=taskid  send stdin to only the specified task
      --output-filter=taskid only print stdout from the specified task
      --error-filter=taskid  only print stderr from the specified task
  -l, --label        prepend task number to lines of stdout & stderr
      --layout       print task layout info and exit (does not attach to tasks)
  -Q, --quiet        quiet mode (suppress informational messages)
  -v, --verbose      verbose mode (multiple -v's increase verbosity)
  -V, --version      print the Slurm version and exit

Help options:
  -h, --help         print this help message
  -u, --usage        print a brief usage message
"""


@dataclass(slots=True)
class Call:
    """Filters are task numbers, None for all."""

    step: str = ""                            # as given: 12.0
    label: bool = False
    layout: bool = False
    pty: bool = False
    input_task: int | None = None
    output_task: int | None = None
    error_task: int | None = None


def read_call(argv: Sequence[str]) -> Call:
    """Raises Over."""
    call = Call()
    try:
        options, rest = getopt.gnu_getopt(list(argv), "hlQuvV", [
            "help", "label", "quiet", "usage", "verbose", "version", "layout", "debugger-test", "input-filter=",
            "output-filter=", "error-filter=", "pty"])
    except getopt.GetoptError as error:
        raise Over("", f"sattach: {error.msg}\nTry \"sattach --help\" for more information\n", 1) from None
    filters: dict[str, int | None] = {}
    for name, value in options:
        if name in ("-h", "--help"):
            raise Over(HELP, "", 0)
        if name in ("-u", "--usage"):
            raise Over(USAGE, "", 0)
        if name.endswith("-filter"):
            filters[name] = int(value) if value.isdigit() else None
    names = {name for name, _ in options}
    call.label, call.layout = bool(names & {"-l", "--label"}), "--layout" in names
    call.pty = "--pty" in names
    call.input_task, call.output_task = filters.get("--input-filter"), filters.get("--output-filter")
    call.error_task = filters.get("--error-filter")
    problem = ""
    if len(rest) > 1:
        problem = "too many parameters"
    elif not rest or not _is_step(rest[0]):
        problem = "Failed to parse stepid from command line options"
    elif rest[0].rpartition(".")[2] in ("batch", "extern", "interactive"):
        problem = "Cannot be used with extern or batch steps"
    elif call.pty and filters:
        problem = "don't specify both --pty and I/O filtering"
    if problem:
        raise Over("", f"sattach: error: {problem}\nsattach: error: sattach parameter parsing\n", 1)
    call.step = rest[0]
    return call


def _is_step(text: str) -> bool:
    job, dot, step = text.partition(".")
    return bool(dot and step) and job.replace("_", "").replace("+", "").isdigit()
