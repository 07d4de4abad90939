#!/bin/bash
#SBATCH --job-name=after
#SBATCH --time=1
#SBATCH --output=%x-%j.out
# Waits for another job to succeed: sbatch --dependency=afterok:<job id> after.sh

echo "the job before me succeeded: $(cat "${1:-/dev/null}")"
