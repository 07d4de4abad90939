"""Asks every node of the Ray cluster at the address for a square: ray_driver.py ADDRESS NODE..."""
import os
import sys
import time

import ray

address, nodes = sys.argv[1], sys.argv[2:]
for _attempt in range(60):
    try:
        ray.init(address=address, log_to_driver=False)
        break
    except (ConnectionError, RuntimeError):
        time.sleep(1)
while len([node for node in ray.nodes() if node["Alive"]]) < len(nodes):
    time.sleep(0.5)


@ray.remote
def square(number):
    return number ** 2, os.environ["SLURMD_NODENAME"]


for number, node in enumerate(nodes, 2):
    print(*ray.get(square.options(resources={node: 1}).remote(number)), flush=True)
ray.shutdown()
