"""The lines of slurm.conf and gres.conf that describe nodes: NodeName, NodeSet, DownNodes, and device files.

Pairs in, typed records out; ``NodeName=DEFAULT`` lines are kept by the caller. Counts that cannot be are corrected as
slurmctld corrects them, each with a note. (slurm.conf(5) NODE CONFIGURATION, gres.conf(5).)
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from slurmbridge.slurm import conf_values as values
from slurmbridge.slurm.conf_lines import ConfEntry
from slurmbridge.slurm.hostlist import HostlistError, expand
from slurmbridge.slurm.settings import NodeLine, SlurmConf

Note = Callable[[str], None]
STATES = frozenset({"UNKNOWN", "DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE", "CLOUD", "EXTERNAL", "IDLE"})
DOWN_STATES = frozenset({"DOWN", "DRAIN", "FAIL", "FAILING", "UNKNOWN"})


def host_names(entry: ConfEntry, key: str, text: str) -> list[str]:
    """Expands a hostlist. Raises ConfError."""
    try:
        names = expand(text)
    except HostlistError:
        names = []
    if not names:
        raise entry.error(f"{key}={text} is no host list")
    return names


def _count(entry: ConfEntry, given: Mapping[str, str], key: str, default: int, kind: str = "u16") -> int:
    if key not in given:
        return default
    try:
        found = values.number(key, given[key], kind)
    except ValueError as error:
        raise entry.error(str(error)) from None
    return 0xFFFF if found == values.UNLIMITED else found


def _at_least_one(given: int, key: str, note: Note) -> int:
    if given:
        return given
    note(f"{key}=0 is invalid, taken as 1")
    return 1


def _shape(entry: ConfEntry, given: Mapping[str, str], note: Note) -> dict[str, int]:
    """CPUs, boards, sockets, cores and threads of a node line, as far as given, the rest inferred."""
    cores = _at_least_one(_count(entry, given, "CoresPerSocket", 1), "CoresPerSocket", note)
    threads = _at_least_one(_count(entry, given, "ThreadsPerCore", 1), "ThreadsPerCore", note)
    boards = _at_least_one(_count(entry, given, "Boards", 1), "Boards", note)
    cpu_key = "CPUs" if "CPUs" in given else "Procs"
    cpus = _at_least_one(_count(entry, given, cpu_key, 1), "CPUs", note)
    has_cpus = cpu_key in given
    if "SocketsPerBoard" in given:
        if "Sockets" in given:
            note("Sockets and SocketsPerBoard exclude each other, SocketsPerBoard is taken")
        sockets = boards * _at_least_one(_count(entry, given, "SocketsPerBoard", 1), "SocketsPerBoard", note)
    elif "Sockets" in given:
        sockets = _at_least_one(_count(entry, given, "Sockets", 1), "Sockets", note)
    elif has_cpus and cpus % (cores * threads) == 0:
        sockets = cpus // (cores * threads)
    else:
        sockets = boards
    full = sockets * cores * threads
    if not has_cpus:
        cpus = full
    if sockets < boards:
        note(f"Sockets({sockets}) < Boards({boards}), Boards taken as 1")
        boards = 1
    if cpus not in (sockets, sockets * cores, full):
        note(f"CPUs={cpus} matches neither Sockets nor cores nor threads, taken as {full}")
        cpus = full
    return {"cpus": cpus, "boards": boards, "sockets": sockets, "cores_per_socket": cores, "threads_per_core": threads}


def _spread(entry: ConfEntry, key: str, text: str, names: list[str]) -> list[str]:
    """One value a node: as many as there are nodes, or one for all."""
    found = host_names(entry, key, text)
    if len(found) == 1:
        return found * len(names)
    if len(found) != len(names):
        raise entry.error(f"{key}={text} names {len(found)}, NodeName={entry.value} {len(names)}")
    return found


def _ports(entry: ConfEntry, text: str, names: list[str]) -> list[int]:
    ports = _spread(entry, "Port", text, names)
    try:
        return [values.number("Port", port, "u16") for port in ports]
    except ValueError as error:
        raise entry.error(str(error)) from None


def node_lines(entry: ConfEntry, given: Mapping[str, str], note: Note, default_port: int) -> list[NodeLine]:
    """The nodes of one NodeName line. ``given``: its pairs over those of NodeName=DEFAULT. Raises ConfError."""
    names = host_names(entry, "NodeName", entry.value)
    shape = _shape(entry, given, note)
    core_spec = _count(entry, given, "CoreSpecCount", 0)
    if core_spec and core_spec >= shape["sockets"] * shape["cores_per_socket"]:
        note(f"CoreSpecCount={core_spec} is invalid, taken as 1")
        core_spec = 1
    if core_spec and given.get("CPUSpecList"):
        note("CoreSpecCount excludes CPUSpecList, taken as 0")
        core_spec = 0
    memory = _count(entry, given, "RealMemory", 1, "u64")
    mem_spec = _count(entry, given, "MemSpecLimit", 0, "u64")
    if mem_spec and mem_spec >= memory:
        note(f"MemSpecLimit={mem_spec} is invalid, taken as 0")
        mem_spec = 0
    state = given.get("State", "UNKNOWN").upper()
    if state not in STATES:
        raise entry.error(f'Bad value "{given["State"]}" for State')
    hosts = _spread(entry, "NodeHostname", given["NodeHostname"], names) if "NodeHostname" in given else names
    addresses = _spread(entry, "NodeAddr", given["NodeAddr"], names) if "NodeAddr" in given else hosts
    ports = _ports(entry, given["Port"], names) if "Port" in given else [default_port] * len(names)
    features = given.get("Features", "") if "Feature" not in given else given["Feature"]
    gres_text = given.get("Gres", "")
    gres = values.gres_counts(gres_text)
    tmp_disk, weight = _count(entry, given, "TmpDisk", 0, "u32"), _count(entry, given, "Weight", 1, "u32")
    return [NodeLine(
        name=name, host_name=host, address=address, port=port, **shape, real_memory_mb=memory, tmp_disk_mb=tmp_disk,
        weight=weight, features=tuple(word.strip() for word in features.split(",") if word.strip()),
        gres_text=gres_text, gres=dict(gres), state=state, reason=given.get("Reason", ""), mem_spec_limit_mb=mem_spec,
        core_spec_count=core_spec, cpu_spec_list=given.get("CPUSpecList", ""))
        for name, host, address, port in zip(names, hosts, addresses, ports)]


def down_nodes(entry: ConfEntry, given: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(node, state, reason) of one DownNodes line. Raises ConfError."""
    state = given.get("State", "DOWN").upper()
    if state not in DOWN_STATES:
        raise entry.error(f'Bad value "{given["State"]}" for State')
    return [(name, state, given.get("Reason", "")) for name in host_names(entry, "DownNodes", entry.value)]


def add_gres_line(conf: SlurmConf, entry: ConfEntry, given: Mapping[str, str], note: Note) -> None:
    """One line of gres.conf: the device files of a GRES, on the nodes it names or on all. Raises ConfError."""
    if "AutoDetect" in given and given["AutoDetect"].lower() != "off":
        note(f"AutoDetect={given['AutoDetect']} is ignored: devices are what Gres= and File= say")
    if "Name" not in given:
        return
    name = ":".join(part for part in (given["Name"], given.get("Type", "")) if part)
    files: tuple[str, ...] = ()
    for key in ("File", "Files", "MultipleFiles"):
        if key in given:
            files = tuple(host_names(entry, key, given[key]))
    nodes = host_names(entry, "NodeName", given["NodeName"]) if "NodeName" in given else list(conf.nodes)
    for node in nodes:
        line = conf.nodes.get(node)
        if line is None:
            note(f"NodeName={node} is no node of slurm.conf")
            continue
        if "NodeName" not in given and not _has_gres(line, given["Name"]):
            continue
        devices = conf.gres_devices.setdefault(node, {})
        devices[name] = devices.get(name, ()) + files


def _has_gres(line: NodeLine, name: str) -> bool:
    return any(gres.partition(":")[0] == name for gres in line.gres)


def type_untyped_gres(conf: SlurmConf) -> None:
    """``Gres=gpu:4`` whose four devices gres.conf gives types: the node has the typed counts."""
    for node, devices in conf.gres_devices.items():
        line = conf.nodes[node]
        for name in [gres for gres in line.gres if ":" not in gres]:
            typed = {full: len(files) for full, files in devices.items() if full.startswith(name + ":") and files}
            if typed and sum(typed.values()) == line.gres[name]:
                del line.gres[name]
                line.gres.update(typed)
