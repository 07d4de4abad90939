"""Which cores of a node: spread over its sockets (cyclic, the default) or packed into few (block)."""
from __future__ import annotations

from slurmbridge.scheduling.demand import Question


def balanced(per_socket: list[int], wanted: int) -> list[int]:
    """Cores to keep per socket when only ``wanted`` are needed: the fullest socket gives up one at a time."""
    keep = list(per_socket)
    while sum(keep) > wanted:
        keep[keep.index(max(keep))] -= 1
    return keep


def pick_cyclic(question: Question, sockets: list[list[int]], cpus: int, threads: int) -> list[int] | None:
    """``cpus`` CPUs out of the free cores of each socket, whole tasks on one socket where possible. None: stuck."""
    shape = question.shape
    cpt = shape.cpus_per_task
    queues = [list(s) for s in sockets]
    picked: list[int] = []
    avoid = [False] * len(sockets)
    if shape.ntasks_per_socket:
        avoid = _avoided([len(s) * threads for s in sockets], cpus, shape.ntasks_per_socket * cpt)
    elif cpt > 1:
        remaining = cpt
        for queue in queues:
            room = len(queue) * threads
            room -= room % cpt
            while queue and room > 0 and cpus > 0:
                picked.append(queue.pop(0))
                used = threads
                if shape.ntasks_per_core == 1 and cpt > threads:
                    used = min(remaining, threads)
                    remaining = cpt if remaining <= used else remaining - used
                room = 0 if room < threads else room - used
                cpus = 0 if cpus < threads else cpus - used
    while cpus > 0:
        before = cpus
        for queue, avoided in zip(queues, avoid):
            if avoided or not queue or cpus <= 0:
                continue
            picked.append(queue.pop(0))
            cpus = max(0, cpus - threads)
        if cpus == before:
            return sorted(picked) if shape.overcommit else None
    return sorted(picked)


def _avoided(room: list[int], cpus: int, per_socket: int) -> list[bool]:
    """Sockets that are not needed, with --ntasks-per-socket."""
    total = sum(room)
    for s, count in enumerate(room):
        if total > cpus and count > per_socket:
            total -= count - per_socket
            room[s] = per_socket
    avoid = [False] * len(room)
    for s, count in enumerate(room):
        if total > cpus and count <= per_socket and total - count >= cpus:
            avoid[s] = True
            total -= count
    return avoid


def pick_block(question: Question, sockets: list[list[int]], cpus: int, threads: int) -> list[int] | None:
    """``cpus`` CPUs from as few sockets as possible, the tightest fitting socket first."""
    shape = question.shape
    cpt = shape.cpus_per_task
    needed = -(-cpus // threads)
    one_per_core = shape.ntasks_per_core == 1 and cpt > threads
    if one_per_core:
        needed = cpus // cpt * -(-cpt // threads)
    free = [list(s) for s in sockets]
    picked: list[int] = []
    while needed > 0:
        best = -1
        for s, cores in enumerate(free):
            if not cores:
                continue
            enough = len(cores) >= needed
            if best == -1 or (enough and (len(free[best]) < needed or len(cores) < len(free[best]))) or (
                    not enough and len(free[best]) < needed and len(cores) > len(free[best])):
                best = s
        if best == -1:
            return None
        taken = free[best][:needed]
        picked += taken
        needed -= len(taken)
        free[best] = free[best][len(taken):]
    return sorted(picked)
