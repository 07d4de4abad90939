"""What is done with files without a controller: ``slurmbridge lint``, and cutting a long history."""
from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from slurmbridge.admin_manifests import any_site
from slurmbridge.slurm.conf import ConfError, read_conf
from slurmbridge.slurm.conf_lint import lint as lint_conf
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.translate.lint import lint_script

PIECE_BYTES = 32 << 20
_JOB_LINE = re.compile(rb"\d+(_\d+|_\[[^|\t]*\]|\+\d+)?[|\t]")


class FileError(Exception):
    """The file cannot be read. ``str()`` is one line."""


@contextlib.contextmanager
def history_pieces(path: str, limit: int = PIECE_BYTES) -> Iterator[Iterator[str]]:
    """Paths of files with the lines of an export of sacct, each small enough to be sent at once; cut before a job.

    A small file is its own only piece. Raises FileError where a larger one does not begin with JobID.
    """
    try:
        size = os.path.getsize(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    if size <= limit:
        yield iter((path,))
        return
    with tempfile.TemporaryDirectory(prefix="slurmbridge-import-") as folder:
        yield _cut(path, f"{folder}/piece", limit)


def _cut(path: str, piece: str, limit: int) -> Iterator[str]:
    with open(path, "rb") as file:
        header = file.readline()
        if not re.match(rb"JobID[|\t]", header):
            raise FileError(f"{path}: the first column of a file of this size must be JobID")
        out = open(piece, "wb")                # noqa: SIM115
        try:
            out.write(header)
            for line in file:
                if out.tell() > limit and _JOB_LINE.match(line):
                    out.close()
                    yield piece
                    out = open(piece, "wb")    # noqa: SIM115
                    out.write(header)
                out.write(line)
        finally:
            out.close()
        yield piece


def print_lint(file: Path, slurm_conf: Path | None) -> None:
    """The report on a slurm.conf, or on a script (it begins with ``#!``). Raises FileError."""
    try:
        data = file.read_bytes()
        if data.startswith(b"#!"):
            conf = any_site() if slurm_conf is None else read_conf(str(slurm_conf))
            _print_script(file, data.decode("utf-8", "surrogateescape"), conf)
        else:
            _print_conf(file)
    except OSError as error:
        raise FileError(f"{error.filename or file}: {error.strerror}") from None
    except ConfError as error:
        raise FileError(str(error)) from None


def _print_script(file: Path, script: str, conf: SlurmConf) -> None:
    for finding in lint_script(script, conf, str(file)):
        reason = f": {finding.reason}" if finding.reason else ""
        _say(f"{file}:{finding.line}: {finding.directive}: {finding.verdict}{reason}")


def _print_conf(file: Path) -> None:
    conf = read_conf(str(file), strict=False)
    for path, line, text in conf.notes:
        _say(f"{path}:{line}: {text}")
    unused = lint_conf(conf)
    for key, value, path, line, meaning in unused:
        place = f"{path}:{line}" if line else path
        _say(f"{place}: {key}={value}: not used: {meaning}")
    _say(f"{len(conf.nodes)} nodes, {len(conf.partitions)} partitions, {len(conf.notes)} notes, "
         f"{len(unused)} keys not used")


def _say(line: str) -> None:
    print(line.encode("utf-8", "backslashreplace").decode("utf-8"))
