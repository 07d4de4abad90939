#!/bin/bash
# make demo-kubernetes: a real Kubernetes of three nodes on this machine (tests/cluster), the images, the chart, the
# scripts of this folder from the login pod, and what the commands say. All that was started is stopped at the end.
set -eu

examples=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$examples")
cache="${XDG_CACHE_HOME:-$HOME/.cache}/slurmbridge"
place=$(mktemp -d /tmp/sbdemo.XXXX)
chmod 755 "$place"

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() {
    printf '\n$ %s\n' "$*"
    "$@"
}
in_tests() { (cd "$root/tests" && "$root/.venv/bin/python" "$@"); }
finish() {
    trap - EXIT INT TERM HUP
    say "stopping everything"
    cd /
    in_tests -m cluster.kubernetes down --dir "$place/k" || true
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$root/tests/setup_cluster.sh"
in_tests -c 'import sys
from cluster import build
lacking = build.why_not() or build.why_no_helm()
sys.exit(f"make demo-kubernetes needs {lacking}" if lacking else 0)'
version=$(in_tests -c 'from cluster import build; print(build.VERSION)')
export PATH="$cache/kubernetes-$version:$cache/tools:$PATH"

say "Kubernetes $version: a control plane and three nodes, each with its own kubelet and containerd"
show in_tests -m cluster.kubernetes up --dir "$place/k"
export KUBECONFIG="$place/k/admin.kubeconfig"
show kubectl get nodes

say "the images of this checkout, on every node"
in_tests - "$place" <<'PYTHON'
import sys
from pathlib import Path
from cluster import images
from cluster.kubernetes import Cluster
folder = Path(sys.argv[1])
Cluster(folder / "k").load(images.runtime_image(folder), images.controller_image(folder), images.bash_image(folder))
PYTHON

say "the chart"
mkdir -m 777 "$place/home" "$place/ledger"
mkdir "$place/home/alice"
cp "$examples"/{hello,gang,array,failing,after}.sh "$place/home/alice"
chown -R 1001:1001 "$place/home/alice"
kubectl apply -f - <<YAML
apiVersion: v1
kind: PersistentVolume
metadata: {name: ledger}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  hostPath: {path: $place/ledger}
YAML
cat >"$place/values.yaml" <<YAML
image: {repository: localhost/slurmbridge, tag: test, pullPolicy: Never}
users: [{name: alice, uid: 1001, gid: 1001}]
slurmConf: |
  SlurmctldHost=slurmbridge
  SlurmUser=slurm
  SelectType=select/cons_tres
  SelectTypeParameters=CR_Core_Memory
  MpiDefault=pmi2
  KillWait=3
  PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=UNLIMITED DefMemPerCPU=64
jobs:
  image: localhost/bash:1
  runtimeImage: localhost/slurmbridge-runtime:test
  pod: {volumes: [{name: home, hostPath: {path: $place/home}}]}
  container: {volumeMounts: [{name: home, mountPath: /home}]}
controller: {resources: {requests: {cpu: 50m, memory: 128Mi}, limits: {memory: 1Gi}}}
ledger: {size: 1Gi, storageClassName: ""}
login:
  volumes: [{name: home, hostPath: {path: $place/home}}]
  volumeMounts: [{name: home, mountPath: /home}]
YAML
show helm install hpc "$root/charts/slurmbridge" -n slurm --create-namespace -f "$place/values.yaml" --wait --timeout 300s
login() { kubectl -n slurm exec deploy/hpc-login -c login -- su alice -c "cd; $*"; }
on_login() {
    printf '\nalice@login$ %s\n' "$*"
    login "$@"
}
on_login sinfo

say "some jobs"
hello=$(login sbatch --parsable hello.sh)
gang=$(login sbatch --parsable gang.sh)
login sbatch array.sh
login sbatch failing.sh
login sbatch "--dependency=afterok:$hello" after.sh "hello-$hello.out"

say "the queue and its pods, until it is empty"
SECONDS=0
while [ -n "$(login squeue --noheader)" ]; do
    on_login squeue
    show kubectl -n slurm get pods -o wide
    if ((SECONDS > 240)); then
        say "something takes too long here"
        exit 1
    fi
    sleep 4
done

say "what the gang of two nodes wrote"
on_login cat "gang-$gang.out"

say "what became of all"
on_login sacct --format=JobID,JobName,Partition,AllocCPUS,State,ExitCode,Elapsed,NodeList

say "helm uninstall: the records stay"
show helm uninstall hpc -n slurm --wait
show kubectl -n slurm get pvc
