# The project's one vocabulary: people and CI use these words and nothing beside them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

TARGET := $(or $(CARGO_TARGET_DIR),target)
SCRIPTS := scripts/*.sh tests/tools/*.sh .ci/run
# Most tests wait for processes more than they compute.
TEST_THREADS ?= 6
# Of `make test`; `make test-soak` has a million.
FUZZ_RUNS ?= 50000
FUZZ_SOAK_RUNS ?= 1000000
FUZZ_SEED ?= 1
# The first seed of the fleets that `make test-soak` simulates, and how many there are: a thousand take a minute and a half.
SEED ?= 1
SIMULATION_RUNS ?= 10000
# What `make test-soak` leaves out, as `--skip` of a part of a test's name.
SOAK_SKIP ?=
# How often its rolling restarts stop each gateway behind nginx.
RESTARTS ?= 50
# What `make test-fast` leaves out: tests that start Redis, kill processes by the hundred, or run type checkers.
SLOW := in_redis redis::tests fallback::tests turn::tests differential processes:: killed:: race:: types:: hostile
# No document comment has an example to run, and to look for them takes a second for each crate.
TESTED := --workspace --lib --bins --tests
# What `make run` starts. Chosen from the workspace, so that libraries have the features that `make test` builds them with.
DEMO := --workspace --bin mooring --bin mooring-demo-server
# CI compiles the workspace with clippy in place of the compiler (.ci/run): what `make test` runs is linted as it is built,
# and nothing is compiled once for the lints and once more for the tests.
LINTS := $(if $(filter clippy-driver,$(RUSTC_WORKSPACE_WRAPPER)),cargo build --locked --workspace --all-targets,\
	cargo clippy --locked --workspace --all-targets -- --deny warnings)
# Crates of their own, whose lock files have to know what the workspace depends on.
FUZZED := redis-module/fuzz/Cargo.toml gateway/fuzz/Cargo.toml
# What scripts/packages.sh installs for the tests.
TEST_PACKAGES := cc libclang redis valgrind nginx curl openssl venv python rg jq chromium systemd ip

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Build and start one gateway with a code sandbox and two demonstration servers (PORT=4444)
	@scripts/packages.sh cc python
	cargo build --locked $(DEMO)
	@scripts/run.sh $(TARGET)/debug

.PHONY: fleet
fleet: ## Build and start Redis with the module and three gateways that share it
	@scripts/packages.sh cc libclang redis curl
	cargo build --locked $(DEMO)
	cargo build --locked --package mooring-module
	@scripts/fleet.sh $(TARGET)/debug

.PHONY: tools
tools: ## Install the Debian packages, clients and servers that the tests drive
	@scripts/packages.sh $(TEST_PACKAGES)
	@tests/tools/install.sh tools
	@tests/tools/servers.sh
	@tests/tools/promtool.sh

# All that the tests are and start is built at once: the features that tests need of libraries are then chosen for
# both, and no library is compiled twice.
.PHONY: test
test: tools ## Run every test that a change must pass, against real servers and clients
	cargo build --locked $(TESTED)
	RUST_TEST_THREADS=$(TEST_THREADS) scripts/test.sh
	@scripts/fuzz.sh $(FUZZ_RUNS) $(FUZZ_SEED)

# Chosen from the whole workspace, so that what `make test` built is not built again with other features.
.PHONY: test-fast
test-fast: ## Run the tests of the rules and of the crates, without servers: a minute once built
	@scripts/packages.sh cc libclang python
	MOORING_SIMULATION_RUNS=30 RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --workspace --lib \
		--bin mooring-demo-server --test rules --test turns --test index --test model --test decisions \
		--test simulation -- $(SLOW:%=--skip %)

.PHONY: test-soak
test-soak: tools soak-programs ## Run the tests that take minutes: valgrind, many processes, a million fuzz runs, random faults
	cargo build --locked $(TESTED)
	MOORING_SIMULATION_SEED=$(SEED) MOORING_SIMULATION_RUNS=$(SIMULATION_RUNS) RESTARTS=$(RESTARTS) \
		scripts/test.sh --ignored soak_ $(SOAK_SKIP:%=--skip %)
	@scripts/fuzz.sh $(FUZZ_SOAK_RUNS) $(FUZZ_SEED)

# What `make test-soak` runs beside what `make test` built, each in a target directory of its own.
.PHONY: soak-programs
soak-programs:
	@scripts/packages.sh cc libclang
	cargo build --locked --package mooring-module --lib --features next-record-version --target-dir $(TARGET)/next-record-version
	@scripts/fuzz.sh build

# Beside `make test-soak`, which CI runs: the module and all it needs are compiled once more for it.
.PHONY: test-address-sanitizer
test-address-sanitizer: ## Run the module's server tests with the module under AddressSanitizer
	@scripts/packages.sh cc libclang redis
	@RUST_TEST_THREADS=$(TEST_THREADS) scripts/address-sanitizer.sh

.PHONY: fuzz
fuzz: ## Fuzz the module's parsers and decoders, and the gateway's readers of messages and replies (FUZZ_RUNS=50000, FUZZ_SEED=1; seed 0: another each time)
	@scripts/packages.sh cc libclang
	@scripts/fuzz.sh $(FUZZ_RUNS) $(FUZZ_SEED)

.PHONY: check
check: ## Check imports, format, lints, scripts, licenses and sources
	@scripts/packages.sh cc libclang venv
	@scripts/check-tools.sh
	python3 scripts/check-imports.py
	cargo fmt --all --check
	for manifest in $(FUZZED); do \
		cargo fmt --manifest-path $$manifest --check; \
		cargo metadata --locked --format-version 1 --manifest-path $$manifest >/dev/null; \
	done
	$(LINTS)
	.tools-check/shellcheck/bin/shellcheck --external-sources $(SCRIPTS)
	.tools-check/cargo-deny/bin/cargo-deny --locked --log-level error check --hide-inclusion-graph \
		--allow duplicate licenses bans sources

# The tools come over the network while the checks compile. Packages come first: apt lets one in at a time. What the soak
# tests need compiles at the lowest priority while tests wait for processes.
.PHONY: verify
verify: ## Everything that CI holds a change to: check, test and what test-soak does in a few minutes
	@scripts/packages.sh $(TEST_PACKAGES)
	@$(MAKE) tools & tools=$$!; $(MAKE) check && checked=0 || checked=$$?; wait $$tools; exit $$checked
	@nice -n 19 $(MAKE) soak-programs & programs=$$!; $(MAKE) test FUZZ_RUNS=0 && passed=0 || passed=$$?; \
		wait $$programs; exit $$passed
	@$(MAKE) test-soak FUZZ_SOAK_RUNS=100000 RESTARTS=10 SOAK_SKIP="chaos overlap storms thousand_stops floods user_of_an_sdk foreign_ programs"

.PHONY: bench
bench: ## Run every benchmark and print the figures of docs/benchmarks.md
	@scripts/packages.sh cc libclang redis nginx python
	cargo build --locked --release --package mooring --package mooring-module
	cargo bench --locked --package mooring-module --bench commands
	cargo bench --locked --package mooring-sandbox
	cargo bench --locked --package mooring-code --bench bridge
	cargo bench --locked --package mooring-agent --bench conversations
	cargo bench --locked --package mooring --bench authorization
	cargo bench --locked --package mooring-code --bench stubs
	cargo bench --locked --package mooring-tests --bench whole

# Everything but the gateway is not optimized, and built for `make test` as well.
.PHONY: floods
floods: tools ## Print what floods of one user do to another user's calls, with an optimized gateway (FLOODS=Calls,Lists: some kinds)
	cargo build --locked --release --package mooring
	cargo build --locked $(TESTED)
	MOORING_FLOODED_PROGRAM=$(abspath $(TARGET))/release/mooring MOORING_FLOODS=$(FLOODS) cargo test --locked --workspace \
		--test it -- --ignored --nocapture soak_one_users_floods

# Binaries are made for the architecture they are made on: no Debian package has Rust's library for another one.
.PHONY: artifacts
artifacts: ## Build all that is published, with SHA-256 sums, into target/artifacts/ARCHITECTURE: binaries, Debian packages, wheel, npm packages, bill of materials, licenses
	@scripts/packages.sh cc libclang
	cargo build --locked --release --package mooring --package mooring-module
	@scripts/artifacts.sh $(TARGET)/release $(TARGET)/artifacts/$$(uname -m)

.PHONY: images
images: ## Build, start and test the container images (needs a Docker engine)
	@scripts/images.sh

.PHONY: advisories
advisories: ## Ask the vulnerability database about the dependencies (needs the network)
	@scripts/check-tools.sh
	.tools-check/cargo-deny/bin/cargo-deny --locked check advisories

.PHONY: clean
clean: ## Remove what was built, installed and written here
	cargo clean
	rm -rf .run .tools .tools-check
