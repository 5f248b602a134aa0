#!/bin/sh
# Makes .venv with this project; does nothing when it is up to date.
# `setup.sh dev` adds the development tools, which are ten times as large as what running needs.
set -eu
cd "$(dirname "$0")/.."

venv_python=.venv/bin/python
stamp=.venv/.installed-from

kind=${1:-runtime}

fingerprint() {
    "$venv_python" -c 'import sys; print(sys.version)' && cksum pyproject.toml || return 1
    [ "$1" = dev ] || echo "$1"
}

# What has the development tools has all that running needs.
up_to_date() {
    [ -x "$venv_python" ] && [ -f "$stamp" ] || return 1
    for enough in dev "$kind"; do
        [ "$(fingerprint "$enough" 2>/dev/null)" != "$(cat "$stamp")" ] || return 0
    done
    return 1
}

if up_to_date; then
    exit 0
fi
python=$(scripts/find-python.sh)

# Two makes may start at once: the second waits here for the first.
if [ "${2:-}" != locked ]; then
    mkdir -p .cache
    exec "$python" -c '
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o644)
fcntl.flock(lock, fcntl.LOCK_EX)
os.set_inheritable(lock, True)
os.execv(sys.argv[2], sys.argv[2:])' .cache/setup.lock /bin/sh scripts/setup.sh "$kind" locked
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo 'setup: installing python3-venv'
        apt-get -qq update && apt-get -qq install --no-install-recommends -y python3-venv >/dev/null
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "error: $python cannot make virtual environments; install the venv package (Debian: apt-get install python3-venv)" >&2
        exit 1
    fi
fi

if ! "$venv_python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "setup: making .venv with $python"
    "$python" -m venv --clear .venv
fi
case $kind in
    dev) what='.[dev]' with=' and its development tools' ;;
    *) what=. with= ;;
esac
echo "setup: installing hermes-exporter$with into .venv"
"$venv_python" -m pip install --quiet --disable-pip-version-check --editable "$what"
fingerprint "$kind" >"$stamp.new"
mv "$stamp.new" "$stamp"
