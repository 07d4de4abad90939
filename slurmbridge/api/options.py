"""What a controller was told at its start, remembered in its state for ``slurmbridge down``."""
from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

REMEMBERED = "options.json"
UNWRITTEN = "unwritten"
"""File of a state: what its controller could not write into the ledger before it ended."""


def default_state() -> Path:
    """$XDG_STATE_HOME/slurmbridge, else ~/.local/state/slurmbridge."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "slurmbridge"


class StartError(Exception):
    """The controller cannot start. ``str()`` is one line."""


@dataclass(frozen=True, slots=True)
class Options:
    """What ``slurmbridge up`` was told. ``clock_epoch``: what time it shall be, for ever (None: it is)."""

    state: Path
    slurm_conf: Path | None = None
    engine: str = "local"
    database: str | None = None
    socket: Path | None = None
    log: Path | None = None
    clock_epoch: float | None = None
    config: Path | None = None                # slurmbridge.yaml, for what its engine's section says

    @property
    def socket_path(self) -> Path:
        return self.socket or self.state / "slurmbridge.sock"

    @property
    def address(self) -> str:
        return f"unix://{self.socket_path}"

    @property
    def log_path(self) -> Path:
        return self.log or self.state / "slurmbridge.log"

    @property
    def pid_path(self) -> Path:
        return self.state / "slurmbridge.pid"


def remember_options(options: Options) -> None:
    """What ``slurmbridge down`` needs to end what a killed controller left behind. The database may have a password."""
    plain = {name: None if value is None else str(value) for name, value in asdict(options).items()
             if name not in ("state", "clock_epoch")}
    path, new = options.state / REMEMBERED, options.state / f"{REMEMBERED}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        json.dump(plain, file)
    new.replace(path)


def remembered_options(state: Path) -> Options:
    """How the controller of this state was started last. Raises StartError where that cannot be read."""
    try:
        plain = json.loads((state / REMEMBERED).read_text(encoding="ascii"))
    except OSError as error:
        raise StartError(f"{state / REMEMBERED}: {error.strerror}") from None
    except ValueError:
        raise StartError(f"{state / REMEMBERED}: cannot be read") from None
    paths = {name: Path(plain[name]) for name in ("slurm_conf", "socket", "log", "config") if plain.get(name)}
    return Options(state=state, engine=plain.get("engine") or "local", database=plain.get("database"), **paths)
