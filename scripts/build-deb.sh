#!/bin/sh
# Makes dist/hermes-exporter_VERSION_ARCH.deb from the wheel in dist/.
#
#   scripts/build-deb.sh [amd64|arm64]
#
# One package serves every Python that Debian and Ubuntu ship: the dependencies' wheels for each are
# unpacked side by side, and Python picks its own. Nothing is compiled, so either architecture can
# be built on the other. They are bundled because Debian's own are too old for what protects a live
# database (see "Dependencies" in CONTRIBUTING.md).
set -eu
cd "$(dirname "$0")/.."

pythons='3.11 3.12 3.13 3.14'
architecture=${1:-$(dpkg --print-architecture)}
case $architecture in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*)
    echo "error: no package for $architecture; choose amd64 or arm64" >&2
    exit 2
    ;;
esac
python=.venv/bin/python
version=$("$python" -c 'import exporter; print(exporter.__version__)')
wheel=dist/hermes_exporter-$version-py3-none-any.whl
if [ ! -f "$wheel" ]; then
    echo "error: $wheel is missing; run 'make dist'" >&2
    exit 1
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
lib=$root/usr/lib/hermes-exporter
mkdir -p "$lib/bin" "$lib/shared"

pip() {
    "$python" -m pip --quiet --disable-pip-version-check install --no-compile --no-deps "$@"
}

pip --target "$lib/shared" "$wheel"
rm -rf "$lib/shared/bin"
for minor in $pythons; do
    packages=$lib/lib/python$minor/site-packages
    pip --target "$packages" --python-version "$minor" --implementation cp --only-binary :all: \
        --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
        --platform "manylinux_2_28_$machine" --require-hashes --requirement deploy/requirements.txt
    rm -rf "$packages/bin"
done
# What is the same for every Python is kept once.
first=$lib/lib/python${pythons%% *}/site-packages
for entry in "$first"/*; do
    name=$(basename "$entry")
    for minor in $pythons; do
        diff -rq "$entry" "$lib/lib/python$minor/site-packages/$name" >/dev/null 2>&1 || continue 2
    done
    cp -a "$entry" "$lib/shared/$name"
    rm -rf "$lib"/lib/python*/site-packages/"$name"
done
for minor in $pythons; do
    echo /usr/lib/hermes-exporter/shared >"$lib/lib/python$minor/site-packages/shared.pth"
done

# A virtual environment of the system's Python, whichever it is.
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' >"$lib/pyvenv.cfg"
ln -s /usr/bin/python3 "$lib/bin/python"
cat >"$lib/bin/hermes-exporter" <<'PROGRAM'
#!/usr/lib/hermes-exporter/bin/python -I
import sys

from exporter.cli.main import main

sys.exit(main())
PROGRAM
chmod 755 "$lib/bin/hermes-exporter"
mkdir -p "$root/usr/bin"
ln -s ../lib/hermes-exporter/bin/hermes-exporter "$root/usr/bin/hermes-exporter"

put() {
    target=$root/$1
    shift
    mkdir -p "$target"
    cp -R "$@" "$target/"
}

put usr/lib/systemd/system deploy/systemd/hermes-exporter*
put usr/lib/systemd/user deploy/systemd/user/hermes-exporter.service
put usr/share/hermes-exporter/rules dashboards/rules/*.yaml
put usr/share/hermes-exporter/dashboards dashboards/grafana/*.json
put usr/share/hermes-exporter/runbooks dashboards/runbooks/*.md
put usr/share/doc/hermes-exporter README.md docs/*.md deploy/debian/copyright
put usr/share/doc/hermes-exporter/examples deploy/prometheus dashboards/alertmanager \
    deploy/systemd/enforce.conf
put etc/hermes-exporter deploy/debian/config.yml
mkdir -p "$root/etc/default" "$root/usr/share/man/man1" \
    "$root/usr/share/bash-completion/completions"
cp deploy/debian/default "$root/etc/default/hermes-exporter"
gzip -9nc deploy/man/hermes-exporter.1 >"$root/usr/share/man/man1/hermes-exporter.1.gz"
cp deploy/completion/hermes-exporter.bash "$root/usr/share/bash-completion/completions/hermes-exporter"
put usr/share/zsh/vendor-completions deploy/completion/_hermes-exporter
put usr/share/fish/vendor_completions.d deploy/completion/hermes-exporter.fish
gzip -9nc CHANGELOG.md >"$root/usr/share/doc/hermes-exporter/changelog.gz"

control=$root/DEBIAN
mkdir "$control"
size=$(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
project() {
    "$python" -c '
import sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
whom = project["maintainers"][0]
found = {"maintainer": "{name} <{email}>".format(**whom), "homepage": project["urls"]["Homepage"]}
print(found[sys.argv[1]])' "$1"
}
sed -e "s|@MAINTAINER@|$(project maintainer)|" -e "s|@HOMEPAGE@|$(project homepage)|" \
    -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
    deploy/debian/control >"$control/control"
cp deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$control/"
chmod 755 "$control/postinst" "$control/prerm" "$control/postrm"
printf '%s\n' /etc/default/hermes-exporter /etc/hermes-exporter/config.yml >"$control/conffiles"
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) \
    >"$control/md5sums"
find "$root" -type d -exec chmod 755 {} +
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

package=dist/hermes-exporter_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
echo "$package"
