# The project's one vocabulary: people and CI use these words and nothing beside them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

TARGET := $(or $(CARGO_TARGET_DIR),target)
SCRIPTS := scripts/*.sh tests/tools/*.sh .ci/run
# Most tests wait for processes more than they compute.
TEST_THREADS ?= 4
FUZZ_RUNS ?= 1000000
FUZZ_SEED ?= 1
# What `make run` starts. Chosen from the workspace, so that libraries have the features that `make test` builds them with.
DEMO := --workspace --bin mooring --bin mooring-demo-server
# What scripts/packages.sh installs for the tests.
TEST_PACKAGES := cc libclang redis valgrind nginx openssl venv python rg jq chromium

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
	@scripts/packages.sh cc libclang redis
	cargo build --locked $(DEMO)
	cargo build --locked --package mooring-module
	@scripts/fleet.sh $(TARGET)/debug

.PHONY: tools
tools: ## Install the Debian packages, clients and servers that the tests drive
	@scripts/packages.sh $(TEST_PACKAGES)
	@tests/tools/install.sh tools
	@tests/tools/servers.sh

# All that the tests are and start is built at once: the features that tests need of libraries are then chosen for
# both, and no library is compiled twice.
.PHONY: test
test: tools ## Build and run every test, against real servers and clients
	cargo build --locked --workspace --lib --bins --tests
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --workspace --no-fail-fast
	@scripts/fuzz.sh $(FUZZ_RUNS) $(FUZZ_SEED)

.PHONY: test-soak
test-soak: tools ## Run the tests that take minutes: random faults over a whole fleet (MOORING_TEST_SEED)
	cargo build --locked --workspace --lib --bins --tests
	cargo test --locked --workspace --test it -- --ignored --nocapture soak_

.PHONY: fuzz
fuzz: ## Fuzz the module's parsers and decoders (FUZZ_RUNS=1000000, FUZZ_SEED=1; seed 0: another each time)
	@scripts/packages.sh cc libclang
	@scripts/fuzz.sh $(FUZZ_RUNS) $(FUZZ_SEED)

.PHONY: check
check: ## Check imports, format, lints, scripts, licenses and sources
	@scripts/packages.sh cc libclang venv
	@scripts/check-tools.sh
	python3 scripts/check-imports.py
	cargo fmt --all --check
	cargo fmt --manifest-path redis-module/fuzz/Cargo.toml --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	.tools-check/shellcheck/bin/shellcheck --external-sources $(SCRIPTS)
	.tools-check/cargo-deny/bin/cargo-deny --locked --log-level error check --hide-inclusion-graph \
		--allow duplicate licenses bans sources

# The tools come over the network while the checks compile. Packages come first: apt lets one in at a time.
.PHONY: verify
verify: ## Everything that CI holds a change to: check, then test
	@scripts/packages.sh $(TEST_PACKAGES)
	@$(MAKE) tools & tools=$$!; $(MAKE) check && checked=0 || checked=$$?; wait $$tools; exit $$checked
	@$(MAKE) test

.PHONY: bench
bench: ## Run every benchmark and print the figures of docs/benchmarks.md
	@scripts/packages.sh cc libclang redis nginx
	cargo build --locked --release --package mooring --package mooring-module
	cargo bench --locked --package mooring-module --bench commands
	cargo bench --locked --package mooring-code --bench bridge
	cargo bench --locked --package mooring-agent --bench conversations
	cargo bench --locked --package mooring-code --bench stubs
	cargo bench --locked --package mooring-tests --bench whole

.PHONY: advisories
advisories: ## Ask the vulnerability database about the dependencies (needs the network)
	@scripts/check-tools.sh
	.tools-check/cargo-deny/bin/cargo-deny --locked check advisories

.PHONY: clean
clean: ## Remove what was built, installed and written here
	cargo clean
	rm -rf .run .tools .tools-check
