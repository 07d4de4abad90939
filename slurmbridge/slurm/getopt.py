"""getopt_long as glibc has it: the same abbreviations, the same texts, the same order of events.

The commands of Slurm are C programs; what ``--ntask=2``, ``-Jtrain`` or ``-o`` at the end of a line mean, and what is
said about it, is glibc's doing. (getopt_long(3); compared with util-linux getopt(1) in the tests.)
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

NO_ARGUMENT, REQUIRED_ARGUMENT, OPTIONAL_ARGUMENT = 0, 1, 2


class LongOption(NamedTuple):
    """A long option. ``key`` is what the parser reports; two names with one key are the same option."""

    name: str
    argument: int
    key: str


class Spelled(Protocol):
    """An option as it is typed."""

    @property
    def name(self) -> str: ...
    @property
    def argument(self) -> int: ...
    @property
    def key(self) -> str: ...


def long_options(words: str) -> list[LongOption]:
    """Long options from a text: ``all:a accounts=:A jobs=?:j hide``. "=" an argument, "=?" perhaps one, then the key
    where it is not the name."""
    found = []
    for word in words.split():
        spelled, _, key = word.partition(":")
        name = spelled.rstrip("=?")
        argument = (NO_ARGUMENT, REQUIRED_ARGUMENT, OPTIONAL_ARGUMENT)[len(spelled) - len(name)]
        found.append(LongOption(name, argument, key or name))
    return found


class OptionTable:
    """The options of one command, prepared once.

    ``short`` is getopt's option string without a leading "+" or "-". ``plugin``: long options of plugins. They
    may be abbreviated where that is no abbreviation of the command's own; where it is one of both, it is ambiguous.
    """

    __slots__ = ("by_name", "long", "plugin", "short")

    def __init__(self, short: str, long: Sequence[LongOption], plugin: Sequence[LongOption] = ()) -> None:
        self.long = tuple(long)
        self.plugin = tuple(plugin)
        self.by_name = {option.name: option for option in reversed((*self.long, *self.plugin))}
        self.short: dict[str, int] = {}
        index = 0
        while index < len(short):
            colons = 0
            while short[index + 1 + colons:index + 2 + colons] == ":" and colons < 2:
                colons += 1
            self.short.setdefault(short[index], colons)
            index += 1 + colons


def completions(options: Iterable[Spelled], query: str) -> str:
    """What ``--autocomplete=QUERY`` prints: the options that contain it, short and long ones."""
    if not query:
        return ""
    letters, names = query[0] == "-" or query[0].isalpha(), len(query) > 1 or query[0].isalpha()
    found = []
    for option in options:
        if letters and len(option.key) == 1 and option.key.isalpha() and query in f"-{option.key}":
            found.append(f"-{option.key}")
        if names and query in f"--{option.name}":
            endings = (("",), ("=",), ("=", " "))[option.argument]
            found += [f"--{option.name}{ending}" for ending in endings]
    return "".join(f"{line}\n" for line in found) + "\n" if found else ""


class Parser:
    """One pass over ``args`` (without the program's name).

    ``next()`` gives (key, argument or None), ("?", None) after a mistake (then ``error`` is the line that glibc
    prints), or None at the end. ``index`` is where the operands begin; with ``permute`` they may stand between the
    options, and ``operands`` has them all.
    """

    __slots__ = ("_args", "_cluster", "_program", "_skipped", "_table", "error", "index")

    def __init__(self, program: str, args: Sequence[str], table: OptionTable, *, permute: bool = False) -> None:
        self._program, self._args, self._table = program, args, table
        self._cluster = ""                    # the rest of "-abc"
        self._skipped: list[str] | None = [] if permute else None
        self.index = 0
        self.error = ""

    @property
    def operands(self) -> list[str]:
        """What is no option, once next() has given None."""
        return (self._skipped or []) + list(self._args[self.index:])

    def next(self) -> tuple[str, str | None] | None:
        self.error = ""
        if self._cluster:
            return self._short()
        args = self._args
        while self.index < len(args):
            word = args[self.index]
            if len(word) < 2 or word[0] != "-":
                if self._skipped is None:
                    return None
                self._skipped.append(word)
                self.index += 1
                continue
            if word == "--":
                self.index += 1
                return None
            if word[1] == "-":
                return self._long(word[2:])
            self._cluster = word[1:]
            return self._short()
        return None

    def _fail(self, text: str) -> tuple[str, None]:
        self.error = f"{self._program}: {text}"
        return "?", None

    def _long(self, word: str) -> tuple[str, str | None]:
        name, equals, value = word.partition("=")
        found = self._table.by_name.get(name)
        if found is None:
            candidates = [option for option in self._table.long if option.name.startswith(name)]
            if len({option[1:] for option in candidates}) < 2:
                candidates += [option for option in self._table.plugin if option.name.startswith(name)]
            if not candidates:
                self.index += 1
                return self._fail(f"unrecognized option '--{word}'")
            found = candidates[0]
            others = [option for option in candidates[1:] if option[1:] != found[1:]]
            if others:
                self.index += 1
                names = " ".join(f"'--{option.name}'" for option in (found, *others))
                return self._fail(f"option '--{word}' is ambiguous; possibilities: {names}")
        self.index += 1
        if equals:
            if found.argument == NO_ARGUMENT:
                return self._fail(f"option '--{found.name}' doesn't allow an argument")
            return found.key, value
        if found.argument == REQUIRED_ARGUMENT:
            if self.index >= len(self._args):
                return self._fail(f"option '--{found.name}' requires an argument")
            self.index += 1
            return found.key, self._args[self.index - 1]
        return found.key, None

    def _short(self) -> tuple[str, str | None]:
        letter, rest = self._cluster[0], self._cluster[1:]
        self._cluster = rest
        colons = self._table.short.get(letter)
        if colons is None:
            if not rest:
                self.index += 1
            shown = letter.encode("utf-8", "surrogateescape")[:1].decode("utf-8", "surrogateescape")
            return self._fail(f"invalid option -- '{shown}'")
        if colons == NO_ARGUMENT:
            if not rest:
                self.index += 1
            return letter, None
        self._cluster = ""
        self.index += 1
        if rest:
            return letter, rest
        if colons == OPTIONAL_ARGUMENT:
            return letter, None
        if self.index >= len(self._args):
            return self._fail(f"option requires an argument -- '{letter}'")
        self.index += 1
        return letter, self._args[self.index - 1]


def parse_all(program: str, args: Sequence[str], table: OptionTable, *,
              permute: bool = False) -> tuple[list[tuple[str, str | None]], list[str], str]:
    """(options, operands, first error line or "") in one go, for commands that need no more."""
    parser = Parser(program, args, table, permute=permute)
    found: list[tuple[str, str | None]] = []
    while (item := parser.next()) is not None:
        if item[0] == "?" and parser.error:
            return found, [], parser.error
        found.append(item)
    return found, parser.operands, ""
