"""What is remembered of a node from one sight to the next, and over a restart: plain data, in seconds of our clock."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

GOOD, BAD, UNKNOWN, ABSENT, STALE = "good", "bad", "unknown", "absent", "stale"
_NOT_KEPT = frozenset({"beat_s", "beat_seen_s"})


@dataclass(slots=True)
class SignalMemory:
    """One signal of a node. An episode begins when it is first seen bad and ends when recovery is complete; reasons,
    and moves between bad statuses, do not begin another.

    ``frozen_s``: how long the episode was not positively bad (stale, unknown, absent, good for a while): time in which
    nothing is counted towards an action.
    """

    source: str = ""
    type: str = ""
    verdict: str = ABSENT
    since_s: float = 0.0                      # of the verdict
    status: str = ""                          # of the worst that was seen in the episode, with reason and message
    reason: str = ""
    message: str = ""
    missing: int = 0
    bad_since_s: float | None = None          # of the episode
    frozen_s: float = 0.0
    frozen_at_s: float | None = None
    restarted_s: float | None = None          # the breaker let go: actions are counted from here
    good_since_s: float | None = None
    rebooted: bool = False                    # the machine is another one, or booted anew, since it was seen bad
    excluded: bool = False                    # bad for long enough to keep work off
    flapping: bool = False
    holds: int = 0                            # periods of flapping that were sat out
    starts: list[float] = field(default_factory=list)        # when it turned bad
    lifted: list[float] = field(default_factory=list)        # when an episode that kept work off was over
    muted: int | None = None                  # Rule.rank of what a human does not want to hear of before it was good
    beat_s: float | None = None               # the reporter's heartbeat, and when we saw it first
    beat_seen_s: float = 0.0
    bad_beat_s: float | None = None           # the heartbeat that it was last bad with

    @property
    def is_quiet(self) -> bool:
        return self.bad_since_s is None and not self.starts and self.muted is None

    def bad_for_s(self, now: float) -> float:
        """Seconds that count towards an action."""
        if self.bad_since_s is None:
            return 0.0
        frozen_s = self.frozen_s + (now - self.frozen_at_s if self.frozen_at_s is not None else 0.0)
        return max(0.0, now - max(self.bad_since_s, self.restarted_s or 0.0) - frozen_s)

    def restart(self, now: float) -> None:
        """What counts towards an action begins again."""
        self.restarted_s, self.frozen_s = now, 0.0
        self.frozen_at_s = None if self.frozen_at_s is None else now


@dataclass(slots=True)
class NodeMemory:
    """``never_ready``: it has not been Ready since it came. ``short``: devices by kind that are not handed out."""

    uid: str = ""
    boot_id: str = ""
    first_s: float = 0.0                      # when this machine was first seen
    gone_s: float | None = None               # the node object is gone
    replaced_s: float | None = None           # when this machine took the place of another one of that name
    returned_s: float | None = None           # when the same boot of a machine came back under a new object
    never_ready: bool = True
    boot_failed: bool = False                 # counted as one
    launch_failures: list[float] = field(default_factory=list)      # when
    short: dict[str, int] = field(default_factory=dict)
    readmitted_s: float = 0.0
    signals: dict[tuple[str, str], SignalMemory] = field(default_factory=dict)

    def dump(self) -> dict[str, Any]:
        """JSON's types; only what differs from nothing."""
        plain: dict[str, Any] = {name: value for name in _NODE_FIELDS if (value := getattr(self, name)) not in _NOTHING}
        signals = [{name: value for name, value in asdict(one).items()
                    if value != _EMPTY[name] and name not in _NOT_KEPT}
                   for one in self.signals.values() if not one.is_quiet]
        return {**plain, "signals": signals} if signals else plain

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> NodeMemory:
        """Keys that are not known (any more) are left out."""
        node = cls(**{"never_ready": False, **{
            name: value for name, value in plain.items() if name in _NODE_FIELDS}})
        for values in plain.get("signals", ()):
            one = SignalMemory(**{name: value for name, value in values.items() if name in _EMPTY})
            node.signals[one.source, one.type] = one
        return node


_EMPTY = asdict(SignalMemory())
_NODE_FIELDS = tuple(field.name for field in fields(NodeMemory) if field.name != "signals")
_NOTHING: tuple[Any, ...] = ("", None, 0, [], {})              # which False is as well
