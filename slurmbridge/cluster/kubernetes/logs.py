"""Output of scripts whose folder no volume has: it is in the first pod's log, and is kept here when the pod goes.

A file a run in the state (``logs/JOB-RESTART.log``), up to ``MOST_BYTES`` and for ``KEPT_S``; what is longer was meant
for a volume.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from slurmbridge.cluster.kubernetes.api import Api, ApiError
from slurmbridge.cluster.port import RunId

log = logging.getLogger(__name__)
MOST_BYTES = 64 << 20
KEPT_S = 30 * 86400.0
SILENCE_S = 86400.0
"""How long a followed log may say nothing."""
KEEP_TRIES_S = (0.5, 2.0, 5.0, 15.0)


class Logs:
    """``folder`` None: nothing is kept."""

    def __init__(self, api: Api, namespace: str, folder: Path | None) -> None:
        self._api, self._folder = api, folder
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def _path(self, run: RunId) -> Path | None:
        return self._folder / f"{run.job_id}-{run.restart}.log" if self._folder is not None else None

    async def _stream(self, pod: str, follow: bool) -> AsyncIterator[bytes]:
        """Raises ApiError, aiohttp.ClientError or OSError."""
        query = {"container": "job", "limitBytes": str(MOST_BYTES), **({"follow": "true"} if follow else {})}
        async with self._api.watch(f"{self._pods}/{pod}/log", query, SILENCE_S) as stream:
            async for chunk in stream.iter_any():
                yield chunk

    async def keep(self, run: RunId, pod: str) -> None:
        """Before the pod is deleted. A log that cannot be had is lost, and the controller's log says so."""
        path = self._path(run)
        if path is None:
            return
        self._forget_old()
        for pause_s in KEEP_TRIES_S:
            try:
                async with asyncio.timeout(120):
                    path.parent.mkdir(mode=0o700, exist_ok=True)
                    with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                        async for chunk in self._stream(pod, False):
                            file.write(chunk)
                os.replace(f"{path}.new", path)
                return
            except ApiError as error:
                if error.code == 404:
                    return
                log.warning("log of %s: %s", pod, error)
            except Exception as error:        # a node that is away, a full disk: the job's end does not wait for it
                log.warning("log of %s: %s", pod, error)
            await asyncio.sleep(pause_s)
        log.error("the output of job %d is lost: its pod's log cannot be read", run.job_id)

    def _forget_old(self) -> None:
        if self._folder is None or not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > KEPT_S:
                    path.unlink()

    async def read(self, run: RunId, pod: str, follow: bool) -> AsyncIterator[bytes]:
        """From the pod where there is one (a name), else what was kept. Raises LookupError or OSError."""
        path = self._path(run)
        if path is not None and path.exists():
            with open(path, "rb") as file:
                while chunk := file.read(256 << 10):
                    yield chunk
            return
        if not pod:
            raise LookupError("there is no output of it here")
        try:
            async for chunk in self._stream(pod, follow):
                yield chunk
        except ApiError as error:
            raise OSError(5, str(error)) from None
