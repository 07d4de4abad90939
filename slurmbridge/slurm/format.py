"""The output engine of Slurm's list commands, compiled once and then run over thousands of rows. (columns.py has the
other one.)

**Lists** (squeue, sinfo, sprio): ``-o "%.18i %9P|text"`` and ``-O Name:width,Name:.width,Name:SEP``::

    table = (ListField("JobID", "i", "JOBID", lambda job: str(job.job_id)), …)
    layout = parse_letters("%.18i %9P", table)         # -o
    layout = parse_names("JobID:|,Partition:9", table) # -O (names in any case; default width 20)
    layout.invalid            # the letters/names that are in no table, for the command's error lines
    text = layout.header() + layout.rows(records)      # every line ends in "\\n"

Widths count bytes, as Slurm's do; text that is not UTF-8 is kept with surrogate escapes. Sources: squeue(1), sinfo(1).
"""
from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
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
    key: Callable[[R], Hashable] | None = None        # what the text follows from, where many records share it


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


def _column_texts(key: Callable[[R], Hashable] | None, cell: Callable[[R], str], records: Sequence[R]) -> list[str]:
    if key is None:
        return list(map(cell, records))
    keys = list(map(key, records))
    known = {one: cell(record) for one, record in dict(zip(keys, records)).items()}
    return list(map(known.__getitem__, keys))


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
        found = list(records)
        return self.table(self.texts(found)) if self.columns else "\n" * len(found)

    def texts(self, records: Sequence[R]) -> list[list[str]]:
        """The values by column, for ``table``. The records are not looked at after this."""
        return [_column_texts(column.field.key if column.field else None, cell, records)
                for column, cell in zip(self.columns, self._cells)] if records else []

    def table(self, texts: Sequence[Sequence[str]]) -> str:
        """All lines, each with its newline, of texts by column (a column of literal text takes blank ones)."""
        if not texts:
            return ""
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


def width_of(text: str) -> int:
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
            columns.append(ListColumn(found, width_of(match[2]), match[1] == ".", match[4]))
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
            width = width_of(rest)
            suffix = rest[digits.end():] if digits else rest
        found = by_name.get(name.lower())
        if found is None:
            invalid.append(name)
        columns.append(ListColumn(found, width, right, suffix))
    return ListLayout(columns, invalid)
