"""Exit status of a process, as waitpid(2) tells it and as Slurm writes it: ``exit:signal``.

Slurm keeps the raw 16-bit wait status everywhere; scontrol, squeue, sacct and ``--wait`` each show a part of it.
"""
from __future__ import annotations


def exited(code: int) -> int:
    """The wait status of a process that ended with exit code ``code`` (0–255)."""
    return (code & 0xFF) << 8


def signalled(signal: int) -> int:
    """The wait status of a process that ended by ``signal``."""
    return signal & 0x7F


def split(status: int) -> tuple[int, int]:
    """(exit code, signal) of a wait status; one of them is 0."""
    signal = status & 0x7F
    if signal and signal != 0x7F:
        return 0, signal
    return (status >> 8) & 0xFF, 0


def text(status: int) -> str:
    """``ExitCode=`` of scontrol and sacct: ``3:0``, ``0:9``."""
    code, signal = split(status)
    return f"{code}:{signal}"


def from_text(value: str) -> int:
    """The wait status of ``exit:signal`` (or ``exit`` alone). Raises ValueError."""
    code, _, signal = value.partition(":")
    number = int(signal) if signal else 0
    return signalled(number) if number else exited(int(code))


def shell_code(status: int) -> int:
    """What a command returns for it: the exit code, or 128 + signal."""
    code, signal = split(status)
    return 128 + signal if signal else code
