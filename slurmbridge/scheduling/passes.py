"""The scheduler's entry points; see scheduling.snapshot for the contract."""
from __future__ import annotations

from slurmbridge.scheduling.feasible import Admission, Refusal, admit, feasible
from slurmbridge.scheduling.mainpass import main_pass

__all__ = ["Admission", "Refusal", "admit", "feasible", "main_pass"]
