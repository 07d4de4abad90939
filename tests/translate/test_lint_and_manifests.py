"""The lint report, line by line, and the Kubernetes objects of a job."""
from __future__ import annotations

import base64
import json

import pytest

from slurmbridge.slurm.jobspec import UNLIMITED_MIN, JobRequest
from slurmbridge.slurm.options import OPTIONS, PYXIS
from slurmbridge.translate.lint import OUTCOMES, lint_script
from slurmbridge.translate.manifest import NodeShare, Site, is_label_value, manifests

SCRIPT = """#!/bin/bash
#SBATCH -N 2 --cpu-freq=low
#SBATCH --mem=x
##SBATCH -n 4
# SBATCH -n 4
#SBATCH –nodes=3
#SBATCH --ntask=4 # short
#SBATCH -V
#SBATCH hetjob
#PBS -l nodes=2:ppn=4
srun x
#SBATCH -t 5
"""


def test_each_directive_has_a_verdict_and_a_reason() -> None:
    found = {(f.line, f.directive): (f.verdict, f.reason) for f in lint_script(SCRIPT)}
    assert found[2, "-N 2"][0] == "honoured"
    assert found[2, "--cpu-freq=low"] == ("recorded", "containers cannot change it; kept and shown")
    assert found[3, "--mem=x"] == ("refused", "error: Invalid --mem specification")
    assert found[4, "##SBATCH -n 4"][0] == "ignored"
    assert found[5, "# SBATCH -n 4"][0] == "ignored"
    assert "typographic dash" in found[6, "–nodes=3"][1]
    assert "is ambiguous" in found[7, "--ntask=4"][1]
    assert found[8, "-V"][0] == "ignored"
    assert found[9, "hetjob"][0] == "honoured"
    assert found[10, "#PBS -l nodes=2:ppn=4"][0] == "approximated"
    assert found[12, "#SBATCH -t 5"] == ("ignored", "stands after the first command (line 11)")


def test_what_is_wrong_only_together() -> None:
    last = lint_script("#!/bin/sh\n#SBATCH --mem=1 --mem-per-cpu=1\n")[-1]
    assert (last.line, last.verdict) == (0, "refused") and "mutually exclusive" in last.reason


def test_outcomes_name_real_options() -> None:
    assert set(OUTCOMES) <= {option.name for option in (*OPTIONS, *PYXIS)}


REQUEST = JobRequest(name="../../etc; rm -rf /\n\udcff", script="#!/bin/sh\n", min_nodes=2, num_tasks=8,
                     cpus_per_task=2, mem_per_cpu_mb=1000, tres_per_node="gres/gpu:a100:2", uid=1000, gid=100,
                     user_name="al.ice",
                     account="phys/qcd", partitions=("gpu",), time_limit_min=10)


def test_a_gang_becomes_one_indexed_job() -> None:
    service, job, secret = manifests(REQUEST, 12, site=Site(groups=(7, 8)), job_uid="u", credential="c")
    spec = job["spec"]
    assert {key: spec[key] for key in ("completionMode", "parallelism", "completions", "backoffLimit",
                                       "podReplacementPolicy", "activeDeadlineSeconds")} == {
        "completionMode": "Indexed", "parallelism": 2, "completions": 2, "backoffLimit": 0,
        "podReplacementPolicy": "Failed", "activeDeadlineSeconds": 10 * 60 + 30 + 300}
    assert spec["successPolicy"]["rules"][0]["succeededIndexes"] == "0"
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["subdomain"]) == ("Never", service["metadata"]["name"])
    assert service["spec"]["clusterIP"] == "None"
    assert pod["securityContext"] | {"runAsUser": 1000, "runAsGroup": 100, "supplementalGroups": [7, 8]} == pod[
        "securityContext"]
    resources = pod["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "8", "memory": "8000Mi", "nvidia.com/gpu": "2"}
    assert {v["name"]: v for v in pod["volumes"]}["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "4000Mi"}
    env = {e["name"]: e["value"] for e in pod["containers"][0]["env"]}
    assert env["SLURM_JOB_NODELIST"] == "slurm-12-[0-1]"
    assert secret["immutable"] is True and secret["metadata"]["ownerReferences"][0]["name"] == "slurm-12"
    assert base64.b64decode(secret["data"]["script"]) == b"#!/bin/sh\n"
    json.dumps([service, job, secret]).encode()


def test_users_text_stays_out_of_names_and_labels() -> None:
    _, job, secret = manifests(REQUEST, 12)
    assert (job["metadata"]["name"], secret["metadata"]["name"]) == ("slurm-12", "slurm-12-0")
    labels = job["metadata"]["labels"]
    assert all(is_label_value(value) for value in labels.values())
    assert labels["slurmbridge.io/user"] == "al.ice" and "slurmbridge.io/account" not in labels
    assert job["metadata"]["annotations"]["slurmbridge.io/name"] == "../../etc; rm -rf /??"


def test_an_allocation_decides_over_the_request() -> None:
    shares = [NodeShare("n1", 4, 4000, {"gpu:a100": 1}), NodeShare("n2", 2, 2000), NodeShare("n3", 2, 2000)]
    _, job, _ = manifests(REQUEST, 5, shares, restart=2)
    assert job["spec"]["completions"] == 3
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {
        "cpu": "4", "memory": "4000Mi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(("minutes", "seconds"), [(None, None), (UNLIMITED_MIN, None), (60, 3930)])
def test_backstop(minutes: int | None, seconds: int | None) -> None:
    _, job, _ = manifests(JobRequest(time_limit_min=minutes), 1)
    assert job["spec"].get("activeDeadlineSeconds") == seconds
