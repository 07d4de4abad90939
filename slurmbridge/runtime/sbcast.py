"""sbcast inside a job: which nodes it means, and its answers (sbcast(1))."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slurmbridge.runtime import broadcast
from slurmbridge.runtime.broadcast import BroadcastFailed, Target
from slurmbridge.runtime.client import Client
from slurmbridge.runtime.parts import OwnPart, PartLost, close_all, parts_of
from slurmbridge.slurm.sbcast_options import Call, Over, read_call

if TYPE_CHECKING:
    from slurmbridge.runtime.sessions import Sessions

async def run(sessions: Sessions, client: Client, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
    """Answers the client; its frames must be read meanwhile."""
    try:
        call = read_call(argv, env, cwd, broadcast.dest_dir(sessions.daemon.order.settings))
        targets = await _targets(sessions, call)
        source = await broadcast.read_source(client, call.source)
        await broadcast.send(source, targets, force=call.force, preserve=call.preserve)
    except Over as over:
        await client.write(b"O", over.args[0].encode())
        await client.write(b"E", over.args[1].encode(errors="surrogateescape"))
        await client.exit(over.args[2])
    except BroadcastFailed as failed:
        text = f"sbcast: error: {failed.strerror}\n"
        await client.write(b"E", text.encode(errors="surrogateescape"))
        await client.exit(failed.errno or 1)
    else:
        await client.exit(0)


async def _targets(sessions: Sessions, call: Call) -> list[Target]:
    """Every node of the job, or of the step or the component that --jobid names. Raises Over."""
    own = OwnPart(sessions)
    step, offset = (call.job.step, call.job.het_offset) if call.job else ("", None)
    heads = own.order.het_heads
    groups = [offset] if offset is not None else list(range(len(heads))) if heads else [0]
    try:
        parts = await parts_of(groups, own)
    except (PartLost, IndexError):
        raise Over("", f"sbcast: error: Slurm job {call.job_text} lookup error: Invalid job id specified\n",
                   1) from None
    close_all(parts)
    names: set[str] | None = None
    if step:
        running = sessions.own_step(step)
        names = {share.name for share in running.plan.shares} if running is not None else set()
        if not names:
            raise Over("", f"sbcast: error: Slurm job {call.job_text} lookup error: Invalid job id specified\n", 1)
    return [Target(node, part.order.credential, call.target) for part in parts for node in part.order.nodes
            if names is None or node.name in names]
