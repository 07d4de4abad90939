"""One object for equal ones: what thousands of waiting jobs have in common is kept once.

People submit the same script again and again, so most requests are equal to an earlier one, and the variables of an
environment are the same in all of a user's. Records replace their request when it changes, they never change it.
"""
from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields
from operator import attrgetter
from sys import intern
from typing import Any, TypeVar

from slurmbridge.slurm.jobspec import JobRequest

T = TypeVar("T", bound=Hashable)
MOST = 20_000
_values = attrgetter(*(one.name for one in fields(JobRequest)))


class Shared:
    """Remembers the last ``MOST`` or so different values."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: dict[Any, Any] = {}

    def same(self, value: T) -> T:
        """The first of all values equal to this one."""
        found: T = self._known.setdefault(value, value)
        if len(self._known) > self._most:
            self._known.clear()
        return found

    def request(self, request: JobRequest) -> JobRequest:
        """An equal request that nobody will change, with its environment's entries shared."""
        key = tuple([tuple(value.items()) if type(value) is dict else value for value in _values(request)])
        found = self._known.get(key)
        if found is None:
            request.environment = tuple(map(intern, request.environment))
            found = self._known[key] = request
            if len(self._known) > self._most:
                self._known.clear()
        return found  # type: ignore[no-any-return]
