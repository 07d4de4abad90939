"""The gang binder: a Binding for every pod, all at once. The pods name a scheduler that nobody else answers for, so a
pod that is not bound here stays as it is."""
from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from slurmbridge.cluster.kubernetes.api import TRIES, Api, ApiError, backoff_s
from slurmbridge.cluster.kubernetes.objects import Pod
from slurmbridge.cluster.kubernetes.plugin import BindError, PodPlace


class GangBinder:
    """``bind`` may be repeated: what an earlier try has bound to the planned node counts as done."""

    scheduler_name = "slurmbridge-gang"

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def bind(self, places: Sequence[PodPlace]) -> None:
        """Returns when every pod is bound. Raises BindError for the first that cannot be; others may be bound."""
        results = await asyncio.gather(*(self._bind(place) for place in places), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _bind(self, place: PodPlace) -> None:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": place.pod, "uid": place.uid},
                   "target": {"apiVersion": "v1", "kind": "Node", "name": place.node}}
        for attempt in range(TRIES):
            try:
                await self._api.request("POST", f"{self._pods}/{place.pod}/binding", binding)
                return
            except ApiError as error:
                node = await self._node_of(place) if error.code == 409 else None
                if node == place.node:
                    return
                if node != "":                # bound elsewhere, or not the pod that was meant
                    raise BindError(place.node, f"pod {place.pod}: {error}") from None
                refused = error
            await asyncio.sleep(backoff_s(attempt))
        raise BindError(place.node, f"pod {place.pod}: {refused}")

    async def _node_of(self, place: PodPlace) -> str | None:
        """Where the pod is bound to; None where it is gone, going or cannot be seen."""
        try:
            found = msgspec.json.decode(await self._api.request("GET", f"{self._pods}/{place.pod}"), type=Pod)
        except ApiError:
            return None
        if found.metadata.uid != place.uid or found.metadata.deletion_timestamp:
            return None
        return found.spec.node_name
