#!/bin/bash
# A real Kubernetes for the tests of the Kubernetes engine: Debian's programs, and one build from Go modules that is kept
# in ~/.cache/slurmbridge. Where that cannot be, those tests use SLURMBRIDGE_TEST_KUBECONFIG or are skipped.
set -eu
cd "$(dirname "$0")"
[ -n "${SLURMBRIDGE_TEST_KUBECONFIG:-}" ] && exit 0
[ "$(id -u)" = 0 ] || exit 0

missing=()
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
have runc || missing+=(runc)
[ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
have ip || missing+=(iproute2)
have iptables || missing+=(iptables)
have nft || missing+=(nftables)
have openssl || missing+=(openssl)
[ -x /bin/busybox ] || missing+=(busybox-static)
if ((${#missing[@]})) && command -v apt-get >/dev/null; then
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || exit 0
fi
exec ../.venv/bin/python -m cluster.build
