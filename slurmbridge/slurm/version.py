"""Which Slurm this is: the version that every command reports and whose behaviour it has."""
from __future__ import annotations

SLURM_VERSION = "25.11.7"
"""What ``-V`` prints after the word ``slurm``, and nodes and ``scontrol show config`` report."""
