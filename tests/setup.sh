#!/bin/bash
# Installs and starts what the tests need beyond Python packages. Nothing is done twice; where we are not root, tests
# that need what is missing say so and are skipped.
set -eu
cd "$(dirname "$0")"

missing=()
have() { command -v "$1" >/dev/null 2>&1; }
have cc || have gcc || missing+=(gcc libc6-dev)
have getopt || missing+=(util-linux)
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || have initdb || missing+=(postgresql)

if ((${#missing[@]})); then
    if [ "$(id -u)" = 0 ] && have apt-get; then
        echo "installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        # the tests start a server of their own: the package must not start one
        mkdir -p /etc/postgresql-common
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    else
        echo "not installed (needs root and apt-get): ${missing[*]}" >&2
    fi
fi

for script in ./setup_*.sh; do
    [ -x "$script" ] && "$script"
done
exit 0
