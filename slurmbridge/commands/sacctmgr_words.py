"""The words of sacctmgr: ``name=value``, ``name+=value``, lists, numbers, TRES, QOS, and the limits that they set.

Each ``set_…`` function puts what one word says into a settings mapping (see ``views/directory.py``) and tells whether
it knew the word. Numbers below zero clear a limit. Sources: sacctmgr(1).
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from slurmbridge.commands.sacctmgr_fields import matches
from slurmbridge.commands.sacctmgr_talk import Talk
from slurmbridge.slurm.memory import leading_int
from slurmbridge.views.associations import active_qos

Settings = dict[str, Any]
LONG_MAX, UINT32_MAX = (1 << 63) - 1, (1 << 32) - 1


class Word(NamedTuple):
    """One argument: its name, ``+`` or ``-`` before the ``=`` (or ""), its value (None without ``=``)."""

    text: str
    name: str
    operator: str
    value: str | None

    def named(self, name: str, at_least: int) -> bool:
        return matches(self.name, name, at_least)

    @property
    def operand(self) -> str:
        """The value, or the whole word without ``=``."""
        return self.text if self.value is None else self.value


def split_word(text: str) -> Word:
    name, equals, value = text.partition("=")
    if not equals or not name:
        return Word(text, text if not equals else "", "", None if not equals else value)
    if name[-1] in "+-":
        return Word(text, name[:-1], name[-1], value)
    return Word(text, name, "", value)


def where_and_set(argv: Sequence[str]) -> Iterator[tuple[bool, Word]]:
    """The words with whether they come after ``set``; ``where`` and ``set`` themselves are left out."""
    setting = False
    for text in argv:
        word = split_word(text)
        if word.value is None and word.named("Where", 5):
            setting = False
        elif word.value is None and word.named("Set", 3):
            setting = True
        else:
            yield setting, word


def refuse_operator(talk: Talk, word: Word, allowed: bool) -> bool:
    """Says so where ``+=`` or ``-=`` makes no sense. True: all is well."""
    if word.operator and not allowed:
        talk.complain(f" Invalid operator '{word.operator}=' in {word.text}\n")
        return False
    return True


def strip_quotes(text: str, lower: bool = True) -> str:
    """A value without its outer quotes and blanks; quotes within become ` ."""
    quote = text[:1] if text[:1] in ("'", '"') else ""
    rest = text[1:] if quote else text
    rest = rest.lstrip(" \t\n\v\f\r")
    if quote and quote in rest:
        rest = rest[:rest.index(quote)]
    rest = rest.replace('"', "`").replace("'", "`")
    return (rest.lower() if lower else rest).rstrip(" \t\n\v\f\r")


def name_list(text: str, lower: bool = True) -> list[str]:
    """``a,b,'c d'``: names in order, each once (the last place counts); an empty text is one empty name."""
    quote = text[:1] if text[:1] in ("'", '"') else ""
    rest = text[1:] if quote else text
    if quote and quote in rest:
        rest = rest[:rest.index(quote)]
    rest = rest.replace('"', "`").replace("'", "`")
    found: dict[str, None] = {}
    for name in (rest.lower() if lower else rest).split(","):
        if name or not rest:
            found.pop(name, None)
            found[name] = None
    return list(found)


def number(talk: Talk, text: str, what: str, most: int = UINT32_MAX) -> int | bool | None:
    """A whole number, of which the bits of ``most`` count; None clears (below zero, and ``most``); False: none (said
    so)."""
    meat = strip_quotes(text)
    parsed = leading_int(meat)
    if (parsed and parsed[1]) or (parsed is None and meat):
        talk.log_error(f"Invalid value for {what} ({meat})")
        return False
    value = parsed[0] if parsed else 0
    value = min(value, LONG_MAX) & most if value >= 0 else most
    return None if value == most else value


def numbers(talk: Talk, text: str, what: str) -> list[int]:
    """The whole numbers of a list; what is none is said and left out."""
    found = []
    for part in name_list(text):
        value = number(talk, part, what)
        if value is False or value is None:
            talk.exit_code = 1
        else:
            found.append(value)
    return found


def real(talk: Talk, text: str, what: str) -> float | bool | None:
    """A number; None clears; False: none (said so)."""
    meat = strip_quotes(text)
    try:
        value = float(meat)
    except ValueError:
        talk.log_error(f"{what} value ({meat}) is not a valid number")
        return False
    return None if value < 0 else value


def tres(talk: Talk, text: str) -> dict[str, int | None] | None:
    """``cpu=4,mem=2G,gres/gpu=-1``: counts, None for those taken out. None: bad (said so), or none."""
    found: dict[str, int | None] = {}
    for entry in strip_quotes(text, lower=False).split(","):
        if not entry:
            continue
        name, equals, amount = entry.partition("=")
        known = next((own for own in talk.data.tres if own.lower() == name.lower()), None)
        if not equals or (known is None and name.isdigit()):
            known = next((own for own, number_of in talk.data.tres.items() if str(number_of) == name), None)
        if not equals or not amount:
            talk.log_error(f"slurmdb_format_tres_str: no TRES id found for {entry}")
            return None
        if known is None:
            talk.log_error(f"slurmdb_format_tres_str: no TRES known by type {name}")
            return None
        parsed = leading_int(amount)
        if parsed is None:
            talk.log_error(f"slurmdb_format_tres_str: no value found for {entry}")
            return None
        found[known] = None if parsed[0] < 0 else _scaled(known, *parsed)
    return found or None


def _scaled(name: str, count: int, unit: str) -> int:
    """Counts with K, M, G …: memory and burst buffers in megabytes, others plain."""
    powers = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
    power = powers.get(unit[:1].lower())
    if power is None:
        return count
    if name == "mem" or name.startswith("bb/"):
        return int(count * 1024.0 ** (power - 2))
    return count << 10 * power


def qos_list(talk: Talk, text: str, operator: str) -> list[str] | None:
    """QOS names, with ``+`` or ``-`` where they change a list; empty for an empty value. None: bad (said so)."""
    words = [word for word in name_list(text) if word]
    if text and not words:
        talk.log_error("You gave me an empty qos list")
        return None
    known = {qos.name for qos in active_qos(talk.data)}
    found = []
    for word in words:
        sign, name = (word[0], word[1:]) if word[0] in "+-" else (operator, word)
        if name not in known and name not in talk.coming_qos:
            valid = ",".join(qos.name for qos in active_qos(talk.data))
            talk.log_error(f"You gave a bad qos '{name}'. Valid QOS's are {valid}")
            return None
        found.append(sign + name)
    return found
