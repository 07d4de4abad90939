"""The association tree as columns: who is whose child, what share each one has, and what its usage makes of it.

``build_tree`` is run when associations change; ``fair_tree`` or ``classic`` whenever usage did. All arithmetic that
decides a rank is done in C's ``long double`` (``numpy.longdouble``), as Slurm does it: two users tie, or do not, by the
last bit. Sources: sshare(1), the pages on Fair Tree, on the classic fair share and on depth-oblivious fair share.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LongDoubles = NDArray[np.longdouble]
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]

PARENT_SHARES = 0x7FFFFFFF
"""Shares value of Fairshare=parent."""

_UNSET = 0xFFFFFFFE                           # Slurm's "no value": what the root has for the shares of its level
_UNSET_LEVEL = np.longdouble(_UNSET)          # what an account without a level_fs of its own sorts by
_STEEPNESS = 5.0                              # of the correction in depth-oblivious fair share


@dataclass(frozen=True, slots=True)
class Association:
    """One association as the fair share needs it. ``parent_id`` 0: the cluster's root."""

    id: int
    parent_id: int
    account: str
    user: str = ""
    partition: str = ""
    shares: int = 1
    priority: int | None = None               # None: the nearest account above decides


@dataclass(frozen=True, slots=True)
class Tree:
    """Columns with one row per association, in the order in which Slurm lists them; row 0 is the root.

    ``fs_parent`` is the nearest association above with shares of its own: its children are compared with each other.
    """

    ids: Rows
    row_of: dict[int, int]
    parent: Rows                              # -1 for the root
    fs_parent: Rows                           # -1 for the root
    depth: Rows                               # real depth, root 0
    is_user: Flags
    from_parent: Flags                        # Fairshare=parent
    shares: Rows
    level_shares: Rows                        # sum over the siblings under fs_parent
    levels: tuple[Rows, ...]                  # rows by depth below fs_parent, root excluded
    users_below: Rows                         # user associations in the subtree of fs_parent links, itself included
    user_count: int
    priority: Rows                            # association priority after inheritance
    priority_norm: Doubles                    # by the highest one
    paths: tuple[str, ...]                    # lineage


@dataclass(frozen=True, slots=True)
class Standing:
    """What the usage makes of a tree, by row. NaN: Slurm has no value there (it prints blank)."""

    norm_shares: Doubles
    norm_usage: LongDoubles
    effective_usage: LongDoubles
    level_fs: LongDoubles
    fair_share: Doubles


def _lineages(associations: Sequence[Association]) -> dict[int, str]:
    by_id = {a.id: a for a in associations}
    paths: dict[int, str] = {}

    def path(association_id: int, depth: int = 0) -> str | None:
        if association_id in paths:
            return paths[association_id]
        found = by_id.get(association_id)
        if found is None or depth > len(by_id):
            return None
        if not found.parent_id:
            paths[association_id] = "/"
            return "/"
        above = path(found.parent_id, depth + 1)
        if above is None:
            return None
        own = f"0-{found.user}/" if found.user else f"{found.account}/"
        paths[association_id] = above + own + (f"{found.partition}/" if found.partition else "")
        return paths[association_id]

    for association in associations:
        path(association.id)
    return paths


def build_tree(associations: Iterable[Association]) -> Tree:
    """The columns of a tree. Raises ValueError without a root. Associations with no way up to it are left out."""
    given = list(associations)
    paths = _lineages(given)
    ordered = sorted((a for a in given if a.id in paths), key=lambda a: (bool(a.parent_id), paths[a.id]))
    if not ordered or ordered[0].parent_id:
        raise ValueError("an association tree needs a root")
    count = len(ordered)
    row_of = {a.id: row for row, a in enumerate(ordered)}
    shares = np.array([a.shares for a in ordered], np.int64)
    is_user = np.array([bool(a.user) for a in ordered], np.bool_)
    from_parent = shares == PARENT_SHARES
    parent = np.full(count, -1, np.int64)
    fs_parent = np.full(count, -1, np.int64)
    depth = np.zeros(count, np.int64)
    fs_depth = np.zeros(count, np.int64)
    priority = np.zeros(count, np.int64)
    for row, a in enumerate(ordered):
        if row:
            above = row_of[a.parent_id]
            parent[row] = above
            fs_parent[row] = fs_parent[above] if above and from_parent[above] else above
            depth[row] = depth[above] + 1
            fs_depth[row] = fs_depth[fs_parent[row]] + 1
        inherited = priority[parent[row]] if row else 0
        priority[row] = inherited if a.priority is None else a.priority
    below = np.arange(1, count)
    level_sum = np.zeros(count, np.int64)
    own = below[~from_parent[below]]
    np.add.at(level_sum, fs_parent[own], shares[own])
    level_shares = np.full(count, _UNSET, np.int64)
    level_shares[below] = level_sum[fs_parent[below]]
    levels = tuple(below[fs_depth[below] == level] for level in range(1, int(fs_depth.max()) + 1))
    users_below = is_user.astype(np.int64)
    for level in reversed(levels):
        np.add.at(users_below, fs_parent[level], users_below[level])
    highest = int(priority.max())
    return Tree(
        ids=np.array([a.id for a in ordered], np.int64), row_of=row_of, parent=parent, fs_parent=fs_parent, depth=depth,
        is_user=is_user, from_parent=from_parent, shares=shares, level_shares=level_shares, levels=levels,
        users_below=users_below, user_count=int(is_user.sum()), priority=priority,
        priority_norm=priority / float(highest) if highest else np.zeros(count),
        paths=tuple(paths[a.id] for a in ordered))


def roll_up(tree: Tree, own_usage: LongDoubles) -> LongDoubles:
    """Usage with everything below added, from what was used directly at each row."""
    total = np.array(own_usage, np.longdouble)
    for depth in range(int(tree.depth.max()), 0, -1):
        rows = np.flatnonzero(tree.depth == depth)
        np.add.at(total, tree.parent[rows], total[rows])
    return total


def _ratio(tree: Tree) -> Doubles:
    """shares / shares of the level, 0 where the level has none."""
    ratio = np.zeros(len(tree.shares))
    np.divide(tree.shares, tree.level_shares, out=ratio, where=tree.level_shares > 0)
    return ratio


def _norm_usage(usage: LongDoubles) -> LongDoubles:
    if not usage[0]:
        return np.zeros(len(usage), np.longdouble)
    share: LongDoubles = usage / usage[0]
    return np.minimum(share, np.longdouble(1))


def _borrow(tree: Tree, norm_shares: Doubles) -> Doubles:
    """Norm shares with those of Fairshare=parent rows taken from their fs_parent."""
    rows = np.flatnonzero(tree.from_parent & (tree.fs_parent >= 0))
    norm_shares[rows] = norm_shares[tree.fs_parent[rows]]
    return norm_shares


def fair_tree(tree: Tree, usage: LongDoubles) -> Standing:
    """Fair Tree. ``usage``: total raw usage by row (billing-seconds).

    Siblings are compared by level_fs = norm shares / effective usage; users get rank / number of users in the order of
    a walk from the best branch down. Tied users share a rank, and so do the first user of an account that ties with
    its predecessor and that predecessor's last one. (Slurm's pages say that tied accounts are merged; Slurm's daemon
    does not do so, nor do we.)
    """
    count = len(usage)
    norm_shares = _borrow(tree, _ratio(tree))
    norm_usage = _norm_usage(usage)
    norm_usage[0] = np.nan
    up = tree.fs_parent
    effective = np.zeros(count, np.longdouble)
    whole = usage[up]
    np.divide(usage, whole, out=effective, where=whole != 0)
    effective[0] = 1
    with np.errstate(divide="ignore", invalid="ignore"):
        level_fs = np.where(norm_shares == 0, np.longdouble(0), norm_shares.astype(np.longdouble) / effective)
    level_fs[tree.from_parent] = np.where(tree.is_user[tree.from_parent], np.longdouble(np.inf), _UNSET_LEVEL)
    level_fs[0] = _UNSET_LEVEL
    fair_share = _ranks(tree, level_fs)
    level_fs[0] = np.nan
    return Standing(norm_shares, norm_usage, effective, level_fs, fair_share)


def _ranks(tree: Tree, level_fs: LongDoubles) -> Doubles:
    """The fair-share factor of every user row, NaN for accounts."""
    count = len(level_fs)
    fair_share = np.full(count, np.nan)
    if count == 1 or not tree.user_count:
        return fair_share
    rows = np.arange(1, count)
    order = 1 + np.lexsort((rows, ~tree.is_user[1:], -level_fs[1:], tree.fs_parent[1:]))
    group = tree.fs_parent[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = group[1:] != group[:-1]
    previous = np.where(first, _UNSET_LEVEL, np.concatenate((level_fs[:1], level_fs[order[:-1]])))
    tied = np.zeros(count, np.bool_)
    tied[order] = previous == level_fs[order]
    is_first = np.zeros(count, np.bool_)
    is_first[order] = first
    sizes = tree.users_below[order]
    running = np.cumsum(sizes) - sizes
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    before = np.zeros(count, np.int64)                    # users met before this row on the walk
    before[order] = running - running[start]
    for level in tree.levels:
        up = tree.fs_parent[level]
        before[level] += before[up]
        tied[level] |= is_first[level] & tied[up]
    users = np.flatnonzero(tree.is_user)
    at = before[users]
    walk = np.empty(len(users), np.int64)
    walk[at] = users
    step = np.arange(len(users))
    rank = len(users) - np.maximum.accumulate(np.where(tied[walk], 0, step))
    fair_share[walk] = rank / float(len(users))
    return fair_share


def classic(tree: Tree, usage: LongDoubles, *, dampening: int = 1, depth_oblivious: bool = False) -> Standing:
    """The fair share of NO_FAIR_TREE and DEPTH_OBLIVIOUS: 2^-(effective usage / norm shares / dampening)."""
    count = len(usage)
    norm_shares = _classic_norm_shares(tree)
    norm_usage = _norm_usage(usage)
    effective = norm_usage.copy()
    effective[0] = 1
    siblings_usage = np.zeros(count, np.longdouble)
    own = np.flatnonzero(~tree.from_parent & (tree.fs_parent >= 0))
    np.add.at(siblings_usage, tree.fs_parent[own], norm_usage[own])
    ratio = _ratio(tree).astype(np.longdouble)
    exact_ratio = np.divide(tree.shares.astype(np.longdouble), tree.level_shares.astype(np.longdouble), out=ratio,
                            where=tree.level_shares > 0)
    for level in tree.levels[1:]:
        up = tree.fs_parent[level]
        if depth_oblivious:
            value = _depth_oblivious(norm_shares, norm_usage, effective, siblings_usage, level, up)
        else:
            used, above = norm_usage[level], effective[up]
            value = np.where(tree.level_shares[level] == 0, above, used + (above - used) * exact_ratio[level])
        effective[level] = np.where(tree.from_parent[level], effective[up], value)
    source = np.where(tree.from_parent & (tree.fs_parent >= 0), tree.fs_parent, np.arange(count))
    shares_of = norm_shares[source]
    with np.errstate(divide="ignore", invalid="ignore"):
        power = (-(effective[source] / shares_of) / dampening).astype(np.float64)
        fair_share = np.where(shares_of <= 0, 0.0, np.power(2.0, power))
    fair_share[~tree.is_user] = np.nan
    norm_usage[0] = np.nan
    return Standing(norm_shares, norm_usage, effective, np.zeros(count, np.longdouble), fair_share)


def _classic_norm_shares(tree: Tree) -> Doubles:
    """The product of the share ratios on the way up, multiplied from the leaf."""
    ratio = np.where(tree.from_parent, 1.0, _ratio(tree))
    product = np.ones(len(ratio))
    at = np.arange(len(ratio))
    while True:
        going = at > 0
        if not going.any():
            break
        product[going] *= ratio[at[going]]
        at = np.where(going, tree.parent[at], 0)
    return _borrow(tree, product)


def _depth_oblivious(norm_shares: Doubles, norm_usage: LongDoubles, effective: LongDoubles, siblings_usage: LongDoubles,
                     rows: Rows, up: Rows) -> LongDoubles:
    """Effective usage that does not depend on how deep in the tree the usage happened."""
    value = norm_usage[rows].copy()
    good = (norm_shares[rows] != 0) & (norm_shares[up] != 0) & (effective[up] != 0) & (value != 0)
    at, above = rows[good], up[good]
    if not len(at):
        return value
    parent_ratio = effective[above] / norm_shares[above]
    own_ratio = norm_usage[at] / norm_shares[at] / (siblings_usage[above] / norm_shares[above])
    log_parent = np.log(parent_ratio)
    weight = np.where(log_parent * np.log(own_ratio) >= 0, np.longdouble(1), 1 / (1 + (_STEEPNESS * log_parent) ** 2))
    moved = np.power(own_ratio.astype(np.float64), weight.astype(np.float64))
    value[good] = parent_ratio * moved * norm_shares[at]
    return value
