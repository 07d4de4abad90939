#!/bin/bash
#SBATCH --job-name=workers
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --time=5
#SBATCH --output=%x-%j.out
# A cluster inside the job, as Ray, Dask or Spark are started: a head on the first node, a worker on each other node,
# each by an srun in the background; then the driver, and the end of the script ends them all.

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head_ip=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address | awk '{print $1}')
address=$head_ip:${PORT:-6379}

srun --nodes=1 --ntasks=1 --overlap -w "${nodes[0]}" python3 workers.py head "$address" &
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 -w "$node" python3 workers.py worker "$address" &
done
python3 -u workers.py driver "$address" $((${#nodes[@]} - 1))
