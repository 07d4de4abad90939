"""What this cluster can do, found by asking it: an API server drops fields that are switched off without a word."""
from __future__ import annotations

import json

from slurmbridge.cluster.kubernetes.api import Api, ApiError
from slurmbridge.cluster.kubernetes.settings import KubernetesSettings


async def can_mount_images(api: Api, settings: KubernetesSettings) -> bool:
    """Whether a pod's volume may be an image (dryRun=All: nothing is created; a Job, which we may create anyway)."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": settings.image, "volumeMounts": [
               {"name": "image", "mountPath": "/probe"}]}],
           "volumes": [{"name": "image", "image": {"reference": settings.runtime_image}}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "slurmbridge-probe-"},
           "spec": {"suspend": True, "template": {"spec": pod}}}
    try:
        made = await api.request("POST", f"/apis/batch/v1/namespaces/{settings.namespace}/jobs", job,
                                 query={"dryRun": "All"})
    except ApiError as error:
        if error.is_transient or error.code == 401:
            raise
        return False
    return any(volume.get("image") for volume in json.loads(made)["spec"]["template"]["spec"].get("volumes", ()))
