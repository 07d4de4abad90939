"""sbcast's command line (sbcast(1)), read by the server outside a job and by the step daemon inside."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmbridge.slurm.getopt import OptionTable, Parser, completions, long_options
from slurmbridge.slurm.memory import leading_int
from slurmbridge.slurm.selected_step import SelectedStep, StepSpecError, parse_selected_step
from slurmbridge.slurm.version import SLURM_VERSION

USAGE = "Usage: sbcast [--exclude] [-CfFjpvV] [--send-libs] SOURCE DEST\n"
HELP = """Usage: sbcast [OPTIONS] SOURCE DEST
  -C, --compress[=lib]  compress the file being transmitted
  --exclude=<path_list> shared object paths to be excluded
  -f, --force           replace destination file as required
  --treewidth=num       specify message treewidth
  -j, --jobid=#[+#][.#] specify job ID with optional hetjob offset and/or step ID
  -p, --preserve        preserve modes and times of source file
  --send-libs[=yes|no]  autodetect and broadcast executable's shared objects
  -s, --size=num        block size in bytes (rounded off)
  -t, --timeout=secs    specify message timeout (seconds)
  -v, --verbose         provide detailed event logging
  -V, --version         print version information and exit

Help options:
  --help                show this help message
  --usage               display brief usage message
"""
TABLE = OptionTable("C::fF:j:ps:t:vVw:Z", long_options("""
    autocomplete= compress=?:C exclude= fanout=:F treewidth= force:f jobid=:j no-allocation=?:Z nodelist=?:w send-libs=?
    preserve:p size=:s timeout=:t verbose:v version:V help usage"""))
TRY = 'Try "sbcast --help" for more information\n'


class Over(Exception):
    """The command ends: standard output, standard error, exit code."""


@dataclass(slots=True)
class Call:
    source: str
    target: str
    force: bool = False
    preserve: bool = False
    job: SelectedStep | None = None           # of --jobid
    job_text: str = ""                        # the same as given


_SWITCHES = {"yes": True, "y": True, "no": False, "n": False}


def read_call(argv: Sequence[str], env: Mapping[str, str], cwd: str, dest_dir: str = "") -> Call:
    """Raises Over."""
    call = Call("", "", force="SBCAST_FORCE" in env, preserve="SBCAST_PRESERVE" in env)
    said = ""
    libs = outside = False
    nodes = ""

    def over(error: str, stdout: str = "", exit_code: int = 1) -> Over:
        return Over(stdout, said + error, exit_code)

    def about_size(text: str) -> str:
        number, rest = leading_int(text) or (0, text)
        return "size specification is invalid, ignored\n" if number < 0 or rest[:1] not in "kKmM" else ""

    if "SBCAST_COMPRESS" in env:
        said += _about_compression(env["SBCAST_COMPRESS"])
    if "SBCAST_SEND_LIBS" in env:
        value = env["SBCAST_SEND_LIBS"]
        libs = _SWITCHES.get(value.lower(), False)
        if value.lower() not in _SWITCHES:
            said += f"sbcast: error: Ignoring unrecognized SBCAST_SEND_LIBS value '{value}'\n"
    said += about_size(env.get("SBCAST_SIZE", ""))
    parser = Parser("sbcast", argv, TABLE, permute=True)
    while (found := parser.next()) is not None:
        key, value = found[0], found[1] or ""
        if key == "?":
            raise over(f"{parser.error}\n{TRY}")
        texts = {"help": HELP, "usage": USAGE, "V": f"slurm {SLURM_VERSION}\n",
                 "autocomplete": completions(TABLE.long, value)}
        if key in texts:
            raise over("", texts[key], 0)
        if key == "j":
            try:
                call.job, call.job_text = parse_selected_step(value), value
            except StepSpecError as error:
                raise over(f"sbcast: fatal: {error}\n") from None
        elif key == "send-libs":
            libs = found[1] is None or _SWITCHES.get(value.lower(), libs)
            if found[1] is not None and value.lower() not in _SWITCHES:
                said += f"sbcast: error: Ignoring unrecognized --send-libs value '{value}'\n"
        elif key == "C" and found[1] is not None:
            said += _about_compression(value)
        elif key == "s":
            said += about_size(value)
        elif key == "w":
            nodes = value
        call.force |= key == "f"
        call.preserve |= key == "p"
        outside |= key == "Z"
    if len(parser.operands) != 2:
        raise over(f"Need two file names, have {len(parser.operands)} names\n{TRY}")
    call.source = os.path.join(cwd, parser.operands[0])
    call.target = os.path.join(cwd, dest_dir, parser.operands[1])
    if call.target.endswith("/"):
        raise over("sbcast: error: Target filename cannot be a directory.\n")
    if outside and call.job:
        raise over("sbcast: error: --no-allocation/-Z and --jobid/-j options are mutually exclusive\n")
    if outside and not nodes:
        raise over("sbcast: error: --nodelist/-w is required with --no-allocation/-Z.\n")
    if libs or outside:
        raise over(f"sbcast: error: {'--no-allocation' if outside else '--send-libs'} is not supported by "
                   "slurmbridge\n")
    return call


def _about_compression(name: str) -> str:
    return "" if name.lower() in ("lz4", "none") else (
        f"sbcast: error: Compression type '{name}' unknown, disabling compression support.\n")
