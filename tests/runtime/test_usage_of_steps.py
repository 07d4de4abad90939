"""What steps and scripts use, as sacct shows it later."""
from __future__ import annotations

import pytest
from local_runs import Rig

from slurmbridge.commands.sacct_rows import Stats
from slurmbridge.runtime.gauges import gather_interval_s, statistics
from slurmbridge.runtime.gpumeter import GpuUse, by_device, by_process
from slurmbridge.views.records import NodeAllocation

MIB = 1 << 20
HOLD = r'''
import os, sys, time
if sys.argv[1] == "child" and os.fork() == 0:
    time.sleep(1.6); os._exit(0)
data = bytearray(int(sys.argv[2]) << 20)
data[::4096] = b"x" * len(data[::4096])
with open("/dev/zero", "rb", buffering=0) as zero, open("/dev/null", "wb", buffering=0) as null:
    for _ in range(int(sys.argv[3])):
        null.write(zero.read(1 << 20))
end = time.process_time() + float(sys.argv[4])
while time.process_time() < end: pass
time.sleep(1.6)
'''


def stats(event):
    return Stats(**event.data["usage"]["stats"])


def test_each_task_is_measured_on_its_node(rig):
    job = rig.do(rf"""cat >h.py <<'END'
{HOLD}
END
srun -n2 -N2 --acctg-freq=1 bash -c \
'python3 h.py child $((40 + SLURM_PROCID * 60)) $((8 - SLURM_PROCID * 4)) 0.$SLURM_PROCID'
""", nodes=2)
    ended, = job.of("step_ended")
    usage, found = ended.data["usage"], stats(ended)
    assert 100 * MIB < found.in_max["mem"] < 200 * MIB and 40 * MIB < found.in_min["mem"] < 100 * MIB
    assert (found.in_max_node["mem"], found.in_max_task["mem"]) == ("n2", 1)
    assert (found.in_min_node["mem"], found.in_min_task["mem"]) == ("n1", 0)
    assert found.in_ave["mem"] == found.in_tot["mem"] // 2 and found.in_tot["mem"] > 140 * MIB
    assert found.in_max["vmem"] >= found.in_max["mem"]
    assert 8 * MIB < found.in_max["fs/disk"] < 9 * MIB and found.in_max_task["fs/disk"] == 0
    assert 8 * MIB <= found.out_max["fs/disk"] < 9 * MIB and 12 * MIB <= found.out_tot["fs/disk"] < 13 * MIB
    assert found.in_max_task["cpu"] == 1 and 100 <= found.in_max["cpu"] < 2000
    assert usage["user_cpu_s"] + usage["system_cpu_s"] >= 0.1 and usage["num_tasks"] == 2
    assert found.in_tot["energy"] == found.out_tot["energy"] == 0


def test_a_short_task_has_cpu_time_only(rig):
    job = rig.do("srun -n1 -N1 true")
    assert set(job.of("step_ended")[0].data["usage"]) == {"user_cpu_s", "system_cpu_s", "num_tasks"}


def test_a_short_task_with_much_memory_is_seen_all_the_same(rig):
    job = rig.do("srun -n1 -N1 python3 -c 'x = b\"x\" * (300 << 20)'")
    assert 300 * MIB < stats(job.of("step_ended")[0]).in_max["mem"] < 400 * MIB


def test_the_script_and_what_it_left_behind(rig):
    job = rig.do(f"""cat >h.py <<'END'
{HOLD}
END
python3 h.py alone 50 3 0.1
setsid bash -c 'while :; do :; done' >/dev/null 2>&1 &
sleep 0.3""", acctg_freq="task=1")
    usage = job.of("script_ended")[0].data["usage"]
    found = Stats(**usage["stats"])
    assert 50 * MIB < found.in_max["mem"] < 120 * MIB and 3 * MIB <= found.out_max["fs/disk"] < 4 * MIB
    assert (found.in_max_node["mem"], found.in_max_task["mem"]) == ("n1", 0)
    assert usage["user_cpu_s"] + usage["system_cpu_s"] > 0.1


NVIDIA_SMI = r"""#!/bin/bash
echo "# gpu pid type sm mem fb command"
grep -l gpuprogram /proc/[0-9]*/cmdline 2>/dev/null | while IFS=/ read -r _ _ pid _; do
    head -zn1 /proc/$pid/cmdline | grep -q '^python' && echo "0 $pid C 40 1 200 python"
done
exit 0
"""


@pytest.fixture
def rig_with_gpus(commands, monkeypatch, tmp_path):
    program = commands / "nvidia-smi-for-tests"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("SLURMBRIDGE_GPU_METER", str(program))
    made = Rig(commands)
    yield made
    made.close()


def test_gpus_are_asked_for_by_process(rig_with_gpus):
    nodes = [NodeAllocation("n1", 2, 2000, gres={"gpu": (0, 1)})]
    job = rig_with_gpus.do("srun -n2 -N1 --acctg-freq=1 python3 -c 'import time; time.sleep(2)  # gpuprogram'",
                           record={"allocation": nodes})
    found = stats(job.of("step_ended")[0])
    assert found.in_tot["gres/gpuutil"] == 80 and found.in_max["gres/gpumem"] == 200 * MIB
    assert Stats(**job.of("script_ended")[0].data["usage"]["stats"]).in_tot["gres/gpumem"] == 0


def test_statistics_in_sacct_form():
    found = statistics({0: {"cpu": 4, "mem": 1636, "vmem": 2940, "pages": 0, "fs/disk": 7809, "out": 1},
                        1: {"cpu": 4, "mem": 1708, "vmem": 2940, "pages": 2, "fs/disk": 7809, "out": 1}},
                       {0: "n1", 1: "n2"})
    assert Stats(**found) == Stats(
        in_ave={"energy": 0, "cpu": 4, "fs/disk": 7809, "mem": 1672, "pages": 1, "vmem": 2940},
        in_max={"energy": 0, "cpu": 4, "fs/disk": 7809, "mem": 1708, "pages": 2, "vmem": 2940},
        in_max_node={"energy": "n1", "cpu": "n1", "fs/disk": "n1", "mem": "n2", "pages": "n2", "vmem": "n1"},
        in_max_task={"cpu": 0, "fs/disk": 0, "mem": 1, "pages": 1, "vmem": 0},
        in_min={"energy": 0, "cpu": 4, "fs/disk": 7809, "mem": 1636, "pages": 0, "vmem": 2940},
        in_min_node=dict.fromkeys(("energy", "cpu", "fs/disk", "mem", "pages", "vmem"), "n1"),
        in_min_task=dict.fromkeys(("cpu", "fs/disk", "mem", "pages", "vmem"), 0),
        in_tot={"energy": 0, "cpu": 8, "fs/disk": 15618, "mem": 3344, "pages": 2, "vmem": 5880},
        out_ave={"energy": 0, "fs/disk": 1}, out_max={"energy": 0, "fs/disk": 1},
        out_max_node={"energy": "n1", "fs/disk": "n1"}, out_max_task={"fs/disk": 0},
        out_min={"energy": 0, "fs/disk": 1}, out_min_node={"energy": "n1", "fs/disk": "n1"},
        out_min_task={"fs/disk": 0}, out_tot={"energy": 0, "fs/disk": 2})


PMON = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command
# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name
    0       4711     C     87     41      -      -      -      -   1024      0    python
    1       4711     C      5      1      -      -      -      -    512      0    python
    2          -     -      -      -      -      -      -      -      -      -    -
    3       4712     C      -      -      -      -      -      -    300      0    python
"""
OLD_PMON = """\
# gpu        pid  type    sm   mem   enc   dec    fb   command
# Idx          #   C/G     %     %     %     %    MB   name
    0      17923     C    33     2     -     -   455   train.py
"""
DCGM = """\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="g1"} 97
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",device="nvidia1",modelName="NVIDIA A100-SXM4-80GB",Hostname="g1"} 0
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="g1"} 41000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="g1"} 40153
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2",device="nvidia1",modelName="NVIDIA A100-SXM4-80GB",Hostname="g1"} 1.2e+01
"""


@pytest.mark.parametrize(("text", "expected"), [
    (PMON, {4711: GpuUse(92, 1536 * MIB), 4712: GpuUse(0, 300 * MIB)}), (OLD_PMON, {17923: GpuUse(33, 455 * MIB)}),
    ("", {}), ("No devices were found\n", {})])
def test_what_nvidia_smi_prints(text, expected):
    assert by_process(text) == expected


def test_what_a_dcgm_exporter_says():
    assert by_device(DCGM) == {0: GpuUse(97, 40153 * MIB), 1: GpuUse(0, 12 * MIB)}
    assert by_device("<html>not found</html>") == {}


@pytest.mark.parametrize(("text", "seconds"), [
    (None, 30), ("", 30), ("5", 5), ("0", 0), ("task=2,energy=60", 2), ("energy=60", 30), ("TASK=3", 3)])
def test_how_often_is_looked(text, seconds):
    assert gather_interval_s(text) == seconds
