"""How a run ended that its step daemon cannot tell of: from the last state of its pods and its Job (docs/kubernetes.md
has the table)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmbridge.cluster.kubernetes.objects import ContainerStatus, Job, Pod, Terminated

TERMINAL = frozenset({"Succeeded", "Failed"})
_REFUSED_BY_KUBELET = ("UnexpectedAdmissionError", "OutOf", "NodeAffinity", "NodePorts", "NodeName", "PodOS",
                       "TopologyAffinityError", "InitContainerRestart")
_CANNOT_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
                          "ImageInspectError", "RegistryUnavailable"})
_CANNOT_START = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
SIGKILL = 9


@dataclass(frozen=True, slots=True)
class End:
    """``reason`` is an event's data["reason"]; ``node`` the real name of the node that is to blame, if one is."""

    reason: str
    node: str = ""
    message: str = ""
    exit_status: int = SIGKILL

    @property
    def is_permanent(self) -> bool:
        """Whether waiting longer, or another node, would not help."""
        return self.reason in ("ImagePull", "ContainerStart")


def is_over(pod: Pod) -> bool:
    """All its containers are gone, as its kubelet says."""
    return pod.status.phase in TERMINAL


def container(pod: Pod) -> ContainerStatus | None:
    return next((one for one in pod.status.container_statuses if one.name == "job"), None)


def termination(pod: Pod) -> Terminated | None:
    found = container(pod)
    return found.state.terminated if found is not None else None


def end_of(job: Job | None, pods: Mapping[int, Pod], gone: set[int], nodes: Sequence[str]) -> End:
    """``pods``: the last that was seen of each; ``gone``: those that are no longer there."""
    if job is None or job.metadata.deletion_timestamp:
        return End("Cancelled", message="the Job was deleted")
    if any(one.type == "Failed" and one.status == "True" and one.reason == "DeadlineExceeded"
           for one in job.status.conditions):
        return End("TimeLimit", message="the Job's deadline is over")
    for index, pod in sorted(pods.items()):
        ended = termination(pod)
        if ended is not None and ended.reason == "OOMKilled":
            return End("OutOfMemory", message=f"OOM-killed on {nodes[index]}")
    for index, pod in sorted(pods.items()):
        if pod.status.reason == "Evicted" or _disrupted(pod):
            return End("NodeFail", nodes[index], pod.status.message or "the pod was evicted")
        if pod.status.reason.startswith(_REFUSED_BY_KUBELET):
            return End("NodeFail", nodes[index], f"{pod.status.reason}: {pod.status.message}")
    for index in sorted(gone | {index for index, pod in pods.items() if pod.metadata.deletion_timestamp}):
        return End("NodeFail", nodes[index], "the pod was deleted")
    for index, pod in sorted(pods.items()):
        if pod.status.phase == "Failed":
            return End("StepDaemonLost", nodes[index], _text(pod))
    return End("StepDaemonLost", nodes[0] if nodes else "", "the step daemon is gone")


def why_not_ready(pods: Mapping[int, Pod], nodes: Sequence[str]) -> End:
    """What keeps a bound gang from running: the image, the node's kubelet, or time."""
    for _, pod in sorted(pods.items()):
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            waiting = status.state.waiting
            if waiting is not None and waiting.reason in _CANNOT_PULL:
                return End("ImagePull", "", f"{waiting.reason}: {waiting.message}")
            if waiting is not None and waiting.reason in _CANNOT_START:
                return End("ContainerStart", "", f"{waiting.reason}: {waiting.message}")
    late = next((index for index, pod in sorted(pods.items()) if pod.status.phase != "Running"), 0)
    return End("NotReady", nodes[late], f"the pod on {nodes[late]} did not become ready")


def _disrupted(pod: Pod) -> bool:
    return any(one.type == "DisruptionTarget" and one.status == "True" for one in pod.status.conditions)


def _text(pod: Pod) -> str:
    ended = termination(pod)
    said = ended.message if ended is not None and not ended.message.startswith("[") else ""
    return " ".join((said or pod.status.message or pod.status.reason or "its container ended").split())[:300]
