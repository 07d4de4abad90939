"""How many jobs the backfill pass looks at per user, partition and association (bf_max_job_user and kin)."""
from __future__ import annotations

from collections import Counter

from slurmbridge.scheduling.snapshot import Snapshot


class Quotas:
    def __init__(self, snapshot: Snapshot) -> None:
        self.settings = snapshot.settings
        self.queue = snapshot.queue
        self._users: Counter[int] = Counter()
        self._partitions: Counter[str] = Counter()
        self._users_there: Counter[tuple[int, str]] = Counter()
        self._subjects: Counter[int] = Counter()
        self._reserved: Counter[str] = Counter()

    def allows(self, row: int, uid: int, partition: str) -> bool:
        """Counts a test; False once a bound is passed."""
        settings, subject = self.settings, int(self.queue.subject[row])
        for bound, seen in ((settings.bf_max_job_user, self._users[uid]),
                            (settings.bf_max_job_part, self._partitions[partition]),
                            (settings.bf_max_job_user_part, self._users_there[uid, partition]),
                            (settings.bf_max_job_assoc, self._subjects[subject])):
            if bound and seen >= bound:
                return False
        self._users[uid] += 1
        self._partitions[partition] += 1
        self._users_there[uid, partition] += 1
        self._subjects[subject] += 1
        return True

    def may_reserve(self, partition: str) -> bool:
        bound = self.settings.bf_job_part_count_reserve
        return not bound or self._reserved[partition] < bound

    def reserve(self, partition: str) -> None:
        self._reserved[partition] += 1
