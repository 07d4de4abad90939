"""The columns of sprio's table, and the text of each field for all of its rows at once (sprio(1))."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from slurmbridge.commands.common import user_name
from slurmbridge.slurm import tres
from slurmbridge.slurm.format import ListField
from slurmbridge.slurm.settings import PrioritySettings

_WIRE = 1e6
"""Slurm sends doubles multiplied by this; the round trip can move the last bit, and with it a cut-off integer."""
_HIGHEST = float(0xFFFFFFFF)
T = TypeVar("T")


def _each(make: Callable[[Mapping[str, float]], T], rows: Sequence[Mapping[str, float]]) -> list[T]:
    """``make`` of each row, once for rows that are one object."""
    found = {number: make(row) for number, row in {id(row): row for row in rows}.items()}
    return [found[id(row)] for row in rows]


class Table:
    """The rows by column, one for each job and partition (``Views.priority_columns``)."""

    def __init__(self, settings: PrioritySettings, columns: Mapping[str, Sequence[Any]]) -> None:
        self.settings = settings
        self.columns = columns
        self.fixed: Sequence[int] = columns["direct_priority"]
        self._factors: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self.fixed)

    def taken(self, places: Sequence[int]) -> Table:
        """Only these rows, in this order."""
        return Table(self.settings, {key: [values[at] for at in places] for key, values in self.columns.items()})

    def factor(self, name: str) -> list[float]:
        """The weighted factor, as it arrives at the client."""
        if name not in self._factors:
            self._factors[name] = [value * _WIRE / _WIRE for value in self.columns[name]]
        return self._factors[name]

    @cached_property
    def tres(self) -> list[dict[str, float]]:
        return _each(lambda row: {name: value * _WIRE / _WIRE for name, value in row.items()}, self.columns["tres"])

    @cached_property
    def priority(self) -> list[float]:
        """The sum, added up in sprio's order."""
        sums = self.factor("age")
        for name in ("assoc", "fairshare", "jobsize", "part", "qos"):
            sums = [total + value for total, value in zip(sums, self.factor(name))]
        sums = [total + float(site) - float(nice)
                for total, site, nice in zip(sums, self.columns["site"], self.columns["nice"])]
        result = []
        for total, costs, fixed in zip(sums, self.tres, self.fixed):
            for value in costs.values():
                total += value
            result.append(float(fixed) if fixed else max(total, 1.0))
        return result

    @cached_property
    def users(self) -> list[str]:
        return [name or user_name(uid) for name, uid in zip(self.columns["user"], self.columns["uid"])]


Texts = Callable[[Table], list[str]]
"""A column's texts."""


def _text(key: str) -> Texts:
    return lambda table: [str(value) for value in table.columns[key]]


def _weighted(name: str) -> Texts:
    def texts(table: Table) -> list[str]:
        values = table.factor(name)
        known = {value: f"{value:.0f}" for value in set(values)}     # most jobs share theirs with others
        return [known[value] for value in values]
    return texts


def _normalized(name: str, weight: Callable[[PrioritySettings], int]) -> Texts:
    def texts(table: Table) -> list[str]:
        highest = weight(table.settings)
        return ["0" if fixed else f"{value / highest if highest else 0.0:.7f}"
                for value, fixed in zip(table.factor(name), table.fixed)]
    return texts


def _priorities_normalized(table: Table) -> list[str]:
    return [f"{float(fixed) if fixed else value / _HIGHEST:16.14f}"
            for value, fixed in zip(table.priority, table.fixed)]


def _plain(key: str) -> Texts:
    """site and nice: 0 for jobs with a fixed priority."""
    def texts(table: Table) -> list[str]:
        values = table.columns[key]
        known = {value: f"{float(value):.0f}" for value in set(values)}
        return ["0" if fixed else known[value] for value, fixed in zip(values, table.fixed)]
    return texts


def _tres_weighted(table: Table) -> list[str]:
    return _each(lambda row: ",".join([f"{name}={value:.0f}" for name, value in row.items() if value]), table.tres)


def _tres_normalized(table: Table) -> list[str]:
    known = tres.parse_weights(table.settings.weight_tres_text) or table.settings.weight_tres
    weights = {name: weight * _WIRE / _WIRE for name, weight in known.items()}
    return _each(lambda row: ",".join([f"{name}={value / weights[name]:.2f}" for name, value in row.items() if value]),
                 table.tres)


FACTORS: tuple[tuple[str, str, str, Callable[[PrioritySettings], int]], ...] = (
    ("a", "AGE", "age", lambda s: s.weight_age), ("b", "ASSOC", "assoc", lambda s: s.weight_assoc),
    ("f", "FAIRSHARE", "fairshare", lambda s: s.weight_fairshare),
    ("j", "JOBSIZE", "jobsize", lambda s: s.weight_jobsize),
    ("p", "PARTITION", "part", lambda s: s.weight_partition), ("q", "QOS", "qos", lambda s: s.weight_qos))


def _fields() -> Iterator[tuple[ListField[PrioritySettings], Texts]]:
    """Each field, whose value is what the line of weights has there, and the texts of its column."""
    def field(letter: str, header: str, texts: Texts, weights: Callable[[PrioritySettings], str] = lambda _settings: "",
              ) -> tuple[ListField[PrioritySettings], Texts]:
        return ListField(letter, letter, header, weights), texts

    for letter, header, name, weight in FACTORS:
        yield field(letter, header, _normalized(name, weight), lambda settings, of=weight: str(of(settings)))
        yield field(letter.upper(), header, _weighted(name), lambda settings, of=weight: f"{float(of(settings)):.0f}")
    yield field("c", "CLUSTER", lambda table: ["(null)"] * len(table))
    yield field("i", "JOBID", _text("job_id"), lambda _settings: "Weights")
    yield field("n", "QOSNAME", _text("qos_name"))
    yield field("N", "NICE", _plain("nice"))
    yield field("o", "ACCOUNT", _text("account"))
    yield field("r", "PARTITION", _text("partition"))
    yield field("S", "SITE", _plain("site"), lambda _settings: "1")
    yield field("u", "USER", lambda table: table.users)
    yield field("y", "PRIORITY", _priorities_normalized)
    yield field("Y", "PRIORITY", lambda table: [str(int(value)) for value in table.priority])
    yield field("t", "TRES", _tres_normalized)
    yield field("T", "TRES", _tres_weighted, lambda settings: settings.weight_tres_text or "(null)")


TEXTS = {field.letter: texts for field, texts in _fields()}
FIELDS = tuple(field for field, _ in _fields())
