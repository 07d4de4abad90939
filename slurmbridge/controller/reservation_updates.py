"""scontrol create, update and delete reservation: slurmctld's checks in its order (scontrol(1)).

Requests come with lower-case keys as ``commands.scontrol_reservation`` makes them.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from slurmbridge.controller import access
from slurmbridge.controller.reservation_nodes import ReservationNodes
from slurmbridge.controller.reservations import Reservations
from slurmbridge.controller.world import World
from slurmbridge.scheduling import licensing
from slurmbridge.scheduling.facts import NodeShare
from slurmbridge.scheduling.shape import GresRequest
from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import HostlistError, expand
from slurmbridge.slurm.reservation_words import REPEATING
from slurmbridge.slurm.tres import TresError, parse_counts
from slurmbridge.views.records import PartitionRecord, ReservationRecord
from slurmbridge.views.session import Identity

MOST_LATE_S = 600
"""A start so long ago is refused (MAX_RESV_DELAY of slurmctld)."""
YEAR_S = 365 * 24 * 3600
ONE_REPEAT = "Reservation has multiple reoccurring flags. Please specify only one reoccurring flag"
NO_REPLACE = "REPLACE and REPLACE_DOWN flags cannot be used with STATIC_ALLOC or MAINT flags"
INFINITE = 0xFFFFFFFF


class ReservationUpdates:
    def __init__(self, world: World, book: Reservations) -> None:
        self._world = world
        self._book = book
        self._choice = ReservationNodes(world, book.records)
        book.renew = self._choice.renew

    def create(self, caller: Identity, given: Mapping[str, str]) -> str:
        """The new reservation's name. Raises SlurmError."""
        if not access.is_operator(caller, self._world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        world, book = self._world, self._book
        flags = set(filter(None, given.get("flags", "").split(",")))
        flags = {flag for flag in flags if not flag.startswith("NO_") or flag == "NO_HOLD_JOBS_AFTER_END"}
        counts = self._tres(given)
        record = ReservationRecord(0, given.get("name", ""), 0, 0)
        self._times(record, given, flags)
        self._check_flags(flags, given, counts)
        partition = self._partition(given.get("partition", ""))
        record.partition = given.get("partition", "")
        self._people(record, given)
        record.licenses = self._licenses(given.get("licenses", "") or counts.get("licenses", ""))
        record.features, record.comment = given.get("features", ""), given.get("comment", "")
        record.burst_buffer = given.get("burstbuffer", "")
        record.max_start_delay_s = int(given.get("maxstartdelay") or 0)
        record.purge_comp_s = int(given.get("purgecomp") or 300)
        self._nodes(record, given, flags, counts, partition)
        if record.name in book.records:
            raise SlurmError(errors.ESLURM_RESERVATION_NAME_DUP)
        record.flags = tuple(sorted(flags))
        record.id, book.next_id = book.next_id, book.next_id + 1
        if not record.name:
            record.name = self._new_name(record)
        if "TIME_FLOAT" in flags:
            record.start_s -= int(world.now())
        book.records[record.name] = record
        book.account(record)
        book.magnet_changed(record)
        self._changed()
        return record.name

    def _new_name(self, record: ReservationRecord) -> str:
        """The first account's or user's name with the id (or the next free one)."""
        first = next(iter((*record.accounts, *record.users, *record.groups, *record.qos)), "resv")
        while f"{first}_{record.id}" in self._book.records:
            record.id, self._book.next_id = self._book.next_id, self._book.next_id + 1
        return f"{first}_{record.id}"

    def _changed(self) -> None:
        self._book.save()
        self._world.admitted.clear()
        self._book.run()
        self._world.wake_later()

    # --- parts of a request
    def _times(self, record: ReservationRecord, given: Mapping[str, str], flags: set[str]) -> None:
        now = int(self._world.now())
        start_s = int(given["start"]) if "start" in given else now
        duration = given.get("duration", "").lstrip("+")
        if "TIME_FLOAT" in flags:
            start_s = max(start_s, now)
        elif "FORCE_START" not in flags and start_s < now - MOST_LATE_S:
            raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE)
        if "end" in given:
            end_s = int(given["end"])
            if end_s < now - MOST_LATE_S:
                raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE)
        else:
            minutes = int(duration or 0)
            end_s = start_s + (YEAR_S if not 0 < minutes < INFINITE else minutes * 60)
        record.start_s, record.end_s = start_s, end_s
        record.duration_s = end_s - start_s if duration else None

    def _check_flags(self, flags: set[str], given: Mapping[str, str], counts: Mapping[str, Any]) -> None:
        def refused(text: str, code: int = errors.ESLURM_NOT_SUPPORTED) -> SlurmError:
            return SlurmError(code, details=(text,))
        if len(flags & REPEATING) > 1:
            raise refused(ONE_REPEAT)
        replacing = flags & {"REPLACE", "REPLACE_DOWN"}
        hint = "REPLACE or REPLACE_DOWN flags should be used with the NodeCnt reservation option; do not specify "
        if replacing and given.get("nodes"):
            raise refused(hint + "Nodes", errors.ESLURM_INVALID_NODE_NAME)
        if replacing and counts.get("cores"):
            raise refused(hint + "CoreCnt", errors.ESLURM_INVALID_CPU_COUNT)
        if replacing and flags & {"STATIC", "MAINT"}:
            raise refused(NO_REPLACE)
        if "TIME_FLOAT" in flags and flags & REPEATING:
            raise refused("Reservation request has mutually exclusive flags. Repeating floating reservations are not "
                          "supported.")

    def _tres(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Counts of nodes and cores, licenses: from TRES= and TRESPerNode= as from the keys of their own."""
        counts: dict[str, Any] = {"nodes": int(given["nodecnt"]) if "nodecnt" in given else None,
                                  "cores": int(given["corecnt"]) if "corecnt" in given else None,
                                  "gres": (), "per_node": "trespernode" in given}
        text = given.get("tres") or given.get("trespernode")
        if not text:
            return counts
        try:
            wanted = parse_counts(text)
        except TresError:
            raise SlurmError(errors.ESLURM_INVALID_TRES) from None
        if not wanted.keys() <= {*self._world.conf.accounting_storage_tres}:
            raise SlurmError(errors.ESLURM_INVALID_TRES)
        for name, count in wanted.items():
            if name == "node":
                if counts["nodes"] is not None:
                    raise SlurmError(errors.ESLURM_INVALID_NODE_COUNT, details=(
                        "TRES=node=<num> and Nodes=<num> are mutually exclusive",))
                counts["nodes"] = count
            elif name == "cpu":
                if counts["cores"] is not None:
                    raise SlurmError(errors.ESLURM_INVALID_CPU_COUNT, details=(
                        "TRES=cpu=<num> and CoreCnt=<num> are mutually exclusive",))
                counts["cores"] = count
            elif name.startswith("license/"):
                counts["licenses"] = ",".join(filter(None, (counts.get("licenses", ""), f"{name[8:]}:{count}")))
        counts["gres"] = _gres(wanted, per_node="trespernode" in given)
        if counts["per_node"] and counts["cores"] is not None and counts["nodes"]:
            counts["cores"] *= counts["nodes"]
        return counts

    def _partition(self, name: str) -> PartitionRecord:
        world = self._world
        if name:
            if name not in world.partitions:
                raise SlurmError(errors.ESLURM_INVALID_PARTITION_NAME)
            return world.partitions[name]
        return next((one for one in world.partitions.values() if one.default), next(iter(world.partitions.values())))

    def _people(self, record: ReservationRecord, given: Mapping[str, str]) -> None:
        world = self._world
        if (given.get("users") and (given.get("groups") or record.groups)) or (given.get("groups") and record.users):
            raise SlurmError(errors.ESLURM_RESERVATION_USER_GROUP)
        known: dict[str, tuple[Iterable[str] | None, int]] = {
            "accounts": (world.accounting.accounts, errors.ESLURM_INVALID_ACCOUNT),
            "users": (None, errors.ESLURM_USER_ID_MISSING), "groups": (None, errors.ESLURM_GROUP_ID_MISSING),
            "qos": (world.accounting.qos, errors.ESLURM_INVALID_QOS),
            "allowedpartitions": (world.partitions, errors.ESLURM_INVALID_PARTITION_NAME)}
        for key, (names, code) in known.items():
            if key not in given:
                continue
            field = "allowed_partitions" if key == "allowedpartitions" else key
            before = getattr(record, field)
            listed, denied = _listed(given[key], before, getattr(record, field + "_not", False), code)
            if names is not None and any(name not in names for name in listed):
                raise SlurmError(code)
            setattr(record, field, listed)
            if hasattr(record, field + "_not"):
                setattr(record, field + "_not", denied)
        allowed, denied_ids = self._book.associations(record)
        if record.users and not allowed and not denied_ids and "associations" in world.conf.accounting_enforce:
            raise SlurmError(errors.ESLURM_INVALID_ACCOUNT)
        if not (record.users or record.accounts or record.groups or record.qos or record.allowed_partitions):
            raise SlurmError(errors.ESLURM_RESERVATION_EMPTY)

    def _licenses(self, text: str) -> str:
        wanted, total = licensing.counts(text), self._world.settings.licenses_total
        if any(name not in total or count > total[name] for name, count in wanted.items()):
            raise SlurmError(errors.ESLURM_INVALID_LICENSES)
        return ",".join(f"{name}:{count}" for name, count in wanted.items())

    # --- nodes
    def _nodes(self, record: ReservationRecord, given: Mapping[str, str], flags: set[str], counts: Mapping[str, Any],
               partition: PartitionRecord) -> None:
        columns = self._world.columns
        text, cores, parts = given.get("nodes", ""), counts["cores"], counts["cores"] is not None or counts["gres"]
        if text:
            flags.add("SPEC_NODES")
            mask = self._choice.named(text, flags, partition)
            if "OVERLAP" not in flags and self._choice.overlaps(record, flags, mask):
                raise SlurmError(errors.ESLURM_RESERVATION_OVERLAP)
            if "IGNORE_JOBS" not in flags and cores is None and self._choice.jobs_on(record, mask):
                raise SlurmError(errors.ESLURM_NODES_BUSY)
            if not parts:
                self._choice.take(record, tuple(NodeShare(columns.names[i], int(columns.cpus[i]), 0, ())
                                         for i in np.flatnonzero(mask)))
                return
            if cores == 0:
                raise SlurmError(errors.ESLURM_INVALID_CORE_CNT)
            named = int(mask.sum())
            if counts["nodes"] is None or counts["nodes"] < named:
                cores = cores * named if cores and counts["per_node"] else cores
                counts = {**counts, "nodes": named}
            record.partition = partition.name
        elif "ANY_NODES" in flags:
            if cores is not None:
                raise SlurmError(errors.ESLURM_INVALID_CPU_COUNT)
            if not record.licenses and not record.burst_buffer:
                raise SlurmError(errors.ESLURM_RESERVATION_INVALID)
            return
        else:
            flags.discard("PART_NODES")
            if not counts["nodes"] and not cores and not counts["gres"]:
                raise SlurmError(errors.ESLURM_INVALID_NODE_NAME)
            record.partition = partition.name
            mask = columns.partition_nodes[partition.name] & columns.available
        self._choice.choose(record, flags, counts["nodes"] or 0, cores or 0, partition.name, mask, counts["gres"],
                            per_node=counts["per_node"])

    # --- update and delete
    def update(self, caller: Identity, name: str, given: Mapping[str, str]) -> None:
        """Raises SlurmError; nothing is changed then."""
        if not access.is_operator(caller, self._world):
            raise SlurmError(errors.ESLURM_ACCESS_DENIED)
        before = self._book.records.get(name)
        if before is None:
            raise SlurmError(errors.ESLURM_RESERVATION_INVALID)
        counts = self._tres(given)
        if counts["cores"] is not None or (before.cores and (given.get("nodes") or counts["nodes"] is not None)):
            raise SlurmError(errors.ESLURM_CORE_RESERVATION_UPDATE, details=(
                "Updating core/node TRES not supported for core-based reservations",))
        record = replace(before)
        words = set(filter(None, given.get("flags", "").split(",")))
        flags = self._changed_flags(record, words)
        for key, field in (("comment", "comment"), ("burstbuffer", "burst_buffer")):
            if key in given:
                setattr(record, field, given[key])
        if given.get("features"):
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
        if "maxstartdelay" in given:
            record.max_start_delay_s = int(given["maxstartdelay"])
        if "purgecomp" in given:
            record.purge_comp_s = int(given["purgecomp"])
        if "partition" in given:
            self._partition(given["partition"])
            record.partition = given["partition"]
        if "licenses" in given:
            record.licenses = self._licenses(given["licenses"])
        self._people(record, given)
        self._new_times(record, given)
        self._new_nodes(record, given, flags, counts)
        record.flags = tuple(sorted(flags))
        self._book.records[name] = record
        loser = next((job for job in self._book.users() if not self._may(record, job)), None)
        if loser is not None:
            self._book.records[name] = before
            raise SlurmError(errors.ESLURM_RESERVATION_BUSY, details=(
                f"Reservation update rejected because of JobId={loser.job_id}",))
        if "SKIP" in words:
            self._book.advance(record)
        self._book.account(record)
        self._book.magnet_changed(before, record)
        self._changed()

    def _may(self, record: ReservationRecord, job: Any) -> bool:
        if record.name not in (job.request.reservation or "").split(","):
            return True
        try:
            self._book.check_access(record, job)
        except SlurmError:
            return False
        return True

    def _changed_flags(self, record: ReservationRecord, words: set[str]) -> set[str]:
        flags = set(record.flags)
        if "SKIP" in words and not flags & REPEATING:
            raise SlurmError(errors.ESLURM_RESERVATION_NO_SKIP)
        if "TIME_FLOAT" in words:
            raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE)
        repeats = words & REPEATING
        if repeats and ((flags & REPEATING and flags & REPEATING != repeats) or len(repeats) > 1):
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED, details=(
                "Cannot update reservation to have multiple reoccurring flags. Please specify only one reoccurring "
                "flag",))
        if repeats and "TIME_FLOAT" in flags:
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED, details=(
                "Cannot add a reoccurring flag to a floating reservation",))
        if words & {"REPLACE", "REPLACE_DOWN"} and ("SPEC_NODES" in flags or record.cores):
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED, details=(
                "Reservation can't be updated with REPLACE or REPLACE_DOWN flags; they should be updated on a NodeCnt "
                "reservation",))
        after = (flags | {word for word in words if not word.startswith("NO_") or word == "NO_HOLD_JOBS_AFTER_END"}) - {
            word[3:] for word in words if word.startswith("NO_")} - {"SKIP"}
        if after & {"REPLACE", "REPLACE_DOWN"} and after & {"STATIC", "MAINT"}:
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED, details=(NO_REPLACE,))
        return after

    def _new_times(self, record: ReservationRecord, given: Mapping[str, str]) -> None:
        now = int(self._world.now())
        if "start" in given:
            if record.start_s <= now and "TIME_FLOAT" not in record.flags:
                raise SlurmError(errors.ESLURM_RSV_ALREADY_STARTED)
            if int(given["start"]) < now - 60:
                raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE)
            record.start_s = int(given["start"])
            if record.duration_s:
                record.end_s = record.start_s + record.duration_s
        if "end" in given:
            if int(given["end"]) < now - 60:
                raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE)
            record.end_s, record.duration_s = int(given["end"]), None
        if "duration" in given:
            text = given["duration"]
            minutes = int(text.lstrip("+-"))
            had_s = record.duration_s if record.duration_s is not None else record.end_s - record.start_s
            seconds = YEAR_S if minutes >= INFINITE else minutes * 60
            signed_s = {"+": had_s + seconds, "-": max(had_s - seconds, 0)}
            record.duration_s = signed_s.get(text[0], seconds)
            record.end_s = max(record.start_s + record.duration_s, now)
        if "TIME_FLOAT" not in record.flags and record.start_s >= record.end_s:
            raise SlurmError(errors.ESLURM_INVALID_TIME_VALUE)

    def _new_nodes(self, record: ReservationRecord, given: Mapping[str, str], flags: set[str],
                   counts: Mapping[str, Any]) -> None:
        columns = self._world.columns
        partition = self._partition(record.partition)
        if given.get("nodes"):
            if flags & {"REPLACE", "REPLACE_DOWN"}:
                raise SlurmError(errors.ESLURM_NOT_SUPPORTED, details=(
                    "Reservation can't be updated with Nodes option; it is incompatible with REPLACE[_DOWN]",))
            flags.add("SPEC_NODES")
            flags.discard("ALL_NODES")
            text = _merged(given["nodes"], record.nodes)
            mask = self._choice.named(text, flags, partition)
            self._choice.take(record, tuple(NodeShare(columns.names[i], int(columns.cpus[i]), 0, ())
                                     for i in np.flatnonzero(mask)))
        if counts["nodes"] is not None and counts["nodes"] != len(record.nodes):
            flags -= {"PART_NODES", "ALL_NODES"}
            self._choice.resize(record, flags, int(counts["nodes"]), partition)
        if not record.nodes and "ANY_NODES" not in flags:
            raise SlurmError(errors.ESLURM_RESERVATION_INVALID)
        mask = np.zeros(len(columns), dtype=np.bool_)
        mask[[columns.index[name] for name in record.nodes if name in columns.index]] = True
        if self._choice.overlaps(record, flags, mask):
            raise SlurmError(errors.ESLURM_RESERVATION_OVERLAP)
        if "IGNORE_JOBS" not in flags and not record.cores and self._choice.jobs_on(record, mask, record.name):
            raise SlurmError(errors.ESLURM_NODES_BUSY)

    def delete(self, caller: Identity, name: str) -> None:
        """Raises SlurmError."""
        record = self._book.records.get(name)
        if not access.is_operator(caller, self._world):
            everywhere = "user_resv_delete" in self._world.conf.values.get("SlurmctldParameters", "").lower()
            if record is None or not (everywhere or "USER_DELETE" in record.flags) or (
                    not self._book.is_a_users(record, caller.user_name)):
                raise SlurmError(errors.ESLURM_USER_ID_MISSING)
        if record is None:
            raise SlurmError(errors.ESLURM_RESERVATION_INVALID)
        if self._book.in_use(record):
            raise SlurmError(errors.ESLURM_RESERVATION_BUSY)
        self._book.remove(record)
        self._world.admitted.clear()


def _gres(wanted: Mapping[str, int], *, per_node: bool) -> tuple[GresRequest, ...]:
    """The devices of TRES= (for the whole reservation) or TRESPerNode=. A count without a type is of all types."""
    counts = {name[5:]: count for name, count in wanted.items() if name.startswith("gres/")}
    found = []
    for text, count in counts.items():
        name, _, gres_type = text.partition(":")
        if not gres_type:
            count -= sum(other for kind, other in counts.items() if kind.startswith(f"{name}:"))
        if count > 0:
            found.append(GresRequest(name, gres_type or None, per_node=count) if per_node else
                         GresRequest(name, gres_type or None, per_job=count))
    return tuple(found)


def _listed(text: str, before: tuple[str, ...], denied_before: bool, code: int) -> tuple[tuple[str, ...], bool]:
    """A list as given (``a,b`` or ``-a,-b``), or what is added to it (``+a``) and taken away (``-a``) by an update."""
    words = [word for word in text.split(",") if word]
    if before and words and all(word[0] in "+-" for word in words):
        kept = [name for name in before if "-" + name not in words]
        return tuple(dict.fromkeys([*kept, *(word[1:] for word in words if word[0] == "+")])), denied_before
    denied = [word.startswith("-") for word in words]
    if any(denied) and not all(denied):
        raise SlurmError(code)
    return tuple(word.lstrip("-+") for word in words), bool(words) and all(denied)


def _merged(text: str, before: tuple[str, ...]) -> str:
    """Nodes of an update: ``+n5``, ``-n[1-2]`` or the whole list."""
    if text[:1] not in ("+", "-"):
        return text
    try:
        given = set(expand(text.replace("+", "").replace(",-", ",").lstrip("-")))
    except HostlistError:
        raise SlurmError(errors.ESLURM_INVALID_NODE_NAME) from None
    if text[0] == "+":
        return ",".join([*before, *(name for name in sorted(given) if name not in before)])
    return ",".join(name for name in before if name not in given)
