#!/bin/sh
# Unpacks promtool of Debian's package `prometheus` to .tools/bin, which checks and tests the rules of deploy/prometheus.
# The package itself would start a server.
set -eu

tools=$(cd "$(dirname "$0")/../.." && pwd)/.tools
[ ! -x "$tools/bin/promtool" ] || exit 0
echo "promtool: unpacking it from Debian's prometheus" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Where apt's own user may write.
chmod 755 "$work"
cd "$work"
apt-get -qq download prometheus 2>/dev/null || { apt-get -qq update && apt-get -qq download prometheus; } >&2
dpkg-deb --extract prometheus_*.deb unpacked
mkdir -p "$tools/bin"
mv unpacked/usr/bin/promtool "$tools/bin/promtool"
