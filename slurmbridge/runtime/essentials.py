"""How a run ended, in the few bytes that outlive its pod: Kubernetes keeps 4,096 of a container's last message."""
from __future__ import annotations

import json
from typing import Any

LIMIT_BYTES = 4096
_KINDS = ("started", "step_started", "step_ended", "script_ended", "finished", "launch_failed")
_STEP_FIELDS = ("kind", "at_s", "step_id", "name", "nodes", "num_tasks", "cpus", "exit_status", "usage")


def pack(entries: list[tuple[int, dict[str, Any]]], limit: int = LIMIT_BYTES) -> bytes:
    """The journal's entries with their sequence numbers as JSON; statistics and then the oldest steps are left out."""
    kept = [(sequence, entry) for sequence, entry in entries if entry["kind"] in _KINDS]
    text = _text(kept)
    if len(text) > limit:
        kept = [(sequence, _short(entry)) for sequence, entry in kept]
        text = _text(kept)
    while len(text) > limit:
        steps = [pair for pair in kept if pair[1]["kind"].startswith("step_")]
        if not steps:
            return b""
        kept.remove(steps[0])
        text = _text(kept)
    return text


def unpack(text: str) -> list[tuple[int, dict[str, Any]]]:
    """Empty for what is no such message."""
    try:
        pairs = json.loads(text)
        return [(int(sequence), dict(entry)) for sequence, entry in pairs if entry["kind"] in _KINDS]
    except (ValueError, TypeError, KeyError):
        return []


def _text(pairs: list[tuple[int, dict[str, Any]]]) -> bytes:
    return json.dumps(pairs, separators=(",", ":")).encode("ascii")


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    usage = {name: value for name, value in (entry.get("usage") or {}).items() if name.endswith("cpu_s")}
    if entry["kind"].startswith("step_"):
        entry = {name: entry[name] for name in _STEP_FIELDS if name in entry}
    return {**entry, "usage": usage} if "usage" in entry else dict(entry)
