"""slurm.conf and gres.conf in the forms that sites write, and what is said about those that cannot be used."""
from __future__ import annotations

from pathlib import Path

import pytest

from slurmbridge.controller.default_conf import Machine, default_conf_text
from slurmbridge.controller.inventory import make_nodes, make_partitions
from slurmbridge.slurm.conf import ConfError, read_conf
from slurmbridge.slurm.conf_keys import GRES_KEYS, KEYS, NODE_KEYS, PARTITION_KEYS
from slurmbridge.slurm.conf_lint import lint
from slurmbridge.slurm.settings import SlurmConf

from .world import DATA

HEAD = "ClusterName=c\nSlurmctldHost=h\n"
NODES = "NodeName=n[1-4] CPUs=8 RealMemory=1000\n"


def read(tmp_path: Path, text: str, gres: str | None = None, *, strict: bool = True) -> SlurmConf:
    (tmp_path / "slurm.conf").write_text(text)
    if gres is not None:
        (tmp_path / "gres.conf").write_text(gres)
    return read_conf(str(tmp_path / "slurm.conf"), strict=strict)


def test_the_oracle_cluster() -> None:
    conf = read_conf(str(DATA / "slurm.conf"))
    assert list(conf.nodes) == ["n1", "n2", "n3", "n4", "n5", "n6", "g1", "g2"]
    node = conf.nodes["n3"]
    assert (node.port, node.sockets, node.cores_per_socket, node.features) == (17003, 2, 16, ("intel", "skylake", "ib"))
    assert conf.nodes["g1"].gres == {"gpu:a100": 4}
    assert conf.gres_devices["g1"]["gpu:a100"] == tuple(f"/lab/dev/gpu{i}" for i in range(4))
    assert conf.kill_wait_s == 2 and conf.max_array_size == 10001 and conf.requeue_exit == frozenset({101})
    assert conf.accounting_enforce == {"associations", "limits", "qos"}
    assert conf.accounting_storage_tres[-2:] == ("gres/gpumem", "gres/gpuutil")
    assert conf.priority.weight_tres == {"cpu": 400, "mem": 200, "gres/gpu": 900}
    assert conf.priority.calc_period_s == 60 and conf.priority.decay_half_life_s == 7 * 86400
    assert (conf.preempt_type, conf.preempt_mode) == ("preempt/qos", "REQUEUE")
    assert conf.scheduler_parameters["bf_interval"] == "10" and conf.scheduler_parameters["bf_continue"] == ""
    assert [line["PartitionName"] for line in conf.partitions] == ["batch", "debug", "gpu", "long", "physonly", "all"]
    assert conf.partitions[0]["DefMemPerCPU"] == "1000"
    assert conf.notes == []


def test_lines_comments_quotes_and_case(tmp_path: Path) -> None:
    conf = read(tmp_path, "# a comment\nclustername=Lab # and one here\nSLURMCTLDHOST=ctl(10.0.0.1)\n"
                "SchedulerParameters=bf_interval=5,\\\nbf_continue\n"
                "NodeName=a\\#b CPUs=2 \\\n  Feature=\"x,y\" Reason=\"two words\" State=DOWN\n"
                'PartitionName="p" Nodes=ALL\n\n   \n')
    assert conf.cluster_name == "lab" and conf.control_host == "ctl"
    assert conf.scheduler_parameters == {"bf_interval": "5", "bf_continue": ""}
    node = conf.nodes["a#b"]
    assert (node.features, node.reason, node.state) == (("x", "y"), "two words", "DOWN")


def test_include_beside_the_file_and_cluster_name_in_its_path(tmp_path: Path) -> None:
    (tmp_path / "c.nodes").write_text(NODES)
    conf = read(tmp_path, HEAD + "Include %c.nodes\nPartitionName=p Nodes=n[1-2]\n")
    assert len(conf.nodes) == 4


def test_default_lines_apply_to_what_comes_after_them(tmp_path: Path) -> None:
    conf = read(tmp_path, HEAD + "NodeName=a CPUs=1\nNodeName=DEFAULT CPUs=4 Feature=f\nNodeName=b\n"
                "NodeName=DEFAULT RealMemory=9\nNodeName=c Feature=g\n"
                "PartitionName=DEFAULT MaxTime=60 Shared=FORCE ExclusiveUser=YES\n"
                "PartitionName=p Nodes=a\nPartitionName=q Nodes=ALL MaxTime=INFINITE OverSubscribe=NO\n")
    assert [conf.nodes[name].cpus for name in "abc"] == [1, 4, 4]
    assert [conf.nodes[name].features for name in "abc"] == [(), ("f",), ("g",)]
    assert conf.nodes["c"].real_memory_mb == 9
    first, second = conf.partitions
    assert first == {"PartitionName": "p", "MaxTime": "60", "Shared": "FORCE:4", "Nodes": "a"}
    assert "Shared" not in second and second["OverSubscribe"] == "NO"


@pytest.mark.parametrize(("line", "shape"), [
    ("CPUs=8", (8, 8, 1, 1)), ("Sockets=2 CoresPerSocket=4", (8, 2, 4, 1)),
    ("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", (16, 2, 4, 2)),
    ("CPUs=16 CoresPerSocket=4 ThreadsPerCore=2", (16, 2, 4, 2)),
    ("Boards=2 SocketsPerBoard=2 CoresPerSocket=3", (12, 4, 3, 1)), ("Procs=4", (4, 4, 1, 1)),
    ("CPUs=7 Sockets=2 CoresPerSocket=4", (8, 2, 4, 1)), ("", (1, 1, 1, 1))])
def test_counts_that_are_not_given_are_inferred(tmp_path: Path, line: str, shape: tuple[int, ...]) -> None:
    node = read(tmp_path, HEAD + f"NodeName=n {line}\n").nodes["n"]
    assert (node.cpus, node.sockets, node.cores_per_socket, node.threads_per_core) == shape


def test_node_sets_and_down_nodes(tmp_path: Path) -> None:
    conf = read(tmp_path, HEAD + NODES.replace("n[1-4]", "n[1-2] Feature=big,ib") + NODES.replace("n[1-4]", "n[3-4]")
                + "NodeSet=big Feature=big\nNodeSet=some Nodes=n[2-3]\nDownNodes=n4 State=DRAIN Reason=fan\n"
                "PartitionName=b Nodes=big\nPartitionName=s Nodes=some,n4 Default=YES\nPartitionName=a Nodes=ALL\n")
    nodes = make_nodes(conf, 5.0)
    partitions = make_partitions(conf, nodes)
    assert [(p.nodes_text, p.node_sets) for p in partitions.values()] == [
        ("n[1-2]", "big"), ("n[2-4]", "some"), ("n[1-4]", "ALL")]
    assert nodes["n2"].partitions == ("b", "s", "a")
    assert nodes["n4"].flags == {"DRAIN"} and nodes["n4"].reason == "fan"


def test_partition_values_become_typed(tmp_path: Path) -> None:
    conf = read(tmp_path, HEAD + NODES + "PartitionName=p Nodes=n1 Default=YES\n"
                "PartitionName=q Nodes=n2 Default=YES MaxTime=1-0 DefaultTime=UNLIMITED AllowQos=High,low "
                "DenyAccounts=X "
                "MaxNodes=2 PriorityTier=3 GraceTime=30 MaxMemPerNode=500 DefMemPerNode=100 DefMemPerCPU=7 State=drain "
                "OverSubscribe=yes:2 PreemptMode=off TRESBillingWeights=CPU=1.0,Mem=0.25G AllowGroups=ALL "
                "OverTimeLimit=5\n")
    partitions = make_partitions(conf, make_nodes(conf, 0.0))
    q = partitions["q"]
    assert not partitions["p"].default and q.default
    assert (q.max_time_min, q.default_time_min, q.max_nodes) == (1440, 0xFFFFFFFF, 2)
    assert (q.allow_qos, q.deny_accounts, q.allow_groups) == (("high", "low"), ("x",), None)
    assert (q.def_mem_per_node_mb, q.def_mem_per_cpu_mb, q.max_mem_per_node_mb) == (100, None, 500)
    assert (q.state, q.over_subscribe, q.preempt_mode, q.over_time_limit_min) == ("DRAIN", "YES:2", "OFF", 5)
    assert any("mutually exclusive" in note for _, _, note in conf.notes)


def test_gres_types_come_from_gres_conf(tmp_path: Path) -> None:
    conf = read(tmp_path, HEAD + "GresTypes=gpu\nNodeName=n[1-2] CPUs=8 Gres=gpu:4(S:0-1)\n"
                "NodeName=n3 CPUs=8 Gres=gpu:a100:2,gpu:v100:1,tape:2K\n",
                "AutoDetect=nvml\nNodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-7\n"
                "Name=tape Count=2048\n")
    assert conf.nodes["n1"].gres == {"gpu:h100": 4}
    assert conf.gres_devices["n2"]["gpu:h100"][3] == "/dev/nvidia3"
    assert conf.nodes["n3"].gres == {"gpu:a100": 2, "gpu:v100": 1, "tape": 2048}
    assert [note for _, _, note in conf.notes] == ["AutoDetect=nvml is ignored: devices are what Gres= and File= say"]


@pytest.mark.parametrize(("text", "error"), [
    ("Frob=1", "slurm.conf:3: unrecognized key: Frob"),
    ("MinJobAge=x", 'slurm.conf:3: MinJobAge value "x" is not a valid number'),
    ("KillWait=70000", "slurm.conf:3: KillWait value (70000) is greater than 65535"),
    ("KillWait=-1", "slurm.conf:3: KillWait value (-1) is less than zero"),
    ("DisableRootJobs=perhaps", 'slurm.conf:3: "perhaps" is not a valid option for "DisableRootJobs"'),
    ("KillWait=1 MinJobAge=3", 'slurm.conf:3: parse error at "MinJobAge=3"'),
    ("just words", 'slurm.conf:3: parse error at "just words"'),
    ("NodeName=n Frob=1", "slurm.conf:3: NodeName=n: unrecognized key: Frob"),
    ("NodeName=n[3-1]", "slurm.conf:3: NodeName=n[3-1] is no host list"),
    ("NodeName=n[1-3] Port=[1-2]", "slurm.conf:3: Port=[1-2] names 2, NodeName=n[1-3] 3"),
    ("NodeName=n\nNodeName=n", "slurm.conf:4: Duplicated NodeName n"),
    ("NodeName=ALL", "slurm.conf:3: 'ALL' is a reserved word disallowed for use with NodeName"),
    ("NodeName=n State=ODD", 'slurm.conf:3: Bad value "ODD" for State'),
    ("NodeName=n\nPartitionName=p Nodes=m", "slurm.conf:4: PartitionName=p: invalid node specified: 'm'"),
    ("PartitionName=p MaxTime=soon", 'slurm.conf:3: PartitionName=p: Bad value "soon" for MaxTime'),
    ("PartitionName=p\nPartitionName=p", "slurm.conf:4: Duplicate PartitionName=p"),
    ("NodeSet=s", "slurm.conf:3: NodeSet=s needs Feature or Nodes"),
    ("Include nothere.conf", "slurm.conf:3: Include file {dir}/nothere.conf does not exist"),
    ("SelectTypeParameters=CR_Frob", "slurm.conf:3: Bad SelectTypeParameter: CR_FROB"),
    ("PreemptMode=REQUEUE", "PreemptType and PreemptMode values incompatible"),
    ("PreemptType=preempt/qos\nPreemptMode=SUSPEND", "slurm.conf:4: PreemptMode=SUSPEND requires GANG too"),
    ("AccountingStorageEnforce=all,frob", "slurm.conf:3: AccountingStorageEnforce invalid: all,frob"),
    ("PriorityDecayHalfLife=0", "slurm.conf:3: You have to either have PriorityDecayHalfLife"),
    ("PriorityCalcPeriod=0", 'slurm.conf:3: Bad value "0" for PriorityCalcPeriod'),
    ("PriorityWeightTRES=cpu", "slurm.conf:3: "), ("FirstJobId=0", "slurm.conf:3: FirstJobId cannot be zero"),
    ("RequeueExit=1-300", "slurm.conf:3: RequeueExit: '1-300' is no exit code"),
    ("SallocDefaultCommand=x", "slurm.conf:3: SallocDefaultCommand: 25.11 refuses to start with this key: remove it")])
def test_what_cannot_be_used_is_one_line_with_its_place(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ConfError) as caught:
        read(tmp_path, HEAD + text + "\n")
    said = str(caught.value)
    assert error.format(dir=tmp_path) in said and "\n" not in said
    reported = read(tmp_path, HEAD + text + "\n", strict=False).notes if "Include" not in text and "just" not in text \
        and "reserved" not in error and "needs" not in error and "MinJobAge=3" not in text else [("", 1, "")]
    assert reported


@pytest.mark.parametrize("content", [None, b"ClusterName=c\0"])
def test_files_that_are_missing_or_no_text(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "slurm.conf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfError, match="No such file" if content is None else "NUL byte"):
        read_conf(str(path))


def test_an_include_that_includes_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match="nest too deep"):
        read(tmp_path, "Include slurm.conf\n")


def test_lint_names_every_unused_key_once_with_its_meaning(tmp_path: Path) -> None:
    conf = read(tmp_path, HEAD + "AuthType=auth/munge\nSlurmdSpoolDir=/x\nSchedulerParameters=bf_interval=3,frob=1\n"
                "NodeName=a CpuBind=core\nNodeName=b CpuBind=core\n")
    found = {key: (value, line) for key, value, _, line, meaning in lint(conf) if meaning}
    assert found == {"AuthType": ("auth/munge", 3), "SlurmdSpoolDir": ("/x", 4), "NodeName: CpuBind": ("core", 6),
                     "SchedulerParameters": ("frob=1", 5)}


def test_lint_says_in_which_file_a_key_stands(tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_text("GresTypes=gpu\nTreeWidth=3\nNodeName=n[1-2] Gres=gpu:1\n"
                                         "PartitionName=q Nodes=ALL SelectTypeParameters=CR_Core\n")
    (tmp_path / "gres.conf").write_text("Include more.conf\n")
    (tmp_path / "more.conf").write_text("\nName=gpu File=/dev/null Links=0 Flags=nvidia_gpu_env Cores=0 Foo=1\n")
    (tmp_path / "slurm.conf").write_text(HEAD + "Include nodes.conf\nSchedulerParameters=frob\nTreeWidth=4\n"
                                         "SelectTypeParameters=CR_CPU\n")
    conf = read_conf(str(tmp_path / "slurm.conf"), strict=False)
    assert [(one.key, one.value, Path(one.path).name, one.line) for one in lint(conf)] == [
        ("TreeWidth", "3", "nodes.conf", 2), ("gres.conf: Links", "0", "more.conf", 2),
        ("gres.conf: Cores", "0", "more.conf", 2),
        ("SchedulerParameters", "frob", "slurm.conf", 4),
        ("PartitionName=q: SelectTypeParameters", "CR_Core", "nodes.conf", 4)]
    assert [(Path(path).name, line, text) for path, line, text in conf.notes] == [
        ("slurm.conf", 5, "TreeWidth is given more than once, the latest value is used"),
        ("more.conf", 2, "unrecognized key: Foo")]


def test_lint_says_what_of_sharing_is_not_there(tmp_path: Path) -> None:
    conf = read(tmp_path, HEAD + "SelectType=select/linear\nPreemptMode=GANG\nNodeName=a\n"
                "PartitionName=p Nodes=a OverSubscribe=FORCE:2 SelectTypeParameters=CR_Core ExclusiveTopo=YES\n")
    assert [key for key, *_ in lint(conf)] == [
        "PartitionName: ExclusiveTopo", "SelectType", "PreemptMode"]


def test_the_default_configuration_is_four_nodes_of_this_machine(tmp_path: Path) -> None:
    conf = read(tmp_path, default_conf_text(Machine(6, 8000, "box")))
    assert [(n.name, n.cpus, n.real_memory_mb) for n in conf.nodes.values()] == [
        (f"node{i}", 6, 2000) for i in (1, 2, 3, 4)]
    partitions = make_partitions(conf, make_nodes(conf, 0.0))
    assert partitions["main"].default and partitions["main"].nodes_text == "node[1-4]"
    assert conf.accounting_enforce == frozenset() and conf.first_job_id == 1 and lint(conf) == [] and conf.notes == []


def test_every_key_that_lint_names_says_why() -> None:
    for table in (KEYS, NODE_KEYS, PARTITION_KEYS, GRES_KEYS):
        assert all(key.meaning and key.meaning != key.use for key in table.values() if key.use)
