"""The one way in which the ledger says that it cannot go on."""
from __future__ import annotations


class LedgerError(Exception):
    """The ledger cannot be opened, read or written. ``str()`` is one line for the administrator."""


class LedgerInUse(LedgerError):
    """Another controller has it."""


class LedgerTaken(LedgerError):
    """Another controller leads by now: what this one still wanted to write is refused."""


def one_line(error: BaseException) -> str:
    """The first line of a driver's message, without SQLAlchemy's or psycopg's trailing explanations."""
    original = getattr(error, "orig", None) or error
    text = str(original).strip() or type(original).__name__
    return " ".join(text.splitlines()[0].split())
