"""What the client checks about generic resources before it submits, and what it works out from them.

GPUs per job, node, socket and task must agree with each other and with the counts of nodes, tasks and CPUs; some of
those counts follow from the GPUs. The controller checks the same again (sbatch(1) --gpus and its kin).
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from slurmbridge.slurm import errors, tres

NO_VAL = 0xFFFFFFFE


@dataclass(slots=True)
class Counts:
    """The job's counts as far as they are known; None = not set. check() fills in what follows."""

    num_tasks: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    min_cpus: int = 0
    cpus_per_task: int | None = None
    ntasks_per_node: int | None = None
    ntasks_per_socket: int | None = None
    ntasks_per_tres: int | None = None
    sockets_per_node: int | None = None


@dataclass(slots=True)
class Requests:
    """The gres texts of a job description."""

    cpus_per_tres: str | None = None
    mem_per_tres: str | None = None
    tres_freq: str | None = None
    per_job: str | None = None
    per_node: str | None = None
    per_socket: str | None = None
    per_task: str | None = None


@dataclass(slots=True)
class _Gres:
    name: str
    type: str
    per_job: int = 0
    per_node: int = 0
    per_socket: int = 0
    per_task: int = 0
    cpus: int = 0
    mem: int = 0
    total: int = 0
    tasks_per_gres: int | None = None


class GresRefused(Exception):
    """``code`` is Slurm's error number; lines were logged before it."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


def check(requests: Requests, counts: Counts, known: Collection[str], error: Callable[[str], None]) -> None:
    """``known``: GresTypes. Raises GresRefused."""
    _Check(requests, counts, known, error).run()


class _Check:
    def __init__(self, requests: Requests, counts: Counts, known: Collection[str],
                 error: Callable[[str], None]) -> None:
        self.requests, self.counts, self.known, self.error = requests, counts, known, error
        self.found: dict[tuple[str, str], _Gres] = {}
        self.wants_gpu = False
        self.refused = 0

    def refuse(self, line: str) -> GresRefused:
        self.error(line)
        return GresRefused(errors.ESLURM_INVALID_GRES)

    def run(self) -> None:
        self.imply_tasks()
        self.collect()
        self.tasks_per_gpu()
        if self.refused:
            raise GresRefused(self.refused)
        if not self.found:
            return
        r = self.requests
        if r.mem_per_tres and not self.wants_gpu:
            raise self.refuse(f"Requested mem_per_tres={r.mem_per_tres} but did not request any GPU.")
        if r.cpus_per_tres and not self.wants_gpu:
            raise self.refuse(f"Requested cpus_per_tres={r.cpus_per_tres} but did not request any GPU.")
        self.relations()

    def imply_tasks(self) -> None:
        c = self.counts
        if not (self.requests.per_task or c.ntasks_per_tres is not None):
            return
        if c.num_tasks is not None or c.min_nodes is None or c.min_nodes != c.max_nodes:
            return
        if c.ntasks_per_tres is not None:
            c.num_tasks = c.min_nodes * c.ntasks_per_tres
        elif c.ntasks_per_node is not None:
            c.num_tasks = c.min_nodes * c.ntasks_per_node
        elif c.cpus_per_task is None:
            c.num_tasks = c.min_nodes

    def each(self, text: str | None) -> list[tuple[_Gres, int]]:
        """The record and count of every request in ``text``; a mistake ends it and is remembered."""
        result: list[tuple[_Gres, int]] = []
        try:
            for item in tres.items(text, "gres"):
                if not item.name:
                    break
                if item.name not in self.known:
                    self.refused = errors.ESLURM_INVALID_GRES
                    break
                record = self.found.setdefault((item.name, item.type), _Gres(item.name, item.type))
                record.tasks_per_gres = self.counts.ntasks_per_tres
                result.append((record, item.amount))
        except tres.TresError:
            self.refused = errors.ESLURM_INVALID_TRES
        return result

    def collect(self) -> None:
        r, c = self.requests, self.counts
        for gres, count in self.each(r.cpus_per_tres):
            gres.cpus = count
        for gres, count in self.each(r.per_job):
            gres.per_job = count
            self.note(gres, count)
        for gres, count in self.each(r.per_node):
            gres.per_node = count
            self.note(gres, count * (1 if c.min_nodes is None else c.min_nodes))
        for gres, count in self.each(r.per_socket):
            gres.per_socket = count
            if c.min_nodes is not None and c.sockets_per_node is not None:
                count *= c.min_nodes * c.sockets_per_node
            elif c.num_tasks is not None and c.ntasks_per_socket:
                count *= -(-c.num_tasks // c.ntasks_per_socket)
            elif c.sockets_per_node is not None:
                count *= c.sockets_per_node
            self.note(gres, count)
        for gres, count in self.each(r.per_task):
            gres.per_task = count
            self.note(gres, count * (1 if c.num_tasks is None else c.num_tasks))
        for gres, count in self.each(r.mem_per_tres):
            gres.mem = count

    def note(self, gres: _Gres, total: int) -> None:
        self.wants_gpu |= gres.name == "gpu"
        gres.total = max(gres.total, total)

    def tasks_per_gpu(self) -> None:
        c = self.counts
        if not c.ntasks_per_tres:
            return
        if self.wants_gpu and self.found:
            gpus = self.gpu_count()
            if gpus is not None:
                c.num_tasks = gpus * c.ntasks_per_tres
            else:
                self.error("gres_job_state_validate: Can't set num_tasks = gpus * *ntasks_per_tres because there are "
                           "no allocated GPUs")
                self.refused = errors.ESLURM_INVALID_GRES
        elif c.num_tasks:
            for gres, count in self.each(f"gres/gpu:{c.num_tasks // c.ntasks_per_tres}"):
                gres.per_job = count
                gres.total = max(gres.total, count)
            if self.found:
                self.wants_gpu = True
            else:
                self.error("gres_job_state_validate: Failed to add generated GRES "
                           f"gres/gpu:{c.num_tasks // c.ntasks_per_tres} (via ntasks_per_tres) to gres_list")
        else:
            self.error("gres_job_state_validate: --ntasks-per-tres needs either a GRES GPU specification or a "
                       "node/ntask specification")
            self.refused = errors.ESLURM_INVALID_GRES

    def gpu_count(self) -> int | None:
        totals = [gres.total for gres in self.found.values() if gres.name == "gpu"]
        return sum(totals) if totals else None

    def relations(self) -> None:
        c = self.counts
        cpus = sharing = shared = False
        min_cpus = 0
        most_cpus = max((gres.cpus for gres in self.found.values()), default=0)
        types: dict[str, list[_Gres]] = {}
        failure: GresRefused | None = None
        for gres in self.found.values():
            try:
                self.one(gres)
            except GresRefused as refused:
                failure = refused
                break
            sharing |= gres.name == "gpu" and any(name in ("mps", "shard") for name in self.known)
            shared |= gres.name in ("mps", "shard")
            if sharing and shared:
                failure = GresRefused(errors.ESLURM_INVALID_GRES)
                break
            if most_cpus and gres.name == "gpu":
                min_cpus += most_cpus * gres.total
                cpus = True
            types.setdefault(gres.name, []).append(gres)
        if cpus:
            c.min_cpus = max(c.min_cpus, min_cpus)
        if c.cpus_per_task is not None and c.num_tasks is not None:
            c.min_cpus = max(c.min_cpus, c.cpus_per_task * c.num_tasks)
        if failure is None and shared and "gpu" in (self.requests.tres_freq or ""):
            failure = GresRefused(errors.ESLURM_INVALID_GRES)
        mixed = [g for records in types.values() for g in records
                 if not g.type and any(other.type for other in records)]
        if mixed:                             # this verdict replaces the one before, in Slurm too
            failure = None
            if any(g.per_job or g.per_node or g.per_socket or g.per_task for g in mixed):
                failure = GresRefused(errors.ESLURM_INVALID_GRES_TYPE)
        if failure is not None:
            raise failure

    def one(self, g: _Gres) -> None:
        """The relations within one kind of gres, in Slurm's order."""
        c, name = self.counts, g.name
        if g.per_job and max(g.per_node, g.per_task, g.per_socket) > g.per_job:
            raise self.refuse(f"Failed to ensure --{name}s >= --gres={name}/--{name}s-per-node >= "
                              f"--{name}s-per-socket")
        if g.per_node and max(g.per_task, g.per_socket) > g.per_node:
            raise self.refuse(f"Failed to ensure --{name}s >= --{name}s-per-task")
        if g.per_socket and c.sockets_per_node is None:
            raise self.refuse(f"--{name}s-per-socket option requires --sockets-per-node specification")
        if g.cpus and c.cpus_per_task is not None:
            raise self.refuse(f"--cpus-per-{name} is mutually exclusive with --cpus-per-task")
        if g.per_job and g.per_node:
            self.job_and_node(g)
        if g.per_node and g.per_socket:
            if g.per_node % g.per_socket:
                raise self.refuse(f"Failed to validate job spec, --gres={name}/--{name}s-per-node not multiple of "
                                  f"--{name}s-per-socket.")
            sockets = g.per_node // g.per_socket
            if c.sockets_per_node is not None and c.sockets_per_node != sockets:
                raise self.refuse(f"Failed to validate job spec. Based on --gres={name}/--{name}s-per-node and "
                                  f"--{name}s-per-socket required number of sockets differ from --sockets-per-node.")
            c.sockets_per_node = sockets
        if g.tasks_per_gres and c.num_tasks is not None and c.num_tasks % g.tasks_per_gres:
            raise self.refuse("Failed to validate job spec, -n/--ntasks has to be a multiple of "
                              f"--ntasks-per-{name}.")
        if g.per_task:
            self.tasks(g)
        cpus_per_task = g.cpus * g.per_task
        if cpus_per_task:
            if c.cpus_per_task and c.cpus_per_task != cpus_per_task:
                raise self.refuse(f"Failed to validate job spec. Based on --cpus-per-{name} and --{name}s-per-task "
                                  "requested number of cpus differ from -c/--cpus-per-task.")
            c.cpus_per_task = cpus_per_task
        if g.per_job:
            if c.min_nodes is not None and g.per_job < c.min_nodes:
                raise self.refuse(f"Failed to validate job spec, --{name}s < -N")
            if c.max_nodes is not None and g.per_job < c.max_nodes:
                c.max_nodes = g.per_job

    def job_and_node(self, g: _Gres) -> None:
        c, name = self.counts, g.name
        if g.per_job % g.per_node:
            raise self.refuse(f"Failed to validate job spec, --{name}s is not multiple of "
                              f"--gres={name}/--{name}s-per-node")
        nodes = g.per_job // g.per_node
        low = NO_VAL if c.min_nodes is None else c.min_nodes
        high = NO_VAL if c.max_nodes is None else c.max_nodes
        if (c.min_nodes is not None and nodes < low) or nodes > high:
            raise self.refuse(f"Failed to validate job spec. Based on --{name} and --gres={name}/--{name}s-per-node "
                              f"required nodes ({nodes}) doesn't fall between min_nodes ({low}) and max_nodes "
                              f"({high}) boundaries.")
        c.min_nodes = c.max_nodes = nodes

    def tasks(self, g: _Gres) -> None:
        c, name = self.counts, g.name
        if g.per_job:
            if g.per_job % g.per_task:
                raise self.refuse(f"Failed to validate job spec, --{name}s not multiple of --{name}s-per-task")
            tasks = g.per_job // g.per_task
            if c.num_tasks is not None and c.num_tasks != tasks:
                raise self.refuse(f"Failed to validate job spec. Based on --{name}s and --{name}s-per-task number of "
                                  "requested tasks differ from -n/--ntasks.")
            c.num_tasks = tasks
        elif c.num_tasks is not None:
            g.per_job = c.num_tasks * g.per_task
        elif name == "gpu":
            raise self.refuse("Failed to validate job spec. --gpus-per-task or --tres-per-task used without either "
                              "--gpus or -n/--ntasks is not allowed.")
        else:
            raise self.refuse("Failed to validate job spec. --tres-per-task used without -n/--ntasks is not allowed.")
        if g.per_node:
            if g.per_node % g.per_task:
                raise self.refuse(f"Failed to validate job spec, --gres={name}/--{name}s-per-node not multiple of "
                                  f"--{name}s-per-task.")
            per_node = g.per_node // g.per_task
            if c.ntasks_per_node and c.ntasks_per_node != per_node:
                raise self.refuse(f"Failed to validate job spec. Based on --gres={name}/--{name}s-per-node and "
                                  f"--{name}s-per-task requested number of tasks per node differ from "
                                  "--ntasks-per-node.")
            c.ntasks_per_node = per_node
        if g.per_socket:
            if g.per_socket % g.per_task:
                raise self.refuse(f"Failed to validate job spec, --{name}s-per-socket not multiple of "
                                  f"--{name}s-per-task.")
            per_socket = g.per_socket // g.per_task
            if c.ntasks_per_socket and c.ntasks_per_socket != per_socket:
                raise self.refuse(f"Failed to validate job spec. Based on --{name}s-per-socket and "
                                  f"--{name}s-per-task requested number of tasks per sockets differ from "
                                  "--ntasks-per-socket.")
            c.ntasks_per_socket = per_socket
