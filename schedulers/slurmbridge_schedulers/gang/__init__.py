"""Binds all pods of a gang to their planned nodes, or says which one could not be."""
from __future__ import annotations

from slurmbridge_schedulers.gang.binder import GangBinder

__all__ = ["GangBinder"]
