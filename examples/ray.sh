#!/bin/bash
#SBATCH --job-name=ray
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=10
#SBATCH --output=%x-%j.out
# Ray on two nodes: the head on the first, a worker on each other one, each by an srun in the background; the driver
# runs in the script, and the end of the script ends them all.

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head_ip=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address | awk '{print $1}')
address=$head_ip:${PORT:-6379}

srun --nodes=1 --ntasks=1 -w "${nodes[0]}" \
    ray start --head --node-ip-address="$head_ip" --port="${address##*:}" --num-cpus "$SLURM_CPUS_PER_TASK" --block \
    --resources="{\"${nodes[0]}\": 1}" $RAY_OPTIONS &
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 -w "$node" \
        ray start --address "$address" --num-cpus "$SLURM_CPUS_PER_TASK" --block --resources="{\"$node\": 1}" &
done
${PYTHON:-python3} -u ray_driver.py "$address" "${nodes[@]}"
