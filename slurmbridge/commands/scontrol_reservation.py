"""scontrol's reservations: create, update, delete and show (scontrol(1))."""
from __future__ import annotations

from collections.abc import Sequence

from slurmbridge.commands.scontrol_call import Call, Refused, starts
from slurmbridge.slurm import durations, errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.hostlist import compress
from slurmbridge.slurm.reservation_words import REPEATING, flags_text, parse_flags
from slurmbridge.views.records import ReservationRecord

# (name, letters that must be typed, key, kind, may += and -= follow), in scontrol's order: the first match counts
_KEYS: tuple[tuple[str, int, str, str, bool], ...] = (
    ("Accounts", 1, "accounts", "once", True), ("AllowedPartitions", 2, "allowedpartitions", "once", True),
    ("Comment", 3, "comment", "once", False), ("Flags", 2, "flags", "flags", True),
    ("Groups", 1, "groups", "once", True),
    ("Users", 1, "users", "once", True), ("QOS", 1, "qos", "once", True), ("ReservationName", 1, "name", "text", False),
    ("BurstBuffer", 2, "burstbuffer", "text", False), ("StartTime", 2, "start", "time", False),
    ("EndTime", 1, "end", "time", False), ("Duration", 1, "duration", "minutes", True),
    ("MaxStartDelay", 2, "maxstartdelay", "seconds", False), ("NodeCnt", 5, "nodecnt", "nodes", False),
    ("NodeCount", 5, "nodecnt", "nodes", False), ("CoreCnt", 5, "corecnt", "cores", False),
    ("CoreCount", 5, "corecnt", "cores", False), ("CPUCnt", 5, "corecnt", "cores", False),
    ("CPUCount", 5, "corecnt", "cores", False), ("Nodes", 5, "nodes", "text", True),
    ("Features", 2, "features", "text", False), ("Licenses", 2, "licenses", "text", False),
    ("PartitionName", 1, "partition", "text", False), ("TRES", 1, "tres", "tres", False),
    ("TRESPerNode", 5, "trespernode", "tres", False))
CREATED, UPDATED = "No reservation created.", "No reservation update."


class _Request:
    """What one command line asks; ``given``: for the controller."""

    def __init__(self, call: Call, ending: str) -> None:
        self.call, self.ending = call, ending
        self.given: dict[str, str] = {}

    def refuse(self, text: str) -> Refused:
        self.call.error(text)
        return Refused()

    def read(self, words: Sequence[str]) -> None:
        """Raises Refused."""
        for word in words:
            tag, equals, value = word.partition("=")
            if not equals:
                if tag[:3].lower() == "res":
                    continue
                if starts(tag, "Skip", 2):
                    self._flags({"SKIP"})
                    continue
                raise self.refuse(f"Misformatted parameter '{word}', most options have a parameter after '='.  "
                                  f"{self.ending}")
            sign = tag[-1:] if tag[-1:] in ("+", "-") else ""
            tag = tag[:-1] if sign else tag
            for name, least, key, kind, signed in _KEYS:
                if starts(tag, name, least):
                    self._value(word, tag, key, kind, value, sign, signed)
                    break
            else:
                raise self.refuse(f"Unknown parameter {word}.  {self.ending}")

    def _value(self, word: str, tag: str, key: str, kind: str, value: str, sign: str, signed: bool) -> None:
        if kind in ("once", "tres") and key in self.given:
            raise self.refuse(f"Parameter {word} specified more than once")
        if sign and kind == "tres":
            raise self.refuse(f"Parameter {word} specified a plus or minus.  This is not allowed.")
        if sign and not signed:
            raise self.refuse(f"The +=/-= notation is not supported when updating {tag}.  {self.ending}")
        text = ",".join(sign + part for part in value.split(",")) if sign and kind in ("once", "text") else value
        if kind == "flags":
            self._parse_flags(",".join(sign + part for part in value.split(",")) if sign else value, value)
            return
        if kind == "time":
            try:
                text = str(durations.parse_time(value, self.call.session.now(), self.call.zone))
            except ValueError:
                raise self.refuse(f"Invalid {key} time {word}.  {self.ending}") from None
        elif kind in ("minutes", "seconds"):
            parsed = durations.parse_minutes(value) if kind == "minutes" else durations.parse_seconds(value)
            if parsed is None:
                raise self.refuse(f"Invalid duration {word}.  {self.ending}")
            text = sign + str(parsed)
        elif kind in ("nodes", "cores"):
            label = "NodeCnt" if kind == "nodes" else "CoreCnt"
            if "," in value:
                raise self.refuse(f"Using a comma separated array for {label} is no longer valid.")
            text = self._count(value, kind)
        self.given[key] = text

    def _count(self, value: str, kind: str) -> str:
        digits = value[:-1] if kind == "nodes" and value[-1:].lower() in ("k", "m") else value
        if not digits.isdigit():
            if kind == "cores":
                return "0"
            raise self.refuse(f'"{value}" is not a valid node count')
        factor = {"k": 1024, "m": 1024 * 1024}.get(value[-1:].lower(), 1)
        return str(int(digits) * factor)

    def _parse_flags(self, text: str, shown: str) -> None:
        parsed = parse_flags(text)
        if parsed is None:
            raise self.refuse(f"Error parsing flags {text or shown}.  {self.ending}")
        if parsed.purge_after:
            self.given["purgecomp"] = str(durations.parse_seconds(parsed.purge_after) or 0)
        self._flags(parsed.given)

    def _flags(self, words: set[str] | frozenset[str]) -> None:
        self.given["flags"] = ",".join(sorted({*filter(None, self.given.get("flags", "").split(",")), *words}))

    def check_new(self) -> None:
        """What scontrol refuses by itself. Raises Refused."""
        given = self.given
        flags = set(given.get("flags", "").split(","))
        start, end, minutes = given.get("start"), given.get("end"), given.get("duration")
        if start is None:
            raise self.refuse(f"A start time must be given.  {CREATED}")
        if end is None and minutes is None:
            raise self.refuse(f"An end time or duration must be given.  {CREATED}")
        if end is not None and minutes is not None and int(start) + int(minutes) * 60 != int(end):
            raise self.refuse(f"StartTime + Duration does not equal EndTime.  {CREATED}")
        if end is not None and int(start) > int(end):
            raise self.refuse(f"Start time cannot be after end time.  {CREATED}")
        nodes = given.get("nodes", "")
        if given.get("partition") and nodes.lower() == "all":
            flags.add("PART_NODES")
        if "PART_NODES" in flags and (not given.get("partition") or nodes.lower() != "all"):
            raise self.refuse(f"PART_NODES flag requires specifying a Partition and ALL nodes.  {CREATED}")
        if "FORCE_START" in flags and not flags & REPEATING:
            raise self.refuse("FORCE_START flag requires a reoccuring reservation. No reservation created.")
        if not any(given.get(key) and given[key] != "0" for key in (
                "corecnt", "burstbuffer", "nodecnt", "nodes", "licenses", "tres", "trespernode")):
            if not given.get("partition"):
                raise self.refuse(f"CoreCnt, Nodes, NodeCnt, TRES or Watts must be specified.  {CREATED}")
            flags.add("PART_NODES")
            given["nodes"] = "ALL"
        if not given.get("users") and not given.get("accounts") and not given.get("groups") and not given.get(
                "qos") and not given.get("allowedpartitions"):
            raise self.refuse("Either Users/Groups, AllowedPartitions, QOS and/or Accounts must be specified.  "
                              f"{CREATED}")
        if given.get("users") and given.get("groups"):
            raise self.refuse("Users and Groups are mutually exclusive.  You can have one or the other, but not both.  "
                              f"{CREATED}")
        given["flags"] = ",".join(sorted(flags - {""}))


async def create(call: Call, words: Sequence[str]) -> None:
    """Raises Refused."""
    request = _Request(call, CREATED)
    request.read(words)
    request.check_new()
    try:
        name = await call.session.acts.create_reservation(call.session.identity, request.given)
    except SlurmError as error:
        call.refused("Error creating the reservation", error)
        if error.code in (errors.ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE, errors.ESLURM_NODES_BUSY) and (
                not request.given.get("nodes")):
            call.print("Note, unless nodes are directly requested a reservation must exist in a single partition.\n"
                       "If no partition is requested the default partition is assumed.\n")
        return
    call.print(f"Reservation created: {name}\n")


async def update(call: Call, words: Sequence[str]) -> None:
    """Raises Refused."""
    request = _Request(call, UPDATED)
    request.read(words)
    name = request.given.pop("name", "")
    if not name:
        raise request.refuse("Reservation must be given.  No reservation update.")
    try:
        await call.session.acts.update_reservation(call.session.identity, name, request.given)
    except SlurmError as error:
        call.refused("slurm_update error", error)
        return
    call.print("Reservation updated.\n")


async def delete(call: Call, shown: str, name: str) -> None:
    try:
        await call.session.acts.delete_reservation(call.session.identity, name)
    except SlurmError as error:
        call.refused(f"delete_reservation {shown}", error)


async def show(call: Call, text: str | None, rest: Sequence[str]) -> None:
    records = call.session.views.reservations
    if text is not None:
        record = records.get(text)
        if record is None:
            call.missing(f"Reservation {text} not found")
        else:
            call.print(reservation_text(call, record))
        return
    if not records and not call.quiet:
        call.print("No reservations in the system\n")
    for record in records.values():
        call.print(reservation_text(call, record))


def reservation_text(call: Call, record: ReservationRecord) -> str:
    """One record of ``scontrol show reservation``."""
    line_end = " " if call.one_line else "\n   "
    now = call.style.now_s
    start, end = record.start_s, record.end_s
    if "TIME_FLOAT" in record.flags:
        start = int(now) + record.start_s
        end = start + record.duration_s if record.duration_s else record.end_s
    duration = durations.format_seconds(end - start) if end >= start else "N/A"
    flags = flags_text(record.flags, record.purge_comp_s, durations.format_seconds(record.purge_comp_s))

    def listed(names: Sequence[str], denied: bool = False) -> str:
        return ",".join(("-" if denied else "") + name for name in names) or "(null)"
    lines = [
        f"ReservationName={record.name} StartTime={call.style.show_time(start)} "
        f"EndTime={call.style.show_time(end)} Duration={duration}",
        f"Nodes={compress(record.nodes) or '(null)' if record.nodes else '(null)'} NodeCnt={len(record.nodes)} "
        f"CoreCnt={record.core_count} Features={record.features or '(null)'} "
        f"PartitionName={record.partition or '(null)'} Flags={flags}"]
    lines += [f"  NodeName={name} CoreIDs={_ranges(record.cores[name])}"
              for name in record.nodes if name in record.cores]
    tres = [f"{name}={count}" for name, count in record.tres.items() if count]
    tres += [f"license/{part.strip().replace(':', '=')}" for part in record.licenses.split(",")
             if f"license/{part.strip().partition(':')[0]}" in call.session.views.conf.accounting_storage_tres]
    active = start <= now <= end
    delay = durations.format_seconds(record.max_start_delay_s) if record.max_start_delay_s else "(null)"
    lines += [
        f"TRES={','.join(tres) or '(null)'}",
        f"AllowedPartitions={listed(record.allowed_partitions, record.allowed_partitions_not)} "
        f"QOS={listed(record.qos, record.qos_not)}",
        f"Users={listed(record.users, record.users_not)} Groups={listed(record.groups)} "
        f"Accounts={listed(record.accounts, record.accounts_not)} Licenses={record.licenses or '(null)'} "
        f"State={'ACTIVE' if active else 'INACTIVE'} BurstBuffer={record.burst_buffer or '(null)'}",
        f"MaxStartDelay={delay}"]
    if record.comment:
        lines.append(f"Comment={record.comment}")
    return line_end.join(lines) + ("\n" if call.one_line else "\n\n")


def _ranges(numbers: Sequence[int]) -> str:
    """``0-13,16-29``"""
    parts: list[str] = []
    first = last = -2
    for number in [*sorted(numbers), -9]:
        if number == last + 1:
            last = number
            continue
        if last >= 0:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = number
    return ",".join(parts)
