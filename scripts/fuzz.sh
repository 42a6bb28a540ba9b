#!/usr/bin/env bash
# Runs every fuzz target of the module: fuzz.sh [RUNS [SEED]].
#
# RUNS inputs each, from the same seed by default, so that two runs of one commit do the same; SEED 0 is another seed
# each time. What is found interesting is kept in target/fuzz/corpus and used by the next run; an input that fails is
# left in target/fuzz/failures.
set -euo pipefail
cd "$(dirname "$0")/../redis-module/fuzz"

runs=${1:-1000000}
seed=${2:-1}
# Longer than any word that the grammar takes whole, several times.
input_bytes_max=8192
kept=$PWD/../../target/fuzz
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run TARGET: says in one line how it went; what it printed is then in its log.
run() {
    mkdir -p "$kept/corpus/$1" "$kept/failures"
    # An input that takes longer than five seconds is a failure too.
    if ! cargo run --quiet --locked --release --bin "$1" -- \
        "$kept/corpus/$1" "seeds/$1" \
        -runs="$runs" -seed="$seed" -max_len=$input_bytes_max -timeout=5 -rss_limit_mb=1024 \
        -artifact_prefix="$kept/failures/$1-" >"$logs/$1" 2>&1; then
        printf 'fuzz: %-10s failed\n' "$1"
        return 1
    fi
    printf 'fuzz: %-10s %s\n' "$1" "$(tail -n 1 "$logs/$1")"
}

cargo build --quiet --locked --release --bins
# Side by side: each has one thread.
running=()
for target in fuzz_targets/*.rs; do
    target=$(basename "$target" .rs)
    run "$target" &
    running+=("$target:$!")
done
failed=0
for each in "${running[@]}"; do
    wait "${each#*:}" && continue
    failed=1
    tail -n 60 "$logs/${each%%:*}"
done
exit $failed
