"""One ``scontrol update`` of one job: what its keys change, and how the changes take effect together.

Keys (``update_keys``, ``update_sizes``) note what they change; ``run`` takes them in slurmctld's order and applies what
was noted before the first that is refused, as slurmctld does. Sizes, shape, priority and queue row follow the request.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slurmbridge.controller import job_texts, queueing, shapes, submission_checks
from slurmbridge.controller.access import is_operator
from slurmbridge.controller.submission import Submission
from slurmbridge.controller.world import World
from slurmbridge.slurm import durations, errors, hostlist, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.zones import Zone
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity

Key = Callable[["JobUpdate", str], None]
_OF_FINISHED = frozenset({"arraytaskthrottle"})
"""May be changed of a job that is over: other tasks of its array may wait."""


class JobUpdate:
    """The changes of one ``scontrol update`` to one job."""

    def __init__(self, world: World, submission: Submission, caller: Identity, job: JobRecord) -> None:
        self.world = world
        self.submission = submission
        self.caller = caller
        self.job = job
        self.request = job.request
        self.fields: dict[str, object] = {}
        self.resize = False
        self.after: list[Callable[[], None]] = []

    def run(self, changes: Mapping[str, str], keys: Mapping[str, Key], order: Sequence[tuple[str, str]]) -> None:
        """``order``: (mark, key): ``?`` the key is judged here and takes effect at its second place, ``~`` its refusal
        keeps nothing else from happening. Raises SlurmError: what came before the refused key stays changed."""
        if not set(changes) <= set(keys):
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
        if self.job.state in states.FINISHED and set(changes) - _OF_FINISHED:
            raise SlurmError(errors.ESLURM_JOB_FINISHED)
        refusal: SlurmError | None = None
        try:
            for mark, key in order:
                if key not in changes:
                    continue
                try:
                    self._take(keys[key], changes[key], judge_only=mark == "?")
                except SlurmError as error:
                    if mark != "~":
                        raise
                    refusal = error
            self._check_size()
        except SlurmError as error:
            refusal = error
        if refusal is None or self._is_changed():
            self._commit(refusal is None)
        if refusal is not None:
            raise refusal

    def _take(self, handler: Key, value: str, *, judge_only: bool) -> None:
        before = self.request, dict(self.fields), self.resize, list(self.after)
        kept = False
        try:
            handler(self, value)
            if self.resize and self.job.state == states.PENDING:
                submission_checks.check_update(self.request, self.world.conf.gres_types,
                                               self.world.conf.accounting_storage_tres)
            kept = not judge_only
        finally:
            if not kept:
                self.request, self.fields, self.resize, self.after = before

    def _is_changed(self) -> bool:
        return self.request is not self.job.request or bool(self.fields or self.after)

    def _check_size(self) -> None:
        """What the changed request as a whole must satisfy."""
        request = self.request
        if self.job.state != states.PENDING or not self.resize:
            return
        least = request.min_cpus or 0 if request.min_cpus_exact else 0
        names = str(self.fields.get("partition", self.job.partition)).split(",")
        nodes = [self.world.nodes[node] for name in names for node in self.world.partitions[name].nodes]
        cpus = max(least, (request.num_tasks or request.min_nodes or 1) * (request.cpus_per_task or 1))
        if (request.min_nodes or 0) > len(nodes) or cpus > sum(node.cpus for node in nodes):
            raise SlurmError(errors.ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE)

    def _commit(self, whole: bool) -> None:
        """``whole``: nothing was refused; else what the job asks for in all is not counted anew."""
        world, job = self.world, self.job
        name = self.fields.pop("name", None)
        job.request = self.request
        for field, value in self.fields.items():
            setattr(job, field, value)
        if name is not None:
            world.jobs.rename(job, str(name))
        if job.state == states.PENDING:
            if self.resize:
                asked = job.tres_req
                self._resize()
                if not whole:
                    job.tres_req = asked
            job_texts.name_files(world, job)
            world.jobs.refile(job)
            queueing.refresh(world, job)
            if not job.priority_fixed and job.priority:
                world.priorities.initial(job, world.now())
                queueing.reprioritize(world, job)
        for act in self.after:
            act()
        world.journal.job(job)
        world.tell(job)
        world.wake()

    def _resize(self) -> None:
        """Sizes of the changed request. The scheduler's view of how many nodes it takes stays where the resources
        that are asked for do."""
        job = self.job
        before, nodes = job.tres_req, job.num_nodes
        looked_at = "-" not in nodes or bool(job.request.max_nodes)
        shapes.size_requested(self.world, job)
        if looked_at and job.tres_req == before:
            shapes.size_requested(self.world, job, int(nodes.partition("-")[0]))

    # --- helpers of the keys
    def pending(self) -> None:
        if self.job.state != states.PENDING:
            raise SlurmError(errors.ESLURM_JOB_NOT_PENDING)

    def open_tasks(self) -> bool:
        """Whether the job leaves its number of tasks open."""
        return not shapes.shape_of(self.world, self.job, self.job.partition.partition(",")[0]).num_tasks

    def change(self, **fields: object) -> None:
        self.request = replace(self.request, **fields)  # type: ignore[arg-type]

    def of_operator(self) -> None:
        if not is_operator(self.caller, self.world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)

    def number(self, text: str, low: int = 0) -> int:
        try:
            value = int(text)
        except ValueError:
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED, f"Invalid number {text!r}") from None
        if value < low:
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED, f"Invalid number {text!r}")
        return value

    def time(self, text: str) -> int:
        if text.isdigit() and len(text) >= 9:
            return int(text)
        try:
            return durations.parse_time(text, self.world.now(), Zone.of({}))
        except durations.TimeSpecError:
            raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE) from None

    def hosts(self, text: str) -> list[str]:
        try:
            names = hostlist.expand(text)
        except hostlist.HostlistError:
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME) from None
        if any(name not in self.world.nodes for name in names):
            raise SlurmError(errors.ESLURM_INVALID_NODE_NAME)
        return names
