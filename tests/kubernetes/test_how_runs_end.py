"""The table of docs/kubernetes.md, "How runs end": each way that a run can end which no script has chosen."""
from __future__ import annotations

import time

from sites import Site


def head(kube, job: int) -> str:  # type: ignore[no-untyped-def]
    """The name of the first pod, once it runs."""
    kube.wait_for(job, "RUNNING")
    return str(next(pod["metadata"]["name"] for pod in kube.pods(job)
                    if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"))


def wait_for_text(site: Site, job: int, text: str, timeout_s: float = 60) -> str:
    """Until ``scontrol show job`` has this text; all of it."""
    until = time.monotonic() + timeout_s
    while text not in (shown := site.ok("scontrol", "show", "job", str(job))):
        assert time.monotonic() < until, shown
        time.sleep(0.2)
    return shown


def test_a_pod_deleted_by_hand_is_a_lost_node(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("-N2", "--no-requeue", "--mem=64", kube.script("srun sleep 300"))
    name = head(kube, job)
    kube.access.kubectl("-n", kube.namespace, "delete", "pod", name, "--wait=false")
    kube.wait_for(job, "NODE_FAIL", timeout_s=60)
    assert not [pod for pod in kube.pods(job) if pod["status"]["phase"] == "Running"]


def test_a_lost_member_ends_the_whole_gang_which_is_tried_again(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("-N2", "--requeue", "--mem=64", kube.script("srun sleep 300"))
    first = head(kube, job)
    member = next(pod["metadata"]["name"] for pod in kube.pods(job) if pod["metadata"]["name"] != first)
    kube.access.kubectl("-n", kube.namespace, "delete", "pod", member, "--wait=false")
    until = time.monotonic() + 60
    while [row.partition("|")[0] for row in kube.accounting(job)] != ["NODE_FAIL", "RUNNING"]:
        assert time.monotonic() < until, kube.accounting(job)
        time.sleep(0.2)
    kube.ok("scancel", str(job))
    kube.wait_for(job, "CANCELLED")


def test_a_deleted_job_object_is_a_cancelled_job(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("-N2", "--mem=64", kube.script("srun sleep 300"))
    head(kube, job)
    kube.access.kubectl("-n", kube.namespace, "delete", "job", f"slurm-{job}", "--wait=false")
    kube.wait_for(job, "CANCELLED", timeout_s=60)
    assert kube.job_field(job, "%T") == "CANCELLED"


def test_a_job_that_takes_more_memory_than_it_has(kube) -> None:  # type: ignore[no-untyped-def]
    job = kube.submit("--mem=100", "--requeue", kube.script("tail /dev/zero"))
    kube.wait_for(job, "OUT_OF_MEMORY", timeout_s=60)


def test_gangs_that_cannot_be_had_are_held_with_the_clusters_own_words(make_kube) -> None:  # type: ignore[no-untyped-def]
    site = make_kube(timeouts={"created_s": 3, "image_s": 2})
    image = site.access.image.replace("/", "#", 1)
    jobs = {
        "ErrImagePull|ImagePullBackOff": site.submit(
            "--mem=64", "--container-image", "localhost/nosuch:1", site.script("true")),
        "/etc is not among the folders that may be mounted": site.submit(
            "--mem=64", "--container-image", image, "--container-mounts", "/etc:/host", site.script("true"))}
    for text, job in jobs.items():
        shown = wait_for_text(site, job, "launch_failed_requeued_held")
        assert any(word in shown for word in text.split("|")), shown
    site.access.kubectl("-n", site.namespace, "create", "quota", "none", "--hard=pods=0")
    job = site.submit("-N2", "--mem=64", site.script("true"))
    assert "exceeded quota" in wait_for_text(site, job, "launch_failed_requeued_held")
    assert not site.pods()


def test_a_start_that_the_write_budget_holds_back_says_so(make_kube) -> None:  # type: ignore[no-untyped-def]
    site = make_kube(writes_per_s=1)
    jobs = [site.submit("--mem=64", site.script("sleep 1")) for _ in "ab"]
    said = "SystemComment=waits for the budget of writes to the API server"
    wait_for_text(site, jobs[1], said)
    site.wait_for(jobs[1], "COMPLETED", timeout_s=60)
    assert said not in site.ok("scontrol", "show", "job", str(jobs[1]))
