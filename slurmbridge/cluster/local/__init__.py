"""Virtual nodes of this machine with real processes."""
from __future__ import annotations

from slurmbridge.cluster.local.engine import LocalEngine

__all__ = ["LocalEngine"]
