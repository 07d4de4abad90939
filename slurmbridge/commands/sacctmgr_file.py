"""Lines of a sacctmgr file: ``User - 'alice':Fairshare=5:QOS='normal,low'`` as name and settings."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from slurmbridge.commands.sacctmgr_limits import set_association, set_qos
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.commands.sacctmgr_users import admin_level
from slurmbridge.commands.sacctmgr_words import Settings, name_list, refuse_operator, split_word, strip_quotes


class QuoteProblem(Exception):
    """A quote that is never closed: the whole command ends."""


@dataclass(slots=True)
class FileLine:
    """A Cluster, Parent, Account or User line."""

    name: str = ""
    admin_level: str | None = None
    coordinator_of: list[str] = field(default_factory=list)
    default_account: str = ""
    default_wckey: str = ""
    wckeys: list[str] = field(default_factory=list)
    description: str = ""
    organization: str = ""
    partition: str = ""
    settings: Settings = field(default_factory=dict)


@dataclass(slots=True)
class QosLine:
    name: str = ""
    settings: Settings = field(default_factory=dict)


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """(number of the last physical line, line) without comments; ``\\`` at the end continues a line."""
    whole, number = "", 0
    pending = False
    for raw in text.splitlines(keepends=True):
        number += 1
        line = _without_comment(raw)
        stripped = line.rstrip()
        slashes = len(stripped) - len(stripped.rstrip("\\"))
        if slashes % 2:
            whole += stripped[:-1]
            pending = True
            continue
        yield number, _unescaped(whole + line)
        whole, pending = "", False
    if pending:
        yield number, _unescaped(whole)


def _without_comment(line: str) -> str:
    slashes = 0
    for index, char in enumerate(line):
        if char == "#" and slashes % 2 == 0:
            return line[:index]
        slashes = slashes + 1 if char == "\\" else 0
    return line


def _unescaped(line: str) -> str:
    if "\\" not in line:
        return line
    result, escaped = "", False
    for char in line:
        if char == "\\" and not escaped:
            escaped = True
            continue
        result += char
        escaped = False
    return result


def split_line(line: str) -> tuple[str, str] | None:
    """(``User``, the rest after the dash); None for a line without one. The rest is "" where nothing follows."""
    dash = line.find("-")
    if dash < 0:
        return None
    kind = line[:dash].removesuffix(" ")
    if not kind:
        return None
    blank = line.find(" ", dash)
    return kind, "" if blank < 0 else line[blank + 1:]


def _options(rest: str) -> Iterator[str]:
    """The parts between colons; quoted ones may hold colons' neighbours but not colons, as in Slurm."""
    at = 0
    while at < len(rest):
        start, quote = at, ""
        while at < len(rest) and rest[at] not in ":\n":
            if rest[at] in "\"'":
                quote = "" if quote == rest[at] else quote or rest[at]
            at += 1
        if quote:
            end = rest.find(quote, at)
            if end < 0:
                raise QuoteProblem(rest)
            at = end + 1
        if at > start:
            yield rest[start:at]
        if at < len(rest) and rest[at] == ":":
            at += 1
        else:
            break


def read_line(talk: Talk, rest: str) -> FileLine | None:
    """None: bad (said so). Raises QuoteProblem."""
    found = FileLine()
    for part in _options(rest):
        word = split_word(part)
        if word.value is None:
            if found.name:
                talk.complain(f" Bad format on {part}: End your option with an '=' sign\n")
                break
            found.name = strip_quotes(part)
            continue
        value = strip_quotes(word.value)
        allowed = False
        if not value:
            continue
        if word.named("AdminLevel", 2):
            found.admin_level = admin_level(value)
        elif word.named("Coordinator", 2):
            found.coordinator_of += name_list(value)
        elif word.named("Classification", 2):
            pass
        elif word.named("DefaultAccount", 8):
            found.default_account = value
        elif word.named("DefaultWCKey", 8):
            found.default_wckey = value
            found.wckeys += [name for name in name_list(value) if name not in found.wckeys]
        elif word.named("Description", 3):
            found.description = value
        elif word.named("Organization", 1):
            found.organization = value
        elif word.named("Partition", 1):
            found.partition = value
        elif word.named("WCKeys", 2):
            found.wckeys += [name for name in name_list(value) if name not in found.wckeys]
        elif set_association(talk, word._replace(value=value), found.settings):
            allowed = word.named("QosLevel", 1)
        else:
            talk.complain(f" Unknown option: {part}\n")
            break
        refuse_operator(talk, word, allowed)
    if not found.name:
        talk.complain(" No name given\n")
    return None if talk.exit_code else found


def read_qos(talk: Talk, rest: str) -> QosLine | None:
    """None: bad (said so). Raises QuoteProblem."""
    found = QosLine()
    for part in _options(rest):
        word = split_word(part)
        if word.value is None:
            if found.name:
                talk.complain(f" Bad format on {part}: End your option with an '=' sign\n")
                break
            found.name = strip_quotes(part)
            continue
        value = strip_quotes(word.value)
        if not value:
            continue
        if not set_qos(talk, word._replace(value=value), found.settings):
            talk.complain(f" Unknown option: {part}\n")
            break
        refuse_operator(talk, word, word.named("Flags", 2) or word.named("Preempt", 7))
    if not found.name:
        talk.complain(" No name given\n")
    return None if talk.exit_code else found
