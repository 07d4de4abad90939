"""Hostlists against answers of real scontrol 25.11, and round trips."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmbridge.slurm import hostlist

RECORDED = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "hostlists.jsonl").open()]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["text"][:40])
def test_recorded(case: dict[str, str]) -> None:
    if "hostlist" not in case:
        with pytest.raises(hostlist.HostlistError) as caught:
            hostlist.parse(case["text"])
        assert str(caught.value) in case["stderr"]
        return
    names = hostlist.parse(case["text"])
    assert "".join(f"{name}\n" for name in names) == case["hostnames"]
    assert names.ranged() + "\n" == case["hostlist"]
    names.sort()
    assert names.ranged() + "\n" == case["hostlistsorted"]


NAMES = st.lists(st.tuples(st.sampled_from(["n", "gpu-", "r1c", ""]), st.integers(0, 120),
                           st.sampled_from([0, 2, 3])), max_size=40).map(
    lambda rows: [f"{prefix}{str(number).zfill(width)}" for prefix, number, width in rows])


@settings(max_examples=150, deadline=None)
@given(NAMES)
def test_compress_then_expand_gives_the_same_names(names: list[str]) -> None:
    assert hostlist.expand(hostlist.compress(names)) == names


@settings(max_examples=150, deadline=None)
@given(NAMES)
def test_sorting_keeps_duplicates_and_unique_drops_them(names: list[str]) -> None:
    assert sorted(hostlist.expand(hostlist.compress(names, sort=True))) == sorted(names)
    assert sorted(hostlist.expand(hostlist.compress(names, unique=True))) == sorted(set(names))


def test_count_does_not_expand() -> None:
    assert len(hostlist.parse("n[0-65535]")) == 65536
    with pytest.raises(hostlist.HostlistError, match="Too many hosts in range"):
        hostlist.parse("n[0-65536]")
    with pytest.raises(hostlist.HostlistError):
        hostlist.parse("a[0-65535]b[0-9],a[0-99999]b[1]")


@pytest.mark.parametrize(("a", "b", "order"), [
    ("n2", "n10", -1), ("n10", "n2", 1), ("n02", "n1", -1), ("a", "a", 0), ("n1a", "n1b", -1), ("n", "n1", -1),
    ("n 1", "n1", 0), ("x100y", "x99y", 1)])
def test_natural_order(a: str, b: str, order: int) -> None:
    assert hostlist.natural_compare(a, b) == order
