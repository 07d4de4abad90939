"""The command protocol over HTTPS: a TLS connection, one HTTP head with a bearer token, then the frames of the socket.

The certificate is read again when its files change (cert-manager renews it); one that cannot be read leaves the old.
"""
from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

from slurmbridge.api import http
from slurmbridge.api.callers import Callers
from slurmbridge.api.http import HttpError
from slurmbridge.api.server import CommandServer, Connection
from slurmbridge.controller.config_https import HttpsSettings, host_and_port

log = logging.getLogger(__name__)
PATH = "/command"
RENEW_S = 5.0
MADE_DAYS = 3650


class CertificateError(RuntimeError):
    """There is no certificate to serve with. ``str()`` is one line."""


class Front(asyncio.Protocol):
    """One TLS connection up to the end of its head; then ``Connection`` has it."""

    def __init__(self, server: CommandServer, callers: Callers) -> None:
        self._server, self._callers = server, callers
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(http.HEAD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is not None:
            if len(self._buffer) > http.MAX_HEAD:
                self._transport.abort()       # it may send nothing before it is let in
            return
        try:
            found = http.read_head(self._buffer)
        except HttpError as error:
            self._refuse(error)
            return
        if found is not None:
            head, rest = found
            self._buffer = bytearray(rest)
            self._timer.cancel()
            self._task = asyncio.get_running_loop().create_task(self._admit(head))

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _admit(self, head: http.Head) -> None:
        try:
            if head.path != PATH:
                raise HttpError(404)
            if head.method != "GET":
                raise HttpError(405)
            if head.fields.get("upgrade", "").lower() != "slurmbridge":
                raise HttpError(426)
            caller = await self._callers.of_request(head.fields)
        except HttpError as error:
            self._refuse(error)
            return
        connection = Connection(self._server, caller)
        self._transport.write(http.UPGRADED)
        self._task = None
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        if self._buffer:
            connection.data_received(bytes(self._buffer))

    def _refuse(self, error: HttpError) -> None:
        self._transport.write(http.answer(error.status, f"{error}\n"))
        self._transport.close()


class HttpsListener:
    """``open``, then ``close``."""

    def __init__(self, settings: HttpsSettings, state: Path) -> None:
        self._settings = settings
        self.certificate = settings.certificate or state / "tls" / "tls.crt"
        self._key = settings.key or state / "tls" / "tls.key"
        self._task: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None

    async def prepare(self) -> None:
        """Raises CertificateError."""
        if self._settings.certificate is None and not self.certificate.exists():
            await asyncio.to_thread(make_certificate, self.certificate, self._key, self._settings.names)

    async def open(self, server: CommandServer, callers: Callers) -> None:
        """Raises CertificateError or OSError."""
        await self.prepare()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            raise CertificateError(f"https: {self.certificate}, {self._key}: {error}") from None
        host, port = host_and_port(self._settings.listen)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Front(server, callers), host or None, port, ssl=context, backlog=1024,
            ssl_handshake_timeout=http.HEAD_S)
        self._task = asyncio.get_running_loop().create_task(self._renew(context))

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def ca_text(self) -> str:
        """What clients check the certificate by. Raises OSError."""
        return (self._settings.ca or self.certificate).read_text("ascii")

    def _stamp(self) -> tuple[object, ...]:
        with contextlib.suppress(OSError):
            return tuple((one.st_mtime_ns, one.st_ino) for one in map(os.stat, (self.certificate, self._key)))
        return ()

    async def _renew(self, context: ssl.SSLContext) -> None:
        known = self._stamp()
        while True:
            await asyncio.sleep(RENEW_S)
            stamp = self._stamp()
            if stamp and stamp != known:
                try:
                    context.load_cert_chain(self.certificate, self._key)
                    log.info("https: the certificate was renewed")
                except (OSError, ssl.SSLError) as error:
                    log.error("https: the new certificate is not used: %s", error)
                known = stamp

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._server is not None:
            self._server.close()


def make_certificate(certificate: Path, key: Path, names: Sequence[str]) -> None:
    """A certificate that is its own authority, by openssl. Raises CertificateError."""
    own = {"localhost", "127.0.0.1", socket.gethostname(), *names}
    alternatives = ",".join(f"{'IP' if _is_address(name) else 'DNS'}:{name}" for name in sorted(own))
    certificate.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = (Path(f"{key}.new"), Path(f"{certificate}.new"))
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             str(MADE_DAYS), "-subj", "/CN=slurmbridge", "-addext", f"subjectAltName={alternatives}", "-addext",
             "basicConstraints=critical,CA:TRUE", "-keyout", str(new[0]), "-out", str(new[1])]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CertificateError(f"https: no certificate is given, and openssl cannot make one: {error}") from None
    if done.returncode:
        raise CertificateError(f"https: openssl: {' '.join(done.stderr.split())[-300:]}")
    new[0].chmod(0o600)
    new[0].rename(key)
    new[1].rename(certificate)


def _is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False
