"""Objects held against what API servers of several releases know: unknown fields, wrong types, missing ones."""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TABLE: dict[str, list[list[Any]]] = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "kubernetes_schemas.json").read_text())
"""As tests/tools/kube_schemas.py writes it."""
VERSIONS = sorted({version for rows in TABLE.values() for row in rows for version in row[0]})
_PLAIN: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "boolean": (bool,), "number": (int, float),
                                       "quantity": (str, int), "int-or-string": (int, str)}


def complaints(item: Mapping[str, Any], version: str) -> list[str]:
    """What a release's API server would not know or miss; one line each."""
    return list(_of(item, f"#{item['apiVersion']}/{item['kind']}", version, item["kind"]))


def _definition(name: str, version: str) -> tuple[dict[str, str], list[str]] | None:
    return next(((row[1], row[2]) for row in TABLE.get(name, ()) if version in row[0]), None)


def _of(value: Any, kind: str, version: str, path: str) -> Iterator[str]:
    if kind.startswith("#"):
        found = _definition(kind[1:], version)
        if found is None:
            yield f"{path}: {version} knows no {kind[1:]}"
            return
        fields, required = found
        if fields.keys() == {""}:
            yield from _of(value, fields[""], version, path)
            return
        if not isinstance(value, Mapping):
            yield f"{path}: not an object"
            return
        yield from (f"{path}: lacks {name}" for name in required if name not in value)
        for name, one in value.items():
            if name not in fields:
                yield f"{path}.{name}: not known"
            else:
                yield from _of(one, fields[name], version, f"{path}.{name}")
    elif kind.startswith("["):
        if not isinstance(value, list):
            yield f"{path}: not a list"
            return
        for index, one in enumerate(value):
            yield from _of(one, kind[1:-1], version, f"{path}[{index}]")
    elif kind.startswith("{"):
        for name, one in value.items():
            yield from _of(one, kind[1:-1], version, f"{path}[{name}]")
    elif kind in _PLAIN and (not isinstance(value, _PLAIN[kind]) or (
            isinstance(value, bool) and bool not in _PLAIN[kind])):
        yield f"{path}: {value!r} is no {kind}"
