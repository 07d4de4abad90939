"""What a JobRequest carries: precedence, derived counts, environments, het components, names, bad scripts."""
from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.slurm.settings import SlurmConf
from slurmbridge.translate.request import Call, ClientError, Submission, build_requests

ROOT = __file__.rpartition("/tests/")[0]
CONF = SlurmConf(gres_types=("gpu",), values={"GresTypes": "gpu"})


def submit(*argv: str, script: str = "", env: dict[str, str] | None = None, command: str = "sbatch",
           files: dict[str, bytes] | None = None, data: bytes | None = None, **more: object) -> Submission:
    known = {"/w/job.sh": data if data is not None else f"#!/bin/sh\n{script}".encode(), **(files or {})}

    def read(path: str) -> bytes:
        if path not in known:
            raise FileNotFoundError(2, "No such file or directory", path)
        return known[path]

    call = Call(command, argv or ("job.sh",), {"PATH": "/bin", **(env or {})}, "/w", host="vm", uid=1000, gid=100,
                user_name="alice", conf=CONF, **more)   # type: ignore[arg-type]
    return build_requests(call, read, lambda: known["/w/job.sh"])


def one(*argv: str, **more: object) -> JobRequest:
    requests = submit(*argv, **more).requests   # type: ignore[arg-type]
    assert len(requests) == 1
    return requests[0]


@pytest.mark.parametrize(("argv", "env", "script", "minutes"), [
    (("job.sh",), {}, "#SBATCH -t 5", 5), (("job.sh",), {"SBATCH_TIMELIMIT": "6"}, "#SBATCH -t 5", 6),
    (("-t7", "job.sh"), {"SBATCH_TIMELIMIT": "6"}, "#SBATCH -t 5", 7), (("job.sh",), {}, "", None),
    (("-t0", "job.sh"), {}, "", UNLIMITED_MIN)])
def test_command_line_over_environment_over_directives(argv: tuple[str, ...], env: dict[str, str], script: str,
                                                       minutes: int | None) -> None:
    assert one(*argv, env=env, script=script).time_limit_min == minutes


@pytest.mark.parametrize(("argv", "expected"), [
    ("-N2", (2, 2, None, 2)), ("-N2-4", (2, 4, None, 1)), ("-n8", (None, None, 8, 8)), ("-n8 -N2", (2, 2, 8, 8)),
    ("-N4 -n2", (2, 2, 2, 2)), ("-n5 --ntasks-per-node=2", (3, None, 5, 5)),
    ("-N2 --ntasks-per-node=4", (2, 2, None, 8)),
    ("-n2 -c4", (None, None, 2, 8)), ("-w n[1-3]", (3, None, None, 3)), ("-N2 -O -n8", (2, 2, 8, 2)),
    ("-B2:4:1", (None, None, 8, 8)), ("", (None, None, None, 1)), ("-N2 --ntasks-per-gpu=2 --gpus=4", (2, 2, 8, 2)),
    ("-n4 --gpus-per-task=1 -N1-8", (1, 4, 4, 4))])
def test_counts_that_the_client_derives(argv: str, expected: tuple[int | None, ...]) -> None:
    request = one(*argv.split(), "job.sh")
    assert (request.min_nodes, request.max_nodes, request.num_tasks, request.min_cpus) == expected


def test_gpus_have_canonical_texts() -> None:
    request = one("--gpus=a100:2", "--gpus-per-node=1", "--gres=gpu:2,gpu:v100:1", "-M", "other", "job.sh")
    assert request.tres_per_job == "gres/gpu:a100:2"
    assert request.tres_per_node == "gres/gpu:1,gres/gpu:2,gres/gpu:v100:1"
    request = one("--gpus-per-task=a100:2", "-n2", "-c3", "--mem-per-gpu=4G", "job.sh")
    assert (request.tres_per_task, request.tres_bind) == ("cpu=3,gres/gpu:a100=2", "gres/gpu:per_task:2")
    assert request.mem_per_tres == "gres/gpu:4096"
    assert one("--gres=none", "job.sh").tres_per_node is None


@pytest.mark.parametrize(("argv", "exclusive", "oversubscribe"), [
    ("--exclusive", "exclusive", False), ("--exclusive=user", "user", False), ("-s", None, True),
    ("--exclusive=oversubscribe", None, True), ("", None, False)])
def test_sharing(argv: str, exclusive: str | None, oversubscribe: bool) -> None:
    request = one(*argv.split(), "job.sh")
    assert (request.exclusive, request.oversubscribe) == (exclusive, oversubscribe)


def environment(request: JobRequest) -> dict[str, str]:
    return dict(entry.partition("=")[::2] for entry in request.environment)


def test_export() -> None:
    env = {"A": "1", "B": "2", "SLURM_X": "3"}
    everything = environment(one("job.sh", env=env))
    assert everything["A"] == "1" and everything["SLURM_SUBMIT_DIR"] == "/w" and everything["SLURM_SUBMIT_HOST"] == "vm"
    assert "SLURM_EXPORT_ENV" not in everything
    nothing = environment(one("--export=NONE", "job.sh", env=env))
    assert "A" not in nothing and nothing["SLURM_X"] == "3"
    assert (nothing["SLURM_EXPORT_ENV"], nothing["SLURM_GET_USER_ENV"]) == ("NONE", "1")
    some = environment(one("--export=B,C=x,'D=a,b'", "job.sh", env=env))
    assert "A" not in some and (some["B"], some["C"], some["D"]) == ("2", "x", "a,b")
    assert environment(one("--export=ALL,C=x", "job.sh", env=env))["A"] == "1"
    file = environment(one("--export-file=/e", "job.sh", env=env, files={"/e": b"E=5\0DISPLAY=x\0F=\n\0rest"}))
    assert file["E"] == "5" and file["F"] == "\n" and "A" not in file and "DISPLAY" not in file


def test_steps_inherit_what_the_job_asked_for() -> None:
    env = environment(one("-n4", "-c2", "--gpus=2", "--ntasks-per-node=2", "--mem-bind=local", "job.sh"))
    wanted = {"SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_CPUS_PER_TASK": "2", "SLURM_GPUS": "2",
              "SLURM_NTASKS_PER_NODE": "2", "SLURM_MEM_BIND": "local", "SLURM_TRES_PER_TASK": "cpu=2",
              "HYDRA_BOOTSTRAP": "slurm"}
    assert {name: env.get(name) for name in wanted} == wanted


def test_het_components() -> None:
    submission = submit("-n2", ":", "-N3", "job.sh", script="#SBATCH -J x -t 5\n#SBATCH hetjob\n#SBATCH --mem=1G\n")
    first, second = submission.requests
    assert (first.het_offset, second.het_offset) == (0, 1)
    assert (first.num_tasks, second.min_nodes, second.mem_per_node_mb) == (2, 3, 1024)
    assert first.script and second.script is None
    assert (first.name, second.time_limit_min) == ("x", 5)
    assert environment(first)["SLURM_NTASKS_HET_GROUP_0"] == "2"


def test_names_of_scripts_and_jobs() -> None:
    assert one("job.sh").command == "/w/job.sh" and one("job.sh").name == "job.sh"
    assert one("sub/x.sh", files={"/w/sub/x.sh": b"#!/bin/sh\n"}).name == "x.sh"
    assert one("tool", "a", files={"/bin/tool": b"#!/bin/sh\n"}).script_args == ("a",)
    wrapped = one("--wrap=hostname")
    assert (wrapped.name, wrapped.command) == ("wrap", None)
    assert wrapped.script is not None and wrapped.script.endswith("hostname\n")
    assert one("-N1").name == "sbatch"        # from standard input
    assert one("-J", "$(rm -rf /)\x1b[2J", "job.sh").name == "$(rm -rf /)\x1b[2J"


def test_limits_and_umask() -> None:
    request = one("--propagate=NOFILE", "job.sh", umask=0o027, rlimits={"NOFILE": (1024, 4096), "CORE": (0, 0)})
    assert (request.rlimits, request.umask) == ({"NOFILE": 1024}, 0o027)
    assert one("job.sh", script="#PBS -W umask=077\n").umask == 0o077


def test_warnings_do_not_refuse() -> None:
    submission = submit("-N4", "-n2", "job.sh")
    assert submission.warnings == ["sbatch: warning: can't run 2 processes on 4 nodes, setting nnodes to 2"]


def test_salloc_and_srun_outside_an_allocation() -> None:
    allocation = submit("-N2", "--no-shell", "-K", command="salloc", env={"SALLOC_TIMELIMIT": "9"})
    request = allocation.requests[0]
    assert (request.name, request.time_limit_min, request.no_shell, request.kill_command_signal) == (
        "no-shell", 9, True, 15)
    assert not request.batch and request.script is None
    step = submit("-n4", "-I", "/bin/date", "-u", command="srun", env={"SLURM_TIMELIMIT": "3"})
    assert step.argv == ("/bin/date", "-u")
    assert (step.requests[0].name, step.requests[0].immediate_s, step.requests[0].time_limit_min) == ("date", 1, 3)


SPACE = "Batch script contains only whitespace!"


@pytest.mark.parametrize(("data", "text"), [
    (b"", "Batch script is empty!"), (b" \n\t", SPACE), (b"\0\0\0", SPACE),
    (b"#!/bin/sh\r\necho\r\n", "DOS line breaks"),
    (b"#!/bin/sh\n\0", "contain a NULL character"), (b"\x7fELF\x02\x01", "does not look like a batch script"),
    (b"echo", "For instance: #!/bin/sh")])
def test_bad_scripts(data: bytes, text: str) -> None:
    with pytest.raises(ClientError) as caught:
        submit("job.sh", data=data)
    assert text in caught.value.stderr_text and caught.value.exit_code == 1


def test_bytes_that_are_no_text_survive() -> None:
    request = one("job.sh", data=b"#!/bin/sh\n#SBATCH -J \xff\xfe\necho \x80\n")
    assert request.script is not None and request.script.encode("utf-8", "surrogateescape").endswith(b"echo \x80\n")
    assert request.name == "\udcff\udcfe"


def test_large_inputs_are_read_whole() -> None:
    assert one("job.sh", data=b"#!/bin/sh\n#SBATCH -n2\n" + b"echo hello\n" * 1_000_000).num_tasks == 2
    assert one("job.sh", script="#SBATCH -n 2 --comment='a b' -t 5\n" * 1000).comment == "a b"
    assert one("job.sh", script="# x\n" * 100_000 + "#SBATCH -n 3\n").num_tasks == 3


def test_reading_options_imports_little() -> None:
    code = ("import slurmbridge.slurm.srun_options, slurmbridge.slurm.hostlist, slurmbridge.slurm.patterns; "
            "heavy = {'dataclasses', 'datetime', 'zoneinfo', 'inspect', 'json'} & set(sys.modules); "
            "print(sorted(heavy))")
    result = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {code}"],
                            capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


WORDS = st.one_of(
    st.text(max_size=12), st.sampled_from(["-n", "-N", "--mem", "--gres=gpu", ":", "--", "-", "-a", "-t", "-b", "-w",
                                           "--nodes=99999999999999999999", "-n99999999999999999999", "--switches=@",
                                           "-B:", "--begin=now+99999999999999999weeks", "--begin=9999-12-31",
                                           "--begin=uts9223372036854775000", "--begin=0001-01-01", "-t99999999999-9",
                                           "--signal=@", "-m:::", "--cpu-freq=-:", "--tres-per-task==", "--gpus=:",
                                           "--gpus-per-task=,=:", "--export='", "-C", "--mem-bind=map_mem:0*9", "-J",
                                           "--nodelist=[", "-x[1-2]", "--acctg-freq=,", "-Wumask=9", "--begin=now+",
                                           "--mail-type=,", "--propagate=,", "--nice=-", "--hint=,", "--umask", "-D"]))


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=6), st.lists(WORDS, max_size=6), st.sampled_from(["sbatch", "salloc", "srun"]),
       st.dictionaries(st.sampled_from(["SBATCH_EXCLUSIVE", "SLURM_UMASK", "SLURM_EXIT_ERROR", "SBATCH_DEBUG", "TZ",
                                        "SLURM_HOSTFILE", "SLURM_NTASKS", "SALLOC_GPUS", "SBATCH_GRES"]), WORDS))
def test_nothing_but_a_refusal_comes_of_nonsense(argv: list[str], words: list[str], command: str,
                                                 env: dict[str, str]) -> None:
    script = "".join(f"#SBATCH {word}\n#PBS -l {word}\n" for word in words)
    with contextlib.suppress(ClientError):
        submit(*argv, "job.sh", script=script, command=command, env=env)
