"""From a call of sbatch, salloc or srun to the job requests it means: the door of this room.

``submit(call)`` is the client's whole logic as a generator that asks for files; ``build_requests`` and
``build_requests_async`` drive it. A refusal is ClientError with the client's own text and exit code.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable

from slurmbridge.slurm.asking import Asking, run, run_async
from slurmbridge.translate.allocation import submission as allocation_submission
from slurmbridge.translate.call import Call, ClientError, Submission
from slurmbridge.translate.sbatch import submission as sbatch_submission

__all__ = ["Call", "ClientError", "Submission", "build_requests", "build_requests_async", "submit"]


def submit(call: Call) -> Asking[Submission]:
    """The client of ``call.command``."""
    return sbatch_submission(call) if call.command == "sbatch" else allocation_submission(call)


def build_requests(call: Call, read_file: Callable[[str], bytes],
                   read_stdin: Callable[[], bytes] | None = None) -> Submission:
    """``read_file`` raises OSError as the user's client would meet it. Raises ClientError."""
    return run(submit(call), read_file, read_stdin)


async def build_requests_async(call: Call, read_file: Callable[[str], Awaitable[bytes]],
                               read_stdin: Callable[[], Awaitable[bytes]]) -> Submission:
    """The same for a session (``session.read_file``, ``session.read_stdin``)."""
    return await run_async(submit(call), read_file, read_stdin)
