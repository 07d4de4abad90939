"""Counts to STEPS in as many runs as it takes. What Lightning's SLURM environment reads and does, in small."""
import json
import os
import re
import signal
import subprocess
import sys
import time

rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
node_rank, local_rank = int(os.environ["SLURM_NODEID"]), int(os.environ["SLURM_LOCALID"])
first = re.sub(r"\[(\d+).*", r"\1", os.environ["SLURM_NODELIST"]).split(",")[0]
port = int(os.environ["SLURM_JOB_ID"][-4:]) + 15000
checkpoint = f"checkpoint-{os.environ['SLURM_JOB_ID']}.{rank}"
step, steps = 0, int(os.environ.get("STEPS", "600"))


def save_and_requeue(number, frame):
    with open(checkpoint, "w") as file:
        json.dump(step, file)
    if rank == 0:
        time.sleep(0.5)                       # the others save too
        sys.exit(subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]]).returncode)


signal.signal(signal.SIGUSR1, save_and_requeue)
signal.signal(signal.SIGTERM, lambda number, frame: print(f"rank {rank}: bypassing SIGTERM", flush=True))
if os.path.exists(checkpoint):
    with open(checkpoint) as file:
        step = json.load(file)
print(f"rank {rank} of {world}, node {node_rank}, local {local_rank}, head {first}:{port}: from step {step}",
      flush=True)
while step < steps:
    time.sleep(0.1)
    step += 1
print(f"rank {rank}: done at step {step}", flush=True)
