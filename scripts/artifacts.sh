#!/usr/bin/env bash
# Copies the gateway and the module, strips them, and writes their SHA-256 sums: artifacts.sh BUILT OUT
#
# What it leaves in OUT was run: the program says its version, and the module still exports what Redis loads it by.
set -euo pipefail

built=$1
out=$2

install -D --target-directory "$out" "$built/mooring"
install -D --mode 644 --target-directory "$out" "$built/libmooring.so"
cd "$out"
strip mooring
strip --strip-unneeded libmooring.so
sha256sum mooring libmooring.so >SHA256SUMS
./mooring --version >/dev/null
nm --dynamic --defined-only libmooring.so | grep -q ' RedisModule_OnLoad$'
echo "$out:"
cat SHA256SUMS
