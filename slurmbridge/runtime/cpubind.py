"""Which CPUs each task of a node is bound to under TaskPlugin=task/affinity (srun(1), --cpu-bind). Pure.

Masks are within the step's CPUs on the node. Without a kind, tasks get CPUs of their own where the step has just as
many as they need, else all of them; with a unit (cores, sockets) what shares one with theirs as well.
"""
from __future__ import annotations

from dataclasses import dataclass

from slurmbridge.slurm.bindings import CpuBind

_WORDS = {"none": "NONE", "map_cpu": "MAP ", "mask_cpu": "MASK", "map_ldom": "LDMAP ", "mask_ldom": "LDMASK",
          "rank_ldom": "LDRANK"}
BIND_ERROR_EXIT = 192
"""srun's exit code for ESLURMD_CPU_BIND_ERROR."""


class OutsideStep(ValueError):
    """CPUs were named that the step does not have. The text is srun's."""


@dataclass(frozen=True, slots=True)
class NodeShape:
    """``cpus``: numbers of the step's CPUs; ``is_whole``: these are all CPUs of the node."""

    cpus: tuple[int, ...]
    threads_per_core: int = 1
    cpus_per_socket: int = 0                  # 0: all in one
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Binding:
    """``masks``: each local task's CPUs, as they are shown; ``binds``: whether tasks are kept to them."""

    kind: str
    values: str
    masks: tuple[frozenset[int], ...]
    verbose: bool = False
    binds: bool = True

    def variables(self) -> dict[str, str]:
        verbose = "verbose" if self.verbose else "quiet"
        kind = f"{self.kind}:" if self.values else self.kind
        return {"SLURM_CPU_BIND": f"{verbose},{kind}{self.values}", "SLURM_CPU_BIND_LIST": self.values,
                "SLURM_CPU_BIND_TYPE": kind, "SLURM_CPU_BIND_VERBOSE": verbose}

    def line(self, node: str, rank: int, local: int, pid: int, is_set: bool) -> str:
        """What a verbose step says of a task."""
        outcome = "" if not self.binds else " set" if is_set else " set FAILED"
        return (f"cpu-bind={_WORDS[self.kind]} - {node}, task {rank:2d} {local:2d} [{pid}]: "
                f"mask {mask_text(self.masks[local])}{outcome}\n")


def mask_text(cpus: frozenset[int]) -> str:
    return hex(sum(1 << cpu for cpu in cpus))


def bind(wanted: CpuBind, unit: str, shape: NodeShape, tasks: int, cpus_per_task: int) -> Binding:
    """For the ``tasks`` of one node. ``unit``: of --cpu-bind, or that of a hint. Raises OutsideStep."""
    every = frozenset(shape.cpus)
    if wanted.kind == "none":
        return Binding("none", "", (every,) * tasks, wanted.verbose, binds=False)
    if wanted.kind in ("map_cpu", "mask_cpu"):
        listed = [_cpus(value, wanted.kind) for value in wanted.values.split(",")]
        masks = tuple(listed[local % len(listed)] for local in range(tasks))
        if not all(mask <= every for mask in masks):
            raise OutsideStep(f"CPU binding outside of job step allocation, allocated CPUs are: {mask_text(every)}.")
        return Binding(wanted.kind, wanted.values, masks, wanted.verbose)
    if wanted.kind:                           # a NUMA node's CPUs: virtual nodes have one
        if not shape.is_whole:
            words = ",".join(word for word in ("verbose" if wanted.verbose else "", wanted.kind, "one_thread") if word)
            raise OutsideStep(f"Entire node must be allocated for {words}")
        return Binding(wanted.kind, wanted.values, (every,) * tasks, wanted.verbose)
    masks = _generated(unit, shape, tasks, cpus_per_task)
    return Binding("mask_cpu", ",".join(map(mask_text, masks)), masks, wanted.verbose)


def _cpus(value: str, kind: str) -> frozenset[int]:
    if kind == "map_cpu":
        return frozenset({int(value)})
    number = int(value, 16)
    return frozenset(bit for bit in range(number.bit_length()) if number >> bit & 1)


def _generated(unit: str, shape: NodeShape, tasks: int, cpus_per_task: int) -> tuple[frozenset[int], ...]:
    every = sorted(shape.cpus)
    needed = tasks * cpus_per_task
    if needed > len(every) or (not unit and needed != len(every) and needed * shape.threads_per_core != len(every)):
        return (frozenset(every),) * tasks
    size = {"cores": shape.threads_per_core, "sockets": shape.cpus_per_socket or max(every) + 1,
            "ldoms": shape.cpus_per_socket or max(every) + 1}.get(unit, 1)
    stride = shape.threads_per_core if not unit and needed != len(every) else 1
    masks = []
    for local in range(tasks):
        start = local * cpus_per_task * stride
        places = {cpu // size for cpu in every[start:start + cpus_per_task * stride]}
        masks.append(frozenset(cpu for cpu in every if cpu // size in places))
    return tuple(masks)

