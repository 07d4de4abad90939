"""Sums the ranks over all processes, as torchrun started them."""
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank())
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} "
      f"(local {os.environ['LOCAL_RANK']} on {os.environ['SLURMD_NODENAME']}): sum {int(total)}")
dist.destroy_process_group()
