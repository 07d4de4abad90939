"""sbcast's command line (sbcast(1)), read by the server outside a job and by the step daemon inside."""
from __future__ import annotations

import getopt
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
TRY = 'Try "sbcast --help" for more information\n'


class Over(Exception):
    """The command ends: standard output, standard error, exit code."""


@dataclass(slots=True)
class Call:
    source: str
    target: str
    force: bool = False
    preserve: bool = False
    job: str = ""                             # of --jobid, as given


def read_call(argv: Sequence[str], env: Mapping[str, str], cwd: str, dest_dir: str = "") -> Call:
    """Raises Over."""
    call = Call("", "", force="SBCAST_FORCE" in env, preserve="SBCAST_PRESERVE" in env)
    libs = env.get("SBCAST_SEND_LIBS", "")
    words = [f"--{word[2:]}=" if word in ("--compress", "--send-libs") else word for word in argv]
    try:
        options, rest = getopt.gnu_getopt(words, "CF:fj:ps:t:vV", [
            "compress=", "exclude=", "fanout=", "treewidth=", "force", "jobid=", "preserve", "send-libs=", "size=",
            "timeout=", "verbose", "version", "help", "usage"])
    except getopt.GetoptError as error:
        raise Over("", f"sbcast: {error.msg}\n{TRY}", 1) from None
    for name, value in options:
        if name == "--help":
            raise Over(HELP, "", 0)
        if name == "--usage":
            raise Over(USAGE, "", 0)
        if name in ("-f", "--force"):
            call.force = True
        elif name in ("-p", "--preserve"):
            call.preserve = True
        elif name in ("-j", "--jobid"):
            call.job = value
        elif name == "--send-libs":
            libs = value or "yes"
    if libs.lower() in ("yes", "y", "1"):
        raise Over("", "sbcast: error: --send-libs is not supported by slurmbridge\n", 1)
    if len(rest) != 2:
        raise Over("", f"Need two file names, have {len(rest)} names\n{TRY}", 1)
    call.source = os.path.join(cwd, rest[0])
    call.target = os.path.join(cwd, dest_dir, rest[1])
    if call.target.endswith("/"):
        raise Over("", "sbcast: error: Target filename cannot be a directory.\n", 1)
    return call
