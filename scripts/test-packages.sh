#!/bin/sh
# Makes sure that the programs which the tests run are here, installing them when root on Debian.
# `test-packages.sh full` adds those of the tests at full size.
set -eu

# program or file : Debian package
programs='
prometheus:prometheus
promtool:prometheus
amtool:prometheus-alertmanager
sqlite3:sqlite3
git:git
fusermount3:fuse3
bindfs:bindfs
mkfs.ext4:e2fsprogs
ip:iproute2
openssl:openssl
unshare:util-linux
setpriv:util-linux
strace:strace
faketime:faketime
systemd-analyze:systemd
dpkg-deb:dpkg
man:man-db
zsh:zsh
fish:fish
'
for_full='
dockerd:docker.io
debootstrap:debootstrap
victoria-metrics:victoria-metrics
chromium:chromium
chromedriver:chromium-driver
/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:fonts-dejavu-core
npm:npm
'
[ "${1:-}" != full ] || programs=$programs$for_full
PATH=$PATH:/usr/sbin:/sbin

missing_packages() {
    for pair in $programs; do
        command -v "${pair%%:*}" >/dev/null || [ -f "${pair%%:*}" ] || echo "${pair##*:}"
    done | sort -u | tr '\n' ' '
}

missing=$(missing_packages)
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "error: the tests need programs of these Debian packages, or their like on this system: $missing" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "error: the tests need more programs; run: sudo apt-get install --no-install-recommends $missing" >&2
    exit 1
fi
echo "test-packages: installing $missing"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
# shellcheck disable=SC2086  # one word per package
apt-get -qq install --no-install-recommends -y $missing >/dev/null
missing=$(missing_packages)
if [ -n "$missing" ]; then
    echo "error: still missing after installation: $missing" >&2
    exit 1
fi
