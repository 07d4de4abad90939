"""What this cluster can do, found by asking it: an API server drops fields that are switched off without a word."""
from __future__ import annotations

import json

from slurmbridge.cluster.kubernetes.api import Api, ApiError
from slurmbridge.cluster.kubernetes.settings import KubernetesSettings


async def can_mount_images(api: Api, settings: KubernetesSettings) -> bool:
    """Whether a pod's volume may be an image (dryRun=All: nothing is created)."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "slurmbridge-probe-"},
           "spec": {"containers": [{"name": "probe", "image": settings.image, "volumeMounts": [
               {"name": "image", "mountPath": "/probe"}]}],
               "volumes": [{"name": "image", "image": {"reference": settings.runtime_image}}]}}
    try:
        made = await api.request("POST", f"/api/v1/namespaces/{settings.namespace}/pods", pod,
                                 query={"dryRun": "All"})
    except ApiError as error:
        if error.is_transient or error.code == 401:
            raise
        return False
    return any(volume.get("image") for volume in json.loads(made)["spec"].get("volumes", ()))
