"""The output engine of sacct, sacctmgr, sshare, sreport and sstat: names with ``%width``, prefix matched, headers with
dashes, ``+`` where a value is cut, ``-p``/``-P``/``--delimiter``::

    table = (ColumnField("JobID", 12, lambda row: row.id), ColumnField("NCPUS", 10, …, kind="number"), …)
    columns = [pick_column(word, table) for word in split_names("jobid%20,state")]     # UnknownField when it is none
    printer = ColumnPrinter(columns, parsable="" | "p" | "P", delimiter="|", header=True)
    text = printer.header_text() + printer.rows(records)

A negative width is left-justified. ``value`` returns text (``None`` = unset, shown blank). Widths count bytes, as Slurm
counts them. Sources: sacct(1).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from slurmbridge.slurm.format import byte_length, cut_bytes, fit, width_of

R = TypeVar("R")


class UnknownField(ValueError):
    """A column name that is in no table; ``args[0]`` is the name as Slurm's error line shows it."""


@dataclass(frozen=True)
class ColumnField(Generic[R]):
    """One column of sacct and kin.

    ``kind``: ``text`` (cut with ``+``), ``number`` (never cut), ``time`` (a date: cut without ``+``) or ``float``
    (``value`` returns ``repr`` of a double; ``%f``, or ``%e`` where that is too wide). ``at_least``: letters to type.
    """

    name: str
    width: int
    value: Callable[[R], str | None]
    kind: str = "text"
    at_least: int = 1
    aliases: tuple[tuple[str, int], ...] = ()  # further names with the letters that must be typed of each


def split_names(text: str) -> list[str]:
    """The words of a ``-o``/``format=`` list."""
    return [word for word in (part.strip(" \t\n") for part in text.split(",")) if word]


def pick_column(word: str, table: Sequence[ColumnField[R]]) -> ColumnField[R]:
    """The first column whose name (or alias) begins with the word, in any case; ``%N`` sets the width.

    Raises UnknownField.
    """
    name, percent, width_text = word.partition("%")
    typed = name.lower()
    for column in table:
        for known, at_least in ((column.name, column.at_least), *column.aliases):
            if len(typed) >= min(at_least, len(known)) and known.lower().startswith(typed):
                return replace(column, width=width_of(width_text)) if percent else column
    raise UnknownField(name)


def _float_text(text: str, width: int) -> str:
    value = float(text)
    plain = f"{value:>{width}f}"
    if len(plain) <= width:
        return plain
    digits = width
    overflow = len(f"{value:>{width}.{width}e}") - width
    if overflow > 0:
        digits -= overflow
    if digits < 0:                            # C: a negative width justifies left, a negative precision is the default
        return f"{value:<{-digits}e}"
    return f"{value:>{max(digits, 1)}.{digits}e}"


def _column_cell(column: ColumnField[R]) -> Callable[[str | None], str]:
    """The text of a value in its column, with the blank behind it."""
    width, right = abs(column.width), column.width >= 0
    blank = " " * max(width, 1) + " "

    def shown(text: str) -> str:
        if column.kind == "number":
            return text
        if column.kind == "float":
            return _float_text(text, width) if right else _float_text(text, width).strip()
        if byte_length(text) <= width:
            return text
        if column.kind == "time":              # strftime has no room: slurm_make_time_str; words are cut
            return cut_bytes(text, width) if text in ("Unknown", "None", "N/A") else "#" * width
        return cut_bytes(text, width - 1) + "+" if width else ""

    def cell(text: str | None) -> str:
        if text is None:
            return blank if column.kind != "text" or width else " "
        return fit(shown(text), width, right, cut=False) + " "
    return cell


class ColumnPrinter(Generic[R]):
    """Prints rows of columns. ``parsable``: "" (aligned), "p" (a delimiter after each) or "P" (between them)."""

    __slots__ = ("columns", "delimiter", "header", "parsable")

    def __init__(self, columns: Sequence[ColumnField[R]], *, parsable: str = "", delimiter: str = "|",
                 header: bool = True) -> None:
        self.columns = tuple(columns)
        self.parsable = parsable
        self.delimiter = delimiter
        self.header = header

    def header_text(self) -> str:
        """The header: one line, or two with the dashes; "" when not wanted."""
        if not self.header:
            return ""
        if not self.columns:
            return "\n" if self.parsable else "\n\n"
        if self.parsable:
            line = self.delimiter.join(column.name for column in self.columns)
            return line + (self.delimiter if self.parsable == "p" else "") + "\n"
        names = [fit(cut_bytes(c.name, abs(c.width)), abs(c.width), c.width >= 0) + " " for c in self.columns]
        dashes = ["-" * abs(c.width) + " " for c in self.columns]
        return "".join(names) + "\n" + "".join(dashes) + "\n"

    def rows(self, records: Iterable[R]) -> str:
        """All lines, each with its newline."""
        listed = list(records)
        if self.parsable:
            end = (self.delimiter if self.parsable == "p" else "") + "\n"
            if not self.columns:
                return "\n" * len(listed)
            texts = [list(map(_parsable_cell(column), listed)) for column in self.columns]
            return "".join([line + end for line in map(self.delimiter.join, zip(*texts))])
        return self._aligned([list(map(column.value, listed)) for column in self.columns], len(listed))

    def _aligned(self, texts: Sequence[Sequence[str | None]], count: int) -> str:
        """Lines of texts by column. What fits goes by one format; other lines are made cell by cell."""
        spec = "".join([f"{{:{'>' if column.width > 0 else '<'}{abs(column.width)}}} " for column in self.columns])
        length = sum(abs(column.width) + 1 for column in self.columns) + 1
        plain = all(column.width and column.kind != "float" for column in self.columns)
        cells = [_column_cell(column) for column in self.columns]
        if texts and plain and not any(None in column for column in texts):
            lines = list(map((spec + "\n").format, *texts))
            whole = "".join(lines)
            odd = range(count) if not whole.isascii() else [
                place for place, size in enumerate(map(len, lines)) if size != length] if len(
                    whole) != count * length or set(map(len, lines)) != {length} else ()
        else:
            lines, whole, odd = [""] * count, "", range(count)
        for place in odd:
            lines[place] = "".join([cell(column[place]) for cell, column in zip(cells, texts)]) + "\n"
        return "".join(lines) if odd else whole


def _parsable_cell(column: ColumnField[R]) -> Callable[[R], str]:
    value = column.value
    if column.kind == "float":
        return lambda record: "" if (text := value(record)) is None else f"{float(text):f}"
    return lambda record: value(record) or ""
