#!/bin/sh
# Builds the page that draws the dashboards with Grafana's own frontend, in .cache/render.
# With `pictures` it then takes the pictures in docs/images. Not part of `make test`: the frontend
# is some 500 packages from npm.
set -eu
cd "$(dirname "$0")/.."

source=dashboards/render
target=.cache/render
stamp=$target/.built-from

# program or file : Debian package; Grafana measures its labels in this font
programs='
chromium:chromium
chromedriver:chromium-driver
/usr/share/fonts/opentype/inter/Inter-Regular.otf:fonts-inter
/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:fonts-dejavu-core
'

missing_packages() {
    for pair in $programs; do
        command -v "${pair%%:*}" >/dev/null || [ -f "${pair%%:*}" ] || echo "${pair##*:}"
    done | sort -u | tr '\n' ' '
}

fingerprint() {
    find "$source" -type f | sort | xargs cksum
}

missing=$(missing_packages)
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "error: the pictures need programs of these Debian packages, or their like: $missing" >&2
        exit 1
    fi
    echo "render-dashboards: installing $missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    # shellcheck disable=SC2086  # one word per package
    apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends -y $missing >/dev/null
fi

if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; then
    echo 'error: the page is built with Node.js 20 or newer, and npm; install them first' >&2
    exit 1
fi

mkdir -p "$target"
if [ ! -f "$stamp" ] || [ "$(fingerprint)" != "$(cat "$stamp")" ]; then
    rm -rf "$stamp" "$target/src" "$target/dist"
    cp -R "$source"/. "$target"/
    if ! cmp -s "$source/package-lock.json" "$target/.installed-from"; then
        echo "render-dashboards: installing Grafana's frontend into $target"
        (cd "$target" && npm ci --legacy-peer-deps --no-audit --no-fund --loglevel=error)
        cp "$source/package-lock.json" "$target/.installed-from"
    fi
    echo 'render-dashboards: building the page'
    (cd "$target" && node_modules/.bin/vite build)
    fingerprint >"$stamp.new"
    mv "$stamp.new" "$stamp"
fi

if [ "${1:-}" = pictures ]; then
    exec .venv/bin/python -m tests.dashboards.pictures
fi
