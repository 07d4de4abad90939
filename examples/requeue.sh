#!/bin/bash
#SBATCH --job-name=requeue
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=2
#SBATCH --signal=USR1@60
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
# Training longer than the time limit, as Lightning does it: a minute before the limit every task gets USR1, saves what
# it has, and the first one puts the job back into the queue; the next run goes on from there.

echo "run $((${SLURM_RESTART_COUNT:-0} + 1)) of job $SLURM_JOB_ID"
srun python3 train.py
