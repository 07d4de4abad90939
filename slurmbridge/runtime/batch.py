"""The batch script's process: its files, its environment, its start."""
from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from slurmbridge.runtime import environment, execution
from slurmbridge.runtime.order import RunOrder
from slurmbridge.slurm import patterns

IO_FAILURE_STATUS = 53
"""The wait status under which a job ends whose files cannot be opened (sacct shows 0:53)."""


class CannotOpen(OSError):
    """A standard file of the job cannot be opened."""


@dataclass(slots=True)
class BatchFiles:
    stdin_fd: int
    stdout_fd: int
    stderr_fd: int

    def close(self) -> None:
        for fd in {self.stdin_fd, self.stdout_fd, self.stderr_fd}:
            with contextlib.suppress(OSError):
                os.close(fd)


def file_name(pattern: str, order: RunOrder) -> str:
    """Absolute name of a batch file pattern."""
    is_task = order.array_task_id is not None
    return patterns.expand(
        pattern, job_id=order.job_id, work_dir=order.request.work_dir,
        array_job_id=order.array_job_id if is_task else 0,
        array_task_id=order.array_task_id if order.array_task_id is not None else patterns.NO_TASK,
        node_name=order.nodes[0].name, user_name=order.user_name, job_name=order.name, restarts=order.restart)


def open_files(order: RunOrder, log_fd: int | None = None) -> BatchFiles:
    """Opens with this process's rights and the job's umask. Raises CannotOpen.

    ``log_fd`` takes output whose folder does not exist here.
    """
    request = order.request
    append = request.open_mode == "append" or (
        request.open_mode is None and order.settings.get("JobFileAppend", "0") == "1")
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | (0 if append else os.O_TRUNC)
    out_name = output_name(order)
    err_name = file_name(request.std_err, order) if request.std_err else out_name
    in_name = file_name(request.std_in, order) if request.std_in else "/dev/null"
    opened: list[int] = []
    old_umask = os.umask(request.umask)
    try:
        opened.append(os.open(in_name, os.O_RDONLY))
        opened.append(_open_output(out_name, flags, log_fd))
        opened.append(opened[1] if err_name == out_name else _open_output(err_name, flags, log_fd))
    except OSError as error:
        for fd in opened:
            os.close(fd)
        raise CannotOpen(error.errno, error.strerror, error.filename) from None
    finally:
        os.umask(old_umask)
    return BatchFiles(*opened)


def output_name(order: RunOrder) -> str:
    """Where the script's standard output goes."""
    default = "slurm-%A_%a.out" if order.array_task_id is not None else "slurm-%j.out"
    return file_name(order.request.std_out or default, order)


def goes_to_log(order: RunOrder, log_fd: int | None) -> bool:
    """Whether the script's output goes to ``log_fd`` for want of its folder."""
    return log_fd is not None and not os.path.isdir(os.path.dirname(output_name(order)))


def _open_output(name: str, flags: int, log_fd: int | None) -> int:
    if log_fd is not None and not os.path.isdir(os.path.dirname(name)):
        return os.dup(log_fd)
    return os.open(name, flags, 0o666)


def start_script(order: RunOrder, script: str, files: BatchFiles, login: dict[str, str] | None = None,
                 cgroup: str = "") -> int:
    """The pid of the started script. ``login``: the environment below the job's own. Raises OSError on no fork."""
    request = order.request
    if not os.path.isdir(request.work_dir) or not os.access(request.work_dir, os.X_OK, effective_ids=True):
        execution.enter_directory(request.work_dir, files.stderr_fd)
    return execution.start(execution.Command(
        path=script, argv=[script, *request.script_args],
        env=execution.encoded(environment.batch_environment(order, login)), cwd=request.work_dir,
        umask=request.umask, rlimits=request.rlimits,
        stdin_fd=files.stdin_fd, stdout_fd=files.stdout_fd, stderr_fd=files.stderr_fd, cgroup=cgroup))
