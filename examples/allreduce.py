"""Sums the ranks over all processes, as torchrun started them: with PyTorch where it is installed, else by sockets."""
import os
import socket
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def with_torch(value):
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    tensor = torch.tensor(value)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return int(tensor)


def with_sockets(value):
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank:
        for _ in range(100):
            try:
                peer = socket.create_connection(address, timeout=30)
                break
            except OSError:
                time.sleep(0.1)
        peer.sendall(b"%d\n" % value)
        return int(peer.makefile().readline())
    with socket.create_server(address) as server:
        peers = [server.accept()[0] for _ in range(world - 1)]
        total = value + sum(int(peer.makefile().readline()) for peer in peers)
        for peer in peers:
            peer.sendall(b"%d\n" % total)
        return total


try:
    total = with_torch(rank)
except ImportError:
    total = with_sockets(rank)
print(f"rank {rank} of {world} (local {os.environ['LOCAL_RANK']} on {os.environ['SLURMD_NODENAME']}): sum {total}")
