"""Who calls over HTTPS, from the bearer token alone: a user of the cluster, a login node's relay, or a running job.

A token of the cluster is checked by the API server (TokenReview) and its user is mapped by the rules of
slurmbridge.yaml. A relay's word about the uid behind its own socket counts because its token says that it is one. A
job's credential is nobody's identity: it opens that one job's side of the controller, while it runs.
"""
from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from slurmbridge.api.http import HttpError
from slurmbridge.api.identity import Identities, UnknownUser
from slurmbridge.controller.config_https import IdentitySettings
from slurmbridge.slurm import states
from slurmbridge.views.records import JobRecord
from slurmbridge.views.session import Identity

log = logging.getLogger(__name__)
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
JOB_TOKEN = "slurmbridge-job."
"""What a job's credential begins with: then its number, a dot and the credential."""
KNOWN_S = 30.0
"""How long the API server's word on a token counts; one that it has withdrawn works for so long."""
REFUSED_S = 3.0
MAX_REMEMBERED = 10_000
REVIEWS_AT_ONCE = 16
SYSTEM = "system:"
_PEER = re.compile(r"uid=(\d{1,10}) gid=(\d{1,10})\Z")


@dataclass(frozen=True, slots=True)
class Caller:
    """``job``: the caller may see and steer this job only (its run ``restart``), and only while it runs."""

    identity: Identity
    job: int | None = None
    restart: int = 0


class Review(msgspec.Struct):
    """The ``status`` of a TokenReview."""

    class User(msgspec.Struct):
        username: str = ""
        groups: list[str] = []

    class Status(msgspec.Struct):
        authenticated: bool = False
        user: Any = None
        audiences: list[str] = []
    status: Status = msgspec.field(default_factory=Status)


@dataclass(frozen=True, slots=True)
class ClusterUser:
    name: str
    groups: frozenset[str]


class Tokens:
    """The API server's answers, remembered for a short while. ``request``: a POST to the API server."""

    def __init__(self, request: Callable[[str, Mapping[str, Any]], Awaitable[bytes]], audiences: tuple[str, ...] = (),
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._request, self._audiences, self._clock = request, audiences, clock
        self._known: dict[bytes, tuple[float, ClusterUser | None]] = {}
        self._slots = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def user_of(self, token: str) -> ClusterUser | None:
        """None: the token is nobody's. Raises HttpError(503) where the API server cannot be asked."""
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        now = self._clock()
        if known is not None and now < known[0]:
            return known[1]
        spec: dict[str, Any] = {"token": token}
        if self._audiences:
            spec["audiences"] = list(self._audiences)
        try:
            async with self._slots:
                answer = await self._request(REVIEWS, {
                    "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec})
            status = msgspec.json.decode(answer, type=Review).status
            user = msgspec.convert(status.user or {}, type=Review.User)
        except Exception as error:            # ApiError, a broken answer: nobody is let in on a guess
            log.warning("a token cannot be checked: %s", error)
            raise HttpError(503, "the token cannot be checked now") from None
        fits = status.authenticated and (not self._audiences or bool(set(status.audiences) & set(self._audiences)))
        found = ClusterUser(user.username, frozenset(user.groups)) if fits and user.username else None
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[key] = (now + (KNOWN_S if found else REFUSED_S), found)
        return found


def unix_user(user: ClusterUser, settings: IdentitySettings) -> tuple[str, bool] | None:
    """(Unix user, whether the rule names it literally) by the first rule that fits; None: nobody here.

    Names of the cluster's own (``system:…``, service accounts among them) fit only rules that begin so: a rule for
    people's names does not let pods in.
    """
    for rule in settings.users:
        if user.name.startswith(SYSTEM) and not rule.name.startswith(SYSTEM):
            continue
        if rule.group is not None and rule.group not in user.groups:
            continue
        found = re.fullmatch(rule.name, user.name)
        if found is not None:
            return found.expand(rule.user), rule.is_literal
    return None


class Callers:
    """``jobs``: those of the controller's world, by id."""

    def __init__(self, settings: IdentitySettings, tokens: Tokens, identities: Identities,
                 jobs: Callable[[], Mapping[int, JobRecord]]) -> None:
        self._tokens, self._identities, self._jobs = tokens, identities, jobs
        self.configure(settings)

    def configure(self, settings: IdentitySettings) -> None:
        """New rules, from the next connection on."""
        self._settings = settings
        self._relays = {relay.name: relay for relay in settings.relays}

    async def of_request(self, fields: Mapping[str, str]) -> Caller:
        """``fields``: of the HTTP head, by lower-case name. Raises HttpError (401: who?, 403: not here, 503)."""
        scheme, _, token = fields.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            raise HttpError(401)
        if token.startswith(JOB_TOKEN):
            if "slurmbridge-peer" in fields:
                raise HttpError(403, "a job is no relay")
            return self._job(token.removeprefix(JOB_TOKEN))
        user = await self._tokens.user_of(token)
        if user is None:
            raise HttpError(401)
        if "slurmbridge-peer" in fields:
            return Caller(self._peer(user, fields["slurmbridge-peer"]))
        return Caller(self._mapped(user))

    def _job(self, text: str) -> Caller:
        number, _, credential = text.partition(".")
        job = self._jobs().get(int(number)) if number.isdigit() and len(number) < 12 else None
        known = job.credential if job is not None else ""
        is_same = hmac.compare_digest(known.encode(), credential.encode())
        if job is None or not known or not is_same or not is_live(job):
            raise HttpError(401)
        return Caller(replace(self._identities.of_ids(job.uid, job.gid), is_admin=False), job.job_id, job.restarts)

    def _peer(self, user: ClusterUser, text: str) -> Identity:
        relay = self._relays.get(user.name)
        peer = _PEER.match(text)
        if relay is None or peer is None:
            log.warning("%s may not speak for others", user.name)
            raise HttpError(403, "this account may not speak for others")
        identity = self._identities.of_ids(int(peer[1]), int(peer[2]))
        if identity.is_admin and not relay.root:
            raise HttpError(403, "administrators do not come by this relay")
        return identity

    def _mapped(self, user: ClusterUser) -> Identity:
        found = unix_user(user, self._settings)
        if found is None:
            raise HttpError(403, f"{user.name} is no user here")
        name, is_literal = found
        try:
            identity = self._identities.of_name(name)
        except UnknownUser:
            raise HttpError(403, f"{user.name} would be {name}, whom nobody knows here") from None
        if identity.is_admin and not is_literal:
            raise HttpError(403, f"{user.name} would be {name}")    # an administrator is named by a rule of his own
        return identity


def is_live(job: JobRecord) -> bool:
    """Whether the credential of the job's current run still counts."""
    return job.state in (states.RUNNING, states.SUSPENDED)
