"""submitit with checkpoints: the job is told before its time is over, is requeued, and goes on where it was.

    python checkpoint_submitit.py FOLDER [SECONDS BEFORE THE LIMIT]
"""
import sys
import time
from pathlib import Path

import submitit


class Counting:
    def __init__(self, steps: int, step: int = 0, runs: int = 0) -> None:
        self.steps, self.step, self.runs = steps, step, runs

    def __call__(self) -> str:
        self.runs += 1
        while self.step < self.steps:
            time.sleep(0.1)
            self.step += 1
        return f"{self.step} steps in {self.runs} runs"

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        return submitit.helpers.DelayedSubmission(Counting(self.steps, self.step, self.runs))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    executor = submitit.SlurmExecutor(folder=folder)
    executor.update_parameters(time=1, nodes=1, ntasks_per_node=1, cpus_per_task=1, mem="100MB",
                               signal_delay_s=int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    job = executor.submit(Counting(int(sys.argv[3]) if len(sys.argv) > 3 else 600))
    print(f"job {job.job_id}", flush=True)
    print(job.result())
