"""Slurm's checks of one submission that need nothing of the cluster's state but its configuration.

Each raises SlurmError with slurmctld's code and no line of its own: where the client has checked the same, it has said
more already (sbatch(1) --gres, --batch, --licenses, --tres-bind, --gpu-freq).
"""
from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from slurmbridge.scheduling.features import parse as parse_features
from slurmbridge.slurm import errors, tres
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.jobspec import JobRequest, with_changes
from slurmbridge.slurm.pyxis import IMAGE, NAME, needs_image
from slurmbridge.translate import gres_check

_BIND = re.compile(r"closest|none|per_task:|single:|map_gpu:|map:|mask_gpu:|mask:", re.IGNORECASE)
_NUMBERS = re.compile(r"\d+(\*\d+)?(,+\d+(\*\d+)?)*,*")
_MASKS = re.compile(r"(0x)?[\da-f]+(\*\d+)?(,+(0x)?[\da-f]+(\*\d+)?)*,*", re.IGNORECASE)
_LICENSE = re.compile(r"([^\s:=]+)(?:[:=](\d{1,9}))?")
_NO_LICENSE = re.compile(r"[^\s:=]*[:=] *[+-]?0+")
_FREQUENCY = re.compile(r"(memory=)?(\d+|low|medium|high|highm1)|verbose")
_OLD_PREFIX = {"map": 8, "mask": 9}           # how much Slurm passes over before the list, whatever the word's length


def without_others_nodes(requests: Sequence[JobRequest]) -> list[JobRequest]:
    """Components of a heterogeneous job: what one names in its node list, the others exclude."""
    named = [request.node_list for request in requests if request.node_list]
    if len(requests) < 2 or not named:
        return list(requests)
    changed = []
    for index, request in enumerate(requests):
        others = [other.node_list for at, other in enumerate(requests) if at != index and other.node_list]
        exclude = ",".join(text for text in (request.exclude, *others) if text)
        changed.append(with_changes(request, exclude=exclude or None))
    return changed


def check_licenses(request: JobRequest, totals: Mapping[str, int]) -> None:
    """``totals``: Licenses of the configuration; what asks for none of a license passes. Raises
    SlurmError(ESLURM_INVALID_LICENSES)."""
    if any(item.partition("=")[0] == "license" for item in (request.tres_per_task or "").split(",")):
        raise SlurmError(errors.ESLURM_INVALID_TRES)           # license/NAME is meant
    text = request.licenses or ""
    wanted = [entry for entry in re.split(r"[|,;]", text) if entry and _NO_LICENSE.fullmatch(entry) is None]
    if "|" in text and set(text) & set(",;("):
        raise SlurmError(errors.ESLURM_INVALID_LICENSES)
    for entry in wanted:
        found = _LICENSE.fullmatch(entry)
        if found is None or int(found[2] or 1) > totals.get(found[1], 0):
            raise SlurmError(errors.ESLURM_INVALID_LICENSES)
    try:
        if any(item.name not in totals for item in tres.items(request.tres_per_task, "license") if item.name):
            raise SlurmError(errors.ESLURM_INVALID_LICENSES)
    except tres.TresError:
        raise SlurmError(errors.ESLURM_INVALID_LICENSES) from None


def asked_licenses(text: str) -> str | None:
    """The licenses that a changed job asks for: none where it asks for 0 of each."""
    wanted = [entry for entry in re.split(r"[|,;]", text) if entry and _NO_LICENSE.fullmatch(entry) is None]
    return text if wanted else None


def check_container(request: JobRequest, engine: str) -> None:
    """Images need an engine that has containers. Raises SlurmError(ESLURMD_CONTAINER_RUNTIME_INVALID)."""
    if engine == "local" and needs_image(request.pyxis):
        option = IMAGE if IMAGE in request.pyxis else NAME
        raise SlurmError(errors.ESLURMD_CONTAINER_RUNTIME_INVALID, details=(
            f"--{option}: this cluster runs jobs as processes of its own machine, without containers",))


def check_gres(request: JobRequest, known: Collection[str], counted: Collection[str]) -> None:
    """Generic resources and TRES; the client's checks of their counts too, which it leaves out when a cluster is named.
    ``known``: GresTypes; ``counted``: AccountingStorageTRES.

    Raises SlurmError.
    """
    if request.clusters:
        _check_counts(request, known, request.num_tasks)
    _check_names(request, counted)


def check_update(request: JobRequest, known: Collection[str], counted: Collection[str]) -> None:
    """The same of a waiting job's request that was changed. Raises SlurmError."""
    if request.tres_per_job or request.tres_per_node or request.tres_per_socket or request.tres_per_task or (
            request.mem_per_tres or request.cpus_per_tres):
        _check_counts(request, known, request.num_tasks or 0)
    _check_names(request, counted)
    texts = (request.tres_per_job, request.tres_per_node, request.tres_per_socket)
    if any(":" in item and not item.startswith("gres/") for text in texts for item in (text or "").split(",")):
        raise SlurmError(errors.ESLURM_INVALID_TRES)


def _check_names(request: JobRequest, counted: Collection[str]) -> None:
    if not _is_binding(request.tres_bind) or not _is_frequency(request.tres_freq):
        raise SlurmError(errors.ESLURM_INVALID_TRES)
    for item in filter(None, (request.tres_per_task or "").split(",")):
        name, _, count = item.replace(":", "=").partition("=")
        kind = name.partition("/")[0]
        if kind not in ("gres", "license") and name not in counted and count != "0":
            raise SlurmError(errors.ESLURM_INVALID_TRES)


def _check_counts(request: JobRequest, known: Collection[str], tasks: int | None) -> None:
    nodes = 1 if request.min_nodes is None else request.min_nodes
    per_node = request.ntasks_per_tres if request.ntasks_per_tres is not None else request.ntasks_per_node
    if tasks is None and per_node is not None:
        tasks = nodes * per_node
    counts = gres_check.Counts(tasks, nodes, request.max_nodes, request.min_cpus or 0, request.cpus_per_task,
                               request.ntasks_per_node, request.ntasks_per_socket, request.ntasks_per_tres,
                               request.sockets_per_node)
    texts = gres_check.Requests(request.cpus_per_tres, request.mem_per_tres, request.tres_freq, request.tres_per_job,
                                request.tres_per_node, request.tres_per_socket, request.tres_per_task)
    try:
        gres_check.check(texts, counts, known, lambda line: None)
    except gres_check.GresRefused as refused:
        raise SlurmError(refused.code) from None


def _is_binding(text: str | None) -> bool:
    """``gres/gpu:closest+gres/nic:single:1``."""
    for token in filter(None, (text or "").split("+")):
        name, colon, how = token.partition(":")
        if not colon or not name.startswith("gres/"):
            return False
        how = how[8:] if how[:8].lower() == "verbose," else how
        found = _BIND.match(how)
        if found is None or (name in ("gres/mps", "gres/shard") and found[0].lower() not in ("none", "per_task:")):
            return False
        word = found[0].partition(":")[0].partition("_gpu")[0].lower()
        rest = how[_OLD_PREFIX[word]:] if word in _OLD_PREFIX else ""
        if rest and not (_MASKS if word == "mask" else _NUMBERS).fullmatch(rest):
            return False
        if found[0].endswith(":") and word in ("per_task", "single") and how[found.end():][:1] == "-":
            return False
    return True


def _is_frequency(text: str | None) -> bool:
    """``gpu:high,memory=low,verbose``."""
    for token in filter(None, (text or "").split(";")):
        name, _, values = token.partition(":")
        if name != "gpu" or not values or not all(_FREQUENCY.fullmatch(value) for value in values.split(",") if value):
            return False
    return True


def check_batch_features(request: JobRequest) -> None:
    """--batch names features of --constraint and, where it is given, of --prefer. Raises SlurmError."""
    if not request.batch_features:
        return
    if not request.constraint and not request.prefer:
        raise SlurmError(errors.ESLURM_BATCH_CONSTRAINT)
    wanted = [word for word in re.split(r"[&|]", request.batch_features) if word]
    either = "|" in request.batch_features
    for text in (request.constraint, request.prefer):
        if not text:
            continue
        named = {feature.name for feature in parse_features(text)}
        if not all(word in named for word in wanted) and not (either and wanted[0] in named):
            raise SlurmError(errors.ESLURM_BATCH_CONSTRAINT)
