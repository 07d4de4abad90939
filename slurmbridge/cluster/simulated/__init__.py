"""Virtual nodes without processes."""
from __future__ import annotations

from slurmbridge.cluster.simulated.engine import SimulatedEngine

__all__ = ["SimulatedEngine"]
