#!/bin/bash
#SBATCH --job-name=gang
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=1
#SBATCH --output=%x-%j.out
# Two nodes at once, or none. This script runs on the first of them; srun starts the tasks on all.

echo "nodes: $SLURM_JOB_NODELIST = $(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd' ')"
srun --label bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME (machine $(hostname)), nodes $SLURM_JOB_NODELIST"'

# A second step, with one task on each node.
srun --ntasks-per-node=1 --ntasks=2 sleep 5
