"""What a step daemon is told about its run: everything it needs, so that it never has to ask the controller.

The engine makes a RunOrder from the controller's LaunchOrder; it travels as JSON (spawner socket, mounted file in a
pod) and is never changed afterwards, but for the time limit that ``update`` moves.
"""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from slurmbridge.slurm.jobspec import JobRequest


@dataclass(slots=True)
class NodeShare:
    """What the run has on one node. ``address`` is its step daemon's."""

    name: str
    address: str = ""
    cpus: int = 1
    mem_mb: int = 0
    gres: dict[str, tuple[int, ...]] = field(default_factory=dict)   # "gpu:a100" or "gpu" -> device indices
    cores: tuple[int, ...] = ()
    tasks: int = 0
    threads_per_core: int = 1
    cores_per_socket: int = 0                 # 0: all in one socket
    node_cpus: int = 0                        # of the node as a whole; 0: as many as the run has
    features: tuple[str, ...] = ()
    topology: str = ""                        # switches above it and its name: "top.leaf1.n1"

    @property
    def cpu_ids(self) -> tuple[int, ...]:
        """Numbers of the run's CPUs on the node."""
        threads = range(self.threads_per_core)
        found = tuple(core * self.threads_per_core + thread for core in self.cores for thread in threads)
        return found[:self.cpus] if len(found) >= self.cpus else tuple(range(self.cpus))


@dataclass(slots=True)
class RunOrder:
    """One run of one job. Times are epoch seconds, memory MB."""

    job_id: int
    restart: int
    credential: str
    request: JobRequest
    nodes: list[NodeShare]
    uid: int = 0
    gid: int = 0
    user_name: str = ""
    group_name: str = ""
    name: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    cluster_name: str = "cluster"
    controller_url: str = ""
    controller_ca: str = ""                   # a file that the controller's certificate is checked by
    conf_path: str = ""
    submit_host: str = ""
    start_s: float = 0.0
    end_by_s: float | None = None
    kill_wait_s: float = 30.0
    warn_signal: int | None = None
    warn_before_s: int = 0
    warn_batch: bool = False
    mem_per_cpu_mb: int | None = None
    mem_per_node_mb: int | None = None
    array_job_id: int = 0
    array_task_id: int | None = None
    array_task_count: int = 0
    array_task_min: int = 0
    array_task_max: int = 0
    array_task_step: int = 1
    het_job_id: int = 0
    het_offset: int = 0
    licenses: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    het_environment: dict[str, str] = field(default_factory=dict)   # HET_GROUP variables of a script
    het_heads: list[list[str]] = field(default_factory=list)        # (address, credential) of each component's head

    @property
    def run_name(self) -> str:
        return f"{self.job_id}.{self.restart}"

    def to_json(self) -> dict[str, Any]:
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        plain["request"] = {item.name: getattr(self.request, item.name) for item in fields(JobRequest)}
        plain["nodes"] = [{item.name: getattr(node, item.name) for item in fields(NodeShare)} for node in self.nodes]
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> RunOrder:
        """Raises TypeError or KeyError for what is no order."""
        request: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value
                                   for key, value in plain["request"].items()}
        nodes = []
        for node in plain["nodes"]:
            shape = dict(node)
            shape["gres"] = {name: tuple(indices) for name, indices in shape.get("gres", {}).items()}
            for name in ("cores", "features"):
                shape[name] = tuple(shape.get(name, ()))
            nodes.append(NodeShare(**shape))
        return cls(**{**plain, "request": JobRequest(**request), "nodes": nodes})
