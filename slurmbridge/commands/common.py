"""What all commands share: replies, options, job ids as users write them, times, users, and the ``-M`` question.

A command stops early by raising :class:`Stop` with its reply; ``run`` functions are wrapped in :func:`command`::

    @command
    async def run(argv, env, session): ...
        for key, value in parse_options("squeue", argv, TABLE): ...
        raise Stop.error("squeue", "Invalid job id: x")          # "squeue: error: Invalid job id: x", exit code 1
"""
from __future__ import annotations

import functools
import grp
import pwd
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmbridge.slurm import array, durations, hostlist
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.getopt import OptionTable, Parser, completions
from slurmbridge.slurm.version import SLURM_VERSION
from slurmbridge.slurm.words import quoted_list
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Reply, Session, Views

Run = Callable[[Sequence[str], Mapping[str, str], Session], Awaitable[Reply]]
VERSION_LINE = f"slurm {SLURM_VERSION}\n"
_INT32 = 0x7FFFFFFF


MANY_ROWS = 300
"""More than so many are not printed in one go in the event loop's thread, which others wait for."""


class Stop(Exception):
    """Ends a command with this reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.stderr)
        self.reply = reply

    @classmethod
    def error(cls, name: str, text: str, exit_code: int = 1) -> Stop:
        """``name: error: text`` on standard error."""
        return cls(Reply("", f"{name}: error: {text}\n", exit_code))

    @classmethod
    def fatal(cls, name: str, text: str) -> Stop:
        """``name: fatal: text`` on standard error, exit code 1."""
        return cls(Reply("", f"{name}: fatal: {text}\n", 1))


def command(run: Run) -> Run:
    """Turns a raised :class:`Stop` into its reply."""
    @functools.wraps(run)
    async def wrapped(argv: Sequence[str], env: Mapping[str, str], session: Session) -> Reply:
        try:
            return await run(argv, env, session)
        except Stop as stop:
            return stop.reply
    return wrapped


def slurm_error_lines(name: str, error: SlurmError) -> str:
    """What slurmctld sent along with its refusal, each line as ``name: error: …``."""
    return "".join(f"{name}: error: {line}\n" for line in error.details)


def parse_options(name: str, argv: Sequence[str], table: OptionTable, *, operands: list[str] | None = None,
                  permute: bool = True) -> Iterator[tuple[str, str | None]]:
    """(key, argument) of every option, in order; ``operands`` collects the rest. A mistake raises Stop with glibc's
    line and ``Try "name --help" for more information``."""
    parser = Parser(name, argv, table, permute=permute)
    while (found := parser.next()) is not None:
        if found[0] == "?":
            raise Stop(Reply("", f'{parser.error}\nTry "{name} --help" for more information\n', 1))
        if found[0] == "autocomplete":
            raise Stop(Reply(completions(table.long, found[1] or "")))
        yield found
    if operands is not None:
        operands += parser.operands


def refuse_json(name: str, option: str) -> Stop:
    """--json and --yaml are not offered: say so rather than print something else."""
    return Stop.error(name, f"{option} is not offered by slurmbridge yet; use the text formats")


# -------------------------------------------------------------------------------------------------------- job ids


@dataclass(frozen=True, slots=True)
class JobName:
    """A job as a user writes it: ``12``, ``12_3``, ``12_[1-4,7]``, ``12+1``, each with ``.step`` perhaps."""

    job_id: int
    tasks: tuple[int, ...] | None = None      # None: no "_…"
    het_offset: int | None = None
    step: str = ""                            # "0", "batch", "extern", "interactive", "" = no ".…"

    @property
    def text(self) -> str:
        """The job without its step, as acts take it."""
        if self.het_offset is not None:
            return f"{self.job_id}+{self.het_offset}"
        if self.tasks is None:
            return str(self.job_id)
        if len(self.tasks) == 1:
            return f"{self.job_id}_{self.tasks[0]}"
        return f"{self.job_id}_[{array.ranges(self.tasks)}]"


_JOB = re.compile(r"([0-9]{1,10})(?:_([0-9]{1,9})|_\[([0-9,:%\-]+)\]|\+([0-9]{1,9}))?(?:\.([A-Za-z0-9]+))?\Z")


def parse_job_name(text: str, max_array_size: int = 4_000_001) -> JobName | None:
    """None where it is no job id."""
    match = _JOB.match(text)
    if not match or not 0 < int(match[1]) <= _INT32:
        return None
    tasks: tuple[int, ...] | None = None
    if match[2]:
        tasks = (int(match[2]),)
    elif match[3]:
        try:
            tasks, _ = array.parse(match[3], max_array_size)
        except array.ArraySpecError:
            return None
    return JobName(int(match[1]), tasks, int(match[4]) if match[4] else None, match[5] or "")


def holds_task(job: JobRecord, task: int) -> bool:
    """Whether the record is, or still contains, this task of its array."""
    if job.array_task_id is not None:
        return job.array_task_id == task
    return bool(job.array_pending and job.array_pending >> task & 1)


def records_of(views: Views, job_id: int) -> list[JobRecord]:
    """The records that ``job_id`` names: all of its array (remainder first), all het components, or the one job."""
    job = views.jobs.get(job_id)
    if job is None or (job.array_job_id == job_id and job_id):
        found = list(views.array_tasks(job_id))
        if found:
            return found
    if job is None:
        return []
    if job.het_job_id == job_id and job.het_job_ids:
        return [views.jobs[other] for other in job.het_job_ids if other in views.jobs]
    return [job]


def array_tasks_text(job: JobRecord, length: int) -> str:
    """The pending tasks of an array record, as squeue and scontrol print them (``0-9%2``)."""
    bits = job.array_pending or 0
    tasks = [task for task in range(bits.bit_length()) if bits >> task & 1]
    return array.text(tasks, job.array_max_running, length)


# ------------------------------------------------------------------------------------------ users, times, clusters


_NOBODY = 99
"""What Slurm takes for no user and no group (SLURM_AUTH_NOBODY)."""


@functools.lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """The user's name, or the number where the system knows none (as uid_to_string has it)."""
    if uid == _NOBODY:
        return "nobody"
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


@functools.lru_cache(maxsize=4096)
def group_name(gid: int) -> str:
    if gid == _NOBODY:
        return "nobody"
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)


_DECIMAL = re.compile(r"[ \t\n\v\f\r]*(\+?[0-9]+|-0+)\Z")


def uid_of(text: str, *, known: bool = False) -> int | None:
    """The uid of a user's name or of a number; None where there is no such user (``known``: nor one of this number).
    ``nobody`` is nobody."""
    if text == "nobody":
        return None
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        match = _DECIMAL.match(text)
        uid = int(match[1]) if match else -1
    if not 0 <= uid <= 0xFFFFFFFF or (known and not _has_entry(uid)):
        return None
    return uid


def _has_entry(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        return False
    return True


class TimeTexts:
    """The caller's way to write times; ``warning`` is what Slurm says when it writes the first one in a bad
    SLURM_TIME_FORMAT ("" before, or for a good one)."""

    def __init__(self, name: str, env: Mapping[str, str], now_s: float) -> None:
        self._text, self._warning = time_texts(name, env, now_s)
        self.warning = ""

    def __call__(self, value: float) -> str:
        self.warning = self._warning
        return self._text(value)


def time_texts(name: str, env: Mapping[str, str], now_s: float) -> tuple[Callable[[float], str], str]:
    """The caller's way to write times, and the line that Slurm says about a bad SLURM_TIME_FORMAT ("" for none)."""
    form = env.get("SLURM_TIME_FORMAT", "")
    warning = f"{name}: error: invalid SLURM_TIME_FORMAT = '{form}'\n" if durations.bad_time_format(form) else ""
    return durations.time_formatter(env, now_s), warning


def date_line(env: Mapping[str, str], now_s: float) -> str:
    """``Sun Nov 29 17:41:06 2026``: what -l, -i and -v print first."""
    return Zone.of(env).strftime("%a %b %d %H:%M:%S %Y", int(now_s)) + "\n"


def hosts_of(name: str, text: str, option: str) -> list[str]:
    """The hosts that an option names. Raises Stop with what is wrong with the list, and that it is wrong."""
    try:
        return hostlist.expand(text)
    except hostlist.HostlistError as error:
        detail = f"{name}: error: {error}\n" if str(error) else ""
        raise Stop(Reply("", f"{detail}{name}: error: '{text}' invalid entry for {option}\n", 1)) from None


def check_clusters(name: str, text: str, own: str, *, federation: bool = False) -> str:
    """-M: this cluster's own name and ``all`` are known. Returns error lines about others; raises Stop with them and
    Slurm's last words where none is known."""
    lines, known = clusters_text(name, text, own)
    if federation and text.lower() != "all":
        lines = (f'{name}: error: --federation set or "fed_display" configured, but could not load federation '
                 f"information: No error\n{lines}")
    if not known:
        raise Stop(Reply("", f"{lines}{name}: fatal: Could not get cluster information\n", 1))
    return lines


def clusters_text(name: str, text: str, own: str) -> tuple[str, bool]:
    """(error lines of command ``name`` about the clusters of -M that are not ``own``, whether any is known)."""
    words = list(dict.fromkeys(word.strip().lower() for word in quoted_list(text))) or [""]
    if words == ["all"]:
        return "", True
    strange = [word for word in words if word != own.lower()]
    lines = "".join(f"{name}: error: No cluster '{word}' known by database.\n" for word in strange)
    if len(strange) < len(words):
        return lines, True
    return (f"{lines}{name}: error: '{text}' can't be reached now, or it is an invalid entry for "
            "--cluster.  Use 'sacctmgr list clusters' to see available clusters.\n"), False


def wckey_asked(names: Sequence[str] | None, wckey: str) -> bool:
    """Whether a condition on wckeys takes this one: a name stands for the default one of that name (``*name``) too."""
    return not names or wckey in names or wckey.removeprefix("*") in names
