"""The options of one invocation while it is being read: values, who set them, and what they look like when printed.

sbatch reads its command line, the script's directives, the environment and the command line again into one of these;
salloc and srun read environment and command line. Setters log like Slurm's and end the client by ClientExit.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import cache
from typing import Any

from slurmbridge.slurm import memory, words
from slurmbridge.slurm.options import Option, options_of
from slurmbridge.slurm.zones import Zone

EXIT_MINUS_ONE = 255
QUIET, FATAL, ERROR, INFO, VERBOSE = range(5)


class ClientExit(Exception):
    """The client ends: ``code`` is its exit status, ``stdout`` what it prints before."""

    def __init__(self, code: int, stdout: str = "") -> None:
        self.code, self.stdout = code, stdout
        super().__init__(code)


class Log:
    """The client's standard error, with Slurm's prefixes and levels."""

    def __init__(self, program: str) -> None:
        self.program, self.level, self.lines = program, INFO, list[str]()

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def raw(self, line: str) -> None:
        self.lines.append(line + "\n")

    def error(self, text: str) -> None:
        if self.level >= ERROR:
            self.raw(f"{self.program}: error: {text}")

    def info(self, text: str, level: int = INFO) -> None:
        if self.level >= level:
            self.raw(f"{self.program}: {text}")

    def warning(self, text: str) -> None:
        self.info(f"warning: {text}")

    def fatal(self, text: str) -> ClientExit:
        """To be raised."""
        if self.level >= FATAL:
            self.raw(f"{self.program}: fatal: {text}")
        return ClientExit(1)


class Caller:
    """What the client's process knows: environment (it may change it), directory, clock, user, configuration."""

    __slots__ = ("conf", "cwd", "env", "gid_of", "now_s", "uid", "uid_of", "zone")

    def __init__(self, env: MutableMapping[str, str], cwd: str, now_s: float, uid: int,
                 conf: Mapping[str, str] | None = None, uid_of: Callable[[str], int | None] | None = None,
                 gid_of: Callable[[str], int | None] | None = None) -> None:
        self.env, self.cwd, self.now_s, self.uid = env, cwd, now_s, uid
        self.conf: Mapping[str, str] = conf or {}
        self.uid_of, self.gid_of = uid_of or _number, gid_of or _number
        self.zone = Zone.of(env)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


class OptionSet:
    """Values by field name (``opts["min_nodes"]``); see options.OPTIONS for the fields."""

    def __init__(self, command: str, caller: Caller, log: Log) -> None:
        self.command, self.caller, self.log = command, caller, log
        self.options = options_of(command)
        self.values: dict[str, Any] = {}
        self.given: set[str] = set()          # option names that were set, however
        self.by_env: set[str] = set()         # … and marked as coming from the environment
        self.node_sizes: tuple[int, ...] = ()
        self.argv: list[str] = []             # script or command with its arguments
        self.submit_line = ""
        self.parsed: dict[str, str | None] = {}   # shown() before the checks, where a client keeps it
        self.verbose_by_env = self.verbose_by_cli = False
        self.reset_all(first=True)

    def __getitem__(self, field: str) -> Any:
        return self.values[field]

    def __setitem__(self, field: str, value: Any) -> None:
        self.values[field] = value

    # -- who set what

    def is_set(self, name: str) -> bool:
        return name in self.given

    def by_cli(self, name: str) -> bool:
        """Set, and not (last) by the environment. Directives of a script count as command line."""
        return name in self.given and name not in self.by_env

    def from_env(self, name: str) -> bool:
        return name in self.by_env

    def _entry(self, key: str) -> Option:
        return self.options[key]

    def copy(self) -> OptionSet:
        """A snapshot that later options leave alone."""
        other = OptionSet(self.command, self.caller, self.log)
        other.values, other.given, other.by_env = dict(self.values), set(self.given), set(self.by_env)
        other.node_sizes, other.argv = self.node_sizes, list(self.argv)
        other.submit_line, other.parsed = self.submit_line, dict(self.parsed)
        return other

    def reset(self, key: str) -> None:
        option = self._entry(key)
        self._restore(option)
        self.given.discard(option.name or option.key)

    def _restore(self, option: Option) -> None:
        for field, default in option.fields:
            self.values[field] = default
        if option.kind == "chdir" and self.command != "salloc":
            self._follow_cwd()

    def _follow_cwd(self) -> None:
        if self.caller.cwd == ".":            # the client has none
            self.log.error("getcwd failed: No such file or directory")
            raise ClientExit(EXIT_MINUS_ONE)
        self.values["chdir"] = self.caller.cwd

    def reset_all(self, *, first: bool) -> None:
        """Defaults; for a further het component only of the options that each component has for itself."""
        names, values, follow_cwd = _defaults(self.command, first)
        self.values.update(values)
        self.given -= names
        if follow_cwd:
            self._follow_cwd()

    # -- setting

    def process(self, key: str, argument: str | None, *, by_env: bool, early: bool = False) -> None:
        """One option as getopt or the environment gives it. Raises ClientExit."""
        if key == "?":
            self.log.raw(f'Try "{self.command} --help" for more information')
            raise ClientExit(EXIT_MINUS_ONE)
        option = self.options[key]
        if not by_env and self.command != "salloc":
            is_early = bool(option.early) and option.early == {"sbatch": "B", "srun": "R"}[self.command]
            if is_early != early:
                return
        name = option.name or option.key
        if argument is not None:
            if option.argument == 0 and not _is_true(argument):
                self._restore(option)
                self.given.discard(name)
                self.by_env.discard(name)
                return
            if option.argument == 2 and argument == "":
                argument = None
        from slurmbridge.slurm.setters import SETTERS
        setter = SETTERS.get(option.kind)
        if setter is None:                    # plain text
            self.values[option.fields[0][0]] = argument
        elif not setter(self, option, argument):
            raise ClientExit(EXIT_MINUS_ONE)
        self.given.add(name)
        if by_env:
            self.by_env.add(name)
        else:
            self.by_env.discard(name)

    def integer(self, label: str, text: str | None, *, positive: bool) -> int:
        """parse_int of Slurm's clients: the client exits 1 where it is none."""
        parsed = memory.leading_int(text) if text is not None else None
        number = parsed[0] if parsed else 0
        if text is None or (parsed[1] if parsed else text) or number < 0 or (positive and number <= 0):
            self.log.error(f'Invalid numeric value "{text}" for {label}.')
            raise ClientExit(1)
        if number >= words.MAX_INT:
            shown = min(number, memory.MAX_INT64)
            self.log.error(f"Numeric argument ({shown}) too large for {label}.")
            raise ClientExit(1)
        return number

    def invalid(self, option: Option) -> bool:
        self.log.error(f"Invalid {option.label} specification")
        return False

    # -- printing

    def shown(self) -> dict[str, str | None]:
        """name -> value of every option that is set, as ``sbatch -v`` and cli_filter show them."""
        from slurmbridge.slurm.option_texts import text_of
        return {option.name: text_of(self, option) for option in _in_order(self.options) if option.name in self.given}


@cache
def _defaults(command: str, everything: bool) -> tuple[frozenset[str], dict[str, Any], bool]:
    """Names and default values of all options or of those that each component has for itself; whether chdir, which
    defaults to the caller's directory, is one of them."""
    options = [option for option in options_of(command).values() if everything or option.each_component]
    values = {field: default for option in options for field, default in option.fields}
    follow_cwd = command != "salloc" and any(option.kind == "chdir" for option in options)
    return frozenset(option.name or option.key for option in options), values, follow_cwd


def _in_order(options: Mapping[str, Option]) -> list[Option]:
    return [option for option in options.values() if option.name]


def _is_true(text: str) -> bool:
    if text == "" or text.lower() == "yes":
        return True
    parsed = memory.leading_int(text)
    return parsed is not None and parsed[0] != 0 and parsed[1] == ""
