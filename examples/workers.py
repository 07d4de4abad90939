"""Queues of work behind one address: head, workers and driver of a cluster in small."""
import os
import queue
import sys
import time
from multiprocessing.managers import BaseManager

role, address = sys.argv[1], sys.argv[2].split(":")
queues = {name: queue.Queue() for name in ("work", "results", "here")}


class Cluster(BaseManager):
    pass


for name in queues:
    Cluster.register(name, callable=(lambda name=name: queues[name]) if role == "head" else None)
cluster = Cluster((address[0], int(address[1])), os.environ["SLURM_JOB_ID"].encode())
if role == "head":
    cluster.get_server().serve_forever()
while True:
    try:
        cluster.connect()
        break
    except OSError:
        time.sleep(0.1)
work, results, here = cluster.work(), cluster.results(), cluster.here()
if role == "worker":
    here.put(os.environ["SLURMD_NODENAME"])
    while True:
        try:
            number = work.get()
            time.sleep(0.02)
            results.put((number, number ** 2, os.environ["SLURMD_NODENAME"]))
        except (EOFError, ConnectionError):   # the head was ended first
            sys.exit()
print("workers:", *sorted(here.get(timeout=60) for _ in range(int(sys.argv[3]))))
for number in range(20):
    work.put(number)
done = [results.get(timeout=60) for _ in range(20)]
print("sum of squares:", sum(square for _, square, _ in done), "by", *sorted({node for *_, node in done}))
