"""A table as text for people, and as csv, JSON and Parquet for other programs."""
from __future__ import annotations

import csv
import io
import json

from slurmbridge.commands.usage_report import Table

FORMATS = ("table", "csv", "json", "parquet")


class WriterMissing(RuntimeError):
    """The library that writes this format is not installed. ``str()`` is one line."""


def write(table: Table, form: str) -> bytes:
    """The whole file. Raises WriterMissing."""
    return {"table": _aligned, "csv": _csv, "json": _json, "parquet": _parquet}[form](table)


def _aligned(table: Table) -> bytes:
    """Columns as wide as their widest cell; numbers to the right."""
    lines = [table.names, *([str(cell) for cell in row] for row in table.rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(table.names))]
    right = [any(isinstance(row[at], int) for row in table.rows) for at in range(len(table.names))]
    text = "".join(
        "  ".join(cell.rjust(width) if to_right else cell.ljust(width)
                  for cell, width, to_right in zip(line, widths, right)).rstrip() + "\n" for line in lines)
    return text.encode("utf-8", "backslashreplace")


def _csv(table: Table) -> bytes:
    """RFC 4180 but for the line ends."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.names)
    writer.writerows(table.rows)
    return out.getvalue().encode("utf-8", "backslashreplace")


def _json(table: Table) -> bytes:
    """A list of objects."""
    rows = [dict(zip(table.names, row)) for row in table.rows]
    return (json.dumps(rows, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def _parquet(table: Table) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise WriterMissing("parquet needs pyarrow (pip install 'slurmbridge[parquet]')") from None
    columns = {}
    for at, name in enumerate(table.names):
        kind = pyarrow.int64() if name == "tres_seconds" else pyarrow.string()
        columns[name] = pyarrow.array([row[at] for row in table.rows], kind)
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()
