"""Our getopt_long against util-linux getopt(1), which calls glibc's, on random command lines."""
from __future__ import annotations

import random
import shlex
import shutil
import subprocess

import pytest

from slurmbridge.slurm.getopt import LongOption, OptionTable, Parser, parse_all
from slurmbridge.slurm.options import table_of

SHORT = "ab:c::xn:"
NAMES = {"alpha": 0, "alpine": 0, "beta": 1, "gamma": 2, "nodes": 1, "ntasks": 1, "ntasks-per-node": 1, "x": 0,
         "ntasks-per-core": 1}
LONG = ",".join(name + ":" * argument for name, argument in NAMES.items())
WORDS = ("-a", "-b", "-bx", "-c", "-cx", "-ab", "-axb5", "-x", "-q", "-", "--", "--alpha", "--al", "--alp",
         "--alpha=1", "--beta", "--beta=2", "--be=", "--gamma", "--gamma=3", "--g=", "--n", "--nt", "--ntasks=4",
         "--ntasks-per-", "--ntasks-per-n=2", "--nodes", "--bogus", "--bogus=1", "word", ":", "-n", "-n4", "-nn", "--x",
         "-a-", "--=", "")


def ours(words: list[str], permute: bool) -> tuple[list[str], list[str], list[str]]:
    table = OptionTable(SHORT, [LongOption(name, arg, name) for name, arg in NAMES.items()])
    parser = Parser("prog", words, table, permute=permute)
    options: list[str] = []
    errors: list[str] = []
    while (item := parser.next()) is not None:
        if parser.error:
            errors.append(parser.error)
            continue
        key, value = item
        options.append(f"--{key}" if key in NAMES and (len(key) > 1) else f"-{key}")
        if NAMES.get(key) or key in "bcn":
            options.append(value or "")
    return options, parser.operands, errors


@pytest.mark.skipif(not shutil.which("getopt"), reason="util-linux getopt is not here")
@pytest.mark.parametrize("seed", range(120))
def test_random_command_lines(seed: int) -> None:
    rng = random.Random(seed)
    words = [rng.choice(WORDS) for _ in range(rng.randint(0, 6))]
    permute = seed % 2 == 1
    result = subprocess.run(["getopt", "-n", "prog", "-o", ("" if permute else "+") + SHORT, "-l", LONG, "--", *words],
                            capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    options, operands, errors = ours(words, permute)
    assert errors == result.stderr.splitlines()
    if not errors:
        printed = shlex.split(result.stdout)
        assert [*[o.replace("-x", "-x") for o in options], "--", *operands] == [
            "-x" if word == "--x" else word for word in printed]


@pytest.mark.parametrize(("words", "error"), [
    (["--ntask=8"], "sbatch: option '--ntask=8' is ambiguous; possibilities: '--ntasks' '--ntasks-per-core' "
                    "'--ntasks-per-gpu' '--ntasks-per-node' '--ntasks-per-socket' '--ntasks-per-tres'"),
    (["-n"], "sbatch: option requires an argument -- 'n'"),
    (["--nodes"], "sbatch: option '--nodes' requires an argument"),
    (["-–"], "sbatch: invalid option -- '\udce2'"),
    (["--hold=1"], "sbatch: option '--hold' doesn't allow an argument")])
def test_mistakes(words: list[str], error: str) -> None:
    assert parse_all("sbatch", words, table_of("sbatch"))[2] == error


def test_two_names_of_one_option_are_never_ambiguous() -> None:
    assert parse_all("srun", ["--cpu=2"], table_of("srun"))[2] != ""
    found, operands, error = parse_all("srun", ["--cpu_b=cores", "cmd", "-n2"], table_of("srun"))
    assert (found, operands, error) == ([("cpu-bind", "cores")], ["cmd", "-n2"], "")


@pytest.mark.parametrize(("word", "option"), [
    ("--container-image=a", ("container-image", "a")), ("--container-im=a", ("container-image", "a")),
    ("--container-w=/x", None), ("--container-wo=/x", ("container-workdir", "/x")),
    ("--no-container-m", ("no-container-mount-home", None)), ("--container-mo=a", None),
    ("--container-mounts=a", ("container-mounts", "a")), ("--container-i=a", None),
    ("--container-id=a", ("container-id", "a")), ("--container=a", ("container", "a"))])
def test_pyxis_options_are_abbreviated_too(word: str, option: tuple[str, str | None] | None) -> None:
    found, _, error = parse_all("sbatch", [word], table_of("sbatch"))
    assert found == ([option] if option else [])
    assert ("is ambiguous" in error) == (option is None)
