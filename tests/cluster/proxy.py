"""A proxy before an API server, to have that one at its worst: it refuses, loses answers, cuts watches, is away.

    with Proxy(kubeconfig) as proxy:          # proxy.kubeconfig leads through it
        proxy.fault = lambda asked: Refusal(429, retry_after_s=1) if asked.method == "POST" else None

``fault`` is asked for every request, on the proxy's own thread; it may take its time.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "host"})


@dataclass(frozen=True, slots=True)
class Asked:
    """``is_watch``: the request lasts and brings events."""

    method: str
    path: str
    is_watch: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """``code`` 0: the connection is closed without an answer. ``is_done``: the API server has done it all the same."""

    code: int
    retry_after_s: int | None = None
    is_done: bool = False


class Proxy:
    """Started when entered. ``fault`` may be replaced at any time; ``seen`` counts (method, code the caller got)."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        given = yaml.safe_load(kubeconfig.read_text())
        cluster, user = given["clusters"][0]["cluster"], given["users"][0]["user"]
        self._server, self._token = cluster["server"], user["token"]
        self._ssl = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._given, self._folder = given, folder
        self.fault: Callable[[Asked], Refusal | None] = lambda asked: None
        self.seen: dict[tuple[str, int], int] = {}
        self.is_away = False
        self._watches: set[asyncio.Task[None]] = set()
        self._last = b""                        # what a watch that is cut brings before its end
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._call(self._start())
        cluster = {"server": f"http://127.0.0.1:{self.port}"}
        self.kubeconfig = self._folder / "proxy.kubeconfig"
        self.kubeconfig.write_text(json.dumps({**self._given, "clusters": [{"name": "test", "cluster": cluster}]}))
        return self

    def __exit__(self, *exception: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._ssl, limit=0), auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None))
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        await self._cut(b"")
        await self._session.close()
        await self._runner.cleanup()

    # ---- faults -----------------------------------------------------------------------------------------------------

    def cut_watches(self) -> None:
        """In the middle of whatever they bring."""
        self._call(self._cut(b""))

    def expire_watches(self) -> None:
        """As when the version that a watch follows has been compacted away."""
        event = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
        self._call(self._cut(json.dumps(event).encode() + b"\n"))

    async def _cut(self, last: bytes) -> None:
        self._last = last
        for copying in self._watches:
            copying.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """No request gets an answer, and those that last end."""
        self.is_away = True
        self.cut_watches()
        try:
            yield
        finally:
            self.is_away = False

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, "watch" in request.query or "follow" in request.query,
                      await request.read())
        refusal = Refusal(0) if self.is_away else await asyncio.to_thread(self.fault, asked)
        if refusal is not None and refusal.is_done:
            async with self._forward(request, asked) as answer:
                await answer.read()
        if refusal is not None:
            return self._refuse(request, refusal)
        try:
            async with self._forward(request, asked) as answer:
                return await self._pass_on(request, answer, asked.is_watch)
        except aiohttp.ClientConnectionError:
            return self._refuse(request, Refusal(0))

    def _forward(self, request: web.Request, asked: Asked) -> Any:
        headers = {name: text for name, text in request.headers.items() if name.lower() not in _HOP}
        headers["Authorization"] = f"Bearer {self._token}"
        return self._session.request(asked.method, self._server + request.raw_path, data=asked.body or None,
                                     headers=headers)

    def _refuse(self, request: web.Request, refusal: Refusal) -> web.StreamResponse:
        self._count(request, refusal.code)
        if not refusal.code:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)
        headers = {} if refusal.retry_after_s is None else {"Retry-After": str(refusal.retry_after_s)}
        return web.json_response({"kind": "Status", "code": refusal.code, "reason": REASONS[refusal.code],
                                  "message": "refused by the test's proxy"}, status=refusal.code, headers=headers)

    def _count(self, request: web.Request, code: int) -> None:
        key = request.method, code
        self.seen[key] = self.seen.get(key, 0) + 1

    async def _pass_on(self, request: web.Request, answer: aiohttp.ClientResponse,
                       is_watch: bool) -> web.StreamResponse:
        self._count(request, answer.status)
        headers = {name: text for name, text in answer.headers.items() if name.lower() not in _HOP}
        if "Content-Encoding" in answer.headers:
            headers["Content-Encoding"] = answer.headers["Content-Encoding"]
        if not is_watch:
            return web.Response(status=answer.status, headers=headers, body=await answer.read())
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        copying = asyncio.create_task(self._copy(answer, response))
        self._watches.add(copying)
        try:
            await asyncio.wait([copying])
        finally:
            copying.cancel()
            self._watches.discard(copying)
        if copying.cancelled() and self._last:
            await response.write(self._last)
        elif copying.cancelled() and request.transport is not None:
            request.transport.abort()
        return response

    @staticmethod
    async def _copy(answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
