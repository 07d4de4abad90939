"""The chart on a real cluster: one install, a job from the login pod, who may do what, an upgrade, the end.

The tests run in the order of the file: the last ones upgrade the release and take it away.
"""
from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from cluster import build
from releases import CHART, CONF, USERS, VARIANTS, Release, installed, wait_until


@pytest.fixture(scope="module")
def release(chart_access: Any) -> Iterator[Release]:
    with installed(chart_access) as found:
        yield found


def test_a_job_from_the_login_pod(release: Release) -> None:
    script = release.home / "alice" / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH -N2 --mem=64\nid\nsrun -l hostname\nsqueue -h -o '%i %u'\n"
                      "sbatch --wrap id; echo $?\nscontrol update jobid=$SLURM_JOB_ID comment=mine; echo $?\n")
    job = int(release.login("sbatch", "--parsable", "job.sh", user="alice"))
    release.wait_for(job, "COMPLETED")
    first, *hosts, seen, refused, forbidden, changed = (
        release.home / "alice" / f"slurm-{job}.out").read_text().splitlines()
    assert first == "uid=1001 gid=1001 groups=1001,2000"
    assert sorted(hosts) == [f"{rank}: slurm-{job}-{rank}" for rank in range(2)]
    assert seen == f"{job} alice"             # by HTTPS, with the job's credential, from busybox
    assert (refused, forbidden) == ("sbatch: error: Batch job submission failed: Access/permission denied", "1")
    assert changed == "0"
    assert f"{job}|COMPLETED|mine" in release.login("sacct", "-P", "-X", "-o", "jobid,state,comment", user="alice")


def test_output_without_a_volume_is_its_owners(release: Release) -> None:
    job = int(release.login("sbatch", "--parsable", "--mem=64", "-D/tmp", "-o/nowhere/x", "--wrap", "'echo hello'",
                            user="alice"))
    release.wait_for(job, "COMPLETED")
    assert "hello\n" in release.login("slurmbridge", "logs", str(job), user="alice")
    with pytest.raises(AssertionError, match="Access/permission denied"):
        release.login("slurmbridge", "logs", str(job), user="bob")


def test_helm_test(release: Release) -> None:
    assert "Phase:          Succeeded" in release.helm("test", "hpc", "-n", release.namespace, "--timeout", "120s")


def token_call(release: Release, token: str, *words: str) -> str:
    """A command with a token, from the login pod; its output, or why it was refused."""
    return release.kubectl("exec", "deploy/hpc-login", "-c", "relay", "--", "sh", "-c",
                           f"SLURMBRIDGE_URL=https://hpc.{release.namespace}.svc:6817 SLURMBRIDGE_TOKEN={token} "
                           f"SLURMBRIDGE_CA=/etc/slurmbridge/tls/ca.crt {' '.join(words)} 2>&1; true")


def test_who_one_is_by_a_token_of_the_clusters(release: Release) -> None:
    said = token_call(release, "alice", "sbatch -D /home/alice --mem=64 --wrap id")
    assert said.startswith("Submitted batch job "), said
    job = int(said.split()[-1])
    release.wait_for(job, "COMPLETED")
    assert (release.home / "alice" / f"slurm-{job}.out").read_text().startswith("uid=1001")
    for token in ("carol", "nonsense", "admin"):
        assert "Protocol authentication error" in token_call(release, token, "squeue")
    release.kubectl("create", "serviceaccount", "pod-account")
    for more in ((), ("--audience=slurmbridge",)):         # what a pod has, and what it can ask for
        token = release.kubectl("create", "token", "pod-account", *more).strip()
        assert "Protocol authentication error" in token_call(release, token, "squeue")


def test_jobs_objects_are_the_controllers(release: Release) -> None:
    """Users who may make pods and Jobs in the namespace make none that looks like a job's, and change none."""
    for user in USERS:
        release.kubectl("create", "rolebinding", f"{user}-edit", "--clusterrole=edit", f"--user={user}")
    running = int(release.login("sbatch", "--parsable", "--mem=64", "--wrap", "'sleep 300'", user="alice"))
    release.wait_for(running, "RUNNING")
    label = {"slurmbridge.io/job-id": str(running), "slurmbridge.io/uid": "1001"}
    spec = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}
    forged = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "forged", "labels": label}, "spec": spec},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "forged", "labels": label}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forged", "labels": label},
         "spec": {"template": {"spec": spec}}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forged"},
         "spec": {"template": {"metadata": {"labels": label}, "spec": spec}}}]
    for one in forged:
        said = release.refused("--as=bob", "apply", "-f", "-", stdin=json.dumps(one))
        assert "labels of slurmbridge.io are for its controller, not for bob" in said
    for words in (("label", "pod", "--overwrite", "-l", f"slurmbridge.io/job-id={running}", "slurmbridge.io/uid=1002"),
                  ("label", "pod", "-l", f"slurmbridge.io/job-id={running}", "slurmbridge.io/job-id-"),
                  ("annotate", f"job/slurm-{running}", "slurmbridge.io/end={}"),
                  ("patch", f"job/slurm-{running}", "-p", '{"spec":{"suspend":true}}')):
        assert "for its controller, not for bob" in release.refused("--as=bob", *words)
    plain = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "plain"}}
    release.kubectl("--as=bob", "apply", "-f", "-", stdin=json.dumps(plain))
    assert release.state(running) == "RUNNING"
    release.login("scancel", str(running))
    for user in USERS:
        release.kubectl("delete", "rolebinding", f"{user}-edit")


def rules(release: Release, account: str, namespace: str) -> set[tuple[str, str, str]]:
    """(verb, resource, names) that an account may do there beyond what everybody may."""
    found = set()
    for one in ("", account):
        who = [f"--as=system:serviceaccount:{release.namespace}:{one}"] if one else ["--as=nobody"]
        answer = release.access.kubectl("create", *who, "--validate=false", "-o", "json", "-f", "-", stdin=json.dumps({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace}}))
        mine = {(verb, f"{group}/{resource}".lstrip("/"), ",".join(rule.get("resourceNames") or ()))
                for rule in json.loads(answer)["status"]["resourceRules"] for verb in rule["verbs"]
                for group in rule["apiGroups"] for resource in rule["resources"]}
        found = mine - found
    return found


def expand(text: str) -> set[tuple[str, str, str]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return {(verb, words[0], words[2] if len(words) > 2 else "") for words in lines for verb in words[1].split(",")}


def test_the_accounts_can_do_what_the_code_does_and_nothing_more(release: Release) -> None:
    everywhere = expand("""
        nodes list,watch
        pods list,watch
        authentication.k8s.io/tokenreviews create""")
    here = expand(f"""
        batch/jobs create,delete,get,list,patch,watch
        secrets create,get
        pods get
        pods/log get
        pods/binding create
        events list
        discovery.k8s.io/endpointslices create,get
        networking.k8s.io/networkpolicies create,get
        namespaces get {release.namespace}
        services get hpc-jobs""")
    assert rules(release, "hpc-controller", release.namespace) == everywhere | here
    assert rules(release, "hpc-controller", "kube-system") == everywhere
    for account in ("hpc-login", "hpc-test"):
        assert rules(release, account, release.namespace) == set()


def test_a_users_jobs_have_a_fence(release: Release) -> None:
    found = json.loads(release.kubectl("get", "networkpolicy", "slurm-user-1001", "-o", "json"))["spec"]
    own = {"matchLabels": {"slurmbridge.io/uid": "1001"}}
    assert found["podSelector"] == own and found["ingress"] == [{"from": [{"podSelector": own}]}]


def metric(release: Release, name: str) -> str:
    text = release.kubectl("get", "--raw", f"/api/v1/namespaces/{release.namespace}/pods/hpc-controller-0:8080/proxy"
                           "/metrics")
    return next((line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(f"slurmbridge_{name} ")), "")


def test_changed_configuration_is_loaded_or_refused(release: Release) -> None:
    """The kubelet brings a changed ConfigMap within a minute or so."""
    before = json.loads(release.kubectl("get", "pod", "hpc-controller-0", "-o", "json"))["metadata"]["uid"]
    release.values["slurmConf"] = CONF + "PartitionName=extra Nodes=ALL State=UP\n"
    release.values["accounts"] = ""
    release.put("upgrade")
    wait_until(lambda: "extra" in release.login("sinfo", "-h", "-o", "%P"), "the new partition", 180)
    release.values["slurmConf"] = CONF + "PartitionName=extra Nodes=ALL State=NONSENSE\n"
    release.put("upgrade")
    wait_until(lambda: metric(release, 'config_refused{file="slurm.conf"}') == "1", "the refusal", 180)
    assert "extra" in release.login("sinfo", "-h", "-o", "%P")
    release.values["slurmConf"] = CONF
    release.put("upgrade")
    wait_until(lambda: metric(release, "config_refused") == "0", "the good file", 180)
    assert json.loads(release.kubectl("get", "pod", "hpc-controller-0", "-o", "json"))["metadata"]["uid"] == before


def test_an_upgrade_leaves_jobs_alone_and_a_rollback_too(release: Release) -> None:
    job = int(release.login("sbatch", "--parsable", "--mem=64", "-N2", "--wrap",
                            "'while [ ! -e done ]; do sleep 1; done; exit 5'", user="alice"))
    release.wait_for(job, "RUNNING")
    before = {pod["metadata"]["uid"] for pod in release.access.objects(
        "pods", release.namespace, f"slurmbridge.io/job-id={job}")}
    certificate = release.kubectl("get", "secret", "hpc-tls", "-o", "jsonpath={.data.tls\\.crt}")
    release.values["users"].append({"name": "carol", "uid": 1003, "gid": 1003})       # restarts the controller
    release.put("upgrade")
    assert "carol" in release.login("id", "carol")
    release.helm("rollback", "hpc", "-n", release.namespace, "--wait", "--timeout", "200s")
    assert release.kubectl("get", "secret", "hpc-tls", "-o", "jsonpath={.data.tls\\.crt}") == certificate
    wait_until(lambda: release.state(job) == "RUNNING", "the job after the restarts")
    after = {pod["metadata"]["uid"] for pod in release.access.objects(
        "pods", release.namespace, f"slurmbridge.io/job-id={job}")}
    assert after == before
    (release.home / "alice" / "done").touch()
    release.wait_for(job, "FAILED")
    assert release.login("sacct", "-n", "-X", "-P", "-j", str(job), "-o", "exitcode,restarts").strip() == "5:0|0"


def test_uninstall_leaves_records_and_running_jobs(release: Release) -> None:
    job = int(release.login("sbatch", "--parsable", "--mem=64", "--wrap", "'sleep 20; exit 6'", user="bob"))
    release.wait_for(job, "RUNNING")
    release.helm("uninstall", "hpc", "-n", release.namespace, "--wait", "--timeout", "120s")
    release.kubectl("get", f"job/slurm-{job}", "pvc/state-hpc-controller-0")
    release.put("install")
    release.wait_for(job, "FAILED")
    rows = release.login("sacct", "-a", "-n", "-X", "-P", "-o", "jobid,user,state,exitcode").splitlines()
    assert f"{job}|bob|FAILED|6:0" in rows and any(row.startswith("1|alice|COMPLETED") for row in rows)


# ---- without a cluster ----------------------------------------------------------------------------------------------


def rendered(*sets: str) -> tuple[int, str]:
    words: Sequence[str] = [word for one in sets for word in ("--set", one)]
    done = subprocess.run([str(build.tools() / "helm"), "template", "hpc", str(CHART), "-n", "slurm", "--kube-version",
                           build.VERSION, *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr


@pytest.fixture(scope="module")
def helm() -> None:
    if build.why_no_helm():
        pytest.skip(build.why_no_helm())


@pytest.mark.usefixtures("helm")
def test_lint() -> None:
    done = subprocess.run([str(build.tools() / "helm"), "lint", "--strict", str(CHART)], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("sets", VARIANTS, ids=["plain", "two controllers", "no fence", "apart", "given"])
def test_objects_are_what_the_api_server_knows(chart_access: Any, sets: tuple[str, ...]) -> None:
    code, text = rendered(*sets)
    assert code == 0, text
    kinds = [one for one in yaml.safe_load_all(text) if one]
    namespaces = {one["metadata"]["name"] for one in kinds if one["kind"] == "Namespace"} | {"slurm", "work"}
    for one in kinds:
        one["metadata"].setdefault("namespace", "slurm")
    first = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in sorted(namespaces)]
    first += [one for one in kinds if one["kind"] == "ServiceAccount"]     # a dry run looks for them, too
    chart_access.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(first))
    chart_access.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(kinds))


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize(("given", "said"), [
    ("controller.replicas=2", "more than one controller need ledger.postgresql"),
    ("controller.replicas=many", "replicas"), ("nonsense=1", "nonsense"),
    ("jobs.runtimeDelivery=magic", "runtimeDelivery"),
    ("identity.users[0].name=x", "user"), ("users[0].name=Bad:Name", "users")])
def test_values_that_cannot_be(given: str, said: str) -> None:
    code, text = rendered(given)
    assert code != 0 and said in text
