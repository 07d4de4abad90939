#!/bin/bash
# make demo: a controller of its own with the local engine, the scripts of this folder, and what the commands say.
# Everything lives in a temporary folder; all that was started is stopped at the end, and at Ctrl-C.
set -eu

examples=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$examples/../.venv/bin" && pwd)
export PATH="$bin:$PATH"
unset "${!SLURM_@}" "${!SBATCH_@}" "${!SQUEUE_@}" "${!SACCT_@}" "${!SLURMBRIDGE_@}"
place=$(mktemp -d /tmp/slurmbridge-demo.XXXXXX)
chmod 755 "$place"
export SLURMBRIDGE_URL="unix://$place/state/slurmbridge.sock"

finish() {
    trap - EXIT INT TERM HUP
    if [ -d "$place/state" ]; then
        say "stopping everything"
        slurmbridge down --state "$place/state" || true
    fi
    cd / && rm -rf "$place"
}
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() {
    printf '\n$ %s\n' "$*"
    "$@"
}
submit() {      # says what it does on standard error, prints the job's number
    printf '$ sbatch %s\n' "$*" >&2
    sbatch --parsable "$@"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir "$place/work"
cd "$place/work"
cp "$examples"/*.sh .

say "a controller with the local engine: virtual nodes of this machine, real processes"
show slurmbridge up --state "$place/state" --engine local
show sinfo

say "some jobs"
hello=$(submit hello.sh)
gang=$(submit gang.sh)
submit array.sh >/dev/null
submit failing.sh >/dev/null
slow=$(submit timeout.sh)
submit "--dependency=afterok:$hello" after.sh "hello-$hello.out" >/dev/null

say "the queue, until it is empty (the job that is to hit its time limit takes a minute)"
SECONDS=0
while [ -n "$(squeue --noheader)" ]; do
    printf '\nafter %d s:\n' "$SECONDS"
    squeue
    if ((SECONDS > 100)); then
        say "something takes too long here"
        exit 1
    fi
    for _ in 1 2 3 4 5 6; do
        sleep 1
        [ -n "$(squeue --noheader)" ] || break
    done
done
printf '\nall done after %d s\n' "$SECONDS"

say "what the gang of two nodes wrote"
show cat "gang-$gang.out"

say "and the job whose time was over"
show cat "timeout-$slow.out"

say "what became of all"
show sacct --format=JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode,Elapsed,NodeList
show sinfo
show sshare -a

say "two more that both want every node: one waits, and sprio says where its priority comes from"
for _ in 1 2; do
    submit --exclusive --nodes=4 --time=1 --output=/dev/null --wrap 'sleep 60' >/dev/null
done
sleep 1
show squeue
show sprio
show scancel --me
