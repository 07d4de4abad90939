"""Pyxis' options (``--container-image`` and its kin) in terms of a pod. Source: Pyxis' and Enroot's documentation.

Enroot writes ``[docker://][USER@][REGISTRY#]IMAGE[:TAG]``; mounts are ``SRC[:DST[:FLAGS]]``, comma-separated.
"""
from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.pyxis import IMAGE, needs_image

_SCHEMES = ("docker://", "dockerd://", "podman://")


class ContainerError(ValueError):
    """The message says which option cannot be had and why."""


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    read_only: bool = False


def image_reference(text: str) -> str:
    """The name under which a container runtime pulls the image. Raises ContainerError."""
    scheme = next((one for one in _SCHEMES if text.startswith(one)), "")
    rest = text.removeprefix(scheme)
    if not scheme and ("://" in text or text.startswith(("/", ".", "~")) or text.endswith(".sqsh")):
        raise ContainerError(f"--{IMAGE}: {text}: an image file cannot be pulled by a pod; push it to a registry")
    registry, separator, image = rest.rpartition("#")
    registry = registry.rpartition("@")[2]
    if not separator and "@" in image and "@sha256:" not in image:
        image = image.partition("@")[2]
    if not image:
        raise ContainerError(f"--{IMAGE}: {text}: no image is named")
    return f"{registry}/{image}" if registry else image


def mounts_of(pyxis: Mapping[str, str], home: str) -> list[Mount]:
    """``home``: the user's, for --container-mount-home. Raises ContainerError."""
    found = []
    for text in pyxis.get("container-mounts", "").split(","):
        source, colon, rest = text.partition(":")
        target, _, flags = rest.partition(":")
        if not source and not colon:
            continue
        words = flags.split("+")
        if source in ("tmpfs", "umount") or not source.startswith("/") or not (target or source).startswith("/"):
            raise ContainerError(f"--container-mounts: {text}: only absolute paths can be mounted into a pod")
        found.append(Mount(posixpath.normpath(source), posixpath.normpath(target or source), "ro" in words))
    if "container-mount-home" in pyxis and "no-container-mount-home" not in pyxis and home.startswith("/"):
        found.append(Mount(home, home))
    return found


def apply(request: JobRequest, container: dict[str, Any], spec: dict[str, Any], default_image: str) -> None:
    """Image, mounts, directory, environment and rights that the job asked for. Raises ContainerError."""
    pyxis = request.pyxis
    container["image"] = image_reference(pyxis[IMAGE]) if IMAGE in pyxis else request.container or default_image
    if not needs_image(pyxis):
        return
    given = _environment(request)
    for number, mount in enumerate(mounts_of(pyxis, given.get("HOME", ""))):
        name = f"mount-{number}"
        spec["volumes"].append({"name": name, "hostPath": {"path": mount.source}})
        container["volumeMounts"].append({"name": name, "mountPath": mount.target,
                                          **({"readOnly": True} if mount.read_only else {})})
    if pyxis.get("container-workdir"):
        container["workingDir"] = pyxis["container-workdir"]
    for name in pyxis.get("container-env", "").split(","):
        if name in given:
            container["env"].append({"name": name, "value": given[name]})
    if "container-readonly" in pyxis and "container-writable" not in pyxis:
        container["securityContext"]["readOnlyRootFilesystem"] = True
    if "container-remap-root" in pyxis and "no-container-remap-root" not in pyxis:
        spec["hostUsers"] = False             # root inside, nobody's root outside
        spec["securityContext"] |= {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}


def options_as_given(pyxis: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """All options as they were given, for whoever reads the object."""
    return [(name, value or "true") for name, value in pyxis.items()]


def _environment(request: JobRequest) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in request.environment if "=" in entry)
