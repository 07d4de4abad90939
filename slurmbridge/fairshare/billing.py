"""What a job's TRES cost by the TRESBillingWeights of its partition; PriorityWeightTRES has the same grammar."""
from __future__ import annotations

from collections.abc import Mapping

from slurmbridge.slurm import tres as grammar

_PER_NODE = frozenset({"cpu", "mem", "node"})


def parse_weights(text: str, tres_ids: Mapping[str, int] | None = None) -> dict[str, float]:
    """``"CPU=1.0,Mem=0.25G,GRES/gpu=10"`` -> weight per base unit (of "mem": MB) by TRES name.

    In the order in which Slurm adds them up: by TRES number, ``tres_ids`` knows those above the fixed ones. Raises
    slurmbridge.slurm.tres.TresError for an item without a number.
    """
    fixed = {name: place for place, name in enumerate(grammar.ORDER)}
    numbers = tres_ids or {}
    weights = grammar.parse_weights(text)
    return dict(sorted(weights.items(), key=lambda item: fixed.get(item[0], 1000 + numbers.get(item[0], 1 << 32))))


def billable(tres: Mapping[str, int], weights: Mapping[str, float] | None, flags: frozenset[str] = frozenset(),
             default_cpus: int | None = None) -> float:
    """The unrounded billing of an allocation or request.

    Without weights (None or empty) it is the number of CPUs: ``default_cpus``, else the "cpu" of ``tres``.
    PriorityFlags MAX_TRES bills the dearest of cpu, mem, node and gres instead of their sum, MAX_TRES_GRES the dearest
    of cpu, mem and node plus all gres; licenses and burst buffers are always added.
    """
    if not weights:
        return float(tres.get("cpu", 0) if default_cpus is None else default_cpus)
    only_gres = "MAX_TRES_GRES" in flags
    dearest = "MAX_TRES" in flags or only_gres
    node_bill = gres_bill = global_bill = 0.0
    for name, weight in weights.items():
        if name == "billing":
            continue
        cost = float(tres.get(name, 0)) * weight
        is_gres = name.startswith("gres/")
        if not dearest or not (is_gres or name in _PER_NODE):
            global_bill += cost
        elif only_gres and is_gres:
            gres_bill += cost
        else:
            node_bill = max(node_bill, cost)
    return node_bill + gres_bill + global_bill
