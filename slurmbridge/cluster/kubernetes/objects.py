"""The few fields of Kubernetes objects that the engine looks at; decoding drops all others at once."""
from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Fields(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, gc=False,
             frozen=True):
    """Base: field names as in Kubernetes."""


class Meta(Fields):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None


class Taint(Fields):
    key: str = ""
    value: str = ""
    effect: str = ""


class Condition(Fields):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class NodeInfo(Fields):
    boot_id: str = msgspec.field(default="", name="bootID")
    architecture: str = ""
    os_image: str = ""
    kernel_version: str = ""


class Address(Fields):
    type: str = ""
    address: str = ""


class NodeStatus(Fields):
    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}
    conditions: list[Condition] = []
    node_info: NodeInfo = NodeInfo()
    addresses: list[Address] = []


class NodeSpec(Fields):
    unschedulable: bool = False
    taints: list[Taint] = []


class Node(Fields):
    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Terminated(Fields):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""


class Waiting(Fields):
    reason: str = ""
    message: str = ""


class ContainerState(Fields):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Fields):
    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(Fields):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Resources(Fields):
    requests: dict[str, str] = {}


class Container(Fields):
    name: str = ""
    restart_policy: str | None = None
    resources: Resources = Resources()


class PodSpec(Fields):
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: dict[str, str] = {}


class Pod(Fields):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class JobStatus(Fields):
    active: int = 0
    conditions: list[Condition] = []


class Job(Fields):
    metadata: Meta = Meta()
    status: JobStatus = JobStatus()


class Event(Fields):
    metadata: Meta = Meta()
    reason: str = ""
    message: str = ""


class ListMeta(Fields):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListOf(msgspec.Struct, Generic[T], rename="camel"):
    """A page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] = []


class WatchEvent(msgspec.Struct):
    """One line of a watch; ``object`` is decoded by what ``type`` says it is."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")


class Status(Fields):
    """The API server's answer to what it refuses."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, object] | None = None
