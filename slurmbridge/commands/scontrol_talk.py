"""scontrol without a command: one a line of standard input, until ``exit``, ``quit`` or its end (scontrol(1))."""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from slurmbridge.commands.scontrol_call import NAME, Call

PROMPT = f"{NAME}: "
_BLANK = " \t\n\v\f\r"
MAX_WORDS = 128


def words_of(line: str) -> list[str]:
    """Cut at blanks. Quotes stay in the words; between two of them, not counting a word's first letter, blanks count
    as letters (observed in 25.11)."""
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at] in _BLANK:
            at += 1
            continue
        start = at
        open_quotes = set()
        at += 1
        while at < len(line) and (open_quotes or line[at] not in _BLANK):
            if line[at] in "\"'":
                open_quotes ^= {line[at]}
            at += 1
        words.append(line[start:at])
    return words


async def converse(call: Call, act: Callable[[Call, Sequence[str]], Awaitable[None]]) -> None:
    """What each line says is shown before the next is read. The exit code is that of the worst."""
    session = call.session
    last: list[str] = []
    while not call.leaves:
        await session.write_stdout(PROMPT)
        raw = await session.read_line()
        if not raw:
            call.print("\n")
            break
        line = raw.decode("utf-8", "surrogateescape").rstrip("\n")
        if not session.invocation.stdin_is_tty:
            await session.write_stdout(line + "\n")    # as readline does; a terminal shows what is typed
        words = last if line == "!!" else words_of(line)
        last = words
        if len(words) > MAX_WORDS:
            call.fail(f"{NAME}: can not process over {MAX_WORDS - 1} words")
            break
        call.restyle()
        if words:
            await act(call, words)
        else:
            call.exit_code = 1
            if call.verbose:
                call.err.append("no input\n")
        await call.flush()
