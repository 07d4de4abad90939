"""Who is at the other end: the kernel (or a trusted relay) says the uid, the name service the names.

Name look-ups may be slow (LDAP), so that answers are remembered for a while; unknown users are asked again.
"""
from __future__ import annotations

import grp
import pwd
import socket
import struct
import time
from collections.abc import Callable, Collection

from slurmbridge.views.session import Identity

REMEMBER_S = 300.0


class UnknownUser(LookupError):
    """No Unix user has this name."""


class Identities:
    """Turns peer credentials into ``Identity``. ``admin_uids``: besides root, who may do everything."""

    def __init__(self, admin_uids: Collection[int], clock: Callable[[], float] = time.monotonic) -> None:
        self._admins = frozenset({0, *admin_uids})
        self._clock = clock
        self._known: dict[tuple[int, int], tuple[float, Identity]] = {}

    def of_socket(self, peer: socket.socket) -> Identity:
        _pid, uid, gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return self.of_ids(uid, gid)

    def of_ids(self, uid: int, gid: int) -> Identity:
        now = self._clock()
        known = self._known.get((uid, gid))
        if known is not None and now - known[0] < REMEMBER_S:
            return known[1]
        user = group = ""
        found = True
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user, found = str(uid), False
        try:
            group = grp.getgrgid(gid).gr_name
        except KeyError:
            group, found = str(gid), False
        identity = Identity(uid, gid, user, group, uid in self._admins)
        if found:
            self._known[uid, gid] = (now, identity)
        return identity

    def of_name(self, name: str) -> Identity:
        """Raises UnknownUser."""
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            raise UnknownUser(name) from None
        return self.of_ids(entry.pw_uid, entry.pw_gid)
