"""What a controller opens beside its unix socket, as slurmbridge.yaml says: HTTPS, probes, a watch on its files."""
from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurmbridge.accounting.operations import SaveMeta
from slurmbridge.api import probes, reload
from slurmbridge.api.callers import Callers, Tokens
from slurmbridge.api.https import HttpsListener
from slurmbridge.api.server import CommandServer
from slurmbridge.controller.config import Config
from slurmbridge.controller.config_https import LeaderSettings, host_and_port
from slurmbridge.controller.service import Controller
from slurmbridge.slurm.errors import SlurmError

log = logging.getLogger(__name__)
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
ACCOUNTS_KEY = "accounts_file"
"""Which content of the accounts' file was loaded last."""


class Outside:
    """``watch_probes`` first, ``open`` once the controller works, then ``close``."""

    def __init__(self, config: Config, state: Path, path: Path | None) -> None:
        self._config, self._path = config, path
        self.condition = probes.Condition()
        self.https = HttpsListener(config.https, state) if config.https is not None else None
        self._probes: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._api: Any = None
        self.lease: Any = None                # cluster.kubernetes.lease.Lease, where there is one
        self._callers: Callers | None = None

    async def watch_probes(self) -> None:
        """Raises OSError."""
        if self._config.probes is not None:
            self._probes = await probes.listen(self.condition, *host_and_port(self._config.probes.listen))

    async def lead(self) -> None:
        """Returns once this process is the one that works. Raises CredentialError."""
        settings = self._config.leader
        if settings is not None:
            from slurmbridge.cluster.kubernetes.lease import Lease
            self.condition.stands_by = True
            self.lease = Lease(self._client(), self._leader_namespace(settings), settings.lease,
                               f"{socket.gethostname()}_{os.getpid()}", settings.duration_s)
            await self.lease.acquire()
            self.condition.stands_by = False
        self.condition.is_leader = True

    def _leader_namespace(self, settings: LeaderSettings) -> str:
        with contextlib.suppress(OSError):
            return settings.namespace or OWN_NAMESPACE.read_text("ascii").strip()
        return self._config.kubernetes.namespace

    async def way_here(self) -> tuple[str, str]:
        """(address, authority as PEM) by which jobs in pods reach this controller; "" for none. Raises CertificateError
        or OSError."""
        if self.https is None or self._config.https is None or not self._config.https.url:
            return "", ""
        await self.https.prepare()
        return self._config.https.url, self.https.ca_text()

    async def open(self, controller: Controller, server: CommandServer, now: Callable[[], float]) -> None:
        """Raises OSError, CertificateError, CredentialError, reload.Refused (accounts that cannot be loaded)."""
        world, config = controller.world, self._config
        if config.accounts is not None:
            await self._accounts(controller, now, config.accounts, self._loaded(controller))
        if self.https is not None:
            self._callers = Callers(config.identity, Tokens(self._post, config.identity.audiences), server.identities,
                                    lambda: world.jobs)
            await self.https.open(server, self._callers)
            log.info("https: serving %s", config.https.listen if config.https else "")
        if config.watch_files:
            self._tasks.append(asyncio.get_running_loop().create_task(self._watch(controller, now).run()))
        if self.lease is not None:
            self._tasks.append(asyncio.get_running_loop().create_task(self._follow_lease(controller)))
            settings, address = config.leader, os.environ.get("SLURMBRIDGE_POD_IP", "")
            if settings is not None and settings.service and address and config.https is not None:
                from slurmbridge.cluster.kubernetes.lease import publish
                await publish(self._client(), self._leader_namespace(settings), settings.service, address,
                              host_and_port(config.https.listen)[1])
        self.condition.stale_s = world.engine.stale_s
        self.condition.trouble = lambda: controller.journal.trouble
        self.condition.connections = lambda: len(server.connections)
        self.condition.views = lambda: controller.views

    def _client(self) -> Any:
        """Raises CredentialError."""
        if self._api is None:                 # imported late: most controllers ask no API server
            from slurmbridge.cluster.kubernetes.api import Api
            from slurmbridge.cluster.kubernetes.credentials import Credentials
            self._api = Api(Credentials(self._config.kubernetes))
        return self._api

    async def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        return bytes(await self._client().request("POST", path, body, tries=2))

    # ---- changed files ----------------------------------------------------------------------------------------------

    def _watch(self, controller: Controller, now: Callable[[], float]) -> reload.FileWatch:
        watch = reload.FileWatch(self.condition.refused)

        async def slurm_conf(_path: Path) -> None:
            try:
                controller.reconfigure()
            except SlurmError as error:
                raise reload.Refused(str(error)) from None

        async def yaml(path: Path) -> None:
            before, self._config = self._config, reload.changed_config(path, self._config)
            if self._config.health != before.health:
                controller.health.configure(self._config.health.policy(controller.world.conf.values))
            if self._callers is not None:
                self._callers.configure(self._config.identity)
            if self._config.engine == "kubernetes":
                engine: Any = controller.world.engine
                engine.configure(self._config.kubernetes)

        async def accounts(path: Path) -> None:
            await self._accounts(controller, now, path, "")
        watch.add(Path(controller.world.conf.path), slurm_conf)
        if self._path is not None:
            watch.add(self._path, yaml)
        if self._config.accounts is not None:
            watch.add(self._config.accounts, accounts)
        return watch

    async def _follow_lease(self, controller: Controller) -> None:
        await self.lease.lost.wait()
        self.condition.is_leader = False
        controller.depose("the lease is lost: another controller may lead")

    @staticmethod
    def _loaded(controller: Controller) -> str:
        return controller.meta.get(ACCOUNTS_KEY, "")

    @staticmethod
    async def _accounts(controller: Controller, now: Callable[[], float], path: Path, known: str) -> None:
        """Raises Refused."""
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise reload.Refused(f"{path}: {error.strerror}") from None
        if found == known:
            return
        await reload.load_accounts(path, controller.views, controller.acts, now)
        controller.journal.add(SaveMeta(ACCOUNTS_KEY, found))
        await controller.journal.acknowledged()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.https is not None:
            await self.https.close()
        if self._probes is not None:
            self._probes.close()
        if self.lease is not None:
            await self.lease.release()
        if self._api is not None:
            await self._api.close()
