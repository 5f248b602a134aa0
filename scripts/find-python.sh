#!/bin/sh
# Prints the first interpreter that is Python 3.11 or newer (and older than 3.$1, if given).
set -eu

below_minor=${1:-100}
for name in python3 python3.13 python3.12 python3.11 python3.14; do
    path=$(command -v "$name" 2>/dev/null) || continue
    if "$path" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, $below_minor))" 2>/dev/null; then
        echo "$path"
        exit 0
    fi
done
if [ "$below_minor" = 100 ]; then
    wanted='3.11 or newer'
else
    wanted="3.11 to 3.$((below_minor - 1))"
fi
echo "error: no Python $wanted on PATH; install one (Debian: apt-get install python3 python3-venv; macOS: brew install python@3.13)" >&2
exit 1
