"""Memory, TRES, patterns, arrays, exit codes, errors: tables."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmbridge.slurm import array, errors, exitcodes, memory, patterns, tres


@pytest.mark.parametrize(("text", "megabytes"), [
    ("500", 500), ("4G", 4096), ("4g", 4096), ("512MB", 512), ("1T", 1048576), ("1000K", 1), ("1025k", 2), (" 5", 5),
    ("0", 0), ("x", None), ("-1", None), ("1.5G", None), ("4GiB", None), ("", None), ("5b", None)])
def test_sizes(text: str, megabytes: int | None) -> None:
    assert memory.parse_mb(text) == megabytes


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (1000, "1000M"), (1024, "1G"), (4096, "4G"), (2560, "2.50G"),
                                              (128000, "125G"), (1048576, "1T"), (1500, "1500M")])
def test_printed_sizes(number: int, text: str) -> None:
    assert memory.with_unit(number) == text


def test_printed_sizes_in_other_ways() -> None:
    assert memory.with_unit(1500, exact=False) == "1.46G"
    assert memory.with_unit(4096, wanted="K") == "4194304K"
    assert memory.with_unit(4096, keep=True) == "4096M"
    assert [memory.plain_mb(n) for n in (0, 500, 4096, 1048576)] == ["0?", "500", "4G", "1T"]


@pytest.mark.parametrize(("text", "items"), [
    ("gres/gpu:a100:2", [("gpu", "a100", 2)]), ("gres/gpu", [("gpu", "", 1)]), ("gres/gpu=4", [("gpu", "", 4)]),
    ("gres/gpu:a100", [("gpu", "a100", 1)]), ("cpu=2,gres/gpu:1k", [("gpu", "", 1024)]), ("gres/gpu:0", []),
    ("gres/gpu:a100:1,gres/gpu:v100:2", [("gpu", "a100", 1), ("gpu", "v100", 2)]), ("cpu=2", []), ("", [])])
def test_gres_requests(text: str, items: list[tuple[str, str, int]]) -> None:
    assert [tuple(item) for item in tres.items(text, "gres")] == items


@pytest.mark.parametrize("text", ["gres/gpu:", "gres/gpu:a:b", "gres/gpu=x"])
def test_bad_gres_requests(text: str) -> None:
    with pytest.raises(tres.TresError):
        list(tres.items(text, "gres"))


def test_canonical_texts() -> None:
    assert tres.canonical_gres("gpu:2,gres/nic:1") == "gres/gpu:2,gres/nic:1"
    assert tres.prefixed("gres/gpu", "a100:1,v100:1") == "gres/gpu:a100:1,gres/gpu:v100:1"
    assert tres.canonical_kind("gres:gpu:1,cpu=2", "gres") == "gres/gpu:1,cpu=2"
    assert tres.replace_count("cpu=2,gres/gpu=1", "cpu", 4) == "cpu=4,gres/gpu=1"
    assert tres.replace_count("cpu=4", "cpu", 0) is None
    assert tres.replace_count(None, "gres/gpu", 1) == "gres/gpu=1"


def test_counts_and_weights() -> None:
    counts = tres.parse_counts("CPU=4,mem=16G,GRES/gpu:a100=2,billing=1K")
    assert counts == {"cpu": 4, "mem": 16384, "gres/gpu:a100": 2, "billing": 1024}
    shown = {"gres/gpu": 2, "node": 1, "mem": 128000, "cpu": 4, "energy": 0}
    assert tres.format_counts(shown) == "cpu=4,mem=125G,node=1,gres/gpu=2"
    assert tres.parse_weights("CPU=1.0,Mem=0.25G,GRES/gpu=10") == {"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu": 10.0}
    with pytest.raises(tres.TresError):
        tres.parse_weights("CPU=x")
    with pytest.raises(tres.TresError):
        tres.parse_counts("cpu")


FILE = {"job_id": 128, "work_dir": "/w", "user_name": "alice", "job_name": "train", "array_job_id": 120,
        "array_task_id": 7, "node_name": "n1", "node_index": 2, "task_rank": 5, "restarts": 1}


@pytest.mark.parametrize(("pattern", "name"), [
    ("slurm-%j.out", "/w/slurm-128.out"), ("%A_%a", "/w/120_7"), ("%4j-%2t", "/w/0128-05"),
    ("/x/%x-%u", "/x/train-alice"),
    ("%%j", "/w/%j"), ("%q", "/w/%q"), ("%3q", "/w/%3q"), ("a\\%j", "/w/a%j"), ("%J-%s-%b", "/w/128-batch-7"),
    ("%99j", "/w/0000000128"), ("%N.%n", "/w/n1.2"), ("%", "/w/%"), ("%5", "/w/%5"), ("%r", "/w/1")])
def test_file_patterns(pattern: str, name: str) -> None:
    assert patterns.expand(pattern, **FILE) == name


def test_file_patterns_outside_arrays_and_in_srun() -> None:
    assert patterns.expand("%A_%a", job_id=5) == "5_4294967294"
    assert patterns.expand("%j.%s.%N.%t", job_id=5, step=0, keep_per_task=True) == "5.0.%N.%t"
    assert [patterns.is_per_task(text) for text in ("%t", "a%3n", "%%t", "%j", "\\%t", None)] == [
        True, True, False, False, False, False]


@pytest.mark.parametrize(("text", "tasks", "limit"), [
    ("0-9:3%2", (0, 3, 6, 9), 2), ("5", (5,), 0), ("1,3-4", (1, 3, 4), 0), ("[0-2]", (0, 1, 2), 0), ("1%1", (1,), 1)])
def test_array_specifications(text: str, tasks: tuple[int, ...], limit: int) -> None:
    assert array.parse(text) == (tasks, limit)


@pytest.mark.parametrize("text", ["3-1", "-1", "0-20000", "1001", "1:2", "0-4:0", "", ",", "1x"])
def test_bad_array_specifications(text: str) -> None:
    with pytest.raises(array.ArraySpecError):
        array.parse(text)


@pytest.mark.parametrize(("tasks", "limit", "text"), [
    (range(10), 2, "0-9%2"), (range(0, 99, 3), 0, "0-96:3"), ([1, 3, 4], 0, "1,3-4"), ([0, 2, 4], 0, "0,2,4"),
    ([0, 2, 3, 9, 20, 30], 0, "0,2-3,9,20,30")])
def test_array_texts(tasks: list[int], limit: int, text: str) -> None:
    assert array.text(tasks, limit) == text


def test_long_array_texts_are_cut() -> None:
    tasks = [n for n in range(200) if n % 3 and n % 7]
    assert array.text(tasks) == array.ranges(tasks)[:60] + "..."
    assert array.text(tasks, length=0) == array.ranges(tasks)
    assert [array.text_length(v) for v in (None, "0", "100", "9999", "-3", "x")] == [64, 0, 100, 4096, 64, 0]


@given(st.sets(st.integers(0, 900), min_size=1))
def test_array_ranges_read_back(tasks: set[int]) -> None:
    assert array.parse(array.ranges(tasks))[0] == tuple(sorted(tasks))


@given(st.integers(0, 255))
def test_exit_codes(code: int) -> None:
    assert exitcodes.text(exitcodes.exited(code)) == f"{code}:0"
    assert exitcodes.from_text(f"{code}:0") == exitcodes.exited(code)
    assert exitcodes.split(exitcodes.signalled(9)) == (0, 9)
    assert exitcodes.shell_code(exitcodes.signalled(15)) == 143


def test_errors_have_slurms_numbers_and_texts() -> None:
    error = errors.SlurmError(errors.ESLURM_INVALID_QOS)
    assert (error.code, error.text) == (2066, "Invalid qos specification")
    assert errors.strerror(2000) == "Invalid partition name specified"
    assert errors.strerror(2) == "No such file or directory"
