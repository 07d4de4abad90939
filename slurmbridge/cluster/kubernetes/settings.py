"""The ``kubernetes:`` section of slurmbridge.yaml: where the cluster is, and what its administrator decides."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from slurmbridge.cluster.kubernetes.budget import PRESETS

_STRICT = ConfigDict(extra="forbid")
ZONE_LABEL = "topology.kubernetes.io/zone"
_POD_KEYS = frozenset({"volumes", "tolerations", "runtimeClassName", "priorityClassName", "imagePullSecrets",
                       "serviceAccountName", "nodeSelector", "hostAliases", "dnsConfig", "securityContext"})
_CONTAINER_KEYS = frozenset({"volumeMounts", "env", "envFrom", "securityContext", "imagePullPolicy"})


class GresRule(BaseModel):
    """A device resource and what Slurm calls it. ``type_label``: the node's label whose value names the model."""

    model_config = _STRICT
    resource: str
    gres: str = "gpu"
    type: str = ""
    type_label: str = ""


DEFAULT_GRES = (
    GresRule(resource="nvidia.com/gpu", type_label="nvidia.com/gpu.product"),
    GresRule(resource="nvidia.com/mig-*", gres="gpu", type="*"),
    GresRule(resource="amd.com/gpu", type_label="amd.com/gpu.product-name"),
    GresRule(resource="gpu.intel.com/i915", type="i915"),
    GresRule(resource="gpu.intel.com/xe", type="xe"),
    GresRule(resource="google.com/tpu", gres="tpu", type_label="cloud.google.com/gke-tpu-accelerator"),
)


class Patch(BaseModel):
    """What pods get beside their own: keys of a pod's and of a container's spec, lists added, the rest replaced."""

    model_config = _STRICT
    image: str | None = None
    pod: dict[str, Any] = Field(default_factory=dict)
    container: dict[str, Any] = Field(default_factory=dict)

    @field_validator("pod")
    @classmethod
    def _pod_keys(cls, given: dict[str, Any]) -> dict[str, Any]:
        return _known(given, _POD_KEYS)

    @field_validator("container")
    @classmethod
    def _container_keys(cls, given: dict[str, Any]) -> dict[str, Any]:
        return _known(given, _CONTAINER_KEYS)


def _known(given: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    unknown = sorted(given.keys() - keys)
    if unknown:
        raise ValueError(f"{unknown[0]} cannot be set here (only {', '.join(sorted(keys))})")
    return given


class Timeouts(BaseModel):
    """How long each step of a gang's start may take, in seconds, before the gang is taken down."""

    model_config = _STRICT
    created_s: float = 60
    bound_s: float = 30
    ready_s: float = 600
    image_s: float = 60                       # of ready_s, after which an image that cannot be pulled is given up


class KubernetesSettings(BaseModel):
    """Without ``kubeconfig`` the pod's own service account counts, else ``$KUBECONFIG`` or ``~/.kube/config``."""

    model_config = _STRICT
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = "slurm"
    service: str = "slurm"
    cluster_domain: str = "cluster.local"
    image: str = Field(default="ubuntu:24.04", description="of jobs that name none")
    runtime_image: str = "slurmbridge-runtime:latest"
    runtime_delivery: Literal["auto", "image", "init"] = "auto"
    scheduler: str = Field(default="gang", description="entry point of slurmbridge.schedulers")
    controller_url: str = Field(default="", description="where commands inside jobs find the controller")
    node_selector: dict[str, str] = Field(default_factory=dict, description="labels of the nodes that are Slurm's")
    topology: tuple[str, ...] = (ZONE_LABEL, "block", "rack")
    gres: tuple[GresRule, ...] = DEFAULT_GRES
    budget: str = "medium"
    writes_per_s: float | None = Field(default=None, gt=0)
    timeouts: Timeouts = Timeouts()
    shm_mb: int | None = None
    user_network_policies: bool = Field(default=False, description="one for each user: their jobs reach each other")
    mount_roots: tuple[str, ...] = Field(default=(), description="host folders that --container-mounts may name")
    defaults: Patch = Patch()
    partitions: dict[str, Patch] = Field(default_factory=dict)

    @field_validator("budget")
    @classmethod
    def _preset(cls, given: str) -> str:
        if given not in PRESETS:
            raise ValueError(f"must be one of {', '.join(PRESETS)}")
        return given
