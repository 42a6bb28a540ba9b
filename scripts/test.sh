#!/usr/bin/env bash
# Runs tests, and those that fail once more, each alone: test.sh [CARGO TEST ARGUMENTS [-- TEST ARGUMENTS]]
#
# A test that passes on the second try is named as flaky, and the run goes on. The run fails if a test fails twice, if
# more than three fail, or if a test program ends without saying which of its tests failed.
set -euo pipefail
cd "$(dirname "$0")/.."

retried_max=3

cargo=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    cargo+=("$1")
    shift
done
[ $# -eq 0 ] || shift

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Standard output and error together: cargo's report of the targets that failed is on the latter.
if cargo test --locked --no-fail-fast "${cargo[@]}" -- "$@" 2>&1 | tee "$log"; then exit 0; fi

# The names below the last `failures:` of each test program.
mapfile -t failed < <(awk '
    /^failures:$/ { count = 0; listing = 1; next }
    listing && /^    [^ ]+$/ { names[count++] = $1; next }
    /^test result: FAILED/ { for (i = 0; i < count; i++) print names[i]; count = 0 }
    listing && !/^$/ { listing = 0 }
' "$log" | sort -u)
# Those that the results count, and the programs that ended with a failure but without a result.
counted=$(awk '/^test result: FAILED/ { for (i = 2; i <= NF; i++) if ($i ~ /^failed/) sum += $(i - 1) } END { print sum + 0 }' "$log")
programs=$(grep -c '^error: \(doc\)\?test failed' "$log" || true)
results=$(grep -c '^test result: FAILED' "$log" || true)

if [ "$counted" -eq 0 ] || [ "${#failed[@]}" -ne "$counted" ] || [ "$programs" -ne "$results" ]; then
    echo "test: failed; not tried again, because it is not known which tests failed" >&2
    exit 1
fi
printf 'FAILED on the first try: %s\n' "${failed[@]}" >&2
if [ "$counted" -gt $retried_max ]; then
    echo "test: $counted tests failed; not tried again, because they are more than $retried_max" >&2
    exit 1
fi

flaky=()
failed_twice=()
for name in "${failed[@]}"; do
    echo "test: second try, alone: $name" >&2
    # A name that runs nothing is no success.
    if cargo test --locked --no-fail-fast "${cargo[@]}" -- --exact "$name" --include-ignored --test-threads 1 2>&1 |
        tee "$log" && grep -q "^test $name \.\.\. ok$" "$log"; then
        flaky+=("$name")
    else
        failed_twice+=("$name")
    fi
done
[ ${#flaky[@]} -eq 0 ] || printf 'FLAKY: passed on the second try: %s\n' "${flaky[@]}" >&2
[ ${#failed_twice[@]} -eq 0 ] || {
    printf 'FAILED twice: %s\n' "${failed_twice[@]}" >&2
    exit 1
}
