"""Short programs that a step daemon runs for the user besides the job itself: login environment, prologs, epilogs."""
from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
from collections.abc import Mapping, Sequence

from slurmbridge.runtime import execution
from slurmbridge.runtime.children import Children

LOGIN_TIMEOUT_S = 10.0
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_MARK = b"\0slurmbridge\0"


async def capture(children: Children, argv: Sequence[str], env: Mapping[str, str], cwd: str,
                  timeout_s: float | None = None, umask: int = 0o022) -> tuple[int, bytes, bytes]:
    """(wait status, standard output, standard error) of a program; it is killed after ``timeout_s``."""
    loop = asyncio.get_running_loop()
    stdin = os.open("/dev/null", os.O_RDONLY)
    pairs = [os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)]
    try:
        pid = execution.start(execution.Command(
            path=argv[0], argv=argv, env=execution.encoded(env), cwd=cwd, umask=umask, stdin_fd=stdin,
            stdout_fd=pairs[0][1], stderr_fd=pairs[1][1]))
    finally:
        for fd in (stdin, pairs[0][1], pairs[1][1]):
            os.close(fd)
    ended = children.watch(pid)
    killer = loop.call_later(timeout_s, _kill_group, pid) if timeout_s is not None else None
    try:
        texts = await asyncio.gather(*(_read_all(read_end) for read_end, _ in pairs))
        status = (await ended).status
    finally:
        if killer is not None:
            killer.cancel()
    return status, texts[0], texts[1]


def may_run(program: str) -> bool:
    """Whether srun would run this prolog or epilog."""
    return os.access(program, os.R_OK | os.X_OK, effective_ids=True)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


async def _read_all(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    parts: list[bytes] = []
    over: asyncio.Future[None] = loop.create_future()

    def readable() -> None:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        if data:
            parts.append(data)
        elif not over.done():
            over.set_result(None)
    loop.add_reader(fd, readable)
    try:
        await over
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return b"".join(parts)


async def login_environment(children: Children, user_name: str, uid: int) -> dict[str, str]:
    """The user's environment after a login (sbatch --get-user-env); a bare one when the login shell fails."""
    try:
        entry = pwd.getpwuid(uid)
        home, shell = entry.pw_dir, entry.pw_shell or "/bin/sh"
    except KeyError:
        home, shell = "/", "/bin/sh"
    bare = {"HOME": home, "USER": user_name, "LOGNAME": user_name, "SHELL": shell, "PATH": DEFAULT_PATH}
    command = "printf '\\0slurmbridge\\0'; /usr/bin/env -0"
    status, out, _ = await capture(children, [shell, "-l", "-c", command], bare, home, LOGIN_TIMEOUT_S)
    if status != 0 or _MARK not in out:
        return bare
    lines = out.partition(_MARK)[2].split(b"\0")
    found = dict(os.fsdecode(line).split("=", 1) for line in lines if b"=" in line)
    return {name: value for name, value in found.items() if name not in ("_", "SHLVL", "PWD", "OLDPWD")}
