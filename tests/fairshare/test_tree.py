"""The fast ranking against a plain recursive one, on random trees with all the ties and zeros there are."""
from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from slurmbridge.fairshare.tree import PARENT_SHARES, Association, Tree, build_tree, classic, fair_tree, roll_up

UNSET = np.longdouble(0xFFFFFFFE)


def random_tree(seed: int, size: int) -> tuple[list[Association], dict[int, int]]:
    """Associations (shuffled) and what each user used. Few different numbers, so that much is tied."""
    choose = random.Random(seed)
    shares = choose.choice([[1], [0, 1], [1, 1, 2, PARENT_SHARES], [0, 1, 3, 10, PARENT_SHARES], [1, 7, 40, 9999]])
    used = choose.choice([[0], [0, 100], [0, 1, 100, 100, 7777], [3]])
    made = [Association(1, 0, "root")]
    accounts = [(1, "root")]
    usage = {}
    for number in range(2, size):
        parent, account = choose.choice(accounts[-30:] if choose.random() < 0.5 else accounts)
        if choose.random() < 0.25:
            made.append(Association(number, parent, f"a{number}", shares=choose.choice(shares)))
            accounts.append((number, f"a{number}"))
        else:
            partition = choose.choice(["", "", "gpu"])
            made.append(Association(number, parent, account, f"u{number}", partition, choose.choice(shares)))
            usage[number] = choose.choice(used)
    choose.shuffle(made)
    return made, usage


class Plain:
    """Fair Tree node by node, as its definition reads."""

    def __init__(self, associations: list[Association], usage: dict[int, int]) -> None:
        self.by_id = {a.id: a for a in associations}
        self.below: dict[int, list[Association]] = {}
        for a in sorted(associations, key=self.path):
            if a.parent_id:
                self.below.setdefault(self.judge(a).id, []).append(a)
        self.usage = {a.id: np.longdouble(0) for a in associations}
        for number, used in usage.items():
            at: Association | None = self.by_id[number]
            while at:
                self.usage[at.id] += used
                at = self.by_id.get(at.parent_id)
        self.users = sum(bool(a.user) for a in associations)
        self.rank = self.untied = self.users
        self.factors: dict[int, float] = {}

    def path(self, a: Association) -> str:
        own = f"0-{a.user}/{a.partition + '/' if a.partition else ''}" if a.user else f"{a.account}/"
        return self.path(self.by_id[a.parent_id]) + own if a.parent_id else "/"

    def judge(self, a: Association) -> Association:
        """The nearest association above with shares of its own."""
        above = self.by_id[a.parent_id]
        while above.shares == PARENT_SHARES and above.parent_id:
            above = self.by_id[above.parent_id]
        return above

    def level_fs(self, a: Association) -> np.longdouble:
        if a.shares == PARENT_SHARES:
            return np.longdouble(np.inf) if a.user else UNSET
        siblings = self.below[self.judge(a).id]
        level = sum(s.shares for s in siblings if s.shares != PARENT_SHARES)
        share = a.shares / level if level else 0.0
        if not share:
            return np.longdouble(0)
        whole = self.usage[self.judge(a).id]
        used = self.usage[a.id] / whole if whole else np.longdouble(0)
        return np.longdouble(share) / used if used else np.longdouble(np.inf)

    def walk(self, parent: int, tied_with_previous: bool = False) -> None:
        level = {a.id: self.level_fs(a) for a in self.below.get(parent, [])}
        previous = UNSET
        for place, a in enumerate(sorted(self.below.get(parent, []), key=lambda a: (-level[a.id], not a.user))):
            tied = tied_with_previous if place == 0 and tied_with_previous else previous == level[a.id]
            if a.user:
                self.rank = self.rank if tied else self.untied
                self.factors[a.id] = self.rank / self.users
                self.untied -= 1
            else:
                self.walk(a.id, tied)
            previous = level[a.id]


def own_usage(tree: Tree, usage: dict[int, int]) -> np.ndarray:
    return np.array([usage.get(number, 0) for number in tree.ids.tolist()], np.longdouble)


@pytest.mark.parametrize("seed", range(40))
def test_ranking_equals_the_recursive_one(seed: int) -> None:
    associations, usage = random_tree(seed, 300 if seed else 3000)
    plain = Plain(associations, usage)
    plain.walk(1)
    tree = build_tree(associations)
    standing = fair_tree(tree, roll_up(tree, own_usage(tree, usage)))
    users = np.flatnonzero(tree.is_user)
    assert {int(tree.ids[row]): float(standing.fair_share[row]) for row in users} == plain.factors
    assert np.isnan(standing.fair_share[~tree.is_user]).all()


def siblings(tree: Tree, number: int) -> list[int]:
    return [int(n) for n, up in zip(tree.ids, tree.fs_parent) if up == tree.fs_parent[tree.row_of[number]]]


@pytest.mark.parametrize("seed", range(20))
def test_classic_shares_and_usage_add_up(seed: int) -> None:
    associations, usage = random_tree(seed, 300)
    tree = build_tree(associations)
    total = roll_up(tree, own_usage(tree, usage))
    standing = classic(tree, total)
    leaf = [row for row in range(1, len(tree.ids)) if tree.is_user[row] and not tree.from_parent[row]]
    for row in leaf:
        share, at = 1.0, row
        while at > 0:
            if not tree.from_parent[at]:
                level = sum(int(tree.shares[tree.row_of[n]]) for n in siblings(tree, int(tree.ids[at]))
                            if not tree.from_parent[tree.row_of[n]])
                share *= tree.shares[at] / level if level else 0.0
            at = int(tree.parent[at])
        assert standing.norm_shares[row] == pytest.approx(share, rel=1e-12)
        used = standing.effective_usage[row]
        factor = 2.0 ** -float(used / share) if share else 0.0
        assert standing.fair_share[row] == pytest.approx(factor, rel=1e-9)
    dampened = classic(tree, total, dampening=4).fair_share
    assert (dampened[leaf] >= standing.fair_share[leaf] - 1e-12).all()


def _lone_root() -> list[Association]:
    return [Association(1, 0, "root")]


@pytest.mark.parametrize("rank", [fair_tree, classic, lambda t, u: classic(t, u, depth_oblivious=True)])
def test_a_tree_of_only_the_root(rank: Callable[..., object]) -> None:
    tree = build_tree(_lone_root())
    assert rank(tree, np.zeros(1, np.longdouble)) is not None


def test_without_a_root_there_is_no_tree() -> None:
    with pytest.raises(ValueError, match="root"):
        build_tree([Association(2, 1, "a")])


def test_children_of_an_unknown_parent_are_left_out() -> None:
    tree = build_tree([*_lone_root(), Association(5, 99, "lost"), Association(6, 1, "a")])
    assert tree.ids.tolist() == [1, 6]


def test_association_priority_is_inherited_until_set_again() -> None:
    tree = build_tree([*_lone_root(), Association(2, 1, "a", priority=40), Association(3, 2, "a", "u"),
                       Association(4, 2, "b", priority=80), Association(5, 4, "b", "v")])
    by_id = dict(zip(tree.ids.tolist(), tree.priority_norm.tolist()))
    assert by_id == {1: 0, 2: 0.5, 3: 0.5, 4: 1, 5: 1}
