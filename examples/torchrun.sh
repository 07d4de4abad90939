#!/bin/bash
#SBATCH --job-name=torchrun
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=5
#SBATCH --output=%x-%j.out
# PyTorch on two nodes: one torchrun a node, which starts the node's processes and finds the others at the head node.

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address | awk '{print $1}')

srun torchrun \
    --nnodes "$SLURM_JOB_NUM_NODES" --nproc_per_node 2 \
    --rdzv_id "$SLURM_JOB_ID" --rdzv_backend c10d --rdzv_endpoint "$head_node_ip:${PORT:-29500}" \
    "${1:-allreduce.py}"
