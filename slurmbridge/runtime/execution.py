"""Starting one process of the user's: own session, standard descriptors, limits, directory, CPUs, then exec.

Where the small program of starter.c was built it does all that, for many processes at once, after a posix_spawn, which
copies nothing of this interpreter; elsewhere a fork does. Between fork and exec only system calls are made: the
interpreter's files may be out of the user's reach.
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import struct
import sys
import termios
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

_RESET = tuple(number for number in signal.valid_signals()
               if number not in (signal.SIGKILL, signal.SIGSTOP) and not 32 <= number <= 33)


def log_line(text: str, level: str = "error: ") -> bytes:
    """A line as slurmstepd puts it on a job's standard error."""
    now = datetime.now()
    return f"[{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}] {level}{text}\n".encode(errors="surrogateescape")


def local_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s).strftime("%Y-%m-%dT%H:%M:%S")


@dataclass(slots=True)
class Command:
    """A process to start. Descriptors belong to the caller, who closes them after ``start``.

    ``path`` is executed as it is when it has a slash, else it is the first such file of the environment's PATH, else a
    file in ``cwd``.
    """

    path: str
    argv: Sequence[str]
    env: Mapping[bytes, bytes]                # see encoded
    cwd: str
    stdin_fd: int
    stdout_fd: int
    stderr_fd: int
    umask: int = 0o022
    rlimits: Mapping[str, int] = field(default_factory=dict)
    terminal: bool = False                    # stdin_fd is a terminal to be the session's
    nice: int = 0
    cgroup: str = ""                          # a group to enter before anything else is done
    bound_cpus: Collection[int] = ()          # CPUs it may run on; all of this process's when empty
    kept_fd: int | None = None                # one more descriptor that it gets,
    kept_as: int = -1                         # under this number

    @property
    def descriptors(self) -> set[int]:
        return {self.stdin_fd, self.stdout_fd, self.stderr_fd} | ({self.kept_fd} if self.kept_fd is not None else set())


STARTER_VARIABLE = "SLURMBRIDGE_STARTER"
"""Names the built starter.c; empty: none is used."""
STARTER_NAME = "starter-3"
"""With the number of its orders' format: one that reads another is not used."""
AT_ONCE = 64
"""Processes for one starter: all their descriptors are open at the same time."""
_starter_fd = -1


def find_starter() -> None:
    """Opens the starter while it is in reach: this process may become somebody who cannot reach it."""
    global _starter_fd
    path = os.environ.get(STARTER_VARIABLE, os.path.join(sys.prefix, "libexec", "slurmbridge", STARTER_NAME))
    if _starter_fd < 0 and path:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            _starter_fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)         # low ones are for PMI
            os.close(fd)


def kept_descriptors() -> set[int]:
    """What must stay open in a process that starts others, besides its own."""
    return {_starter_fd} if _starter_fd >= 0 else set()


def encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """By name what execve(2) takes: ``NAME=value``."""
    pairs = ((os.fsencode(name), os.fsencode(value)) for name, value in env.items())
    return {name: b"%b=%b" % (name, value) for name, value in pairs}


def start(command: Command) -> int:
    """See start_all."""
    pids = start_all([command])
    if not pids:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return pids[0]


def start_all(commands: Sequence[Command]) -> list[int]:
    """The pids of the new processes, each also its session and process group; fewer of them where there can be no more.

    They are children of this process, which must be a subreaper for more than one. Raises OSError when there can be
    none. A process that cannot be executed says so on its standard error and exits with the errno, as under slurmstepd.
    """
    if not commands:
        return []
    if _starter_fd < 0 or any(min(command.descriptors) < 3 for command in commands):
        return [_fork(command) for command in commands]
    pids: list[int] = []
    for at in range(0, len(commands), AT_ONCE):
        some = commands[at:at + AT_ONCE]
        pids += _spawn(some)
        if len(pids) < at + len(some):
            break
    return pids


def _spawn(commands: Sequence[Command]) -> list[int]:
    """Raises OSError."""
    orders = os.memfd_create("orders")
    report, told = os.pipe2(os.O_CLOEXEC)
    try:
        with open(orders, "wb", closefd=False) as file:
            file.write(b"%d\0" % len(commands) + b"".join(map(_order, commands)))
        passed = {orders, told}.union(*(command.descriptors for command in commands))
        own = {name: os.environ[name] for name in ("TZ",) if name in os.environ}           # of its messages' time
        pid = os.posix_spawn(b"/proc/self/fd/%d" % _starter_fd, [b"starter", b"%d" % orders, b"%d" % told], own,
                             setsigmask=(), setsigdef=_RESET,
                             file_actions=[(os.POSIX_SPAWN_DUP2, fd, fd) for fd in passed])
        if len(commands) == 1:
            return [pid]
        os.close(told)
        told = -1
        numbers = b""
        while len(numbers) < 4 * len(commands) and (more := os.read(report, 4 * len(commands))):
            numbers += more
        os.waitpid(pid, 0)                    # its children are ours now
        return [number for number, in struct.iter_unpack("i", numbers)]
    finally:
        for fd in (orders, report, told):
            if fd >= 0:
                os.close(fd)


def _order(command: Command) -> bytes:
    """As starter.c reads it."""
    limits = ",".join(f"{number}:{soft & _UNSIGNED}:{hard & _UNSIGNED}"
                      for number, (soft, hard) in _limits(command.rlimits))
    kept = "" if command.kept_fd is None else str(command.kept_fd)
    words = [f"{command.umask:o}", command.cwd, command.cgroup, "t" if command.terminal else "", limits,
             ",".join(map(str, sorted(command.bound_cpus))), str(command.nice or ""), command.path,
             str(command.stdin_fd), str(command.stdout_fd), str(command.stderr_fd), kept,
             str(command.kept_as)]
    lists = [_candidates(command), [entry for name, entry in command.env.items() if name != _OWN_PID],
             [os.fsencode(word) for word in command.argv]]
    items = [os.fsencode(word) for word in words]
    for one in lists:
        items += [b"%d" % len(one), *one]
    items.append(b"")
    return b"\0".join(items)


_OWN_PID = b"SLURM_TASK_PID"
_UNSIGNED = (1 << 64) - 1


def _fork(command: Command) -> int:
    """Raises OSError."""
    env = {name: entry.partition(b"=")[2] for name, entry in command.env.items()}
    argv, candidates = [os.fsencode(word) for word in command.argv], _candidates(command)
    limits = _limits(command.rlimits)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())   # none is lost before exec
    try:
        pid = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        become_effective_user()
        if command.cgroup:
            _enter_group(command.cgroup)
        _take_descriptors(command)
        for number in _RESET:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        if command.nice:
            with contextlib.suppress(OSError):
                os.nice(command.nice)
        os.umask(command.umask)
        enter_directory(command.cwd, 2)
        for limit, pair in limits:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(limit, pair)
        if command.bound_cpus:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, command.bound_cpus)
        env[_OWN_PID] = b"%d" % os.getpid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        code = _execute(candidates, argv, env, command.path)
    except OSError as error:
        code = int(error.errno or 1)
    finally:
        os._exit(code & 0xFF)
    raise AssertionError


def become_effective_user() -> None:
    """For good: a step daemon's real user may be root (spawner.become_user). Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _enter_group(path: str) -> None:
    """Raises OSError: what cannot be limited is not run."""
    fd = os.open(path + "/cgroup.procs", os.O_WRONLY)
    os.write(fd, b"0")
    os.close(fd)


def enter_directory(path: str, report_fd: int) -> None:
    """chdir; to /tmp with slurmstepd's message when that is not possible."""
    try:
        os.chdir(path)
    except OSError as error:
        text = f"couldn't chdir to `{path}': {os.strerror(error.errno or 0)}: going to /tmp instead"
        with contextlib.suppress(OSError):
            os.write(report_fd, log_line(text))
        with contextlib.suppress(OSError):
            os.chdir("/tmp")


def _take_descriptors(command: Command) -> None:
    if command.terminal:
        fcntl.ioctl(command.stdin_fd, termios.TIOCSCTTY, 0)
    wanted = [os.dup(fd) if fd < 3 else fd for fd in (command.stdin_fd, command.stdout_fd, command.stderr_fd)]
    for target, fd in enumerate(wanted):
        os.dup2(fd, target, inheritable=True)
    if command.kept_fd is not None:
        os.dup2(command.kept_fd, command.kept_as)
        os.set_inheritable(command.kept_as, True)


def _candidates(command: Command) -> list[bytes]:
    if "/" in command.path:
        return [os.fsencode(command.path)]
    name, cwd = os.fsencode(command.path), os.fsencode(command.cwd)
    directories = command.env[b"PATH"][5:].split(b":") if b"PATH" in command.env and not name.startswith(b".") else []
    places = (os.path.join(cwd, directory, name) for directory in directories if directory)
    return [next((place for place in places if os.path.exists(place) and not os.path.isdir(place)), name)]


def _execute(candidates: list[bytes], argv: list[bytes], env: dict[bytes, bytes], shown: str) -> int:
    """Only returns when nothing could be executed: the errno, which becomes the exit code."""
    reason = errno.ENOENT
    for path in candidates:
        try:
            os.execve(path, argv, env)
        except OSError as error:
            if len(candidates) == 1 or error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                reason = error.errno or 1
                break
            if error.errno == errno.EACCES:
                reason = errno.EACCES
    if reason == errno.ENOENT and len(candidates) == 1:
        with contextlib.suppress(OSError), open(candidates[0], "rb") as script:
            first = script.read(255).partition(b"\n")[0]
            shown = f"bad interpreter({os.fsdecode(first[2:])})" if first.startswith(b"#!") else shown
    os.write(2, log_line(f"execve(): {shown}: {os.strerror(reason)}"))
    return reason


def _limits(soft_limits: Mapping[str, int]) -> list[tuple[int, tuple[int, int]]]:
    """Soft limits to set, not above the hard ones this process has."""
    pairs = []
    for name, soft in soft_limits.items():
        number = getattr(resource, "RLIMIT_" + name.removeprefix("RLIMIT_"), None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        if soft < 0:
            soft = resource.RLIM_INFINITY
        if hard != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > hard):
            soft = hard
        pairs.append((number, (soft, hard)))
    return pairs


def exit_code(wait_status: int) -> int:
    """What srun exits with for a task that ended so (128 + signal, or its code)."""
    if os.WIFSIGNALED(wait_status):
        return 128 + os.WTERMSIG(wait_status)
    return os.WEXITSTATUS(wait_status)


def errno_status(error: OSError) -> int:
    """The wait status of a task that could not be set up because of ``error``: its errno as exit code."""
    return ((error.errno or 1) & 0xFF) << 8
