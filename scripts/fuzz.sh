#!/usr/bin/env bash
# Runs every fuzz target of the module and the gateway: fuzz.sh [RUNS [SEED]]; `fuzz.sh build` only builds them.
#
# RUNS inputs each, from the same seed by default, so that two runs of one commit do the same; SEED 0 is another seed
# each time. What is found interesting is kept in target/fuzz/corpus and used by the next run; an input that fails is
# left in target/fuzz/failures.
set -euo pipefail
cd "$(dirname "$0")/.."

crates=(redis-module/fuzz gateway/fuzz)
# The crates have lints of their own, and no wrapper of the compiler is meant for them.
unset RUSTC_WORKSPACE_WRAPPER
for crate in "${crates[@]}"; do
    (cd "$crate" && cargo build --quiet --locked --release --bins)
done
[ "${1:-}" != build ] || exit 0

runs=${1:-1000000}
seed=${2:-1}
# Longer than any word that the grammar takes whole, several times.
input_bytes_max=8192
kept=$PWD/target/fuzz
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run CRATE TARGET: says in one line how it went; what it printed is then in its log. Cargo reads the configuration of
# the directory that it runs in.
run() {
    mkdir -p "$kept/corpus/$2" "$kept/failures"
    # An input that takes longer than five seconds is a failure too.
    if ! (cd "$1" && cargo run --quiet --locked --release --bin "$2" -- \
        "$kept/corpus/$2" "seeds/$2" \
        -runs="$runs" -seed="$seed" -max_len=$input_bytes_max -timeout=5 -rss_limit_mb=1024 \
        -artifact_prefix="$kept/failures/$2-") >"$logs/$2" 2>&1; then
        printf 'fuzz: %-13s failed\n' "$2"
        return 1
    fi
    printf 'fuzz: %-13s %s\n' "$2" "$(tail -n 1 "$logs/$2")"
}

# Side by side: each has one thread.
running=()
for target in redis-module/fuzz/fuzz_targets/*.rs gateway/fuzz/fuzz_targets/*.rs; do
    crate=${target%/fuzz_targets/*}
    target=$(basename "$target" .rs)
    run "$crate" "$target" &
    running+=("$target:$!")
done
failed=0
for each in "${running[@]}"; do
    wait "${each#*:}" && continue
    failed=1
    tail -n 60 "$logs/${each%%:*}"
done
exit $failed
