"""The variables that a batch script and the tasks of a step find, as Slurm sets them: pure functions of the order.

Presence rules are those of sbatch(1) and srun(1), "OUTPUT ENVIRONMENT VARIABLES", checked against recorded jobs.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key

from slurmbridge.runtime.layout import Distribution, lay_out, task_capacity, tasks_per_node_text
from slurmbridge.runtime.order import NodeShare, RunOrder
from slurmbridge.slurm import hostlist
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.option_texts import split_tokens
from slurmbridge.slurm.words import CpuFrequency

BY_NAME = cmp_to_key(hostlist.natural_compare)
GPU_VISIBILITY = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def split_environment(lines: Sequence[str]) -> dict[str, str]:
    """``NAME=value`` lines; lines without ``=`` are dropped, the last of a name wins."""
    return dict(line.split("=", 1) for line in lines if "=" in line)


def bridge_variables(order: RunOrder) -> dict[str, str]:
    """How commands inside the job find their step daemon and the controller."""
    return {
        "SLURMBRIDGE_STEPD": order.nodes[0].address,
        "SLURMBRIDGE_CREDENTIAL": order.credential,
        **({"SLURMBRIDGE_URL": order.controller_url} if order.controller_url else {}),
        **({"SLURMBRIDGE_CA": order.controller_ca} if order.controller_ca else {}),
        **({"SLURM_CONF": order.conf_path} if order.conf_path else {}),
    }


def allocation_variables(order: RunOrder) -> dict[str, str]:
    """The job and its nodes, the same for the batch script and every step."""
    names = hostlist.compress([node.name for node in order.nodes])
    found = {
        "SLURM_CLUSTER_NAME": order.cluster_name,
        "SLURM_JOB_ID": str(order.job_id),
        "SLURM_JOBID": str(order.job_id),
        "SLURM_JOB_NAME": order.name,
        "SLURM_JOB_NUM_NODES": str(len(order.nodes)),
        "SLURM_NNODES": str(len(order.nodes)),
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_JOB_PARTITION": order.partition,
        "SLURM_JOB_CPUS_PER_NODE": tasks_per_node_text([node.cpus for node in order.nodes]),
        "SLURM_JOB_ACCOUNT": order.account,
        "SLURM_JOB_QOS": order.qos,
        "SLURM_JOB_RESERVATION": order.reservation,
        "SLURM_JOB_LICENSES": order.licenses,
        "SLURM_JOB_UID": str(order.uid),
        "SLURM_JOB_USER": order.user_name,
        "SLURM_JOB_GID": str(order.gid),
        "SLURM_JOB_START_TIME": str(int(order.start_s)),
        "SLURM_OOM_KILL_STEP": "1" if order.request.oom_kill_step else "0",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "switch." * order.nodes[0].topology.count(".") + "node",
    }
    if order.request.stepmgr:
        found["SLURM_STEPMGR"] = order.nodes[0].name
    if order.end_by_s is not None:
        found["SLURM_JOB_END_TIME"] = str(int(order.end_by_s))
    if order.mem_per_cpu_mb is not None:
        found["SLURM_MEM_PER_CPU"] = str(order.mem_per_cpu_mb)
    elif order.mem_per_node_mb:
        found["SLURM_MEM_PER_NODE"] = str(order.mem_per_node_mb)
    if order.array_task_id is not None:
        found |= {
            "SLURM_ARRAY_JOB_ID": str(order.array_job_id),
            "SLURM_ARRAY_TASK_ID": str(order.array_task_id),
            "SLURM_ARRAY_TASK_COUNT": str(order.array_task_count),
            "SLURM_ARRAY_TASK_MIN": str(order.array_task_min),
            "SLURM_ARRAY_TASK_MAX": str(order.array_task_max),
            "SLURM_ARRAY_TASK_STEP": str(order.array_task_step),
        }
    if order.restart:
        found["SLURM_RESTART_COUNT"] = str(order.restart)
    return {name: value for name, value in found.items() if value != ""}


def het_step_variables(components: Sequence[RunOrder], het_job_id: int) -> dict[str, str]:
    """What a step over these components of a het job finds as its job: theirs together, sorted by node."""
    nodes = sorted((node for order in components for node in order.nodes), key=lambda node: BY_NAME(node.name))
    names = hostlist.compress([node.name for node in nodes])
    return {"SLURM_JOB_ID": str(het_job_id), "SLURM_JOBID": str(het_job_id), "SLURM_JOB_NUM_NODES": str(len(nodes)),
            "SLURM_JOB_NODELIST": names, "SLURM_NODELIST": names,
            "SLURM_JOB_PARTITION": components[-1].partition,
            "SLURM_JOB_CPUS_PER_NODE": tasks_per_node_text([node.cpus for node in nodes])}


def given_tasks(order: RunOrder) -> int:
    """The number of tasks the user gave, by -n, --ntasks-per-gpu or --ntasks-per-node; 0 when by none."""
    request = order.request
    if (request.num_tasks_given or request.ntasks_per_tres) and request.num_tasks:
        return request.num_tasks
    return (request.ntasks_per_node or 0) * len(order.nodes)


def job_task_counts(order: RunOrder) -> list[int]:
    """Tasks on each node when the whole allocation is used (SLURM_TASKS_PER_NODE of the batch script)."""
    request = order.request
    cpus = [node.cpus for node in order.nodes]
    per_task = request.cpus_per_task or 1
    total = given_tasks(order) or max(1, sum(count // per_task for count in cpus))
    return [len(ids) for ids in lay_out(total, task_capacity(cpus, per_task), Distribution("block"))]


def node_variables(node: NodeShare, cpus: int) -> dict[str, str]:
    """What differs from node to node."""
    return {"SLURMD_NODENAME": node.name, "SLURM_CPUS_ON_NODE": str(cpus),
            "SLURM_TOPOLOGY_ADDR": node.topology or node.name}


def gpu_variables(indices: Sequence[int]) -> dict[str, str]:
    """What makes programs use these GPUs, whoever built them."""
    return dict.fromkeys(GPU_VISIBILITY, ",".join(map(str, indices))) if indices else {}


def batch_environment(order: RunOrder, login: Mapping[str, str] | None = None) -> dict[str, str]:
    """All of the batch script's environment but SLURM_TASK_PID, which only its process knows.

    What the client adds (SLURM_SUBMIT_DIR, option variables) came with the request. ``login`` is the user's login
    environment where it was asked for; what the job brought wins.
    """
    request = order.request
    env = {**(login or {}), **split_environment(request.environment)}
    env = {name: value for name, value in env.items() if name != "SLURM_UMASK" and not name.startswith("SLURM_RLIMIT_")}
    env |= {**allocation_variables(order), **_option_variables(request)}
    tasks = given_tasks(order)
    if tasks:
        env["SLURM_NTASKS"] = env["SLURM_NPROCS"] = str(tasks)
    if "SLURM_CPUS_PER_TASK" in env:
        env["SLURM_CPUS_PER_TASK"] = str(request.cpus_per_task or 1)
    if request.tres_per_task:
        env["SLURM_TRES_PER_TASK"] = request.tres_per_task
    head = order.nodes[0]
    env |= node_variables(head, head.cpus)
    gpus = gpu_indices(head)
    if gpus:
        env |= {**gpu_variables(gpus), "SLURM_JOB_GPUS": ",".join(map(str, gpus)), "SLURM_GPUS_ON_NODE": str(len(gpus))}
    env |= {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": head.name,
        "SLURM_TASKS_PER_NODE": tasks_per_node_text(job_task_counts(order)),
        "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_GTIDS": "0",
        "TMPDIR": env.get("TMPDIR", "/tmp"),
    }
    return env | order.het_environment | bridge_variables(order)


HET_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST", "SLURM_JOB_PARTITION",
                 "SLURM_JOB_CPUS_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_JOB_ACCOUNT",
                 "SLURM_JOB_QOS", "SLURM_JOB_RESERVATION")


def het_variables(components: Sequence[RunOrder]) -> dict[str, str]:
    """What a het job's script finds of each component, under today's and the old (PACK) names."""
    found = {"SLURM_HET_SIZE": str(len(components)), "SLURM_PACK_SIZE": str(len(components))} if components else {}
    for number, order in enumerate(components):
        known = allocation_variables(order)
        own = {name: known[name] for name in HET_VARIABLES if name in known}
        own["SLURM_TASKS_PER_NODE"] = tasks_per_node_text(job_task_counts(order))
        request = order.request
        if request.num_tasks_given and request.num_tasks:
            own["SLURM_NTASKS"] = own["SLURM_NPROCS"] = str(request.num_tasks)
        if request.cpus_per_task is not None:
            own |= {"SLURM_CPUS_PER_TASK": str(request.cpus_per_task),
                    "SLURM_TRES_PER_TASK": request.tres_per_task or f"cpu={request.cpus_per_task}"}
        for name, value in own.items():
            found |= {f"{name}_HET_GROUP_{number}": value, f"{name}_PACK_GROUP_{number}": value}
    return found


def _option_variables(request: JobRequest) -> dict[str, str]:
    """Options of the job that srun takes from its environment."""
    found = {
        "SLURM_OPEN_MODE": {"append": "a", "truncate": "t"}.get(request.open_mode or ""),
        "SLURM_OVERCOMMIT": "1" if request.overcommit else None,
        "SLURM_PROFILE": request.profile,
        "SLURM_NETWORK": request.network,
        "SLURM_JOB_SEGMENT_SIZE": str(request.segment_size) if request.segment_size else None,
        "SLURM_CPU_FREQ_REQ": str(CpuFrequency(*request.cpu_freq)) if request.cpu_freq else None,
    }
    return {name: value for name, value in found.items() if value}


def gpu_indices(node: NodeShare) -> list[int]:
    """Global indices of the run's GPUs on a node."""
    return sorted(index for name, indices in node.gres.items() if name.split(":")[0] == "gpu" for index in indices)


def export_filter(env: Mapping[str, str], export: str | None) -> dict[str, str]:
    """What ``srun --export`` lets through: everything, or the named variables next to SLURM_* and SPANK_*."""
    chosen: dict[str, str] = {}
    everything = export is None
    for token in split_tokens(export or "")[0]:
        if token.upper() == "ALL":
            everything = True
        if token.upper() in ("NONE", "NIL"):
            break
        name, equals, value = token.partition("=")
        if equals:
            chosen[name] = value
        elif name in env:
            chosen[name] = env[name]
    if everything:
        return {**chosen, **env}              # srun's own value wins over NAME=value
    return chosen | {name: value for name, value in env.items() if name.startswith(("SLURM", "SPANK_"))}


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What a step's environment shows of it. ``counts``: tasks on each of its nodes."""

    step_id: str
    nodes: tuple[str, ...]
    counts: tuple[int, ...]
    launcher_host: str = "127.0.0.1"
    launcher_port: int = 0
    owns_allocation: bool = False             # srun outside an allocation: the job's variables are set too
    preserve: bool = False                    # --preserve-env
    job: Mapping[str, str] = field(default_factory=dict)       # of a het job: what replaces its component's variables
    bridge: Mapping[str, str] = field(default_factory=dict)    # how commands in it find the step daemon


def step_environment(order: RunOrder, base: Mapping[str, str], step: StepFacts) -> dict[str, str]:
    """What all tasks of a step share. ``base``: srun's environment with its options' variables, after --export."""
    nodes = hostlist.compress(step.nodes)
    counts = tasks_per_node_text(step.counts)
    total = str(sum(step.counts))
    job = allocation_variables(order)
    missing = (*_IF_MISSING, "SLURM_JOB_RESERVATION") if step.owns_allocation else _IF_MISSING
    env = {**{name: job[name] for name in missing if name in job}, **base,
           **{name: job[name] for name in _ALWAYS if name in job}}
    if "SLURM_JOB_NODELIST" in base and not step.owns_allocation:
        env["SLURM_NODELIST"] = base["SLURM_JOB_NODELIST"]
    env |= step.job
    if step.owns_allocation:
        env |= {name: job[name] for name in _OF_OWN_JOB if name in job}
        env.pop("SLURM_JOB_GPUS", None)
    if not step.preserve:
        env |= {"SLURM_NNODES": str(len(step.nodes)), "SLURM_NTASKS": total, "SLURM_NPROCS": total,
                "SLURM_TASKS_PER_NODE": counts}
    env |= {
        "SLURM_STEP_ID": step.step_id, "SLURM_STEPID": step.step_id, "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": str(len(step.nodes)), "SLURM_STEP_NUM_TASKS": total,
        "SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_STEP_LAUNCHER_PORT": str(step.launcher_port),
        "SLURM_SRUN_COMM_PORT": str(step.launcher_port), "SLURM_SRUN_COMM_HOST": step.launcher_host,
        "SLURM_LAUNCH_NODE_IPADDR": step.launcher_host, "SLURM_JOB_GROUP": order.group_name,
    }
    if any(gpu_indices(node) for node in order.nodes):         # each node says which, or that there are none
        own = (*GPU_VISIBILITY, "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
        env = {name: value for name, value in env.items() if name not in own}
    return {**env, **(step.bridge or bridge_variables(order))}


_ALWAYS = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_UID", "SLURM_JOB_USER", "SLURM_JOB_GID",
           "SLURM_JOB_ACCOUNT", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_OOM_KILL_STEP",
           "SLURM_TOPOLOGY_ADDR_PATTERN")
"""Variables that the node sets in a step whatever srun's environment says."""
_IF_MISSING = ("SLURM_JOB_NODELIST", "SLURM_JOB_CPUS_PER_NODE", "SLURM_NODELIST", "SLURM_JOB_PARTITION",
               "SLURM_JOB_QOS", "SLURM_JOB_NUM_NODES")
_OF_OWN_JOB = ("SLURM_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION", "SLURM_JOB_LICENSES")
"""Variables of the job that srun made for itself, whatever it inherited from another."""


def step_node_variables(node: NodeShare, cpus: int, step_index: int, tasks: Sequence[int],
                        gpus: Sequence[int]) -> dict[str, str]:
    """What the tasks of one node share. ``cpus`` and ``gpus`` are the step's, ``step_index`` the node's place in it."""
    env = node_variables(node, cpus)
    if gpus:
        env |= {"SLURM_GPUS_ON_NODE": str(len(gpus))}
    return env | {"SLURM_NODEID": str(step_index), "SLURM_GTIDS": ",".join(map(str, tasks))}


def task_variables(rank: int, local: int, gpus: Sequence[int]) -> dict[str, str]:
    """What is one task's own; ``gpus`` are those bound to it."""
    env = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), **gpu_variables(gpus)}
    if gpus:
        env["SLURM_STEP_GPUS"] = ",".join(map(str, gpus))
    return env
