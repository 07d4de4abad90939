"""SLUIDs: the ids that never come again, as sacct and job environments show them."""
from __future__ import annotations

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def sluid_text(sluid: int) -> str:
    """The 14 characters of one: ``s`` and 13 digits of Crockford's base 32."""
    return "s" + "".join(_DIGITS[(sluid >> shift) & 31] for shift in range(60, -1, -5))
