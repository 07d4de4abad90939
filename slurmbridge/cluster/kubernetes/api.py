"""Requests to the API server: JSON over aiohttp, refusals as ApiError, pauses honoured, writes safe to repeat."""
from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from slurmbridge.cluster.kubernetes.credentials import Credentials
from slurmbridge.cluster.kubernetes.objects import Status

TIMEOUT_S = 30.0
TRIES = 6
TOKEN_AGE_S = 30.0
"""How old a token may be before the credentials are asked again."""
JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_encode = msgspec.json.encode


class ApiError(Exception):
    """What the API server answered. ``code`` is the HTTP status (0: none came), ``reason`` its word for it."""

    def __init__(self, code: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message or reason or f"HTTP {code}")
        self.code, self.reason, self.retry_after_s = code, reason, retry_after_s

    @property
    def is_transient(self) -> bool:
        """Whether the same request may go well later, all else unchanged."""
        return self.code == 0 or self.code in _TRANSIENT

    @property
    def is_conflict(self) -> bool:
        """Whether somebody wrote at the same time: of the object itself, or of a quota that counts it. A write that
        depends on nothing it has read may be repeated."""
        return self.code == 409 and self.reason == "Conflict"


def backoff_s(attempt: int, base_s: float = 0.2, limit_s: float = 20.0) -> float:
    """Exponential with full jitter: many clients that were cut off together do not come back together."""
    return random.uniform(0.5, 1.0) * min(limit_s, base_s * 2 ** attempt)


class Api:
    """One connection pool. Call inside the event loop; ``close`` at the end."""

    def __init__(self, credentials: Credentials, *, on_pause: Callable[[float], None] = lambda pause_s: None,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._credentials = credentials
        self._on_pause = on_pause
        self._sleep = sleep
        connector = aiohttp.TCPConnector(ssl=credentials.ssl_context(), limit=64)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        self._headers: dict[str, str] = {}
        self._headers_s = -TOKEN_AGE_S

    async def close(self) -> None:
        await self._session.close()

    async def _authorization(self) -> dict[str, str]:
        if time.monotonic() - self._headers_s >= TOKEN_AGE_S:
            self._headers = await asyncio.to_thread(self._credentials.headers)
            self._headers_s = time.monotonic()
        return self._headers

    async def once(self, method: str, path: str, body: object = None, *, query: Mapping[str, str] | None = None,
                   content: str = JSON, timeout_s: float = TIMEOUT_S) -> bytes:
        """One try. Raises ApiError."""
        headers = {**await self._authorization(), "Accept": JSON, "Content-Type": content}
        data = None if body is None else body if isinstance(body, bytes) else _encode(body)
        try:
            async with self._session.request(method, self._credentials.host + path, params=query, data=data,
                                             headers=headers, timeout=aiohttp.ClientTimeout(timeout_s)) as answer:
                text = await answer.read()
                if answer.status < 300:
                    return text
                raise refusal(answer.status, text, answer.headers.get("Retry-After"))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"{type(error).__name__}: {error}") from None

    async def request(self, method: str, path: str, body: object = None, *, query: Mapping[str, str] | None = None,
                      content: str = JSON, tries: int = TRIES, conflicts: bool = False) -> bytes:
        """Tries again what may go well later; a write whose answer was lost may have been done. ``conflicts``: these
        too. Raises ApiError."""
        for attempt in range(tries):
            try:
                return await self.once(method, path, body, query=query, content=content)
            except ApiError as error:
                if error.code == 401:
                    self._headers_s = -TOKEN_AGE_S
                elif not (error.is_transient or (conflicts and error.is_conflict)):
                    raise
                if attempt == tries - 1:
                    raise
                pause_s = max(error.retry_after_s or 0.0, backoff_s(attempt))
                if error.code == 429:
                    self._on_pause(pause_s)
                await self._sleep(pause_s)
        raise AssertionError

    async def create(self, path: str, body: Mapping[str, Any], is_ours: Callable[[bytes], bool]) -> bytes:
        """The object as it is now: made here, or found because an earlier try had made it (``is_ours``).

        Raises ApiError, AlreadyExists where somebody else's is there.
        """
        try:
            return await self.request("POST", path, body, conflicts=True)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            found = await self.request("GET", f"{path}/{body['metadata']['name']}")
            if not is_ours(found):
                raise
            return found

    async def delete(self, path: str, *, policy: str = "Background", grace_s: int | None = None) -> None:
        """Nothing happens where it is gone already. Raises ApiError."""
        body: dict[str, Any] = {"propagationPolicy": policy}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            await self.request("DELETE", path, body)
        except ApiError as error:
            if error.code != 404:
                raise

    def watch(self, path: str, query: Mapping[str, str], timeout_s: float) -> Any:
        """The response of a watch, to be entered; its lines are WatchEvents."""
        return _Watch(self, path, query, timeout_s)


class _Watch:
    def __init__(self, api: Api, path: str, query: Mapping[str, str], timeout_s: float) -> None:
        self._api, self._path, self._query, self._timeout_s = api, path, query, timeout_s

    async def __aenter__(self) -> aiohttp.StreamReader:
        api = self._api
        headers = {**await api._authorization(), "Accept": JSON}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=self._timeout_s)
        self._answer = await api._session.get(api._credentials.host + self._path, params=self._query, headers=headers,
                                              timeout=limits)
        if self._answer.status >= 300:
            text = await self._answer.read()
            error = refusal(self._answer.status, text, self._answer.headers.get("Retry-After"))
            if error.code == 401:
                api._headers_s = -TOKEN_AGE_S
            raise error
        return self._answer.content

    async def __aexit__(self, *_: object) -> None:
        self._answer.close()


def refusal(code: int, text: bytes, retry_after: str | None) -> ApiError:
    """From an answer that is no success."""
    try:
        status = msgspec.json.decode(text, type=Status)
    except msgspec.DecodeError:
        status = Status(message=text[:300].decode("utf-8", "replace"))
    pause_s = None
    with contextlib.suppress(ValueError):
        pause_s = float(retry_after) if retry_after else None
    return ApiError(status.code or code, status.reason, " ".join(status.message.split()), pause_s)
