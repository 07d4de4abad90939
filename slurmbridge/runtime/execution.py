"""Starting one process of the user's: own session, standard descriptors, limits, directory, CPUs, then exec.

Where the small program of starter.c was built it does all that after a posix_spawn, which copies nothing of this
interpreter; elsewhere a fork does. Between fork and exec only system calls are made: the interpreter's files may be out
of the user's reach.
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
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

    ``path`` is executed as it is when it has a slash, else looked for in the environment's PATH.
    """

    path: str
    argv: Sequence[str]
    env: Mapping[str, str]
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


STARTER_VARIABLE = "SLURMBRIDGE_STARTER"
"""Names the built starter.c; empty: none is used."""
STARTER_NAME = "starter-2"
"""With the number of its arguments' order: one of an earlier order is not used."""
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


def start(command: Command) -> int:
    """The pid of the new process, which is also its session and process group. Raises OSError when there can be none.

    A process that cannot be executed says so on its standard error and exits with the errno, as under slurmstepd.
    """
    env = {os.fsencode(key): os.fsencode(value) for key, value in command.env.items()}
    argv = [os.fsencode(word) for word in command.argv]
    candidates = _candidates(command)
    limits = _limits(command.rlimits)
    if _starter_fd >= 0 and min(command.stdin_fd, command.stdout_fd, command.stderr_fd) > 2:
        with contextlib.suppress(OSError):    # arguments too long with the starter's own, for one
            return _spawn(command, candidates, argv, env, limits)
    return _fork(command, candidates, argv, env, limits)


def _spawn(command: Command, candidates: list[bytes], argv: list[bytes], env: dict[bytes, bytes],
           limits: list[tuple[int, tuple[int, int]]]) -> int:
    """Raises OSError."""
    path = b"/proc/self/fd/%d" % _starter_fd
    limit_text = ",".join(f"{number}:{soft & _UNSIGNED}:{hard & _UNSIGNED}" for number, (soft, hard) in limits)
    words = ["starter", f"{command.umask:o}", command.cwd, command.cgroup, "t" if command.terminal else "", limit_text,
             ",".join(map(str, sorted(command.bound_cpus))), str(command.nice or ""), command.path,
             str(len(candidates))]
    env.pop(b"SLURM_TASK_PID", None)
    variables = [name + b"=" + value for name, value in env.items()]
    words.append(str(len(variables)))
    own = {name: os.environ[name] for name in ("TZ",) if name in os.environ}           # of its messages' time
    fds = (command.stdin_fd, command.stdout_fd, command.stderr_fd)
    return os.posix_spawn(path, [*map(os.fsencode, words), *candidates, *variables, *argv], own, setsid=True,
                          setsigmask=(), setsigdef=_RESET,
                          file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(fds)])


_UNSIGNED = (1 << 64) - 1


def _fork(command: Command, candidates: list[bytes], argv: list[bytes], env: dict[bytes, bytes],
          limits: list[tuple[int, tuple[int, int]]]) -> int:
    """Raises OSError."""
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
        env[b"SLURM_TASK_PID"] = b"%d" % os.getpid()
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


def _candidates(command: Command) -> list[bytes]:
    if "/" in command.path:
        return [os.fsencode(command.path)]
    name = os.fsencode(command.path)
    directories = os.fsencode(command.env.get("PATH", "")).split(b":") if "PATH" in command.env else []
    found = [os.path.join(directory or b".", name) for directory in directories]
    return found or [name]


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
