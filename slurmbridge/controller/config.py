"""slurmbridge.yaml: what Slurm has no word for (slurm.conf keeps its own meaning). Every key is known or refused."""
from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurmbridge.cluster.kubernetes.settings import KubernetesSettings
from slurmbridge.controller.config_https import HttpsSettings, IdentitySettings, LeaderSettings, ProbeSettings
from slurmbridge.controller.health_settings import HealthSettings


class ConfigError(Exception):
    """slurmbridge.yaml cannot be used. ``str()`` is one line."""


class Config(BaseModel):
    """The file's keys; command line options override them. Relative paths are below the file's own folder."""

    model_config = ConfigDict(extra="forbid")

    engine: Literal["local", "simulated", "kubernetes"] = "local"
    state: Path | None = None
    slurm_conf: Path | None = None
    database: str | None = Field(default=None, description="ledger: a path, sqlite:///PATH or postgresql://…")
    socket: Path | None = Field(default=None, description="where commands connect; default STATE/slurmbridge.sock")
    log: Path | None = None
    health: HealthSettings = Field(default_factory=HealthSettings)
    kubernetes: KubernetesSettings = Field(default_factory=KubernetesSettings)
    https: HttpsSettings | None = None
    identity: IdentitySettings = Field(default_factory=IdentitySettings)
    probes: ProbeSettings | None = None
    leader: LeaderSettings | None = Field(default=None, description="of several controllers; needs PostgreSQL")
    watch_files: bool = Field(default=False, description="take over changed configuration files without a restart")
    accounts: Path | None = Field(default=None, description="sacctmgr's dump, loaded at the start and when it changes")


def read_config(path: str | None) -> Config:
    """The configuration; defaults without a path. Raises ConfigError, one line."""
    if path is None:
        return Config()
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file) or {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a mapping of keys is expected")
    try:
        return _below(Path(path).absolute().parent, Config(**values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        message = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        raise ConfigError(f"{path}: {key}: {message}") from None


def _below(folder: Path, config: Config) -> Config:
    """The same with absolute paths: the controller leaves the directory that it was started in."""
    places = {name: folder / value for name in ("state", "slurm_conf", "socket", "log", "accounts")
              if (value := getattr(config, name)) is not None}
    database = config.database
    if database and "://" not in database:
        database = str(folder / database)
    kubernetes = config.kubernetes
    if kubernetes.kubeconfig is not None:
        kubernetes = kubernetes.model_copy(update={"kubeconfig": folder / kubernetes.kubeconfig})
    https = config.https
    if https is not None:
        https = https.model_copy(update={name: folder / value for name in ("certificate", "key", "ca")
                                         if (value := getattr(https, name)) is not None})
    return config.model_copy(update={**places, "database": database, "kubernetes": kubernetes, "https": https})
