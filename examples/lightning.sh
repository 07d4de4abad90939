#!/bin/bash
#SBATCH --job-name=lightning
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=10
#SBATCH --signal=SIGUSR1@90
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
# PyTorch Lightning: it reads rank, world and head node from SLURM's variables, and 90 seconds before the limit it
# writes a checkpoint and requeues its own job, which goes on from there.

srun ${PYTHON:-python3} lightning_train.py
