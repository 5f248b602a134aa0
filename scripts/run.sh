#!/bin/sh
# Serves the Hermes homes of this host; without any, a demo home, so that there is something to see.
set -eu
cd "$(dirname "$0")/.."

# `check` exits 1 when it finds something to complain of; the list of homes is there all the same.
report=$(.venv/bin/hermes-exporter check --json) || true
count=$(printf '%s' "$report" | .venv/bin/python -c 'import json, sys; print(sum(home["home"] is not None for home in json.load(sys.stdin)["homes"]))' 2>/dev/null) || {
    echo 'error: `hermes-exporter check --json` did not list the homes of this host' >&2
    exit 1
}
if [ "$count" -gt 0 ]; then
    echo "run: found $count Hermes home(s) on this host; serving them"
    exec .venv/bin/hermes-exporter serve "$@"
fi
echo 'run: found no Hermes home on this host; serving a demo home'
exec .venv/bin/hermes-exporter demo "$@"
