"""The words for why a job waits, shared by both passes and the check at submission."""
from __future__ import annotations

import numpy as np

from slurmbridge.scheduling import pick
from slurmbridge.scheduling.demand import Demand
from slurmbridge.scheduling.pick import Outcome
from slurmbridge.scheduling.reservations import ReservationView
from slurmbridge.scheduling.snapshot import REASON_INDEX
from slurmbridge.scheduling.state import NOT_AVAIL, RESOURCES, PassState
from slurmbridge.slurm.hostlist import compress

WAITS_FOR_NODES = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
RESERVED_FOR_OTHER = "ReqNodeNotAvail, May be reserved for other job"
MAINTENANCE = "ReqNodeNotAvail, Reserved for maintenance"
PART_LIMIT, RESERVATION, LICENSES, DEADLINE, BAD = (REASON_INDEX[w] for w in (
    "PartitionNodeLimit", "Reservation", "Licenses", "DeadLine", "BadConstraints"))
_PLAIN = {pick.BUSY: RESOURCES, pick.PART_CONFIG: PART_LIMIT, pick.LICENSES: LICENSES, pick.RESERVED: RESERVATION,
          pick.NEVER: RESOURCES}


def say_why(state: PassState, row: int, outcome: Outcome, view: ReservationView) -> None:
    """Sets the row's reason after a failed selection."""
    if outcome.code == pick.NOT_AVAIL:
        queue = state.snapshot.queue
        demand = state.demands.of(queue.shapes[queue.shape[row]])
        text = MAINTENANCE if view.maint else not_available_text(
            state, demand, queue.partitions[queue.partition[row]])
        state.set_reason(row, NOT_AVAIL, text)
    elif outcome.code in _PLAIN:
        state.set_reason(row, _PLAIN[outcome.code])


def not_available_text(state: PassState, demand: Demand, partition: str) -> str:
    """ReqNodeNotAvail with the nodes that are down, or that others will get them."""
    columns = state.snapshot.cluster
    down = ~state.available & ~columns.up & columns.partition_nodes[partition]
    if demand.required is not None:
        down &= demand.required
    if not down.any():
        return RESERVED_FOR_OTHER
    return "ReqNodeNotAvail, UnavailableNodes:" + compress(columns.names[i] for i in np.flatnonzero(down))
