#!/bin/bash
#SBATCH --job-name=failing
#SBATCH --time=1
#SBATCH --output=%x-%j.out
# A job whose script ends with an exit code of its own: sacct shows FAILED and 3:0.

echo "this job cannot go on" >&2
exit 3
