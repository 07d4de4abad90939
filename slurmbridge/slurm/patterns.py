"""File name patterns: ``slurm-%j.out``, ``%A_%a.err``, ``out-%4t`` (sbatch(1), srun(1): filename pattern)."""
from __future__ import annotations

NO_TASK = 0xFFFFFFFE
"""%a of a job that is no array task; scontrol really prints this number."""
BATCH = "batch"
_JOB_WIDE = frozenset("AabJjrSsx")
_PER_TASK = frozenset("Nntu")


def expand(pattern: str, *, job_id: int, work_dir: str | None = None, array_job_id: int = 0,
           array_task_id: int = NO_TASK, step: str | int = BATCH, node_name: str = "", node_index: int = 0,
           task_rank: int = 0, user_name: str = "", job_name: str = "", restarts: int = 0, sluid: str = "",
           keep_per_task: bool = False) -> str:
    """The file that ``pattern`` names. Relative names are taken from ``work_dir`` where one is given.

    A number after ``%`` pads numbers with zeros, to ten digits at most. A backslash anywhere switches off every
    replacement and is itself dropped. ``keep_per_task`` leaves %N %n %t %u alone, as srun does before the nodes
    fill them in (they make one file a task).
    """
    prefix = ""
    if work_dir and not pattern.startswith("/"):
        prefix = work_dir if work_dir.endswith("/") else work_dir + "/"
    if "\\" in pattern:
        return prefix + pattern.replace("\\", "")
    if "%" not in pattern:
        return prefix + pattern

    def value(letter: str, width: int) -> str:
        if letter == "A":
            return f"{array_job_id or job_id:0{width}d}"
        if letter == "a":
            return f"{array_task_id:0{width}d}"
        if letter == "b":
            return f"{array_task_id % 10:0{width}d}"
        if letter == "j":
            return f"{job_id:0{width}d}"
        if letter == "J":
            return f"{job_id:0{width}d}" + ("" if step == BATCH else f".{step}")
        if letter == "s":
            return BATCH if step == BATCH else f"{step:0{width}d}" if isinstance(step, int) else step
        if letter == "r":
            return f"{restarts:0{width}d}"
        if letter == "n":
            return f"{node_index:0{width}d}"
        if letter == "t":
            return f"{task_rank:0{width}d}"
        return {"N": node_name, "u": user_name, "x": job_name, "S": sluid}[letter]

    parts, index = [prefix], 0
    while index < len(pattern):
        char = pattern[index]
        if char != "%":
            parts.append(char)
            index += 1
            continue
        end = index + 1
        while end < len(pattern) and "0" <= pattern[end] <= "9":
            end += 1
        letter = pattern[end:end + 1]
        digits = pattern[index + 1:end]
        if letter == "%" and not digits:
            parts.append("%")
        elif letter in _JOB_WIDE or (letter in _PER_TASK and not keep_per_task):
            parts.append(value(letter, min(int(digits), 10) if digits else 0) if letter else "%" + digits)
        else:
            parts.append(pattern[index:end + 1])
        index = end + 1
    return "".join(parts)


def is_per_task(pattern: str | None) -> bool:
    """Whether the pattern makes one file a task or node (srun then lets the nodes open it)."""
    if not pattern or "\\" in pattern:
        return False
    index = pattern.find("%")
    while index >= 0:
        end = index + 1
        while end < len(pattern) and "0" <= pattern[end] <= "9":
            end += 1
        if pattern[end:end + 1] in _PER_TASK and pattern[end:end + 1]:
            return True
        index = pattern.find("%", end + (pattern[end:end + 1] == "%"))
    return False
