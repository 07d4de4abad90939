"""sstat's fields: names and widths in --helpformat's order, and the text of each for a step that runs."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slurmbridge.commands.sacct_rows import Stats
from slurmbridge.slurm import durations, hostlist, memory
from slurmbridge.slurm.columns import ColumnField

_NO_COUNT_MS = 0xFFFFFFFFFFFFFFFF
"""What stands for the CPU time of a step that is not measured; Slurm prints it like any other."""
_WIDTHS = {"AveDiskRead": 12, "AveDiskWrite": 12, "MaxDiskReadNode": 15, "MaxDiskReadTask": 15, "MaxDiskWriteNode": 16,
           "MaxDiskWriteTask": 16, "MaxPagesNode": 12, "MaxPagesTask": 14, "MaxVMSizeNode": 14, "MaxVMSizeTask": 14}


@dataclass(frozen=True, slots=True)
class LiveStep:
    """``pids``: processes by node."""

    name: str
    tres: Mapping[str, int]
    nodes: Sequence[str]
    num_tasks: int
    pids: Mapping[str, Sequence[int]]
    cpu_khz: int
    stats: Stats
    special: bool

    def nodes_apart(self) -> Iterator[LiveStep]:
        """One row a node (--pidformat)."""
        for node in self.nodes:
            yield replace(self, nodes=(node,), pids={node: self.pids.get(node, ())})


Field = ColumnField[LiveStep]


def fields(*, keep_units: bool) -> tuple[Field, ...]:
    """All of them."""
    def unit(number: float, base: str = "", *, exact: bool = True, divisor: int = 1024) -> str:
        return memory.with_unit(number, base, exact=exact, divisor=divisor, wanted="", keep=keep_units)

    def count(name: str, counts: str, tres: str, width: int) -> Field:
        def text(step: LiveStep) -> str | None:
            value = getattr(step.stats, counts).get(tres)
            if tres == "cpu":
                if value is None and counts == "in_ave":
                    value = _NO_COUNT_MS
                return None if value is None else durations.format_seconds(value // 1000)
            if tres == "fs/disk" and value is not None and 0 <= value <= 1:
                return "1.00M" if value else "0"               # as Slurm: a single byte counts as a megabyte
            return None if value is None else unit(value)
        return Field(name, width, text)

    def place(name: str, counts: str, tres: str, width: int, kind: str = "text") -> Field:
        def text(step: LiveStep) -> str | None:
            value = getattr(step.stats, counts).get(tres)
            return None if value is None else str(value)
        return Field(name, width, text, kind)

    def extreme(label: str, way: str, which: str, tres: str, width: int) -> list[Field]:
        return [count(label, f"{way}_{which}", tres, width),
                place(f"{label}Node", f"{way}_{which}_node", tres, _WIDTHS.get(f"{label}Node", 10)),
                place(f"{label}Task", f"{way}_{which}_task", tres, _WIDTHS.get(f"{label}Task", 10), "number")]

    def usage(name: str, counts: str, width: int) -> Field:
        def one(tres: str, value: int) -> str:
            if tres == "cpu":
                return durations.format_seconds(value // 1000)
            return str(value) if tres == "gres/gpuutil" else unit(value)
        return Field(name, width, lambda step: ",".join(sorted(
            f"{tres}={one(tres, value)}" for tres, value in getattr(step.stats, counts).items())))

    def usage_at(name: str, counts: str, width: int) -> Field:
        return Field(name, width, lambda step: ",".join(sorted(
            f"{tres}={value}" for tres, value in getattr(step.stats, counts).items())))

    def all_usage(label: str, way: str, width: int) -> list[Field]:
        return [usage(f"{label}Ave", f"{way}_ave", width),
                *(made for title, which in (("Max", "max"), ("Min", "min")) for made in (
                    usage(f"{label}{title}", f"{way}_{which}", width),
                    usage_at(f"{label}{title}Node", f"{way}_{which}_node", width + 4),
                    usage_at(f"{label}{title}Task", f"{way}_{which}_task", width + 4))),
                usage(f"{label}Tot", f"{way}_tot", width)]

    def tres_text(step: LiveStep) -> str:
        return ",".join(sorted(f"{name}={unit(value, 'M') if name == 'mem' else value}"
                               for name, value in step.tres.items() if value))

    def frequency(name: str, width: int) -> Field:
        return Field(name, width, lambda step: "0" if step.special else "Unknown")

    return (
        Field("AllocTRES", 10, tres_text), count("AveCPU", "in_ave", "cpu", 10),
        Field("AveCPUFreq", 10, lambda step: unit(step.cpu_khz, "K", exact=False, divisor=1000)),
        count("AveDiskRead", "in_ave", "fs/disk", 12), count("AveDiskWrite", "out_ave", "fs/disk", 12),
        count("AvePages", "in_ave", "pages", 10), count("AveRSS", "in_ave", "mem", 10),
        count("AveVMSize", "in_ave", "vmem", 10), Field("ConsumedEnergy", 14, lambda _step: "0"),
        Field("ConsumedEnergyRaw", 17, lambda _step: "0", "number"), Field("JobID", -12, lambda step: step.name),
        *extreme("MaxDiskRead", "in", "max", "fs/disk", 12), *extreme("MaxDiskWrite", "out", "max", "fs/disk", 12),
        *extreme("MaxPages", "in", "max", "pages", 8), *extreme("MaxRSS", "in", "max", "mem", 10),
        *extreme("MaxVMSize", "in", "max", "vmem", 10), *extreme("MinCPU", "in", "min", "cpu", 10),
        Field("Nodelist", 20, lambda step: hostlist.compress(step.nodes, sort=True)),
        Field("NTasks", 8, lambda step: str(step.num_tasks), "number"),
        Field("Pids", 20, lambda step: ",".join(str(pid) for node in step.nodes for pid in step.pids.get(node, ()))),
        frequency("ReqCPUFreq", 10), frequency("ReqCPUFreqMin", 13), frequency("ReqCPUFreqMax", 13),
        frequency("ReqCPUFreqGov", 13), *all_usage("TRESUsageIn", "in", 14), *all_usage("TRESUsageOut", "out", 15))


