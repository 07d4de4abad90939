"""The reservations there are: kept in the ledger, shown to the scheduler, opened and closed as time goes by.

``scontrol create/update/delete reservation`` is in ``reservation_updates``. Who may use one follows from associations
(accounts count with everything below them), as in slurmctld.
"""
from __future__ import annotations

import grp
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta

from slurmbridge.accounting.operations import DropReservation, SaveMeta, SaveReservation
from slurmbridge.controller.world import World
from slurmbridge.scheduling import licensing
from slurmbridge.scheduling.snapshot import Devices, Reservation
from slurmbridge.slurm import errors, states
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import compress
from slurmbridge.slurm.reservation_words import REPEATING
from slurmbridge.views.records import JobRecord, ReservationRecord

log = logging.getLogger(__name__)
META_KEY = "reservations"
DELETED = "Reservation {} was deleted"


class Reservations:
    """``records`` by name in the order of their making."""

    def __init__(self, world: World, refresh: Callable[[JobRecord], None]) -> None:
        self._world = world
        self._refresh = refresh               # a pending job changed
        self.arm: Callable[[JobRecord], None] = lambda job: None              # its time may be over
        self.renew: Callable[[ReservationRecord], bool] = lambda record: False  # other nodes for those that are lost
        self.next_id = 1
        self.records: dict[str, ReservationRecord] = world.reservations
        self._flagged: dict[str, set[str]] = {}                  # node -> flags that active reservations gave it

    # --- ledger
    def load(self, text: str | None) -> None:
        """What an earlier controller kept."""
        kept = json.loads(text) if text else {}
        names = {one.name for one in fields(ReservationRecord)}
        self.next_id = int(kept.get("next_id", 1))
        for row in kept.get("records", ()):
            given = {key: tuple(value) if isinstance(value, list) else value
                     for key, value in row.items() if key in names}
            given["cores"] = {node: tuple(cores) for node, cores in row.get("cores", {}).items()}
            given["gres"] = {node: {kind: tuple(devices) for kind, devices in kinds.items()}
                             for node, kinds in row.get("gres", {}).items()}
            self.records[given["name"]] = ReservationRecord(**given)

    def save(self) -> None:
        kept = {"next_id": self.next_id, "records": [asdict(record) for record in self.records.values()]}
        self._world.journal.add(SaveMeta(META_KEY, json.dumps(kept)))

    def account(self, record: ReservationRecord) -> None:
        """The line that sreport and sacctmgr read; floating ones never begin."""
        if "TIME_FLOAT" in record.flags:
            return
        allowed, denied = self.associations(record)
        self._world.journal.add(SaveReservation(
            record.id, record.start_s, record.end_s, record.name, record.flags, compress(record.nodes),
            record.tres, [*sorted(allowed), *(-one for one in sorted(denied))], record.comment))

    def forget(self, record: ReservationRecord) -> None:
        """Ends now what has begun; what has not never was."""
        now = int(self._world.now())
        if record.start_s >= now:
            self._world.journal.add(DropReservation(record.id, record.start_s))
        elif record.end_s > now:
            record.end_s = now
            self.account(record)

    # --- who may use it
    def associations(self, record: ReservationRecord) -> tuple[set[int], set[int]]:
        """Ids of associations that may use it, and of those that may not."""
        allowed: set[int] = set()
        denied: set[int] = set()
        users = set(record.users)
        for group in record.groups:
            users |= set(_members(group))
        both = users and record.accounts and not (record.users_not or record.accounts_not)
        for one in self._world.accounting.associations.values():
            if one.deleted:
                continue
            if both:
                if one.user in users and one.account in record.accounts:
                    allowed.add(one.id)
                continue
            if one.user and one.user in users:
                (denied if record.users_not else allowed).add(one.id)
            elif not one.user and one.account in record.accounts:
                (denied if record.accounts_not else allowed).add(one.id)
        return allowed, denied

    def check_access(self, record: ReservationRecord, job: JobRecord) -> None:
        """Raises SlurmError(ESLURM_RESERVATION_ACCESS)."""
        if "TIME_FLOAT" in record.flags:
            raise SlurmError(errors.ESLURM_RESERVATION_ACCESS)
        if job.uid == 0 or job.user_name == self._world.conf.slurm_user:
            return
        if "associations" not in self._world.conf.accounting_enforce:
            self._check_names(record, job)
            return
        allowed, denied = self.associations(record)
        chain = {one.id for one in self._world.limits.chain(job.assoc_id)}
        if chain & denied or (allowed and not chain & allowed):
            raise SlurmError(errors.ESLURM_RESERVATION_ACCESS)

    def is_a_users(self, record: ReservationRecord, user: str) -> bool:
        """Whether any association of the user may use it (USER_DELETE)."""
        accounting = self._world.accounting
        if "associations" not in self._world.conf.accounting_enforce:
            return user in record.users or any(user in _members(group) for group in record.groups)
        allowed, denied = self.associations(record)
        chains = [{above.id for above in self._world.limits.chain(one.id)} for one in accounting.associations.values()
                  if one.user == user and not one.deleted]
        if any(chain & denied for chain in chains):
            return False
        return not allowed or any(chain & allowed for chain in chains)

    def _check_names(self, record: ReservationRecord, job: JobRecord) -> None:
        users = {*record.users, *(name for group in record.groups for name in _members(group))}
        if users and (job.user_name in users) == record.users_not:
            raise SlurmError(errors.ESLURM_RESERVATION_ACCESS)
        if (not users or record.accounts) and record.accounts and (
                (job.account in record.accounts) == record.accounts_not):
            raise SlurmError(errors.ESLURM_RESERVATION_ACCESS)

    def check(self, job: JobRecord) -> None:
        """``--reservation`` of a submission or an update. Raises SlurmError."""
        for name in (job.request.reservation or "").split(","):
            record = self.records.get(name)
            if record is None:
                raise SlurmError(errors.ESLURM_RESERVATION_INVALID)
            self.check_access(record, job)

    def may_start(self, job: JobRecord) -> bool:
        """Whether any reservation that it names lets the job start: those with QOS or AllowedPartitions choose."""
        return any(self.admits(self.records[name], job.qos, job.partition.split(","))
                   for name in (job.request.reservation or "").split(",") if name in self.records)

    @staticmethod
    def admits(record: ReservationRecord, qos: str, partitions: Sequence[str]) -> bool:
        """Whether jobs of this QOS that may run in any of the partitions may use it."""
        if record.qos and (qos in record.qos) == record.qos_not:
            return False
        return not record.allowed_partitions or any(
            (name in record.allowed_partitions) != record.allowed_partitions_not for name in partitions)

    def in_use(self, record: ReservationRecord) -> bool:
        """A job that waits for it or runs in it (of several reservations the first counts)."""
        return any(record is self.of(job) for job in self.users())

    def of(self, job: JobRecord) -> ReservationRecord | None:
        """The reservation a job is in, of several the one made first."""
        found = [self.records[name] for name in (job.request.reservation or "").split(",") if name in self.records]
        return min(found, key=lambda one: one.id, default=None)

    def note(self, job: JobRecord) -> None:
        """The ledger knows of each run which reservation it was in, also when that is over."""
        record = self.of(job)
        if job.state in states.FINISHED or (record is None and job.state != states.PENDING):
            return                             # what it was in stays
        began = job.start_s if job.state != states.PENDING else None
        job.reservation_id = record.id if record else 0
        job.reservation_name = record.name if record and began is not None and record.start_s < began else ""

    def users(self) -> Iterator[JobRecord]:
        jobs = self._world.jobs
        for job in (*jobs.pending.values(), *jobs.active.values()):
            if job.request.reservation and job.state not in states.FINISHED:
                yield job

    # --- the scheduler
    def for_scheduler(self) -> tuple[Reservation, ...]:
        now = int(self._world.now())
        return tuple(_shown(record, now) for record in self.records.values())

    # --- time
    def run(self) -> None:
        """Moves repeating ones on, removes what is over, marks the nodes of those that are active."""
        now = self._world.now()
        for record in list(self.records.values()):
            self._idle(record, now)
            over = now > record.end_s and "TIME_FLOAT" not in record.flags
            purged = ("PURGE_COMP" in record.flags and record.idle_since_s is not None
                      and now - record.idle_since_s >= record.purge_comp_s)
            if not over and not purged:
                if self.renew(record):
                    self.account(record)
                    self.save()
                    self._world.wake_later()
                continue
            if "FLEX" not in record.flags:
                for job in self.users():
                    if job.state != states.PENDING and record is self.of(job):
                        self.arm(job)
            if set(record.flags) & REPEATING:
                self.advance(record)
            elif purged or "FLEX" in record.flags or not any(
                    job.state != states.PENDING and record is self.of(job) for job in self.users()):
                self.remove(record)
        self._mark_nodes(now)

    def _idle(self, record: ReservationRecord, now: float) -> None:
        if "PURGE_COMP" not in record.flags or not record.start_s <= now:
            return
        if self.in_use(record):
            record.idle_since_s = None
        elif record.idle_since_s is None:
            record.idle_since_s = now

    def advance(self, record: ReservationRecord) -> None:
        """A repeating reservation is set to its next time, under a new id. Local days have 23 to 25 hours."""
        now = self._world.now()
        if record.end_s > now:
            self.forget(record)
        while True:
            weekday = datetime.fromtimestamp(now).isoweekday() % 7
            days, hours = _step(set(record.flags), weekday)
            record.start_s = _later(record.start_s, days, hours)
            record.end_s = _later(record.end_s, days, hours)
            if record.end_s > now:
                break
        record.id, self.next_id = self.next_id, self.next_id + 1
        record.idle_since_s = None
        self.account(record)
        self.save()
        self._world.wake()

    def remove(self, record: ReservationRecord) -> None:
        """Jobs that wait for it are held, as slurmctld holds them."""
        world = self._world
        hold = "NO_HOLD_JOBS_AFTER_END" not in record.flags
        for job in list(self.users()):
            names = (job.request.reservation or "").split(",")
            if record.name not in names:
                continue
            rest = [name for name in names if name != record.name]
            job.request = replace(job.request, reservation=",".join(rest) or None)
            if job.state == states.PENDING:
                if not rest and hold and job.reason not in ("JobHeldAdmin", "JobHeldUser"):
                    job.priority, job.reason = 0, "ReservationDeleted"
                    job.reason_desc = DELETED.format(record.name)
                self._refresh(job)
            world.journal.job(job)
        self.records.pop(record.name, None)
        self.magnet_changed(record)
        self.forget(record)
        self.save()
        self._mark_nodes(world.now())
        world.wake_later()

    def magnet_changed(self, *records: ReservationRecord) -> None:
        """Jobs that wait are attracted by others now."""
        if any("MAGNETIC" in record.flags for record in records):
            for job in list(self._world.jobs.pending.values()):
                self._refresh(job)

    def _mark_nodes(self, now: float) -> None:
        """RESERVED and MAINT, as sinfo shows them."""
        wanted: dict[str, set[str]] = {}
        for record in self.records.values():
            if "TIME_FLOAT" in record.flags or not record.start_s <= now < record.end_s or record.cores:
                continue
            flag = "MAINTENANCE" if "MAINT" in record.flags else "RESERVED"
            for name in record.nodes:
                wanted.setdefault(name, set()).add(flag)
        if wanted == self._flagged:
            return
        for name in wanted.keys() | self._flagged.keys():
            node = self._world.nodes.get(name)
            if node is None:
                continue
            node.flags -= self._flagged.get(name, set())
            node.flags |= wanted.get(name, set())
        self._flagged = wanted


def devices_of(record: ReservationRecord) -> tuple[Devices, ...]:
    """As the scheduler takes them."""
    return tuple((node, *_kind(kind), devices) for node, kinds in record.gres.items()
                 for kind, devices in kinds.items())


def _kind(text: str) -> tuple[str, str]:
    name, _, gres_type = text.partition(":")
    return name, gres_type


def _members(group: str) -> list[str]:
    try:
        return list(grp.getgrnam(group).gr_mem)
    except KeyError:
        return []


def _shown(record: ReservationRecord, now: int) -> Reservation:
    flags = set(record.flags)
    start_s, end_s = record.start_s, record.end_s
    if "TIME_FLOAT" in flags:
        start_s = now + record.start_s
        end_s = start_s + record.duration_s if record.duration_s else max(start_s, end_s)
    return Reservation(
        record.name, frozenset(record.nodes), start_s, end_s, "MAINT" in flags, "OVERLAP" in flags,
        "IGNORE_JOBS" in flags, "FLEX" in flags, record.id, "ALL_NODES" in flags,
        record.partition if "PART_NODES" in flags else "", "ANY_NODES" in flags, record.max_start_delay_s,
        tuple(sorted(record.cores.items())), tuple(licensing.counts(record.licenses).items()),
        devices_of(record))


def _step(flags: set[str], weekday: int) -> tuple[int, int]:
    """(days, hours) to the next time. ``weekday``: today's, 0 is Sunday."""
    if "HOURLY" in flags:
        return 0, 1
    if "DAILY" in flags:
        return 1, 0
    if "WEEKDAY" in flags:
        return {5: 3, 6: 2}.get(weekday, 1), 0
    if "WEEKEND" in flags:
        return {0: 6, 6: 1}.get(weekday, 6 - weekday), 0
    return 7, 0


def _later(epoch_s: int, days: int, hours: int) -> int:
    """The same time of day so many days later in the controller's zone."""
    if not days:
        return epoch_s + hours * 3600
    return int((datetime.fromtimestamp(epoch_s) + timedelta(days=days)).timestamp())
