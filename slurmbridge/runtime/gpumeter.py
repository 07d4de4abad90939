"""What processes use of GPUs, from programs that can tell: nvidia-smi by process, a DCGM exporter by device.

``SLURMBRIDGE_GPU_METER`` in the daemons' environment names the source: the exporter's ``http://host:port/path``, or a
program that prints what ``nvidia-smi pmon`` prints; without it nvidia-smi is taken where it is installed.
"""
from __future__ import annotations

import asyncio
import os
import re
import shutil
from dataclasses import dataclass
from typing import Protocol

from slurmbridge.runtime import helpers
from slurmbridge.runtime.children import Children

VARIABLE = "SLURMBRIDGE_GPU_METER"
TIMEOUT_S = 5.0
_SERIES = re.compile(r"(?P<name>DCGM_FI_DEV_(?:GPU_UTIL|FB_USED))\{(?P<labels>[^}]*)\} +(?P<value>[0-9.eE+]+)")
_GPU_LABEL = re.compile(r'(?:^|,) *gpu="(\d+)"')


@dataclass(frozen=True, slots=True)
class GpuUse:
    util_percent: int = 0
    mem_bytes: int = 0

    def __add__(self, other: GpuUse) -> GpuUse:
        return GpuUse(self.util_percent + other.util_percent, self.mem_bytes + other.mem_bytes)


Reading = tuple[dict[int, GpuUse], dict[int, GpuUse]]
"""Use by process id, and use by device index where only that is known."""


class GpuMeter(Protocol):
    async def read(self) -> Reading:
        """Never raises: nothing is known where the source does not answer."""
        ...


def by_process(text: str) -> dict[int, GpuUse]:
    """``nvidia-smi pmon -c 1 -s um``: a process that uses several devices counts as their sum."""
    columns: list[str] = []
    found: dict[int, GpuUse] = {}
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            columns = columns or words[1:]
            continue
        row = dict(zip(columns, words))
        if row.get("pid", "-").isdigit():
            use = GpuUse(_count(row.get("sm")), _count(row.get("fb")) << 20)
            found[int(row["pid"])] = found.get(int(row["pid"]), GpuUse()) + use
    return found


def by_device(text: str) -> dict[int, GpuUse]:
    """A DCGM exporter's page (Prometheus text)."""
    found: dict[int, GpuUse] = {}
    for match in _SERIES.finditer(text):
        label = _GPU_LABEL.search(match["labels"])
        if label is not None:
            value = int(float(match["value"]))
            use = GpuUse(value, 0) if match["name"].endswith("UTIL") else GpuUse(0, value << 20)
            found[int(label[1])] = found.get(int(label[1]), GpuUse()) + use
    return found


def _count(word: str | None) -> int:
    return int(word) if word is not None and word.isdigit() else 0


class Pmon:
    """``program`` prints processes as nvidia-smi does."""

    def __init__(self, children: Children, program: str) -> None:
        self._children, self._program = children, program

    async def read(self) -> Reading:
        try:
            status, out, _ = await helpers.capture(self._children, [self._program, "pmon", "-c", "1", "-s", "um"],
                                                   dict(os.environ), "/", TIMEOUT_S)
        except OSError:
            return {}, {}
        return (by_process(out.decode(errors="replace")) if status == 0 else {}), {}


class DcgmExporter:
    def __init__(self, url: str) -> None:
        host, _, self._path = url.removeprefix("http://").partition("/")
        self._host, _, port = host.partition(":")
        self._port = int(port or 9400)

    async def read(self) -> Reading:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                writer.write(f"GET /{self._path} HTTP/1.0\r\nHost: {self._host}\r\n\r\n".encode())
                text = await reader.read()
                writer.close()
        except (OSError, TimeoutError):
            return {}, {}
        return {}, by_device(text.decode(errors="replace"))


def meter_of(children: Children) -> GpuMeter | None:
    """None where nothing can tell."""
    source = os.environ.get(VARIABLE) or shutil.which("nvidia-smi")
    if not source:
        return None
    return DcgmExporter(source) if source.startswith("http://") else Pmon(children, source)
