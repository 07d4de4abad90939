"""Pure translations: nodes to Slurm's terms, ends of pods, last words, budgets, orders."""
from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from slurmbridge.cluster.kubernetes import ends, foreign, health, inventory, orders
from slurmbridge.cluster.kubernetes.budget import Budget
from slurmbridge.cluster.kubernetes.gang import renamed
from slurmbridge.cluster.kubernetes.objects import Job, Node, Pod
from slurmbridge.cluster.kubernetes.quantity import quantity
from slurmbridge.cluster.kubernetes.settings import DEFAULT_GRES, GresRule
from slurmbridge.health.monitor import Monitor
from slurmbridge.health.policy import Policy
from slurmbridge.health.rules import DEFAULTS
from slurmbridge.health.sight import read
from slurmbridge.runtime import essentials
from slurmbridge.runtime.order import RunOrder
from slurmbridge.runtime.pod import image_environment, with_image_environment
from slurmbridge.slurm.jobspec import JobRequest


def made(kind: type[Any], **fields: Any) -> Any:
    return msgspec.json.decode(json.dumps(fields), type=kind)


@pytest.mark.parametrize(("text", "value"), [
    ("1930m", "1.930"), ("16Gi", 16 << 30), ("129M", 129_000_000), ("1e3", 1000), ("0", 0), ("250k", 250_000),
    ("1.5Gi", 3 << 29), ("5u", "0.000005")])
def test_quantities(text: str, value: Any) -> None:
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "Gi", "1Q", "one", "1 Gi", "--1"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError):
        quantity(text)


def node(labels: dict[str, str] | None = None, **allocatable: str) -> Node:
    names = {name.replace("__", "/").replace("_", "."): text for name, text in allocatable.items()}
    return made(Node, metadata={"name": "n", "labels": labels or {}}, status={
        "allocatable": names, "conditions": [{"type": "Ready", "status": "True"}]})


def test_a_node_as_a_line_of_slurm_conf() -> None:
    found = inventory.read_node(made(
        Node, metadata={"name": "ip-10-0-0-1.ec2.internal", "annotations": {"slurmbridge.io/features": "fast,ib"},
                        "labels": {"pool": "a", "kubernetes.io/hostname": "x", "flag": ""}},
        status={"allocatable": {"cpu": "7910m", "memory": "30Gi", "ephemeral-storage": "100Gi"},
                "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}],
                "nodeInfo": {"architecture": "arm64", "kernelVersion": "6.1", "osImage": "Linux"}}), DEFAULT_GRES)
    line = found.line
    assert (line.cpus, line.real_memory_mb, line.tmp_disk_mb, line.address) == (7, 30720, 102400, "10.0.0.1")
    assert line.features == ("fast", "ib", "flag", "pool=a")
    assert not found.is_ready
    assert found.facts["arch"] == "aarch64"


@pytest.mark.parametrize(("labels", "resources", "gres"), [
    ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, {"nvidia.com/gpu": "8"}, {"gpu:h100": 8}),
    ({"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}, {"nvidia.com/gpu": "4"}, {"gpu:v100": 4}),
    ({}, {"nvidia.com/gpu": "2"}, {"gpu": 2}), ({}, {"nvidia.com/gpu": "0"}, {}),
    ({}, {"nvidia.com/mig-1g.5gb": "7"}, {"gpu:1g.5gb": 7}),
    ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, {"amd.com/gpu": "8"}, {"gpu:mi300x": 8}),
    ({}, {"gpu.intel.com/i915": "1"}, {"gpu:i915": 1}), ({}, {"example.com/fpga": "1"}, {})])
def test_devices(labels: dict[str, str], resources: dict[str, str], gres: dict[str, int]) -> None:
    found, names = inventory.devices({"cpu": "4", **resources}, labels, DEFAULT_GRES)
    assert found == gres
    assert list(names.values()) == [name for name in resources if gres]


def test_a_sites_own_device() -> None:
    rules = [GresRule(resource="example.com/fpga", gres="fpga", type="u250"), *DEFAULT_GRES]
    assert inventory.devices({"example.com/fpga": "2"}, {}, rules)[0] == {"fpga:u250": 2}


GPU_TAINT = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}


@pytest.mark.parametrize(("spec", "tolerations", "reason"), [
    ({}, [], ""), ({"unschedulable": True}, [], "kh:M:cordoned spec.unschedulable=true"),
    (GPU_TAINT, [], "kh:M:taint gpu=NoSchedule/yes"), (GPU_TAINT, [{"key": "gpu", "value": "yes"}], ""),
    (GPU_TAINT, [{"key": "gpu", "value": "no"}], "kh:M:taint gpu=NoSchedule/yes"),
    ({"taints": [{"key": "gpu", "effect": "NoExecute"}]}, [{"operator": "Exists"}], ""),
    ({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}, [], ""),
    ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}, [], ""),
    ({"taints": [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]}, [], "")])
def test_what_keeps_jobs_from_a_node(spec: dict[str, Any], tolerations: list[Any], reason: str) -> None:
    """As health judges what is told of the object; that a taint is there because of a condition is no second cause."""
    found = made(Node, metadata={"name": "n", "uid": "u"}, spec=spec, status={
        "conditions": [{"type": "Ready", "status": "True"}]})
    monitor = Monitor(Policy(DEFAULTS), 0.0)
    monitor.see(read("n", health.seen(found, {}, False, {}, {}, tolerations)), 1000.0)
    verdict = monitor.verdict("n", 1000.0)
    assert (verdict.state, verdict.reason) == ("DRAIN" if reason else "", reason)


def test_what_is_told_of_a_nodes_health() -> None:
    found = made(Node, metadata={"name": "n", "uid": "u", "creationTimestamp": "2026-08-01T00:00:00Z", "labels": {
        "topology.kubernetes.io/zone": "z1"}, "deletionTimestamp": "2026-08-02T00:00:00Z"}, status={
        "nodeInfo": {"bootID": "b"}, "conditions": [{
            "type": "KernelReady", "status": "False", "reason": "R", "message": "M",
            "lastHeartbeatTime": "2026-08-01T00:05:00Z", "lastTransitionTime": "2026-08-01T00:00:10Z"}]})
    told = health.seen(found, {7: "stuck"}, True, {"gpu": 8}, {"gpu": 7}, ())
    assert told["conditions"] == [{"type": "KernelReady", "status": "False", "reason": "R", "message": "M",
                                   "heartbeat_s": 1785542700.0, "changed_s": 1785542410.0}]
    assert (told["uid"], told["boot_id"], told["zone"], told["created_s"]) == ("u", "b", "z1", 1785542400.0)
    assert (told["deleting"], told["leftovers"], told["pods"]) == (True, True, {7: "stuck"})


def test_devices_that_are_missing_are_counted_and_told() -> None:
    found = inventory.read_node(made(Node, metadata={"name": "n"}, status={
        "capacity": {"nvidia.com/gpu": "8", "cpu": "64"}, "allocatable": {"nvidia.com/gpu": "6", "cpu": "60"}}),
        DEFAULT_GRES)
    assert (found.line.cpus, found.line.gres) == (60, {"gpu": 8})
    assert (found.capacity, found.allocatable) == ({"gpu": 8}, {"gpu": 6})


@pytest.mark.parametrize(("phase", "ready", "deleted", "before", "word"), [
    ("Pending", False, False, "", ""), ("Running", True, False, "", "progressing"),
    ("Running", False, False, "progressing", "stuck"), ("Running", False, False, "stuck", "stuck"),
    ("Running", True, True, "progressing", "deleting"), ("Failed", False, True, "deleting", "over"),
    ("Succeeded", False, False, "progressing", "over")])
def test_what_a_pod_does(phase: str, ready: bool, deleted: bool, before: str, word: str) -> None:
    one = made(Pod, metadata={"deletionTimestamp": "2026-08-01T00:00:00Z"} if deleted else {}, status={
        "phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]})
    assert health.pod_word(one, before) == word


def pod(name: str = "p", node_name: str = "n", phase: str = "Running",
        requests: tuple[str, ...] = (), inits: tuple[tuple[str, str | None], ...] = ()) -> Pod:
    return made(Pod, metadata={"name": name, "namespace": "d"}, status={"phase": phase}, spec={
        "nodeName": node_name, "containers": [{"resources": {"requests": {"cpu": cpu}}} for cpu in requests],
        "initContainers": [{"resources": {"requests": {"cpu": cpu}}, "restartPolicy": policy}
                           for cpu, policy in inits]})


def test_requests_of_a_pod_as_the_scheduler_counts_them() -> None:
    assert foreign.requests(pod(requests=("1", "500m"))) == {"cpu": Decimal("1.5")}
    assert foreign.requests(pod(requests=("1",), inits=(("3", None), ("250m", "Always")))) == {"cpu": Decimal(3)}
    assert foreign.requests(pod(requests=("2",), inits=(("1", None), ("250m", "Always")))) == {"cpu": Decimal("2.25")}


def test_foreign_pods_come_and_go() -> None:
    told: list[str] = []
    pods = foreign.ForeignPods(told.append)
    first, second = pod("a", requests=("1",)), pod("b", requests=("700m",))
    for one in (first, second, pod("c", "", requests=("9",))):
        pods.see(None, one)
    assert pods.on("n") == {"cpu": Decimal("1.7")} and told == ["n", "n"]
    pods.see(second, pod("b", phase="Succeeded", requests=("700m",)))
    pods.see(first, None)
    assert pods.on("n") == {} and told == ["n"] * 4


@pytest.mark.parametrize(("allocatable", "taken", "cpus"), [("4", "500m", 1), ("3900m", "900m", 0), ("4", "9", 4)])
def test_cpus_that_jobs_cannot_have(allocatable: str, taken: str, cpus: int) -> None:
    use = foreign.use_of({"cpu": quantity(taken), "memory": quantity("1500Ki"), "nvidia.com/gpu": Decimal(2)},
                         {"cpu": allocatable}, {"gpu:h100": "nvidia.com/gpu"})
    assert use == {"cpus": cpus, "mem_mb": 2, "gres": {"gpu:h100": 2}}


def ended(reason: str = "Error", **status: Any) -> Pod:
    return made(Pod, status={"phase": "Failed", "containerStatuses": [{"name": "job", "state": {
        "terminated": {"exitCode": 1, "reason": reason}}}], **status})


@pytest.mark.parametrize(("job", "pods", "gone", "reason", "at"), [
    (None, {0: ended()}, set(), "Cancelled", ""),
    ({"metadata": {"deletionTimestamp": "t"}}, {}, {0, 1}, "Cancelled", ""),
    ({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}}, {0: ended()},
     {1}, "TimeLimit", ""),
    ({}, {0: made(Pod), 1: ended("OOMKilled")}, set(), "OutOfMemory", ""),
    ({}, {0: made(Pod), 1: ended(reason="Error") }, {0}, "NodeFail", "n1"),
    ({}, {0: ended(), 1: made(Pod, status={"phase": "Failed", "reason": "Evicted"})}, set(), "NodeFail", "n2"),
    ({}, {1: made(Pod, status={"phase": "Failed", "reason": "OutOfcpu"})}, set(), "NodeFail", "n2"),
    ({}, {0: made(Pod), 1: ended()}, set(), "StepDaemonLost", "n2"), ({}, {}, set(), "StepDaemonLost", "n1")])
def test_how_a_run_ended_that_cannot_tell_itself(job: Any, pods: dict[int, Pod], gone: set[int], reason: str,
                                                 at: str) -> None:
    end = ends.end_of(None if job is None else made(Job, **job), pods, gone, ["n1", "n2"])
    assert (end.reason, end.node) == (reason, at)


def test_last_words_fit_and_keep_what_matters() -> None:
    usage = {"user_cpu_s": 1.5, "system_cpu_s": 0.5, "stats": {"in_ave": {"cpu": 1, "mem": 2}}}
    steps = [{"kind": "step_ended", "at_s": 1.0, "step_id": str(number), "exit_status": 0, "usage": usage}
             for number in range(60)]
    entries = list(enumerate([{"kind": "launched"}, {"kind": "started", "at_s": 0.5}, *steps,
                              {"kind": "script_ended", "at_s": 9.0, "exit_status": 256, "usage": usage},
                              {"kind": "finished", "at_s": 9.5, "exit_status": 256, "reason": ""}], 1))
    text = essentials.pack(entries)
    assert len(text) <= 4096
    found = essentials.unpack(text.decode())
    assert found[0] == (2, {"kind": "started", "at_s": 0.5}) and found[-1][1]["kind"] == "finished"
    assert found[-2][1]["usage"] == {"user_cpu_s": 1.5, "system_cpu_s": 0.5}
    kept = [entry["step_id"] for _, entry in found if entry["kind"] == "step_ended"]
    assert kept == [str(number) for number in range(60 - len(kept), 60)] and kept
    short = essentials.unpack(essentials.pack(entries[:4]).decode())
    assert short[1][1]["usage"] == usage
    assert essentials.unpack("70 Traceback") == [] and essentials.unpack('{"a": 1}') == []


def test_gangs_are_admitted_whole_and_in_order() -> None:
    now, order = [0.0], []

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        await asyncio.sleep(0)

    async def gang(budget: Budget, name: str, writes: int) -> None:
        await budget.take(writes)
        order.append((name, round(now[0], 2)))

    async def run() -> None:
        budget = Budget(10, clock=lambda: now[0], sleep=sleep)     # burst 20
        assert not budget.holds_back(15) and not budget.holds_back(40)
        await asyncio.gather(gang(budget, "a", 15), gang(budget, "large", 40), gang(budget, "small", 1))
        assert budget.holds_back(1)
        budget.slow_down(3)
        await gang(budget, "later", 1)
    asyncio.run(run())
    assert order == [("a", 0.0), ("large", 1.5), ("small", 3.6), ("later", 6.7)]


def test_an_images_environment_wins_over_the_submitters() -> None:
    image = image_environment({"PATH": "/opt/bin:/bin", "CUDA_HOME": "/cuda", "HOME": "/root", "SLURM_JOB_ID": "1",
                               "KUBERNETES_PORT": "x", "SLURMBRIDGE_X": "y", "A": "image", "B": "image"})
    order = RunOrder(1, 0, "c", JobRequest(environment=("PATH=/usr/bin", "A=user", "B=user", "HOME=/home/alice"),
                                           pyxis={"container-env": "B"}), [])
    with_image_environment(order, image)
    assert dict(line.split("=", 1) for line in order.request.environment) == {
        "PATH": "/opt/bin:/bin:/slurmbridge/bin", "CUDA_HOME": "/cuda", "A": "image", "B": "user",
        "HOME": "/home/alice"}


def test_names_of_pods_become_names_of_nodes() -> None:
    names = {"slurm-7-0": "n1", "slurm-7-1": "n2"}
    assert renamed({"nodes": ["slurm-7-0", "slurm-7-1"], "node": "slurm-7-1", "pids": {"slurm-7-0": [1]},
                    "text": "on slurm-7-0"}, names) == {
        "nodes": ["n1", "n2"], "node": "n2", "pids": {"n1": [1]}, "text": "on slurm-7-0"}


def test_devices_are_numbered_as_the_container_sees_them() -> None:
    assert orders.renumbered({"gpu:a100": (4, 6), "gpu:h100": (7,), "shard": (3,)}) == {
        "gpu:a100": (0, 1), "gpu:h100": (2,), "shard": (0,)}


@pytest.mark.parametrize(("path", "allowed"), [
    ("/data", True), ("/data/x", True), ("/database", False), ("/data/../etc", False), ("/", False)])
def test_folders_that_users_may_mount(path: str, allowed: bool) -> None:
    assert orders.is_below(path, ["/data/"]) is allowed
