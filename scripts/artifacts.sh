#!/usr/bin/env bash
# Makes all that is published of a build, with SHA-256 sums: artifacts.sh BUILT OUT [DPKG_DEB_OPTION...]
#
# The gateway and the module, Debian packages of both, the wheel and the npm packages of the gateway, a bill of materials and
# the license texts. What it leaves in OUT was run: the program says its version, and the module still exports what Redis
# loads it by.
set -euo pipefail

built=$1
out=$2
shift 2
here=$(dirname "$0")

rm -rf "$out"
install -D --target-directory "$out" "$built/mooring"
install -D --mode 644 --target-directory "$out" "$built/libmooring.so"
strip "$out/mooring"
strip --strip-unneeded "$out/libmooring.so"
"$out/mooring" --version >/dev/null
nm --dynamic --defined-only "$out/libmooring.so" | grep ' RedisModule_OnLoad$' >/dev/null
"$here/bill-of-materials.py" "$out"
# The packages have the texts of the licenses, so they come after them.
"$here/package-debian.sh" "$built" "$out" "$@"
"$here/package-wrappers.py" "$built" "$out"
cd "$out"
files=(*)
sha256sum "${files[@]}" >SHA256SUMS
echo "$out:"
cat SHA256SUMS
