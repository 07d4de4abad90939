"""Which of several controllers leads: a Lease in the cluster, renewed by its holder, taken over once it is stale.

Stale is what has not changed for the lease's duration on *our* clock: other machines' clocks are not compared. A holder
that cannot renew says that it has lost well before another may take it. What still slips through (a process that was
frozen) is stopped by the ledger's epoch.
"""
from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from slurmbridge.cluster.kubernetes.api import Api, ApiError
from slurmbridge.translate.manifest import DOMAIN

log = logging.getLogger(__name__)
RETRY_S = 2.0


class Lease:
    """``acquire`` returns as the holder; from then on ``lost`` is set when that is over."""

    def __init__(self, api: Api, namespace: str, name: str, holder: str, duration_s: float = 15.0, *,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._api, self._name, self._holder, self._duration_s = api, name, holder, duration_s
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._clock, self._sleep = clock, sleep
        self._seen: tuple[str, float] = ("", 0.0)             # resourceVersion, and since when we know it
        self._renewed_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self.lost = asyncio.Event()

    async def acquire(self) -> None:
        while not await self._try():
            await self._sleep(min(RETRY_S, self._duration_s / 4))
        log.info("lease %s: %s leads", self._name, self._holder)
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _try(self) -> bool:
        """Whether we hold it now."""
        asked_s = self._clock()
        try:
            found = await self._read()
            if found is None:
                await self._api.once("POST", self._path, self._body(None))
            else:
                spec, version = found.get("spec", {}), found["metadata"]["resourceVersion"]
                if self._seen[0] != version:
                    self._seen = (version, self._clock())
                holder = spec.get("holderIdentity") or ""
                lasts_s = max(self._duration_s, float(spec.get("leaseDurationSeconds") or 0))
                if holder not in ("", self._holder) and self._clock() - self._seen[1] < lasts_s:
                    return False
                await self._api.once("PUT", f"{self._path}/{self._name}", self._body(found))
        except ApiError as error:
            if error.code not in (409,):
                log.warning("lease %s: %s", self._name, error)
            return False
        self._renewed_s = asked_s
        return True

    async def _read(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(await self._api.once(
                "GET", f"{self._path}/{self._name}", timeout_s=self._duration_s / 3))
            return found
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _body(self, found: dict[str, Any] | None, holder: str | None = None) -> dict[str, Any]:
        """``found`` with us as its holder; its version makes a race of two end with one."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = dict((found or {}).get("spec", {}))
        if spec.get("holderIdentity") != self._holder:
            before = int(spec.get("leaseTransitions") or 0)
            spec |= {"acquireTime": now, "leaseTransitions": before + (found is not None)}
        spec |= {"holderIdentity": self._holder if holder is None else holder, "renewTime": now,
                 "leaseDurationSeconds": max(1, int(self._duration_s))}
        metadata = dict(found["metadata"]) if found is not None else {"name": self._name}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    async def _keep(self) -> None:
        """Renews until it is another's, or too long was nothing renewed."""
        while True:
            await self._sleep(min(RETRY_S, self._duration_s / 4))
            found = None
            try:
                found = await self._read()
                if found is None or found.get("spec", {}).get("holderIdentity") != self._holder:
                    break
                asked_s = self._clock()
                await self._api.once("PUT", f"{self._path}/{self._name}", self._body(found),
                                     timeout_s=self._duration_s / 3)
                self._renewed_s = asked_s
            except ApiError as error:
                log.warning("lease %s is not renewed: %s", self._name, error)
            if self._clock() - self._renewed_s > self._duration_s * 2 / 3:
                break
        log.error("lease %s: %s leads no more", self._name, self._holder)
        self.lost.set()

    async def release(self) -> None:
        """Another may take it at once, where it is still ours."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self.lost.is_set():
            return
        try:
            found = await self._read()
            if found is not None and found.get("spec", {}).get("holderIdentity") == self._holder:
                await self._api.once("PUT", f"{self._path}/{self._name}", self._body(found, ""), timeout_s=2.0)
        except ApiError as error:
            log.warning("lease %s is not given back: %s", self._name, error)


async def publish(api: Api, namespace: str, service: str, address: str, port: int) -> None:
    """The Service leads to ``address`` from now on: its one EndpointSlice is the leader's. Raises ApiError."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    body: dict[str, Any] = {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "ports": [{"name": "https", "port": port}],
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "metadata": {"name": f"{service}-leader", "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": DOMAIN}}}
    while True:
        try:
            await api.request("POST", path, body)
            return
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        found = json.loads(await api.request("GET", f"{path}/{service}-leader"))
        body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        try:
            await api.request("PUT", f"{path}/{service}-leader", body)
            return
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            del body["metadata"]["resourceVersion"]
