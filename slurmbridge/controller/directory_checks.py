"""Which association and QOS a submission is under (AccountingStorageEnforce, slurm.conf(5)). Pure look-ups."""
from __future__ import annotations

from collections.abc import Mapping

from slurmbridge.slurm import errors
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.views.records import AssociationData, AssociationRecord, PartitionRecord


class Directory:
    """Look-ups by (user, account, partition), rebuilt when the accounting data change."""

    def __init__(self, accounting: AssociationData, conf: SlurmConf,
                 partitions: Mapping[str, PartitionRecord]) -> None:
        self._partitions = partitions
        self._accounting = accounting
        self._conf = conf
        self._generation = -1
        self._by_key: dict[tuple[str, str, str], AssociationRecord] = {}
        self._default: dict[str, AssociationRecord] = {}
        self._root: AssociationRecord | None = None
        self._qos_cache: dict[int, tuple[str, ...]] = {}

    def _sync(self) -> None:
        if self._generation == self._accounting.generation:
            return
        self._generation = self._accounting.generation
        self._by_key, self._default, self._qos_cache = {}, {}, {}
        for record in self._accounting.associations.values():
            if record.deleted:
                continue
            self._by_key[record.user, record.account, record.partition] = record
            if record.is_default and record.user:
                self._default.setdefault(record.user, record)
            if not record.parent_id and not record.user:
                self._root = record

    def association(self, user: str, account: str | None, partition: str) -> AssociationRecord | None:
        """The user's association: that of the partition before the general one; the default account's without a name,
        and where associations are not enforced also instead of one that is unknown.

        Raises SlurmError(ESLURM_INVALID_ACCOUNT) where associations are enforced and there is none.
        """
        self._sync()
        enforced = "associations" in self._conf.accounting_enforce
        default = self._default.get(user)
        names = [default.account if default is not None else ""]
        listed = self._accounting.users.get(user)
        if listed is not None and listed.default_account:
            names = [listed.default_account]
        if account is not None:
            names = [account] if enforced else [account, *names]
        for name in names:
            record = self._by_key.get((user, name, partition)) or self._by_key.get((user, name, ""))
            if record is not None:
                return record
        if enforced:
            raise SlurmError(errors.ESLURM_INVALID_ACCOUNT)
        return None

    def wckey(self, wanted: str | None, user: str) -> str:
        """The job's wckey. Where they are tracked a default is marked with ``*``, also that of who has none.

        Raises SlurmError(ESLURM_INVALID_WCKEY) where they are enforced and the user may not use this one.
        """
        if not self._conf.tracks_wckeys:
            return wanted or ""
        enforced = "wckeys" in self._conf.accounting_enforce
        if wanted:
            known = (wanted, user) in self._accounting.wckeys.values()
        else:
            listed = self._accounting.users.get(user)
            known = listed is not None
            wanted = "*" + (listed.default_wckey if listed is not None else "")
        if enforced and not known:
            raise SlurmError(errors.ESLURM_INVALID_WCKEY)
        return wanted

    def allowed_qos(self, record: AssociationRecord) -> tuple[str, ...]:
        """The QOS names an association may use, its own or inherited."""
        self._sync()
        known = self._qos_cache.get(record.id)
        if known is None:
            above: AssociationRecord | None = record
            known = ()
            while above is not None:
                if above.qos is not None:
                    known = above.qos
                    break
                above = self._accounting.associations.get(above.parent_id)
            else:
                known = ()
            self._qos_cache[record.id] = known
        return known

    def default_qos(self, record: AssociationRecord | None) -> str:
        """What a job without --qos gets."""
        self._sync()
        above = record
        while above is not None:
            if above.default_qos and (above.parent_id or above.user):
                return above.default_qos
            above = self._accounting.associations.get(above.parent_id)
        if record is not None:
            allowed = self.allowed_qos(record)
            if len(allowed) == 1:
                return allowed[0]
        if self._root is not None and self._root.default_qos:
            return self._root.default_qos
        return "normal"

    def qos(self, wanted: str | None, record: AssociationRecord | None, reservation: str | None) -> str:
        """The job's QOS; of a list the one of the highest priority. Names are taken in any case.

        Raises SlurmError(ESLURM_INVALID_QOS) for an unknown or forbidden one, and for a list of one. Where QOS are not
        enforced an unknown one is none.
        """
        if wanted and "," in wanted:
            names = list(dict.fromkeys(self._qos(word, record, reservation) for word in wanted.split(",") if word))
            if len(names) < 2:
                raise SlurmError(errors.ESLURM_INVALID_QOS)
            return max(names, key=lambda name: self._accounting.qos[name].priority if name else 0)
        return self._qos(wanted and wanted.lower(), record, reservation)

    def _qos(self, wanted: str | None, record: AssociationRecord | None, reservation: str | None) -> str:
        enforced = bool(self._conf.accounting_enforce & {"qos"})
        name = wanted or self.default_qos(record)
        known = self._accounting.qos.get(name)
        if known is None or known.deleted:
            if enforced:
                raise SlurmError(errors.ESLURM_INVALID_QOS)
            return "" if wanted and self._accounting.qos else name
        if enforced and record is not None and name not in self.allowed_qos(record):
            raise SlurmError(errors.ESLURM_INVALID_QOS)
        if "RequiresReservation" in known.flags and not reservation:
            raise SlurmError(errors.ESLURM_INVALID_QOS)
        if "Relative" in known.flags and any(one.qos == name for one in self._partitions.values()):
            raise SlurmError(errors.ESLURM_INVALID_QOS)        # its percentages are the partition's
        return name


def refused_by_partition(partition: PartitionRecord, account: str, qos: str, accounting: AssociationData,
                         conf: SlurmConf) -> tuple[int, str, str] | None:
    """(error, reason word, description) where a partition's Allow and Deny lists keep a job out."""
    if partition.allow_qos is not None and qos not in partition.allow_qos:
        allowed = ",".join(partition.allow_qos)
        return (errors.ESLURM_INVALID_QOS, "InvalidQOS",
                f"Job's QOS not permitted to use this partition ({partition.name} allows {allowed} not {qos})")
    if qos in partition.deny_qos:
        return (errors.ESLURM_INVALID_QOS, "InvalidQOS",
                f"Job's QOS not permitted to use this partition ({partition.name} denies "
                f"{','.join(partition.deny_qos)} including {qos})")
    if "associations" not in conf.accounting_enforce:
        return None
    if partition.allow_accounts is not None and not _below(account, partition.allow_accounts, accounting):
        allowed = ",".join(partition.allow_accounts)
        return (errors.ESLURM_INVALID_ACCOUNT, "InvalidAccount",
                f"Job's account not permitted to use this partition ({partition.name} allows {allowed} not "
                f"{account})")
    if partition.deny_accounts and _below(account, partition.deny_accounts, accounting):
        return (errors.ESLURM_INVALID_ACCOUNT, "InvalidAccount",
                f"Job's account not permitted to use this partition ({partition.name} denies "
                f"{','.join(partition.deny_accounts)} including {account})")
    return None


def _below(account: str, listed: tuple[str, ...], accounting: AssociationData) -> bool:
    """Whether the account, or one above it, is listed."""
    if account in listed:
        return True
    parents = {record.account: accounting.associations[record.parent_id].account
               for record in accounting.associations.values()
               if not record.user and not record.deleted and record.parent_id in accounting.associations}
    seen = set()
    while account in parents and account not in seen:
        seen.add(account)
        account = parents[account]
        if account in listed:
            return True
    return False
