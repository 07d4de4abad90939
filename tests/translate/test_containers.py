"""Pyxis' options as a pod has them."""
from __future__ import annotations

import pytest

from slurmbridge.slurm.jobspec import JobRequest
from slurmbridge.slurm.pyxis import without_effect
from slurmbridge.translate import manifest
from slurmbridge.translate.containers import ContainerError, Mount, image_reference, mounts_of


@pytest.mark.parametrize(("text", "image"), [
    ("ubuntu", "ubuntu"), ("ubuntu:24.04", "ubuntu:24.04"), ("nvcr.io#nvidia/pytorch:24.05-py3",
                                                            "nvcr.io/nvidia/pytorch:24.05-py3"),
    ("docker://nvcr.io#nvidia/nemo", "nvcr.io/nvidia/nemo"), ("docker://me@gitlab.org:5005#group/image:1",
                                                             "gitlab.org:5005/group/image:1"),
    ("docker://centos:8", "centos:8"), ("nvcr.io/nvidia/pytorch:24.05", "nvcr.io/nvidia/pytorch:24.05"),
    ("alpine@sha256:0123", "alpine@sha256:0123"), ("dockerd://mine:latest", "mine:latest")])
def test_image_names(text: str, image: str) -> None:
    assert image_reference(text) == image


@pytest.mark.parametrize("text", ["/shared/images/nemo.sqsh", "./x.sqsh", "x.sqsh", "oci://a/b", "docker://", ""])
def test_images_that_no_pod_can_have(text: str) -> None:
    with pytest.raises(ContainerError, match="--container-image: "):
        image_reference(text)


def test_mounts() -> None:
    assert mounts_of({"container-mounts": "/data,/scratch/x:/x:ro,/a:/b:rw+x-create=dir,", "container-mount-home": ""},
                     "/home/alice") == [Mount("/data", "/data"), Mount("/scratch/x", "/x", True), Mount("/a", "/b"),
                                        Mount("/home/alice", "/home/alice")]
    assert mounts_of({"container-mount-home": "", "no-container-mount-home": ""}, "/home/alice") == []
    for text in ("tmpfs:/tmp", "data:/data", "/a:b"):
        with pytest.raises(ContainerError, match="--container-mounts"):
            mounts_of({"container-mounts": text}, "")


def pod_of(pyxis: dict[str, str]) -> dict:                     # type: ignore[type-arg]
    request = JobRequest(uid=1000, gid=100, environment=("HOME=/home/alice", "TOKEN=s"), pyxis=pyxis)
    job = manifest.job(request, 1, [manifest.NodeShare("", 1, 0)], 0, manifest.Site(), None)
    return job["spec"]["template"]["spec"] | {"annotations": job["metadata"]["annotations"]}


def test_the_pod_of_a_job_with_an_image() -> None:
    pod = pod_of({"container-image": "nvcr.io#nvidia/pytorch:24.05", "container-mounts": "/data:/data:ro",
                  "container-workdir": "/work", "container-env": "TOKEN,NONE", "container-readonly": "",
                  "container-remap-root": ""})
    container, = pod["containers"]
    assert (container["image"], container["workingDir"]) == ("nvcr.io/nvidia/pytorch:24.05", "/work")
    assert {"name": "mount-0", "hostPath": {"path": "/data"}} in pod["volumes"]
    assert {"name": "mount-0", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
    assert {"name": "TOKEN", "value": "s"} in container["env"]
    assert "NONE" not in {entry["name"] for entry in container["env"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["hostUsers"] is False and pod["securityContext"]["runAsUser"] == 0
    assert pod["annotations"]["slurmbridge.io/container-workdir"] == "/work"
    assert pod["annotations"]["slurmbridge.io/container-readonly"] == "true"


def test_options_without_an_image_do_nothing() -> None:
    pod, plain = pod_of({"container-mounts": "/data", "container-remap-root": ""}), pod_of({})
    assert {key: pod[key] for key in plain if key != "annotations"} == {
        key: plain[key] for key in plain if key != "annotations"}
    assert without_effect({"container-mounts": "/data", "container-writable": ""}) == [
        f"pyxis: ignoring --{name} because neither --container-image nor --container-name is set"
        for name in ("container-mounts", "container-writable")]
    assert without_effect({"container-name": "x", "container-mounts": "/data"}) == []
