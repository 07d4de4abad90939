"""The default rules: who says what about Kubernetes nodes, and what Slurm's administrators would do about it.

Rows of one type are in order: the first that fits counts. A site's own rules come before all of these. The types, their
polarity and their reasons are those of the projects named; docs/health.md has the table with the reasons for it.
"""
from __future__ import annotations

from slurmbridge.health.policy import (
    CAPACITY,
    GPU_JOBS,
    GPUS,
    HARDWARE,
    INFORMATION,
    JOBS,
    LAST,
    LOST,
    MAINTENANCE,
    NONE,
    PRESSURE,
    RUNTIME,
    STUCK_JOBS,
    WARN,
    Rule,
)
from slurmbridge.health.sight import BEING_DELETED, CORDON, CORDONED, DEVICE_TAINT, LABEL, LAUNCH, LEFTOVERS, TAINT
from slurmbridge.health.sight import CAPACITY as DEVICES

MINUTE, BEAT = 60.0, 300.0
"""Both EKS' agent and Node Problem Detector repeat their conditions every 5 minutes."""
T, F, U = ("True",), ("False",), ("Unknown",)
_NPD = "KernelDeadlock|ReadonlyFilesystem"
_NPD_SURE = "XfsShutdown|CperHardwareErrorFatal|FilesystemCorruptionProblem"
_FREQUENT = "Frequent*Restart|FrequentUnregisterNetDevice|CorruptDockerOverlay2"
_NVSENTINEL = "Gpu*Watch|SysLogs*|NVSwitch*"
_GPU_FATAL = "Nvidia*|DCGMDiagnosticFailure|DCGMHealthCode*|FabricManager*|Neuron*"


def _soft(kind: str, bad: tuple[str, ...], cls: str, **more: object) -> Rule:
    return Rule(kind, bad, cls, **{"period_s": BEAT, **more})  # type: ignore[arg-type]


# What we and other Slurms write (SlurmNode*, SoperatorChecks*, CWActive) has no row: we would listen to ourselves.
DEFAULTS: tuple[Rule, ...] = (
    # kubelet and the node-lifecycle controller
    Rule("Ready", F + U, LOST, act=JOBS, act_after_s=1800, state="", short="Not responding", healthy_delay_s=0,
         is_hard=True),
    Rule("MemoryPressure|DiskPressure|PIDPressure|*ContentionPressure", T, PRESSURE, state="", healthy_delay_s=MINUTE),
    Rule("NetworkUnavailable", T, RUNTIME, state="", healthy_delay_s=0),
    # orders of others
    Rule(CORDONED, ("true",), MAINTENANCE, source=CORDON, short="cordoned", healthy_delay_s=0, is_hard=True),
    Rule(BEING_DELETED, ("true",), MAINTENANCE, source=CORDON, short="being deleted", healthy_delay_s=0, is_hard=True),
    Rule(LEFTOVERS, ("true",), LOST, source=CORDON, short=LEFTOVERS, healthy_delay_s=0, is_hard=True),
    Rule("node.kubernetes.io/out-of-service", ("*",), LOST, source=TAINT, act=JOBS, act_after_s=0,
         short="out-of-service", healthy_delay_s=0, is_hard=True),
    Rule("node.kubernetes.io/not-ready|node.kubernetes.io/unreachable|node.kubernetes.io/*-pressure|"
         "node.kubernetes.io/network-unavailable|node.kubernetes.io/unschedulable", ("*",), INFORMATION,
         source=TAINT, keeps_off=NONE, state=""),       # the conditions and the cordon say the same
    Rule("*", ("NoExecute",), LOST, source=TAINT, healthy_delay_s=0, is_hard=True, down_when_empty=True),
    Rule("*", ("NoSchedule",), MAINTENANCE, source=TAINT, healthy_delay_s=0, is_hard=True),
    Rule("*", ("PreferNoSchedule",), INFORMATION, source=TAINT, keeps_off=LAST, state="", healthy_delay_s=0),
    Rule("dgxc.nvidia.com/nvsentinel-state", ("*",), MAINTENANCE, source=LABEL, healthy_delay_s=0, is_hard=True,
         short="nvsentinel"),
    Rule("MaintenancePlanned", T, MAINTENANCE, act=WARN, act_after_s=0, state="FAIL", healthy_delay_s=0),
    Rule("MaintenanceInProgress|DrainInProgress|Drained|GracefulNodeShutdownInProgress|NebiusMaintenanceScheduled|"
         "CSPMaintenance", T, MAINTENANCE, healthy_delay_s=0),
    # EKS Node Monitoring Agent: bad is False
    _soft("AcceleratedHardwareReady", F, HARDWARE, reason=_GPU_FATAL, warn_after_s=5 * MINUTE, act=GPU_JOBS,
          act_after_s=10 * MINUTE, down_when_empty=True),
    _soft("AcceleratedHardwareReady", F, INFORMATION, reason="DCGMError", keeps_off=GPUS, state=""),
    _soft("AcceleratedHardwareReady", F, HARDWARE, warn_after_s=5 * MINUTE, act=GPU_JOBS, act_after_s=10 * MINUTE,
          down_when_empty=True),
    _soft("NetworkingReady", F, RUNTIME, reason="IPAMDNotReady"),
    _soft("KernelReady|ContainerRuntimeReady|NetworkingReady", F, RUNTIME, warn_after_s=25 * MINUTE, act=STUCK_JOBS,
          act_after_s=30 * MINUTE),
    _soft("StorageReady", F, RUNTIME),
    Rule("kubernetes.azure.com/NodeHealthy", F, RUNTIME),
    # Node Problem Detector, AKS: bad is True
    _soft(_NPD_SURE, T, HARDWARE, act=JOBS, act_after_s=10 * MINUTE, down_when_empty=True),
    _soft(_NPD, T, HARDWARE, act=JOBS, act_after_s=30 * MINUTE, down_when_empty=True),
    _soft("KubeletUnhealthy|ContainerRuntimeUnhealthy|KubeletProblem|ContainerRuntimeProblem", T, RUNTIME,
          exclude_after_s=2 * MINUTE),
    _soft(_FREQUENT, T, RUNTIME, exclude_after_s=10 * MINUTE),
    _soft("NTPProblem|GPUClockThrottling", T, INFORMATION, keeps_off=NONE, state=""),
    _soft("GPUMissing|NVLinkStatusInactive", T, HARDWARE, act=GPU_JOBS, act_after_s=10 * MINUTE),
    _soft("XIDErrors", T, HARDWARE),
    _soft("IBLinkFlapping", T, RUNTIME),
    _soft("UnhealthyNvidiaDevicePlugin", T, RUNTIME, keeps_off=GPUS, state=""),
    _soft("VMEventScheduled", T, MAINTENANCE, message="*Preempt*|*Terminate*|*Redeploy*|*Reboot*", act=WARN,
          act_after_s=0, state="FAIL", healthy_delay_s=0),
    _soft("VMEventScheduled", T, MAINTENANCE, state="FAIL", healthy_delay_s=0),
    # NVSentinel: bad is True; no heartbeat, never stale
    Rule("GpuDcgmUnresponsive|DCGMError", T, INFORMATION, keeps_off=GPUS, exclude_after_s=15 * MINUTE, state=""),
    Rule(_NVSENTINEL, T, INFORMATION, message="*Recommended Action=NONE*", keeps_off=NONE, state=""),
    Rule("GpuNvlinkWatch", T, INFORMATION, message="*IMEX*", keeps_off=NONE, state=""),
    Rule("GpuNvlinkWatch", T, INFORMATION, reason="*IMEX*", keeps_off=NONE, state=""),
    Rule(_NVSENTINEL, T, HARDWARE, message="No [Hh]ealth [Ff]ailures*", short="contradictory"),
    Rule(_NVSENTINEL, T, HARDWARE, act=GPU_JOBS, act_after_s=10 * MINUTE),
    # IBM Autopilot
    Rule("autopilot.ibm.com/gpuhealth", ("EVICT",), HARDWARE, source=LABEL, act=GPU_JOBS, act_after_s=10 * MINUTE,
         short="gpuhealth"),
    Rule("autopilot.ibm.com/gpuhealth", ("WARN",), INFORMATION, source=LABEL, keeps_off=LAST, state=""),
    # devices
    Rule("*", ("none",), CAPACITY, source=DEVICES, exclude_after_s=5 * MINUTE, short="no devices"),
    Rule("*", ("short",), CAPACITY, source=DEVICES, keeps_off=NONE, state="", short="devices missing"),
    Rule("*", ("NoExecute",), CAPACITY, source=DEVICE_TAINT, keeps_off=GPUS, act=GPU_JOBS, act_after_s=0, state=""),
    Rule("*", ("NoSchedule",), CAPACITY, source=DEVICE_TAINT, keeps_off=GPUS, state=""),
    Rule("*", ("None",), INFORMATION, source=DEVICE_TAINT, keeps_off=NONE, state=""),
    # what we find ourselves
    Rule("launches", ("failing",), RUNTIME, source=LAUNCH, short="launch failures", healthy_delay_s=3600),
)
