"""A copy of a part of the cluster that is kept current: a paged list, then a watch from where the list ended.

A watch that ends is resumed at the last version seen (bookmarks keep that recent); one that the API server has
forgotten (410) begins with a list again. Versions are opaque: they are handed back, never compared.
"""
from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from slurmbridge.cluster.kubernetes.api import Api, ApiError, backoff_s
from slurmbridge.cluster.kubernetes.objects import ListOf, Meta, Status, WatchEvent

log = logging.getLogger(__name__)
PAGE = 500
WATCH_S = (240, 480)
"""How long a watch is asked to last: between these, so that not all end together."""
SILENCE_S = 90.0
"""A watch that brings neither events nor bookmarks for so long beyond its time is given up."""
QUIET_S = 150.0
"""A watch that says nothing for so long may be none: the API server sends a bookmark every minute."""


class HasMeta(msgspec.Struct):
    metadata: Meta


T = TypeVar("T", bound=Any)
Change = Callable[[T | None, T | None], None]
"""Called with (before, after): None before for a new object, None after for one that is gone."""


class Gone(Exception):
    """The version to resume from is no longer there."""


class Reflector(Generic[T]):
    """``items`` by (namespace, name). ``run`` until cancelled; ``synced`` is set once the first list is complete."""

    def __init__(self, api: Api, path: str, kind: type[T], on_change: Change[T], *,
                 query: Mapping[str, str] | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
                 ) -> None:
        self._api, self._path, self._on_change = api, path, on_change
        self._query = dict(query or {})
        self._sleep = sleep
        self._list_decoder = msgspec.json.Decoder(ListOf[kind])  # type: ignore[valid-type]
        self._decoder = msgspec.json.Decoder(kind)
        self._event_decoder = msgspec.json.Decoder(WatchEvent)
        self.items: dict[tuple[str, str], T] = {}
        self.synced = asyncio.Event()
        self.version: str | None = None
        self._lost_s: float | None = time.monotonic()         # None while the watch is open
        self._heard_s = time.monotonic()
        self._brought = False                 # whether there was an event since the last failure

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                if self.version is None:
                    await self.list_all()
                await self._watch()
                failures = 0
            except Gone:
                self.version = None
                await self._sleep(backoff_s(0))
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
                if isinstance(error, ApiError) and error.code == 410:
                    self.version = None       # of a list, too: its next page has been compacted away
                log.warning("%s: %s", self._path, error)
                if self._brought:             # a watch that worked and was cut is no failure to begin one
                    failures, self._brought = 0, False
                pause_s = backoff_s(failures)
                if isinstance(error, ApiError) and error.retry_after_s:
                    pause_s = max(pause_s, error.retry_after_s)
                failures += 1
                await self._sleep(pause_s)

    async def list_all(self) -> None:
        """Replaces what is known by what is; what vanished meanwhile is told as gone. Raises ApiError."""
        found: dict[tuple[str, str], T] = {}
        query = {**self._query, "limit": str(PAGE)}
        while True:
            page = self._list_decoder.decode(await self._api.request("GET", self._path, query=query))
            for item in page.items:
                found[item.metadata.namespace, item.metadata.name] = item
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self.version = page.metadata.resource_version
        for key in [key for key in self.items if key not in found]:
            self._on_change(self.items.pop(key), None)
        for key, item in found.items():
            before = self.items.get(key)
            self.items[key] = item
            if before is None or before.metadata.resource_version != item.metadata.resource_version:
                if before is not None and before.metadata.uid != item.metadata.uid:
                    self._on_change(before, None)
                    before = None
                self._on_change(before, item)
        self.synced.set()

    async def _watch(self) -> None:
        lasts_s = random.randint(*WATCH_S)
        query = {**self._query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(lasts_s),
                 "resourceVersion": self.version or ""}
        rest = b""
        try:
            async with self._api.watch(self._path, query, SILENCE_S + lasts_s) as stream:
                self._lost_s, self._heard_s = None, time.monotonic()
                async for chunk in stream.iter_any():
                    self._heard_s = time.monotonic()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            self._take(self._event_decoder.decode(line))
        finally:
            self._lost_s = self._lost_s or time.monotonic()

    def stale_s(self) -> float:
        """How old what is known may be; 0 while the watch is open and says something now and then."""
        now = time.monotonic()
        if self._lost_s is not None:
            return now - self._lost_s
        return now - self._heard_s if now - self._heard_s > QUIET_S else 0.0

    def _take(self, event: WatchEvent) -> None:
        self._brought |= event.type != "ERROR"
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            if status.code == 410:
                raise Gone
            raise ApiError(status.code, status.reason, status.message)
        if event.type == "BOOKMARK":
            self.version = msgspec.json.decode(event.object, type=HasMeta).metadata.resource_version
            return
        item = self._decoder.decode(event.object)
        key = (item.metadata.namespace, item.metadata.name)
        before = self.items.get(key)
        if event.type == "DELETED":
            self.items.pop(key, None)
            self._on_change(item, None)
        else:
            self.items[key] = item
            self._on_change(before, item)
        self.version = item.metadata.resource_version
