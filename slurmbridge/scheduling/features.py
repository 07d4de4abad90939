"""Job constraints (``-C``): the grammar of sbatch(1) --constraint and which nodes satisfy an expression.

An expression is kept as a flat list with operators and nesting depths. Operators: ``&`` and ``|`` between features,
``[a|b]`` all nodes from one of the alternatives, ``[a*2&b*1]`` counts per feature, ``a*2`` at least so many nodes.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slurmbridge.scheduling.facts import BoolArray

AND, OR, ALTERNATIVE, COUNTED, END = "&", "|", "[|]", "[&]", ""
_TOKENS = re.compile(r"[&|()\[\]]|\*\d*|[^&|()\[\]*]+")


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature, the operator that follows it and the depth of parentheses it stands in."""

    name: str
    op: str = END
    count: int = 0
    paren: int = 0
    bracket: int = 0


class FeatureError(ValueError):
    """The expression is malformed: "Invalid feature specification"."""


@lru_cache(maxsize=4096)
def parse(text: str | None) -> tuple[Feature, ...]:
    """The expression as a list; () for no constraint. Raises FeatureError."""
    if not text:
        return ()
    out: list[Feature] = []
    name: str | None = None
    closed = False
    count = paren = bracket = brackets = 0
    starred = False
    for token in _TOKENS.findall(text.replace(",", "&")):
        if token[0] == "*":
            if name is None or paren or not token[1:] or int(token[1:]) <= 0:
                raise FeatureError(text)
            count = int(token[1:])
            starred |= not bracket
        elif token in "&|":
            if name is None:
                raise FeatureError(text)
            out.append(Feature(name, _operator(token, paren, bracket), count, paren, bracket))
            name, count, closed = None, 0, False
        elif token in "([":
            nested = paren if token == "(" else paren or bracket or brackets
            if name is not None or nested:
                raise FeatureError(text)
            if token == "(":
                paren += 1
            else:
                bracket, brackets = 1, 1
        elif token in ")]":
            depth = paren if token == ")" else bracket
            if name is None or not depth or (token == "]" and paren):
                raise FeatureError(text)
            if token == ")":
                paren -= 1
            else:
                bracket = 0
            closed = True
        elif name is None:
            name = token
        elif closed:
            raise FeatureError(text)
    if name is not None:
        out.append(Feature(name, END, count, paren, bracket))
    if paren or bracket or (starred and len(out) > 1) or not _counts_fit(out):
        raise FeatureError(text)
    return tuple(out)


def _operator(token: str, paren: int, bracket: int) -> str:
    if token == "&":
        return COUNTED if bracket and not paren else AND
    return ALTERNATIVE if bracket and not paren else OR


def _counts_fit(features: list[Feature]) -> bool:
    """Alternatives take no counts; counted lists need them all."""
    group = ""
    for feature in features:
        if feature.op == ALTERNATIVE and feature.count:
            return False
        if feature.op == COUNTED and not feature.count:
            return False
        if group and feature.paren == 0 and feature.op not in (ALTERNATIVE, COUNTED):
            if (group == COUNTED) != bool(feature.count):
                return False
            group = ""
        elif feature.op in (ALTERNATIVE, COUNTED):
            group = feature.op
    return True


Lookup = Callable[[str], BoolArray]


def match(features: tuple[Feature, ...], lookup: Lookup, nodes: BoolArray) -> tuple[BoolArray, bool]:
    """Nodes of ``nodes`` that satisfy the expression's & and | parts, and whether it has a bracket group (whose
    alternatives are then tried one by one). Counted expressions leave ``nodes`` as they are."""
    result = nodes.copy()
    work = result
    grouped = counted = False
    last_op, last_paren_op, depth = AND, AND, 0
    for feature in features:
        if feature.paren > depth:
            in_group = feature.bracket and last_op not in (ALTERNATIVE, COUNTED)
            last_paren_op = COUNTED if in_group else last_op
            last_op = AND
            work = nodes.copy()
        mask = lookup(feature.name)
        if feature.op in (ALTERNATIVE, COUNTED):
            grouped = True
        elif last_op == AND:
            work &= mask
        elif last_op == OR:
            work |= mask
        counted |= feature.count > 0
        if depth > feature.paren:
            if last_paren_op == AND:
                result &= work
            elif last_paren_op == OR:
                result |= work
            else:
                grouped = True
            work = result
        last_op, depth = feature.op, feature.paren
    return (nodes if counted else work & nodes), grouped


def alternatives(features: tuple[Feature, ...], lookup: Lookup) -> list[BoolArray]:
    """For an expression with a bracket group: the nodes of each alternative, in order."""
    out: list[BoolArray] = []
    last_op = AND
    at = 0
    while at < len(features):
        feature = features[at]
        mask = lookup(feature.name).copy()
        if feature.paren:
            if feature.bracket and last_op not in (ALTERNATIVE, COUNTED):
                last_op = COUNTED
            op = feature.op
            while feature.paren and at + 1 < len(features):
                at += 1
                feature = features[at]
                if op == AND:
                    mask &= lookup(feature.name)
                elif op == OR:
                    mask |= lookup(feature.name)
                op = feature.op
        if feature.op in (ALTERNATIVE, COUNTED) or last_op in (ALTERNATIVE, COUNTED):
            out.append(mask)
            last_op = feature.op
        at += 1
    return out


def counted_groups(features: tuple[Feature, ...], lookup: Lookup) -> list[tuple[int, BoolArray, bool]]:
    """(count, nodes, is of a counted list) of every feature or parenthesis with a count, in order."""
    out: list[tuple[int, BoolArray, bool]] = []
    group: BoolArray | None = None
    op, depth = AND, 0
    for feature in features:
        mask = lookup(feature.name)
        if feature.paren > depth:
            group, op, depth = mask.copy(), feature.op, feature.paren
            continue
        if depth:
            assert group is not None
            group = group & mask if op == AND else group | mask
            op, depth = feature.op, feature.paren
            if depth:
                continue
            mask = group
        if feature.count:
            out.append((feature.count, mask, feature.op == COUNTED))
    return out


def names(features: tuple[Feature, ...]) -> list[str]:
    return [feature.name for feature in features]


def single(features: tuple[Feature, ...]) -> list[tuple[Feature, ...]]:
    """Bracket expressions as one plain expression per element, as the backfill pass tries them."""
    out: list[tuple[Feature, ...]] = []
    at = 0
    while at < len(features):
        group = [features[at]]
        while group[-1].paren and at + 1 < len(features):
            at += 1
            group.append(features[at])
        out.append(tuple(Feature(f.name, END if i == len(group) - 1 else f.op, f.count if i == len(group) - 1 else 0)
                         for i, f in enumerate(group)))
        at += 1
    return out


def lookup_in(columns: dict[str, BoolArray], count: int) -> Lookup:
    """A lookup for ``match``: unknown features are on no node."""
    nothing = np.zeros(count, dtype=np.bool_)
    return lambda name: columns.get(name, nothing)
