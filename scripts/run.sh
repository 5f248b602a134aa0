#!/bin/sh
# Serves the Hermes homes of this host; without any, a demo home, so that there is something to see.
# Homes that are named (`--home PATH`) are served as they are.
set -eu
cd "$(dirname "$0")/.."

address=$(.venv/bin/python -c 'from exporter.agent.options import *; print(DEFAULT_LISTEN_ADDRESS)')
url="open http://$address/"
program=$PWD/.venv/bin/hermes-exporter
named=
homes=
before=
for word in "$@"; do
    if [ "$before" = --home ]; then homes="$homes --home '$word'"; fi
    before=$word
    case $word in
        --home) named=yes ;;
        --home=*) named=yes homes="$homes '$word'" ;;
        --web.listen-address | --web.listen-address=*) url='its address is in the log below' ;;
    esac
done
tell() {
    echo "run: $url (another port: make run ARGS='--web.listen-address 127.0.0.1:PORT')"
    echo "run: in another terminal: $program status$homes"
}
if [ -n "$named" ]; then
    tell
    exec .venv/bin/hermes-exporter serve "$@"
fi

# `check` exits 1 when it finds something to complain of; the list of homes is there all the same. An
# agent that runs already is not asked: it may watch other homes, such as those of a demo.
report=$(.venv/bin/hermes-exporter check --json --no-agent) || true
count=$(printf '%s' "$report" | .venv/bin/python -c '
import json, shlex, sys

from exporter.text import escape_control

try:
    homes = json.load(sys.stdin)["homes"]
except (ValueError, LookupError):
    sys.exit(1)
for home in homes:
    if home["home"] is None:
        path = escape_control(home["path"])
        for refusal in home["cannot"]:
            why, fix = refusal["why"], refusal["grant"]
            if "--home" in fix:
                fix = f"if it is trusted, name it: make run ARGS=\"--home {shlex.quote(path)}\""
            print(f"run: found {path}, and refused it: {why}; {fix}", file=sys.stderr)
print(sum(home["home"] is not None for home in homes))
') || {
    echo 'error: `hermes-exporter check --json` did not list the homes of this host' >&2
    exit 1
}
if [ "$count" -gt 0 ]; then
    echo "run: found $count Hermes home(s) on this host; serving them"
    tell
    exec .venv/bin/hermes-exporter serve "$@"
fi
case $report in
    *'"adopt"'*) echo 'run: every Hermes home that was found is refused (see above); serving a demo home' ;;
    *) echo 'run: found no Hermes home on this host; serving a demo home' ;;
esac
echo "run: $url (another port: make run ARGS='--web.listen-address 127.0.0.1:PORT')"
exec .venv/bin/hermes-exporter demo "$@"
