#!/usr/bin/env bash
# Runs the module's server tests with the module under AddressSanitizer: address-sanitizer.sh [TEST ARGUMENTS]
#
# Only the module is instrumented. The server has the sanitizer's allocator, because the runtime of Debian's gcc is
# preloaded, and the module takes its memory from the server: so reads and writes out of bounds, and after a free, are
# found in all memory of the module. The run fails if a test fails or a server leaves a report.
#
# Not found: leaks (the test under valgrind finds those), and what the compiled standard library does, but for memcpy and
# its like. Pinned servers are left out, because they bring C libraries that the runtime does not fit.
set -euo pipefail
cd "$(dirname "$0")/.."

machine=$(uname -m)-unknown-linux-gnu
built=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")/address-sanitizer

# The flag is unstable; a stable compiler takes it only so. With a target named, build scripts are spared.
RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address -Cforce-frame-pointers=yes' \
    cargo build --locked --package mooring-module --lib --target "$machine" --target-dir "$built"
tests=$(cargo test --locked --workspace --test server --no-run --message-format json |
    sed -n 's/.*"name":"server".*"executable":"\([^"]*\)".*/\1/p')

# Tests take the module that lies beside them, and the server of the PATH.
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
mkdir "$run/bin" "$run/reports"
cp "$tests" "$run/server"
cp "$built/$machine/debug/libmooring.so" "$run/"
server=$(command -v redis-server)
cat >"$run/bin/redis-server" <<END
#!/bin/sh
export LD_PRELOAD='$(gcc -print-file-name=libasan.so)'\${LD_PRELOAD:+:\$LD_PRELOAD}
export ASAN_OPTIONS='detect_leaks=0:abort_on_error=1:log_path=$run/reports/report'
exec '$server' "\$@"
END
chmod +x "$run/bin/redis-server"

passed=0
PATH=$run/bin:$PATH "$run/server" --skip servers:: --skip valkey_9 "$@" || passed=$?
for report in "$run"/reports/*; do
    [ -e "$report" ] || break
    cat "$report"
    passed=1
done
exit "$passed"
