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
log=$(mktemp)
trap 'rm -f "$log"' EXIT

cargo build --quiet --locked --release --bins
for target in fuzz_targets/*.rs; do
    target=$(basename "$target" .rs)
    mkdir -p "$kept/corpus/$target" "$kept/failures"
    printf 'fuzz: %-10s ' "$target"
    # An input that takes longer than five seconds is a failure too.
    if ! cargo run --quiet --locked --release --bin "$target" -- \
        "$kept/corpus/$target" "seeds/$target" \
        -runs="$runs" -seed="$seed" -max_len=$input_bytes_max -timeout=5 -rss_limit_mb=1024 \
        -artifact_prefix="$kept/failures/$target-" >"$log" 2>&1; then
        echo 'failed'
        tail -n 60 "$log"
        exit 1
    fi
    tail -n 1 "$log"
done
