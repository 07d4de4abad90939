"""The scheduler's entry points; see scheduling.snapshot for the contract."""
from __future__ import annotations

from slurmbridge.scheduling.backfill import backfill_pass
from slurmbridge.scheduling.feasible import Admission, Refusal, admit, feasible
from slurmbridge.scheduling.mainpass import main_pass

__all__ = ["Admission", "Refusal", "admit", "backfill_pass", "feasible", "main_pass"]
