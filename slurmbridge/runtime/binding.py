"""Which of a node's GPUs each task of a step sees (srun(1), --tres-bind, --gpu-bind)."""
from __future__ import annotations

from collections.abc import Sequence


def bound_gpus(tres_bind: str | None, gpus: Sequence[int], local: int) -> list[int]:
    """The devices of local task ``local``; all of ``gpus`` where nothing binds them."""
    for part in (tres_bind or "").split("+"):
        kind, _, rest = part.removeprefix("gres/").partition(":")
        if kind != "gpu":
            continue
        words = [word for word in rest.removeprefix("verbose,").split(":") if word != "verbose"]
        how, values = (words[0] if words else ""), (words[1] if len(words) > 1 else "")
        if how == "per_task":
            count = int(values) if values.isdigit() else 1
            return list(gpus[local * count:(local + 1) * count])
        if how == "single" and gpus:
            tasks = int(values) if values.isdigit() else 1
            return [gpus[local // max(1, tasks) % len(gpus)]]
        if how in ("map_gpu", "map") and values:
            numbers = _expanded(values)
            return _listed(gpus, [int(numbers[local % len(numbers)], 0)])
        if how in ("mask_gpu", "mask") and values:
            masks = _expanded(values)
            mask = int(masks[local % len(masks)], 16)
            return _listed(gpus, [bit for bit in range(mask.bit_length()) if mask >> bit & 1])
    return list(gpus)


def gpu_line(tres_bind: str | None, gpus: Sequence[int], bound: Sequence[int]) -> str:
    """What a task with ``verbose`` says of its devices, "" without; ``bound`` are some of ``gpus``, the step's."""
    kinds = [part.removeprefix("gres/") for part in (tres_bind or "").split("+")]
    if not bound or not any(kind.startswith(("gpu:verbose,", "gpu:verbose:")) for kind in kinds):
        return ""
    usable = sum(1 << gpus.index(gpu) for gpu in bound)
    every = sum(1 << gpu for gpu in gpus)
    names = ",".join(map(str, bound))
    return (f"gpu-bind: usable_gres={usable:#x}; bit_alloc={every:#x}; local_inx=0; global_list={names}; "
            f"local_list={names}\n")


def _expanded(values: str) -> list[str]:
    """``0*2,1`` -> 0, 0, 1."""
    result: list[str] = []
    for value in values.split(","):
        number, star, times = value.partition("*")
        result += [number] * (int(times) if star and times.isdigit() else 1)
    return result


def _listed(gpus: Sequence[int], places: Sequence[int]) -> list[int]:
    return [gpus[place] for place in places if place < len(gpus)]
