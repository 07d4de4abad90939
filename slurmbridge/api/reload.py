"""Changed configuration files are taken over without a restart, or refused with the old content kept.

For controllers whose files are ConfigMaps (``watch_files``): slurm.conf as by ``scontrol reconfigure``,
slurmbridge.yaml where nothing changed that needs a restart, the accounts as by ``sacctmgr load``.
"""
from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from slurmbridge.commands import sacctmgr
from slurmbridge.controller.config import Config, ConfigError, read_config
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.session import Acts, Identity, Invocation, Views

log = logging.getLogger(__name__)
EVERY_S = 2.0
LIVE = frozenset({"identity", "health"})
"""Sections of slurmbridge.yaml that take effect at once."""
LIVE_KUBERNETES = frozenset({"image", "defaults", "partitions", "timeouts", "mount_roots"})
"""Keys of its section ``kubernetes``."""


class Refused(ValueError):
    """The file is not used. ``str()`` is one line."""


class FileWatch:
    """``take`` is called with a file's path when its content has changed, and raises Refused for what cannot be used.

    ``refused``: path -> reason, as it is now.
    """

    def __init__(self, refused: dict[str, str]) -> None:
        self._refused = refused
        self._takers: dict[Path, Callable[[Path], Awaitable[None]]] = {}
        self._seen: dict[Path, str] = {}

    def add(self, path: Path, take: Callable[[Path], Awaitable[None]]) -> None:
        self._takers[path] = take
        self._seen[path] = digest(path)

    async def run(self, every_s: float = EVERY_S) -> None:
        while True:
            await asyncio.sleep(every_s)
            for path, take in self._takers.items():
                now = digest(path)
                if now == self._seen[path] or not now:
                    continue                  # a file that is gone for a moment is being replaced
                self._seen[path] = now
                try:
                    await take(path)
                    self._refused.pop(path.name, None)
                    log.info("%s: changed, and in use", path)
                except Refused as error:
                    self._refused[path.name] = str(error)
                    log.error("%s: changed, and not used: %s", path, error)


def digest(path: Path) -> str:
    """"" where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def changed_config(path: Path, old: Config) -> Config:
    """What slurmbridge.yaml says now. Raises Refused."""
    try:
        new = read_config(str(path))
    except ConfigError as error:
        raise Refused(str(error)) from None
    for name in type(new).model_fields:
        if name == "kubernetes":
            fixed = [key for key in type(new.kubernetes).model_fields if key not in LIVE_KUBERNETES
                     and getattr(new.kubernetes, key) != getattr(old.kubernetes, key)]
            if fixed:
                raise Refused(f"kubernetes.{fixed[0]} is changed, which needs a restart")
        elif name == "health" and new.health.node_fail_usage != old.health.node_fail_usage:
            raise Refused("health.node_fail_usage is changed, which needs a restart")
        elif name not in LIVE and getattr(new, name) != getattr(old, name):
            raise Refused(f"{name} is changed, which needs a restart")
    return new


async def load_accounts(path: Path, views: Views, acts: Acts, now: Callable[[], float]) -> None:
    """``sacctmgr -i load FILE`` as root. Raises Refused."""
    session: Any = OwnSession(views, acts, now, ("-i", "load", f"file={path}"))
    try:
        reply = await sacctmgr.run(session.invocation.argv, {}, session)
    except SlurmError as error:
        raise Refused(str(error)) from None
    if reply.exit_code:
        said = [line.strip() for line in (reply.stderr or reply.stdout or session.said).splitlines() if line.strip()]
        raise Refused(" ".join(said[-3:]) or f"sacctmgr load: exit code {reply.exit_code}")


class OwnSession:
    """A command that the controller gives itself: as root, with its own files, nobody at the terminal."""

    def __init__(self, views: Views, acts: Acts, now: Callable[[], float], argv: tuple[str, ...]) -> None:
        self.views, self.acts, self.now = views, acts, now
        self.identity = Identity(0, 0, "root", "root", True)
        self.invocation = Invocation("sacctmgr", argv, {}, "/", pid=os.getpid())
        self.said = ""

    async def read_file(self, path: str, limit: int = 64 << 20) -> bytes:
        return Path(path).read_bytes()

    async def write_file(self, path: str, data: bytes, mode: int = 0o666, exclusive: bool = False) -> None:
        raise PermissionError(1, "not here", path)

    async def read_stdin(self) -> bytes:
        return b""

    async def read_line(self) -> bytes:
        return b""

    async def write_stdout(self, text: str) -> None:
        self.said += text

    write_stderr = write_stdout

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def hand_over(self, address: str, credential: str, env: Mapping[str, str], argv: object) -> int:
        raise SlurmError(1, "not here")

    async def run_local(self, argv: object, env: Mapping[str, str]) -> int:
        raise SlurmError(1, "not here")
