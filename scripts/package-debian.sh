#!/usr/bin/env bash
# Makes the Debian packages `mooring` and `mooring-redis-module`: package-debian.sh BUILT OUT [DPKG_DEB_OPTION...]
#
# BUILT has the binaries, stripped or not. A third-party-licenses.txt in OUT goes into both packages. The options go to
# dpkg-deb, such as -Zgzip for a test that has no time for xz. Files get the time of the commit, so that the same commit and
# binaries make the same packages.
set -euo pipefail

built=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
shift 2
cd "$(dirname "$0")/.."

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Debian's names of the packages of which a binary loads libraries.
libraries() {
    echo "libc6 (>= $(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -Vu | tail -n 1))"
    # Not `grep -q`: it ends before objdump has, which then counts as failed.
    ! objdump -p "$1" | grep 'NEEDED.*libgcc_s' >/dev/null || echo libgcc-s1
}

# documents PACKAGE: what every package says of itself and of the libraries that it was made from.
documents() {
    local place=$work/$1/usr/share/doc/$1
    install -d "$place"
    {
        echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
        echo
        echo "Files: *"
        echo "Copyright: the Mooring contributors"
        echo "License: Apache-2.0"
        echo " On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0."
        echo " Libraries in the binaries have licenses of their own: see third-party-licenses.txt."
    } >"$place/copyright"
    install -m 644 README.md CHANGELOG.md "$place/"
    [ ! -e "$out/third-party-licenses.txt" ] || install -m 644 "$out/third-party-licenses.txt" "$place/"
}

# build PACKAGE DEPENDS RECOMMENDS SUMMARY DESCRIPTION
build() {
    local tree=$work/$1
    install -d "$tree/DEBIAN"
    {
        echo "Package: $1"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Maintainer: the Mooring contributors <mooring@localhost>"
        echo "Section: net"
        echo "Priority: optional"
        echo "Installed-Size: $(du -sk --apparent-size "$tree" | cut -f1)"
        echo "Depends: $2"
        echo "Recommends: $3"
        echo "Description: $4"
        echo " $5"
    } >"$tree/DEBIAN/control"
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf "%P\n" | sort | xargs md5sum >DEBIAN/md5sums)
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group "${options[@]}" --build "$tree" "$out/$1_${version}_$architecture.deb" >/dev/null
}

options=("$@")

tree=$work/mooring
install -D "$built/mooring" "$tree/usr/bin/mooring"
strip "$tree/usr/bin/mooring"
install -D -m 644 -t "$tree/usr/lib/systemd/system" deploy/systemd/mooring.service deploy/systemd/mooring.socket
install -D -m 644 deploy/debian/sysusers "$tree/usr/lib/sysusers.d/mooring.conf"
install -D -m 644 -t "$tree/usr/share/mooring/grafana" deploy/grafana/*.json
install -D -m 644 -t "$tree/usr/share/mooring/prometheus" deploy/prometheus/*
install -D -m 644 -t "$tree/usr/share/doc/mooring" docs/*.md docs/settings.schema.json
# May come to hold secrets: only root and the gateway read it.
install -D -m 640 deploy/debian/mooring.toml "$tree/etc/mooring/mooring.toml"
install -D -m 755 -t "$tree/DEBIAN" deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm
install -D -m 644 -t "$tree/DEBIAN" deploy/debian/conffiles
documents mooring
build mooring "$(libraries "$built/mooring" | paste -sd, | sed 's/,/, /g'), systemd | systemd-sysusers" \
    "ca-certificates, python3, ripgrep, jq" \
    "gateway for MCP servers that keeps sessions alive" \
    "Sessions of MCP clients survive restarts and deaths of gateways and servers, and agents run code in a sandbox."

tree=$work/mooring-redis-module
# Servers refuse a module that is not executable.
install -D "$built/libmooring.so" "$tree/usr/lib/redis/modules/libmooring.so"
strip --strip-unneeded "$tree/usr/lib/redis/modules/libmooring.so"
install -D -m 644 deploy/debian/redis-module.conf "$tree/usr/share/mooring-redis-module/mooring.conf"
install -D -m 644 -t "$tree/usr/share/doc/mooring-redis-module" docs/operating-redis.md docs/commands.md
documents mooring-redis-module
build mooring-redis-module "$(libraries "$built/libmooring.so" | paste -sd, | sed 's/,/, /g')" \
    "redis-server (>= 5:7.0) | valkey-server" \
    "Redis module that keeps the sessions of Mooring" \
    "Gateways of several machines share their sessions by it. Load it with one line in the configuration of Redis or Valkey."
