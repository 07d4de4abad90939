"""Another Slurm's reservations (``sacctmgr -P show reservation``), read as ledger operations.

Their associations are numbers of that Slurm's; ``associations`` (lines ``ID|Account|User``) says whose they are.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurmbridge.accounting.history import HistoryError, Reader, counts, lines
from slurmbridge.accounting.operations import SaveReservation
from slurmbridge.slurm.zones import Zone


def read_reservations(text: str, zone: Zone, ids: Mapping[tuple[str, str], int], *,
                      associations: str = "") -> Iterator[SaveReservation]:
    """Operations for ``Ledger.write``. ``ids``: (account, user) -> association id here. Raises HistoryError."""
    ours = _ours(associations, ids)
    reader = Reader(zone, {})
    for number, values in lines(text):
        try:
            users = [_translated(word, ours) for word in values.get("Assocs", "").split(",") if word]
            yield SaveReservation(
                int(values["ID"]), reader.time(values.get("TimeStart") or values.get("Start", "")) or 0,
                reader.time(values.get("TimeEnd") or values.get("End", "")) or 0, values["Name"],
                [flag for flag in values.get("Flags", "").split(",") if flag],
                values.get("NodeName") or values.get("NodeNames", ""), counts(values.get("TRES", "")), users,
                values.get("Comment", ""))
        except (ValueError, KeyError) as error:
            raise HistoryError(f"line {number}: {error}") from error


def _ours(text: str, ids: Mapping[tuple[str, str], int]) -> dict[int, int] | None:
    """Their number of an association -> ours (0: we have none such); None: numbers are ours already."""
    if not text:
        return None
    found = {}
    for number, values in lines(text):
        try:
            found[int(values["ID"])] = ids.get((values["Account"], values["User"]), 0)
        except (ValueError, KeyError) as error:
            raise HistoryError(f"associations, line {number}: {error}") from error
    return found


def order_of(associations: str, ids: Mapping[tuple[str, str], int]) -> list[int]:
    """Our associations in the order of their numbers: what Slurm charges to whom depends on it in odd cases."""
    ours = _ours(associations, ids) or {}
    return [ours[number] for number in sorted(ours) if ours[number]]


def _translated(word: str, ours: Mapping[int, int] | None) -> int:
    number = int(word)
    if ours is None:
        return number
    own = ours.get(abs(number), 0)
    if not own:
        raise ValueError(f"association {abs(number)} is not known here")
    return -own if number < 0 else own
