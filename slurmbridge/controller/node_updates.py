"""scontrol update NodeName=… and PartitionName=…: states, reasons, features and weights of nodes; partitions' keys."""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields

from slurmbridge.accounting.operations import SaveNode, SavePartition
from slurmbridge.controller import cluster_columns, inventory, node_arrivals, nodes, queueing
from slurmbridge.controller.world import World
from slurmbridge.slurm import conf_values, errors
from slurmbridge.slurm.conf_keys import PARTITION_KEYS
from slurmbridge.slurm.errors import SlurmError
from slurmbridge.views.records import NodeRecord, PartitionRecord
from slurmbridge.views.session import Identity

_KEPT = ("reason", "reason_user", "reason_uid", "reason_s", "comment", "extra", "resume_after_s", "weight", "features",
         "active_features")
_PARTITION_KEY = {key.lower(): value for key, value in PARTITION_KEYS.items()}
_NODE_KEYS = frozenset({
    "state", "reason", "weight", "features", "activefeatures", "availablefeatures", "comment", "extra", "resumeafter",
    "topology"})
_SHOWN_TO_SCHEDULER = frozenset({"weight", "features", "availablefeatures", "activefeatures"})
_STATES = {"UP": "UP", "DOWN": "DOWN", "DRAIN": "DRAIN", "INACTIVE": "INACTIVE"}


_ALWAYS = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "UNDRAIN", "NORESP", "NO_RESPOND"})
"""States that a node may be set to whatever it is."""


def _changed_features(node: NodeRecord, changes: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """(available, active) features; None: all are active. Raises SlurmError where some are active and not available."""
    def words(text: str) -> tuple[str, ...]:
        return tuple(word for word in text.split(",") if word)

    given = changes.get("availablefeatures", changes.get("features"))
    available = node.features if given is None else words(given)
    active = words(changes["activefeatures"]) if "activefeatures" in changes else None
    if not set(node.usable_features if active is None else active) <= set(available):
        raise SlurmError(errors.ESLURM_ACTIVE_FEATURE_NOT_SUBSET)
    return available, node.active_features if active is None and given is None else active


def _may_become(node: NodeRecord, state: str) -> bool:
    """Whether the node's state lets it be set so (there is no power saving, and no reboot to cancel)."""
    out = node.base_state in ("DOWN", "UNKNOWN", "ERROR")
    if state == "RESUME":
        return out or node.base_state == "FUTURE" or bool(node.flags & {"DRAIN", "FAIL", "NOT_RESPONDING"})
    if state in ("IDLE", "FUTURE"):
        return out or (node.base_state == "IDLE" and not node.job_ids)
    return state in _ALWAYS


class NodeUpdates:
    """Applies and remembers what administrators set. ``fail_node`` ends the jobs of a node that is set DOWN."""

    def __init__(self, world: World, fail_node: object) -> None:
        self._world = world
        self._fail_node = fail_node

    def update(self, caller: Identity, node: NodeRecord, changes: Mapping[str, str]) -> None:
        """Raises SlurmError."""
        world, now = self._world, self._world.now()
        state = changes.get("state", "").upper()
        reason = changes.get("reason")
        if set(changes) - _NODE_KEYS:
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
        if changes.get("topology"):
            raise SlurmError(errors.ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE)
        features = _changed_features(node, changes)
        if reason is not None:
            node.reason, node.reason_user, node.reason_uid = reason, caller.user_name, caller.uid
            node.reason_s = now if reason else None
        if state:
            self._state(node, state, reason, now)
        if changes.get("weight", "").isdigit():
            node.weight = int(changes["weight"])
        node.features, node.active_features = features
        for key in ("comment", "extra"):
            if key in changes:
                setattr(node, key, changes[key])
        if "resumeafter" in changes:
            after = changes["resumeafter"]
            node.resume_after_s = now + int(after) if after.isdigit() and int(after) else None
        if node.name in world.columns.index and _SHOWN_TO_SCHEDULER & set(changes):
            world.columns.set_node_features(node.name, node.usable_features, node.weight)
            node_arrivals.show_use(world, node)
        if state or reason is not None:
            world.node_taken_over(node, state)
        self.shown(node)

    def _state(self, node: NodeRecord, state: str, reason: str | None, now: float) -> None:
        if not _may_become(node, state):
            raise SlurmError(errors.ESLURM_INVALID_NODE_STATE_TRANSITION)
        if state in ("RESUME", "IDLE"):
            if node.base_state in ("DOWN", "UNKNOWN", "ERROR"):
                node.base_state = "IDLE"
                node.last_busy_s = now
            node.flags -= {"DRAIN", "FAIL", "NOT_RESPONDING"}
            if reason is None:
                node.reason, node.reason_user, node.reason_uid, node.reason_s = "", "", None, None
        elif state == "UNDRAIN":
            node.flags.discard("DRAIN")
        elif state in ("DRAIN", "DRAINED", "DRAINING"):
            node.flags.add("DRAIN")
        elif state in ("FAIL", "FAILING"):
            node.flags.add("FAIL")
        elif state == "DOWN":
            node.base_state = "DOWN"
            if callable(self._fail_node):
                self._fail_node(node.name)
        elif state == "FUTURE":
            node.base_state = "FUTURE"
        else:
            node.flags.add("NOT_RESPONDING")

    def shown(self, node: NodeRecord) -> None:
        """The node changed: scheduler, ledger and event log hear of it."""
        nodes.show_to_scheduler(node, self._world.columns)
        self._world.admitted.clear()
        settings = {name: getattr(node, name) for name in _KEPT}
        settings["base_state"] = node.base_state if node.base_state in ("DOWN", "FUTURE") else ""
        settings["flags"] = sorted(node.flags & {"DRAIN", "FAIL", "MAINT"})
        self._world.journal.add(SaveNode(node.name, settings))
        self._world.node_changed(node)
        self._world.nodes_returned |= nodes.is_available(node)
        queueing.nodes_changed(self._world)
        self._world.wake_later()

    @staticmethod
    def restore(node: NodeRecord, settings: Mapping[str, object]) -> None:
        for name in _KEPT:
            if name in settings:
                value = settings[name]
                setattr(node, name, tuple(value) if isinstance(value, list) else value)  # type: ignore[arg-type]
        if settings.get("base_state"):
            node.base_state = str(settings["base_state"])
        node.flags |= set(settings.get("flags") or ())  # type: ignore[call-overload]


class PartitionUpdates:
    def __init__(self, world: World) -> None:
        self._world = world

    def update(self, name: str, changes: Mapping[str, str], *, create: bool) -> None:
        """Raises SlurmError."""
        world = self._world
        record = world.partitions.get(name)
        if create:
            if record is not None:
                raise SlurmError(errors.ESLURM_INVALID_PARTITION_NAME)
            record = PartitionRecord(name)
        elif record is None:
            raise SlurmError(errors.ESLURM_INVALID_PARTITION_NAME)
        copy = PartitionRecord(**{field.name: getattr(record, field.name) for field in fields(record)})
        for key, value in changes.items():
            self._key(copy, key, value)
        for field in fields(copy):
            setattr(record, field.name, getattr(copy, field.name))
        world.partitions[name] = record
        if record.default:
            for other in world.partitions.values():
                other.default = other is record
        self._changed(record)

    def _key(self, record: PartitionRecord, key: str, value: str) -> None:
        canonical = _PARTITION_KEY.get(key)
        if key == "state":
            state = _STATES.get(value.upper())
            if state is None:
                raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
            record.state = state
        elif key == "nodes":
            try:
                record.nodes, record.node_sets = inventory.partition_nodes(value, self._world.conf, self._world.nodes)
            except ValueError:
                raise SlurmError(errors.ESLURM_INVALID_NODE_NAME) from None
            record.nodes_text = inventory.compress(record.nodes)
        elif key == "qos" and value and value not in self._world.accounting.qos:
            raise SlurmError(errors.ESLURM_INVALID_QOS)
        elif canonical is None or canonical.name == "PartitionName":
            raise SlurmError(errors.ESLURM_NOT_SUPPORTED)
        else:
            try:
                conf_values.check(canonical, value)
                inventory.apply_key(record, canonical.name, value)
                inventory.one_memory_default(record, canonical.name)
                inventory.name_job_defaults(record)
            except ValueError:
                raise SlurmError(errors.ESLURM_NOT_SUPPORTED) from None

    def _changed(self, record: PartitionRecord) -> None:
        world = self._world
        for node in world.nodes.values():
            listed = node.name in record.nodes
            if listed and record.name not in node.partitions:
                node.partitions = (*node.partitions, record.name)
            elif not listed and record.name in node.partitions:
                node.partitions = tuple(name for name in node.partitions if name != record.name)
        cluster_columns.partition_changed(world, record)
        world.journal.add(SavePartition(record.name, json.loads(json.dumps(asdict(record)))))

    def delete(self, name: str) -> None:
        """Raises SlurmError."""
        world = self._world
        if name not in world.partitions:
            raise SlurmError(errors.ESLURM_INVALID_PARTITION_NAME)
        if any(name in job.partition.split(",") for job in [*world.jobs.pending.values(), *world.jobs.active.values()]):
            raise SlurmError(errors.ESLURM_PARTITION_IN_USE)
        record = world.partitions.pop(name)
        for node in world.nodes.values():
            node.partitions = tuple(one for one in node.partitions if one != name)
        record.state = "INACTIVE"
        cluster_columns.partition_changed(world, record)
        world.journal.add(SavePartition(name, {"deleted": True}))

    @staticmethod
    def restored(settings: Mapping[str, object]) -> PartitionRecord:
        values = {}
        for field in fields(PartitionRecord):
            if field.name in settings:
                value = settings[field.name]
                values[field.name] = tuple(value) if isinstance(value, list) else value
        return PartitionRecord(**values)  # type: ignore[arg-type]
