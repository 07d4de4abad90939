#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --ntasks=1
#SBATCH --time=1
#SBATCH --output=%x-%j.out
# The smallest job: one task. Submit it with `sbatch hello.sh`; its output is in hello-<job id>.out.

echo "Hello from job $SLURM_JOB_ID on $SLURMD_NODENAME, partition $SLURM_JOB_PARTITION, account $SLURM_JOB_ACCOUNT"
sleep 8
