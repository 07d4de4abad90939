"""The two output engines of Slurm's list commands, compiled once and then run over thousands of rows.

**Lists** (squeue, sinfo, sprio): ``-o "%.18i %9P|text"`` and ``-O Name:width,Name:.width,Name:SEP``::

    table = (ListField("JobID", "i", "JOBID", lambda job: str(job.job_id)), …)
    layout = parse_letters("%.18i %9P", table)         # -o
    layout = parse_names("JobID:|,Partition:9", table) # -O (names in any case; default width 20)
    layout.invalid            # the letters/names that are in no table, for the command's error lines
    text = layout.header() + layout.rows(records)      # every line ends in "\\n"

**Columns** (sacct, sacctmgr, sshare, sreport, sstat): names with ``%width``, prefix matched, headers with dashes, ``+``
where a value is cut, ``-p``/``-P``/``--delimiter``::

    table = (ColumnField("JobID", 12, lambda row: row.id), ColumnField("NCPUS", 10, …, kind="number"), …)
    columns = [pick_column(word, table) for word in split_names("jobid%20,state")]     # UnknownField when it is none
    printer = ColumnPrinter(columns, parsable="" | "p" | "P", delimiter="|", header=True)
    text = printer.header_text() + printer.rows(records)

A negative width is left-justified in columns. ``value`` returns text (``None`` = unset, shown blank). Widths count
bytes, as Slurm's do; text that is not UTF-8 is kept with surrogate escapes. Sources: squeue(1), sinfo(1), sacct(1).
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase, ascii_uppercase
from typing import Generic, TypeVar

R = TypeVar("R")

WIDEST = 1 << 16
"""No field is padded beyond this, whatever a format asks for."""


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def cut_bytes(text: str, width: int) -> str:
    """The first ``width`` bytes of the text."""
    return text[:width] if text.isascii() else _decode(_encode(text)[:width])


def byte_length(text: str) -> int:
    """How many bytes (columns, as Slurm counts them) the text takes."""
    return len(text) if text.isascii() else len(_encode(text))


def fit(text: str, width: int, right: bool = False, cut: bool = True) -> str:
    """The text in a field of ``width`` bytes: cut at its end when longer (``cut``), else padded. Width 0: as it is.

    A negative width prints the text and one blank (what ``-O Name:-1`` does in squeue).
    """
    if width <= 0:
        return text if width == 0 else text + " "
    if text.isascii():
        if cut:
            return text.rjust(width)[:width] if right else text.ljust(width)[:width]
        return text.rjust(width) if right else text.ljust(width)
    raw = _encode(text)
    if cut:
        raw = raw[:width]
    return _decode(raw.rjust(width) if right else raw.ljust(width))


# ---------------------------------------------------------------------------------------------------------- lists


@dataclass(frozen=True)
class ListField(Generic[R]):
    """One field of a list command.

    ``letter`` is "" for fields that only -O knows, ``name`` "" for those that only -o knows. ``cut=False``: a longer
    value runs over its width. ``sized``, when given, is asked instead of ``value`` with the width (sinfo's ``batch*``).
    """

    name: str
    letter: str
    header: str
    value: Callable[[R], str | None]
    cut: bool = True
    sized: Callable[[R, int], str] | None = None
    nullable: bool = False                    # value may be None: "(null)" as C prints it


@dataclass(frozen=True)
class ListColumn(Generic[R]):
    """A field at its place in a format: ``suffix`` is the literal text after it. ``field`` None: literal text only."""

    field: ListField[R] | None
    width: int
    right: bool
    suffix: str


def _cell(column: ListColumn[R]) -> Callable[[R], str]:
    """The text of one column of a record, before any padding."""
    field, width = column.field, column.width
    if field is None:
        return lambda _record: ""
    if field.sized is not None:
        sized = field.sized
        return lambda record: sized(record, width)
    value = field.value
    if field.nullable:
        null = "" if not column.right and 0 < width < 6 else "(null)"     # printf("%.5s", NULL) prints nothing

        def shown(record: R) -> str:
            text = value(record)
            return null if text is None else text
        return shown
    return value                              # type: ignore[return-value]


def _cuts(column: ListColumn[R]) -> bool:
    """Whether a longer value is cut: C's ``%.5s`` cuts on the left-justified side whatever the field wants."""
    return column.field is not None and (column.field.cut or not column.right)


def _template(columns: Sequence[ListColumn[R]]) -> str:
    """The whole line as one format string, right for ASCII values."""
    parts = []
    for column in columns:
        spec = "{}"
        if column.field is None:
            spec = "{:.0}"
        elif column.width < 0:
            spec = "{} "
        elif column.width:
            cut = f".{column.width}" if _cuts(column) else ""
            spec = f"{{:{'>' if column.right else '<'}{column.width}{cut}}}"
        parts.append(spec + column.suffix.replace("{", "{{").replace("}", "}}"))
    return "".join(parts)


class ListLayout(Generic[R]):
    """A compiled ``-o``/``-O`` format. ``invalid``: what the format named and the table has not, in order."""

    __slots__ = ("_cells", "_spec", "columns", "invalid")

    def __init__(self, columns: Sequence[ListColumn[R]], invalid: Sequence[str] = ()) -> None:
        self.columns = tuple(columns)
        self.invalid = tuple(invalid)
        self._cells = tuple(_cell(column) for column in self.columns)
        self._spec = _template(self.columns).format

    def _line(self, texts: Sequence[str]) -> str:
        line = self._spec(*texts)
        if line.isascii():
            return line
        return "".join([(fit(text, c.width, c.right, _cuts(c)) if c.field else "") + c.suffix
                        for text, c in zip(texts, self.columns)])

    def header(self) -> str:
        """The header line with its newline."""
        return self._line([c.field.header if c.field else "" for c in self.columns]) + "\n"

    def row(self, record: R) -> str:
        """One line, without newline."""
        return self._line([cell(record) for cell in self._cells])

    def rows(self, records: Iterable[R]) -> str:
        """All lines, each with its newline."""
        cells, line = self._cells, self._line
        lines = [line([cell(record) for cell in cells]) for record in records]
        return "\n".join(lines) + "\n" if lines else ""

    def table(self, texts: Sequence[Sequence[str]]) -> str:
        """All lines, of texts by column (a column of literal text takes blank ones)."""
        text = "\n".join([*map(self._spec, *texts), ""])
        if text.isascii():
            return text
        return "".join([self._line(row) + "\n" for row in zip(*texts)])

    def resized(self, widths: dict[str, int]) -> ListLayout[R]:
        """The same layout with other widths for the fields of these names (widths that depend on the data)."""
        return ListLayout([replace(c, width=widths[c.field.name]) if c.field and c.field.name in widths else c
                           for c in self.columns], self.invalid)

    def names(self) -> frozenset[str]:
        """Long names of the fields in use."""
        return frozenset(c.field.name for c in self.columns if c.field)


_WIDTH = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+")


def _atoi(text: str) -> int:
    match = _WIDTH.match(text)
    return max(-WIDEST, min(int(match[0][:20]), WIDEST)) if match else 0


_LETTER_TOKEN = re.compile(r"(\.?)([0-9]*)(.)(.*)\Z", re.S)


def parse_letters(text: str, table: Sequence[ListField[R]], *, keep_invalid: bool = True,
                  all_tail: str | None = None) -> ListLayout[R]:
    """A ``-o`` format: ``%[.][width]letter`` with literal text between.

    ``%all`` is every letter there is, with ``|`` between, where ``all_tail`` is given (squeue: "", sinfo: " ", what
    follows each capital). ``keep_invalid``: an unknown specification is printed as it was written (squeue, sinfo) or
    left out (sprio).
    """
    by_letter: dict[str, ListField[R]] = {}
    for entry in table:
        if entry.letter:
            by_letter.setdefault(entry.letter, entry)
    if text.lower() == "%all" and all_tail is not None:
        suffixes = [(letter, "|") for letter in ascii_lowercase]
        suffixes += [(letter, all_tail + ("" if letter == "Z" else "|")) for letter in ascii_uppercase]
        return ListLayout([ListColumn(by_letter[letter], 0, False, suffix)
                           for letter, suffix in suffixes if letter in by_letter])
    prefix, *tokens = text.split("%")
    columns: list[ListColumn[R]] = [ListColumn(None, 0, False, prefix)] if prefix else []
    invalid: list[str] = []
    for token in tokens:
        match = _LETTER_TOKEN.match(token)
        if match is None:                     # "%%", "%" or "%5" at the end
            if token:
                invalid.append("")
                columns.append(ListColumn(None, 0, False, "%" + token))
            continue
        found = by_letter.get(match[3])
        if found is not None:
            columns.append(ListColumn(found, _atoi(match[2]), match[1] == ".", match[4]))
            continue
        invalid.append(match[3])
        if keep_invalid:
            columns.append(ListColumn(None, 0, False, "%" + token))
    return ListLayout(columns, invalid)


def parse_names(text: str, table: Sequence[ListField[R]], default_width: int = 20) -> ListLayout[R]:
    """A ``-O`` format: names in any case, ``Name[:[.]width[suffix]]``, separated by commas.

    Without ``:`` the width is ``default_width``; ``Name:SEP`` (no digits) is width 0 and the literal text SEP.
    """
    by_name: dict[str, ListField[R]] = {}
    for entry in table:
        if entry.name:
            by_name.setdefault(entry.name.lower(), entry)
    columns: list[ListColumn[R]] = []
    invalid: list[str] = []
    for token in text.split(","):
        if not token:
            continue
        name, colon, rest = token.partition(":")
        right, width, suffix = False, default_width, ""
        if colon:
            right = rest.startswith(".")
            rest = rest[1:] if right else rest
            digits = _WIDTH.match(rest)
            width = _atoi(rest)
            suffix = rest[digits.end():] if digits else rest
        found = by_name.get(name.lower())
        if found is None:
            invalid.append(name)
        columns.append(ListColumn(found, width, right, suffix))
    return ListLayout(columns, invalid)


# -------------------------------------------------------------------------------------------------------- columns


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
                return replace(column, width=_atoi(width_text)) if percent else column
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
            return _float_text(text, width)
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
        if self.parsable:
            line = self.delimiter.join(column.name for column in self.columns)
            return line + (self.delimiter if self.parsable == "p" else "") + "\n"
        names = [fit(cut_bytes(c.name, abs(c.width)), abs(c.width), c.width >= 0) + " " for c in self.columns]
        dashes = ["-" * abs(c.width) + " " for c in self.columns]
        return "".join(names) + "\n" + "".join(dashes) + "\n"

    def rows(self, records: Iterable[R]) -> str:
        """All lines, each with its newline."""
        if self.parsable:
            getters = [_parsable_cell(column) for column in self.columns]
            end = (self.delimiter if self.parsable == "p" else "") + "\n"
            return "".join([self.delimiter.join([get(record) for get in getters]) + end for record in records])
        cells = [_column_cell(column) for column in self.columns]
        values = [column.value for column in self.columns]
        plain = all(column.width and column.kind != "float" for column in self.columns)
        whole = "".join([f"{{:{'>' if column.width > 0 else '<'}{abs(column.width)}}} " for column in self.columns])
        spec, length = (whole + "\n").format, sum(abs(column.width) + 1 for column in self.columns) + 1
        lines = []
        for record in records:
            texts = [value(record) for value in values]
            if plain and None not in texts:
                line = spec(*texts)
                if len(line) == length and line.isascii():       # nothing had to be cut
                    lines.append(line)
                    continue
            lines.append("".join([cell(text) for cell, text in zip(cells, texts)]) + "\n")
        return "".join(lines)


def _parsable_cell(column: ColumnField[R]) -> Callable[[R], str]:
    value = column.value
    if column.kind == "float":
        return lambda record: "" if (text := value(record)) is None else f"{float(text):f}"
    return lambda record: value(record) or ""
