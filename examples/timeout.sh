#!/bin/bash
#SBATCH --job-name=timeout
#SBATCH --time=0:20
#SBATCH --output=%x-%j.out
# Longer than its time limit. Slurm counts limits in minutes, so 20 seconds become one; then the job gets SIGTERM, after
# KillWait SIGKILL, its output ends with a line that says so, and sacct shows TIMEOUT.

echo "working for five minutes"
sleep 300
