"""sattach's command line (sattach(1)), read by the server outside a job and by the step daemon inside."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurmbridge.slurm.getopt import OptionTable, Parser, completions, long_options
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.sbcast_options import Over
from slurmbridge.slurm.selected_step import SelectedStep, StepSpecError, parse_selected_step
from slurmbridge.slurm.version import SLURM_VERSION

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


TABLE = OptionTable("hlQuvV", long_options("""
    autocomplete= help:h label:l quiet:Q usage:u verbose:v version:V layout debugger-test input-filter= output-filter=
    error-filter= pty"""))


@dataclass(slots=True)
class Call:
    """Filters are task numbers, None for all."""

    step: SelectedStep = field(default_factory=lambda: SelectedStep(0))
    label: bool = False
    layout: bool = False
    pty: bool = False
    input_task: int | None = None
    output_task: int | None = None
    error_task: int | None = None


def read_call(argv: Sequence[str]) -> Call:
    """Raises Over."""
    call = Call()
    filters: dict[str, int | None] = {}
    quiet = verbose = False
    parser = Parser("sattach", argv, TABLE)
    while (found := parser.next()) is not None:
        key, value = found[0], found[1] or ""
        if key == "?":
            raise Over("", f"{parser.error}\nTry \"sattach --help\" for more information\n", 1)
        texts = {"h": HELP, "u": USAGE, "V": f"slurm {SLURM_VERSION}\n", "autocomplete": completions(TABLE.long, value)}
        if key in texts:
            raise Over(texts[key], "", 0)
        if key.endswith("-filter"):
            filters[key] = None if value == "-" else _task_number(value, key)
        call.label |= key == "l"
        call.layout |= key == "layout"
        call.pty |= key == "pty"
        quiet |= key == "Q"
        verbose |= key == "v"
    if len(parser.operands) != 1:
        raise Over(USAGE, "sattach: error: too many parameters\n", 1)
    try:
        call.step = parse_selected_step(parser.operands[0])
    except StepSpecError as error:
        raise Over("", f"sattach: fatal: {error}\n", 1) from None
    if not call.step.step:
        raise Over(USAGE, "sattach: error: Failed to parse stepid from command line options\n", 1)
    problems = [text for wrong, text in (
        (quiet and verbose, "don't specify both --verbose (-v) and --quiet (-Q)"),
        (call.step.step in ("batch", "extern"), "Cannot be used with extern or batch steps"),
        (call.pty and filters, "don't specify both --pty and I/O filtering")) if wrong]
    if problems:
        raise Over("", "".join(f"sattach: error: {text}\n" for text in problems), 1)
    call.input_task, call.output_task = filters.get("input-filter"), filters.get("output-filter")
    call.error_task = filters.get("error-filter", call.output_task)
    return call


def _task_number(text: str, what: str) -> int:
    value, rest = leading_int(text) or (-1, "")
    if value < 0 or rest.strip(" \t\n\v\f\r"):
        raise Over("", f'sattach: error: Invalid numeric value "{text}" for {what}.\n', 1)
    if value > 0x7FFFFFFF:
        raise Over("", f"sattach: error: Numeric argument {value} to big for {what}.\n", 1)
    return value
