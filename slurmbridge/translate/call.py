"""What the client's process knows when it submits, and what comes of it: a refusal or something to send."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.settings import SlurmConf

if TYPE_CHECKING:
    from slurmbridge.slurm.option_values import OptionSet


@dataclass(frozen=True, slots=True)
class Call:
    """One call of sbatch, salloc or srun. ``argv`` is without the command's name."""

    command: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str = "/"
    umask: int = 0o022
    uid: int = 0
    gid: int = 0
    user_name: str = ""
    group_name: str = ""
    host: str = ""
    rlimits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    now_s: float = 0.0
    conf: SlurmConf = field(default_factory=SlurmConf)
    uid_of: Callable[[str], int | None] | None = None        # for --uid; None: numbers only
    gid_of: Callable[[str], int | None] | None = None

    @staticmethod
    def of(invocation: Any, identity: Any, conf: SlurmConf, now_s: float,
           uid_of: Callable[[str], int | None] | None = None,
           gid_of: Callable[[str], int | None] | None = None) -> Call:
        """From views.session's Invocation and Identity."""
        return Call(invocation.command, tuple(invocation.argv), invocation.env, invocation.cwd, invocation.umask,
                    identity.uid, identity.gid, identity.user_name, identity.group_name, invocation.host,
                    invocation.rlimits, now_s, conf, uid_of, gid_of)


class ClientError(Exception):
    """The client refuses (or, with exit code 0, only informs): print both texts and exit."""

    def __init__(self, stderr_text: str, exit_code: int, stdout_text: str = "") -> None:
        self.stderr_text, self.exit_code, self.stdout_text = stderr_text, exit_code, stdout_text
        super().__init__(stderr_text.strip() or f"exit {exit_code}")


@dataclass(slots=True)
class Submission:
    """A call that the client would send. ``requests`` has one entry a het component."""

    requests: list[JobRequest] = field(default_factory=list)
    stderr: str = ""                          # warnings and information, before the controller's answer
    parsed: list[dict[str, str | None]] = field(default_factory=list)    # options per component (cli_filter's view)
    options: list[OptionSet] = field(default_factory=list)   # the same with values; srun's step options among them
    env: dict[str, str] = field(default_factory=dict)        # the client's environment as it is now
    argv: tuple[str, ...] = ()                # salloc, srun: the command to run
    error_exit: int = 1                       # exit code for the controller's refusals (SLURM_EXIT_ERROR)

    @property
    def warnings(self) -> list[str]:
        return self.stderr.splitlines()
