#!/bin/bash
#SBATCH --job-name=array
#SBATCH --array=1-6%3
#SBATCH --time=1
#SBATCH --output=%x-%A_%a.out
# Six jobs of one script, three at a time. Each finds its own number in SLURM_ARRAY_TASK_ID.

echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT on $SLURMD_NODENAME"
sleep 3
