"""NetworkPolicies of users: step daemons listen on the pod network, and only their own user's jobs may reach them.

One policy a user, made before the first job; that the controller and login nodes reach every job, and that nobody else
does, is the chart's policy.
"""
from __future__ import annotations

from typing import Any

from slurmbridge.cluster.kubernetes.api import Api
from slurmbridge.translate.manifest import DOMAIN, MANAGED

UID_LABEL = f"{DOMAIN}/uid"


def policy(namespace: str, uid: int) -> dict[str, Any]:
    chosen = {"matchLabels": {UID_LABEL: str(uid)}}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": f"slurm-user-{uid}", "namespace": namespace, "labels": dict(MANAGED)},
            "spec": {"podSelector": chosen, "policyTypes": ["Ingress"],
                     "ingress": [{"from": [{"podSelector": chosen}]}]}}


class Fences:
    """``around`` before a job is made; does nothing for a user who has a fence."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._made: set[int] = set()

    async def around(self, uid: int) -> None:
        """Raises ApiError."""
        if uid in self._made:
            return
        await self._api.create(f"/apis/networking.k8s.io/v1/namespaces/{self._namespace}/networkpolicies",
                               policy(self._namespace, uid), lambda text: True)
        self._made.add(uid)
