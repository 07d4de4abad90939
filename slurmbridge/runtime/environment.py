"""The variables that a batch script and the tasks of a step find, as Slurm sets them: pure functions of the order.

Presence rules are those of sbatch(1) and srun(1), "OUTPUT ENVIRONMENT VARIABLES", checked against recorded jobs.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmbridge.runtime.layout import Distribution, lay_out, task_capacity, tasks_per_node_text
from slurmbridge.runtime.order import NodeShare, RunOrder
from slurmbridge.slurm import hostlist
from slurmbridge.slurm.jobspec import JobRequest

LAUNCHER_VARIABLES = {
    "OMPI_MCA_plm_slurm_args": "--external-launcher",
    "PRTE_MCA_plm_slurm_args": "--external-launcher",
    "HYDRA_BOOTSTRAP": "slurm",
    "HYDRA_LAUNCHER_EXTRA_ARGS": "--external-launcher",
    "I_MPI_HYDRA_BOOTSTRAP": "slurm",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "--external-launcher",
}
"""Tell MPI launchers to start their daemons by srun."""
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
        **({"SLURM_CONF": order.conf_path} if order.conf_path else {}),
    }


def option_variables(request: JobRequest) -> dict[str, str]:
    """What the submitting command puts into the job's environment because of its options."""
    found: dict[str, str | int | None] = {
        "SLURM_DISTRIBUTION": request.distribution,
        "SLURM_DIST_PLANESIZE": request.plane_size if request.plane_size and request.distribution == "plane" else None,
        "SLURM_OPEN_MODE": {"append": "a", "truncate": "t"}.get(request.open_mode or ""),
        "SLURM_OVERCOMMIT": 1 if request.overcommit else None,
        "SLURM_HINT": request.hint,
        "SLURM_PROFILE": request.profile,
        "SLURM_NETWORK": request.network,
        "SLURM_ACCTG_FREQ": request.acctg_freq,
        "SLURM_NTASKS_PER_NODE": request.ntasks_per_node,
        "SLURM_NTASKS_PER_SOCKET": request.ntasks_per_socket,
        "SLURM_NTASKS_PER_CORE": request.ntasks_per_core,
        "SLURM_NTASKS_PER_GPU": request.ntasks_per_tres,
        "SLURM_THREADS_PER_CORE": request.threads_per_core,
        "SLURM_CORE_SPEC": request.core_spec,
        "SLURM_THREAD_SPEC": request.thread_spec,
        "SLURM_TRES_BIND": request.tres_bind,
        "SLURM_TRES_PER_TASK": request.tres_per_task,
        "SLURM_EXPORT_ENV": request.export if request.export not in (None, "ALL") else None,
        "SLURM_GET_USER_ENV": 1 if request.get_user_env is not None else None,
        "SLURM_CPUS_PER_GPU": _tres_number(request.cpus_per_tres),
        "SLURM_GPUS": _gpus(request.tres_per_job),
        "SLURM_GPUS_PER_SOCKET": _gpus(request.tres_per_socket),
        "SLURM_JOB_SEGMENT_SIZE": request.segment_size,
        "SLURM_CONTAINER": request.container,
        "SLURM_CONTAINER_ID": request.container_id,
    }
    if request.num_tasks_given and request.num_tasks is not None:
        found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = request.num_tasks
    if request.cpus_per_task is not None:
        found["SLURM_CPUS_PER_TASK"] = request.cpus_per_task
        found["SLURM_TRES_PER_TASK"] = request.tres_per_task or f"cpu={request.cpus_per_task}"
    if request.signal:
        found["SLURM_SIGNAL"] = None
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


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
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    }
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


def job_task_counts(order: RunOrder) -> list[int]:
    """Tasks on each node when the whole allocation is used (SLURM_TASKS_PER_NODE of the batch script)."""
    request = order.request
    cpus = [node.cpus for node in order.nodes]
    per_task = request.cpus_per_task or 1
    total = request.num_tasks if request.num_tasks_given and request.num_tasks else 0
    if not total and request.ntasks_per_node:
        total = request.ntasks_per_node * len(cpus)
    if not total:
        total = max(1, sum(count // per_task for count in cpus))
    return [len(ids) for ids in lay_out(total, task_capacity(cpus, per_task), Distribution("block"))]


def node_variables(order: RunOrder, node: NodeShare, step_gpus: Sequence[int] | None = None) -> dict[str, str]:
    """What differs from node to node."""
    gpus = gpu_indices(node)
    found = {
        "SLURMD_NODENAME": node.name,
        "SLURM_CPUS_ON_NODE": str(node.cpus),
        "SLURM_TOPOLOGY_ADDR": node.name,
    }
    if gpus:
        text = ",".join(map(str, gpus))
        shown = text if step_gpus is None else ",".join(map(str, step_gpus))
        found |= {"SLURM_JOB_GPUS": text, "SLURM_GPUS_ON_NODE": str(len(gpus))}
        found |= dict.fromkeys(GPU_VISIBILITY, shown)
    return found


def batch_environment(order: RunOrder, login: Mapping[str, str] | None = None) -> dict[str, str]:
    """All of the batch script's environment but SLURM_TASK_PID, which only its process knows.

    ``login`` is the user's login environment where it was asked for; what the job brought wins.
    """
    request = order.request
    env = {**(login or {}), **split_environment(request.environment)}
    env |= {
        "SLURM_PRIO_PROCESS": env.get("SLURM_PRIO_PROCESS", "0"),
        "SLURM_SUBMIT_DIR": request.submit_dir or env.get("SLURM_SUBMIT_DIR", request.work_dir),
        "SLURM_SUBMIT_HOST": order.submit_host or env.get("SLURM_SUBMIT_HOST", ""),
        **LAUNCHER_VARIABLES,
    }
    env |= option_variables(request)
    env |= allocation_variables(order)
    if request.ntasks_per_node and not request.num_tasks_given:
        env["SLURM_NTASKS"] = env["SLURM_NPROCS"] = str(request.ntasks_per_node * len(order.nodes))
    head = order.nodes[0]
    env |= node_variables(order, head)
    env |= {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": head.name,
        "SLURM_TASKS_PER_NODE": tasks_per_node_text(job_task_counts(order)),
        "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_GTIDS": "0",
        "TMPDIR": env.get("TMPDIR", "/tmp"),
    }
    return env | bridge_variables(order)


def gpu_indices(node: NodeShare) -> list[int]:
    """Global indices of the run's GPUs on a node."""
    return sorted(index for name, indices in node.gres.items() if name.split(":")[0] == "gpu" for index in indices)


def _gpus(tres: str | None) -> str | None:
    """``gres/gpu:a100:2`` -> ``a100:2``, as --gpus takes it."""
    if not tres:
        return None
    parts = [part.removeprefix("gres/").partition(":")[2] or "1" for part in tres.split(",")
             if part.removeprefix("gres/").partition(":")[0].partition("=")[0] == "gpu"]
    return ",".join(parts) or None


def _tres_number(tres: str | None) -> str | None:
    """``gres/gpu:4`` -> ``4``."""
    return tres.rpartition(":")[2] if tres else None


def export_filter(env: Mapping[str, str], export: str | None) -> dict[str, str]:
    """What ``srun --export`` lets through: everything, or the named variables next to SLURM_* and SPANK_*."""
    chosen: dict[str, str] = {}
    everything = export is None
    for token in split_quoted(export or ""):
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
        return {**env, **chosen} if export is not None else dict(env)
    return chosen | {name: value for name, value in env.items() if name.startswith(("SLURM", "SPANK_"))}


def split_quoted(text: str) -> list[str]:
    """At commas outside quotes; the quotes go."""
    tokens, token, quote = [], "", ""
    for char in text:
        if quote:
            if char == quote:
                quote = ""
            else:
                token += char
        elif char in "'\"":
            quote = char
        elif char == ",":
            tokens.append(token)
            token = ""
        else:
            token += char
    return [item for item in [*tokens, token] if item]


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


def step_environment(order: RunOrder, base: Mapping[str, str], step: StepFacts) -> dict[str, str]:
    """What all tasks of a step share. ``base``: srun's environment with its options' variables, after --export."""
    nodes = hostlist.compress(step.nodes)
    counts = tasks_per_node_text(step.counts)
    total = str(sum(step.counts))
    job = allocation_variables(order)
    env = dict(base)
    for name, value in job.items():
        if step.owns_allocation or name in _STEP_JOB_VARIABLES:
            env[name] = value
        else:
            env.setdefault(name, value)
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
        env = {name: value for name, value in env.items() if name not in (*GPU_VISIBILITY, "SLURM_STEP_GPUS")}
    return {**env, **bridge_variables(order)}


_STEP_JOB_VARIABLES = frozenset({
    "SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_UID", "SLURM_JOB_USER", "SLURM_JOB_GID",
    "SLURM_JOB_ACCOUNT", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_OOM_KILL_STEP",
    "SLURM_TOPOLOGY_ADDR_PATTERN"})
"""Variables that the node sets in a step whatever srun's environment says."""


def step_node_variables(order: RunOrder, node: NodeShare, step_index: int, tasks: Sequence[int],
                        gpus: Sequence[int]) -> dict[str, str]:
    """What the tasks of one node share. ``step_index``: the node's place in the step."""
    env = node_variables(order, node, gpus)
    if gpus:
        env["SLURM_STEP_GPUS"] = ",".join(map(str, gpus))
    else:
        env = {name: value for name, value in env.items() if name not in GPU_VISIBILITY}
    return env | {"SLURM_NODEID": str(step_index), "SLURM_GTIDS": ",".join(map(str, tasks))}


def task_variables(rank: int, local: int) -> dict[str, str]:
    return {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local)}
