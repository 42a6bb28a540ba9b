#!/usr/bin/env bash
# Runs the tests of the workspace, and those that fail once more, each alone: test.sh [TEST ARGUMENTS]
#
# Three lanes side by side: the integration tests of `it`, which keep the processors busy; those of the sandbox, which wait
# for one another; and every other test program. A test that passes on the second try is named as flaky, and the run goes
# on. The run fails if a test fails twice, if more than eight fail, or if a test program ends without saying which of its
# tests failed.
set -euo pipefail
cd "$(dirname "$0")/.."

retried_max=8
output_lines_max=40

logs=$(mktemp -d)
lanes=()
trap 'rm -rf "$logs"; for lane in "${lanes[@]}"; do kill -- "-$lane" 2>/dev/null || true; done' EXIT

# Always from the whole workspace, so that libraries have the features that they were built with. Standard output and
# error go together: cargo's report of the programs that failed is on the latter.
tests=(cargo test --locked --no-fail-fast --workspace)

# Of each test program in the logs: its result and the names below its last `failures:`. Its result is the last one that
# it printed: output of a failed test may hold the result of another test program.
report() {
    awk '
        function report() {
            if (failed) { print "result", failed; for (i = 0; i < named; i++) print "name", names[i] }
            failed = 0
        }
        /^ +(Running|Doc-tests) / { report() }
        /^failures:$/ { count = 0; listing = 1; next }
        listing && /^    [^ ]+$/ { list[count++] = $1; next }
        /^test result: FAILED/ {
            for (i = 2; i <= NF; i++) if ($i ~ /^failed/) failed = $(i - 1)
            for (named = 0; named < count; named++) names[named] = list[named]
            count = 0
        }
        listing && !/^$/ { listing = 0 }
        END { report() }
    ' "$@"
}

# The first lines that each failed test printed.
output_of_failed() {
    awk -v lines_max="$output_lines_max" '
        /^---- .* stdout ----$/ { printed = 0; printing = 1 }
        /^failures:$/ { printing = 0 }
        printing && printed++ < lines_max
    ' "$logs"/* >&2
}

# test_programs JQ_CONDITION: as arguments of cargo, those of the packages that meet it.
test_programs() {
    cargo metadata --locked --no-deps --format-version 1 | jq --raw-output \
        "[.packages[] | select($1) | .targets[] | select(.kind == [\"test\"]) | .name] - [\"it\"] | unique[] | \"--test\", ."
}

# run_lane NAME ARGUMENTS: in a process group of its own, which ends with this script.
run_lane() {
    local name=$1
    shift
    setsid "${tests[@]}" "$@" >"$logs/$name" 2>&1 &
    lanes+=($!)
}

mapfile -t sandbox < <(test_programs '.name == "mooring-sandbox"')
mapfile -t others < <(test_programs '.name != "mooring-sandbox"')
run_lane sandbox "${sandbox[@]}" -- "$@"
run_lane others --lib --bins "${others[@]}" -- "$@"
is_passed=true
"${tests[@]}" --test it -- "$@" 2>&1 | tee "$logs/it" || is_passed=false
for lane in "${lanes[@]}"; do
    wait "$lane" || is_passed=false
done
lanes=()
cat "$logs/sandbox" "$logs/others"
! $is_passed || exit 0

reported=$(report "$logs"/*)
mapfile -t failed < <(sed -n 's/^name //p' <<<"$reported" | sort -u)
counted=$(awk '/^result / { sum += $2 } END { print sum + 0 }' <<<"$reported")
results=$(grep -c '^result ' <<<"$reported" || true)
programs=$(cat "$logs"/* | grep -c '^error: \(doc\)\?test failed' || true)

if [ "$counted" -eq 0 ] || [ "${#failed[@]}" -ne "$counted" ] || [ "$programs" -ne "$results" ]; then
    echo "test: failed; not tried again, because it is not known which tests failed" >&2
    exit 1
fi
printf 'FAILED on the first try: %s\n' "${failed[@]}" >&2
if [ "$counted" -gt $retried_max ]; then
    # Once more, last: what is in the middle of a long log is easily cut.
    output_of_failed
    echo "test: $counted tests failed; not tried again, because they are more than $retried_max" >&2
    exit 1
fi

flaky=()
failed_twice=()
for name in "${failed[@]}"; do
    echo "test: second try, alone: $name" >&2
    # A name that runs nothing is no success. The test's own line may have what it prints.
    if "${tests[@]}" --lib --bins --tests -- --exact "$name" --include-ignored --test-threads 1 2>&1 |
        tee "$logs/again" && grep -q '^test result: ok\. [1-9]' "$logs/again"; then
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
