"""Dataclasses to compact JSON text and back, driven by their field types, for rows that a restart reads again.

Only fields that differ from their default are written, so that a record costs what it says and a field added later
reads as its default. Texts are pure ASCII (surrogate escapes of undecodable bytes survive); sets become sorted lists.
A version number lets a later release read what this one wrote.
"""
from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

FORMAT_VERSION = 1
T = TypeVar("T")
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=lambda value: _plain(value)).encode


def encode(record: Any, omit: frozenset[str] = frozenset()) -> str:
    """JSON text of a dataclass instance; fields named in ``omit`` are left out."""
    values = _changed(record, omit)
    values["_v"] = FORMAT_VERSION
    return _dumps(values)


def decode(kind: type[T], text: str, more: Mapping[str, Any] | None = None) -> T:
    """The instance that ``encode`` wrote, with the fields of ``more`` set as they are.

    Raises ValueError for a version that this release does not know.
    """
    values = json.loads(text)
    version = values.pop("_v", None)
    if version != FORMAT_VERSION:
        raise ValueError(f"record of format version {version}, this release reads {FORMAT_VERSION}")
    readers = _field_readers(kind)
    fields = {name: readers[name](value) for name, value in values.items() if name in readers}
    return kind(**fields, **(more or {}))


def dumps(value: Any) -> str:
    """Plain JSON text of a value that may hold sets, tuples and dataclasses."""
    return _dumps(value)


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if dataclasses.is_dataclass(value):
        return _changed(value, frozenset())
    raise TypeError(f"{type(value).__name__} cannot be recorded")


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """(name, default) of every field; a required field's default is a value that equals nothing."""
    found = []
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            found.append((field.name, field.default))
        elif field.default_factory is not dataclasses.MISSING:
            found.append((field.name, field.default_factory()))
        else:
            found.append((field.name, dataclasses.MISSING))
    return tuple(found)


def _changed(record: Any, omit: frozenset[str]) -> dict[str, Any]:
    values = {}
    for name, default in _defaults(type(record)):
        value = getattr(record, name)
        if value is not default and value != default and name not in omit:
            values[name] = value
    return values


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """A function that turns plain JSON values into what the type hint says."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_reader(hint)
    if origin in (typing.Union, types.UnionType):
        inner = _reader(next(arg for arg in args if arg is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            item = _reader(args[0])
            return lambda value: tuple(map(item, value))
        items = [_reader(arg) for arg in args]
        return lambda value: tuple(read(part) for read, part in zip(items, value))
    if origin in (list, set, frozenset):
        item = _reader(args[0])
        return lambda value: origin(map(item, value))
    if origin is dict:
        key: Callable[[Any], Any] = int if args[0] is int else _same
        item = _reader(args[1])
        return lambda value: {key(name): item(part) for name, part in value.items()}
    if hint is float:
        return float
    return _same


def _same(value: Any) -> Any:
    return value


@cache
def _field_readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    hints = typing.get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}


def _dataclass_reader(kind: type) -> Callable[[Any], Any]:
    readers = _field_readers(kind)
    return lambda values: kind(**{name: readers[name](value) for name, value in values.items() if name in readers})
