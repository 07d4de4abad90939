"""The lint report, line by line, and the Kubernetes objects of a job."""
from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from slurmbridge import admin_manifests
from slurmbridge.cluster.kubernetes.orders import CannotLaunch
from slurmbridge.cluster.kubernetes.settings import KubernetesSettings
from slurmbridge.runtime.order import RunOrder
from slurmbridge.slurm.conf import read_conf
from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.options import OPTIONS, PYXIS
from slurmbridge.translate import manifest
from slurmbridge.translate.call import Call
from slurmbridge.translate.lint import OUTCOMES, lint_script
from slurmbridge.translate.manifest import NodeShare, Site, is_label_value
from slurmbridge.translate.request import build_requests

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
    assert found[2, "--cpu-freq=low"] == ("recorded", "clock rates are not changed; checked, kept and shown")
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
    assert {name.partition("=")[0] for name in OUTCOMES} <= {option.name for option in (*OPTIONS, *PYXIS)}


REQUEST = JobRequest(name="../../etc; rm -rf /\n\udcff", script="#!/bin/sh\n", min_nodes=2, num_tasks=8,
                     cpus_per_task=2, mem_per_cpu_mb=1000, tres_per_node="gres/gpu:a100:2", uid=1000, gid=100,
                     user_name="al.ice",
                     account="phys/qcd", partitions=("gpu",), time_limit_min=10)


SHARES = [NodeShare("", 8, 8000, {"gpu:a100": 2})] * 2


def test_a_gang_becomes_one_indexed_job() -> None:
    job = manifest.job(REQUEST, 12, SHARES, 0, Site(groups=(7, 8)), 600.0)
    spec = job["spec"]
    assert {key: spec[key] for key in ("completionMode", "parallelism", "completions", "backoffLimit",
                                       "podReplacementPolicy", "activeDeadlineSeconds")} == {
        "completionMode": "Indexed", "parallelism": 2, "completions": 2, "backoffLimit": 0,
        "podReplacementPolicy": "Failed", "activeDeadlineSeconds": 10 * 60 + 30 + 300}
    assert spec["successPolicy"]["rules"][0]["succeededIndexes"] == "0"
    pod = spec["template"]["spec"]
    service = manifest.service(Site())
    assert (pod["restartPolicy"], pod["subdomain"]) == ("Never", service["metadata"]["name"])
    assert service["spec"]["clusterIP"] == "None"
    assert pod["securityContext"] | {"runAsUser": 1000, "runAsGroup": 100, "supplementalGroups": [7, 8]} == pod[
        "securityContext"]
    resources = pod["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "8", "memory": "8000Mi", "nvidia.com/gpu": "2"}
    assert {v["name"]: v for v in pod["volumes"]}["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "4000Mi"}
    env = {e["name"]: e["value"] for e in pod["containers"][0]["env"]}
    assert env["SLURM_JOB_NODELIST"] == "slurm-12-[0-1]"
    secret = manifest.secret(REQUEST, 12, 3, Site(), {"order": b"x"})
    assert secret["immutable"] is True and secret["metadata"]["name"] == "slurm-12-3"
    assert base64.b64decode(secret["data"]["order"]) == b"x"
    json.dumps([service, job, secret]).encode()


def test_shares_before_nodes_are_chosen() -> None:
    assert manifest.implied_shares(REQUEST) == SHARES
    assert manifest.implied_shares(JobRequest(num_tasks=3, min_nodes=2), 10) == [NodeShare("", 2, 20)] * 2


def test_users_text_stays_out_of_names_and_labels() -> None:
    job = manifest.job(REQUEST, 12, SHARES, 0, Site(), None)
    assert job["metadata"]["name"] == "slurm-12"
    labels = job["metadata"]["labels"]
    assert all(is_label_value(value) for value in labels.values())
    assert labels["slurmbridge.io/user"] == "al.ice" and "slurmbridge.io/account" not in labels
    assert job["metadata"]["annotations"]["slurmbridge.io/name"] == "../../etc; rm -rf /??"
    assert "activeDeadlineSeconds" not in job["spec"]


def test_the_largest_share_counts() -> None:
    shares = [NodeShare("n1", 4, 4000, {"gpu:a100": 1}), NodeShare("n2", 2, 2000), NodeShare("n3", 2, 2000)]
    job = manifest.job(REQUEST, 5, shares, 2, Site(), None)
    assert job["spec"]["completions"] == 3
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {
        "cpu": "4", "memory": "4000Mi", "nvidia.com/gpu": "1"}


SITE = """ClusterName=c
OverTimeLimit=10
GresTypes=gpu
NodeName=n1 CPUs=8 Gres=gpu:2
PartitionName=a Nodes=ALL Default=YES DefaultTime=20 DefMemPerCPU=50
PartitionName=b Nodes=ALL
"""


def translated(tmp_path: Path, script: str, **settings: Any) -> list[dict[str, Any]]:
    (tmp_path / "slurm.conf").write_text(SITE)
    conf = read_conf(str(tmp_path / "slurm.conf"))
    call = Call("sbatch", ("/s",), {}, "/tmp", uid=1000, gid=100, user_name="root", conf=conf)
    requests = build_requests(call, lambda path: script.encode()).requests
    return admin_manifests.objects(requests, 7, conf, KubernetesSettings(**settings))


def test_translate_shows_what_the_engine_makes(tmp_path: Path) -> None:
    service, job, secret = translated(tmp_path, "#!/bin/sh\n#SBATCH -n 2 -c 2 --gres=gpu:1\ntrue\n", namespace="jobs",
                                      scheduler="gang", partitions={"a": {"image": "site:1"}})
    assert {made["metadata"]["namespace"] for made in (service, job, secret)} == {"jobs"}
    assert job["spec"]["activeDeadlineSeconds"] == (20 + 10) * 60 + 30 + 300       # DefaultTime and OverTimeLimit
    assert job["metadata"]["labels"]["slurmbridge.io/cluster"] == "c"
    pod = job["spec"]["template"]["spec"]
    assert (pod["schedulerName"], pod["containers"][0]["image"]) == ("slurmbridge-gang", "site:1")
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "4", "memory": "200Mi", "nvidia.com/gpu": "1"}
    assert {"name": "order", "secret": {"secretName": "slurm-7-0", "defaultMode": 0o400}} in pod["volumes"]
    order = RunOrder.from_json(json.loads(gzip.decompress(base64.b64decode(secret["data"]["order"]))))
    assert (order.job_id, order.nodes[0].name, order.nodes[0].cpus, order.request.script) == (
        7, "slurm-7-0", 4, "#!/bin/sh\n#SBATCH -n 2 -c 2 --gres=gpu:1\ntrue\n")


def test_translate_makes_a_job_of_each_component_and_refuses_what_the_engine_does(tmp_path: Path) -> None:
    made = translated(tmp_path, "#!/bin/sh\n#SBATCH -n1 -p b\n#SBATCH hetjob\n#SBATCH -N2 -t 5\ntrue\n")
    assert [(one["kind"], one["metadata"]["name"]) for one in made] == [
        ("Service", "slurm"), ("Job", "slurm-7"), ("Secret", "slurm-7-0"), ("Job", "slurm-8"), ("Secret", "slurm-8-0")]
    assert "activeDeadlineSeconds" not in made[1]["spec"]
    with pytest.raises(CannotLaunch, match="not among the folders"):
        translated(tmp_path, "#!/bin/sh\n#SBATCH --container-image=x --container-mounts=/etc\n")
