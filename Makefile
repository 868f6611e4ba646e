# `make help` lists the targets. What they need is found or installed by tools/setup.sh, which says what it did.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The mock model server is a binary beside the demo's, so all of them are built.
RUN := source tools/env.sh && cargo build --quiet -p warmroute-tests --bins && cargo run --quiet -p warmroute-tests --bin

# Arguments for the program that a target runs, e.g. make bench-cost ARGS=--quick
ARGS ?=

.PHONY: help setup build wasm demo up down sim test test-native test-wasm test-envoy test-envoy-matrix test-compose fuzz lint \
  bench-core bench-cost bench-vm docs

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: ## find or install everything that the targets below need
	@tools/setup.sh

build: wasm ## build everything: the filters, the command line, the mock model server, the demo and the benches
	@cargo build --quiet -p warmroute-control -p warmroute-tests --bins

wasm: ## build the filters into target/wasm/
	@tools/setup.sh wasm
	@tools/build-wasm.sh

demo: wasm ## show cold loads and latency by round robin and by Warmroute (about 2 minutes)
	@tools/setup.sh envoy
	@$(RUN) demo -- run $(ARGS)

up: wasm ## start eight mock model servers and one Envoy, and leave them running
	@tools/setup.sh envoy
	@$(RUN) demo -- up $(ARGS)

sim: ## simulate pools of GPUs under many loads and strategies, and check what is promised (ARGS=--quick)
	@cargo run --quiet --release -p warmroute-sim -- table $(ARGS)

down: ## stop what `make up` started
	@$(RUN) demo -- down

test: ## run lint and every test; the last line says how many passed and failed
	@tools/setup.sh wasm envoy wasm-test lint
	@tools/test.sh

test-native: ## test the core and the test tools on this machine
	@tools/test.sh native

test-wasm: ## test the core compiled to wasm32, under Node
	@tools/setup.sh wasm wasm-test
	@tools/test.sh wasm

test-envoy: ## test the built filter in a real Envoy (ENVOY_VERSION=1.39.3 chooses one)
	@tools/setup.sh wasm envoy
	@tools/test.sh envoy

test-envoy-matrix: ## the same in every Envoy that tools/versions.sh names
	@source tools/versions.sh && for version in $$ENVOY_VERSIONS; do \
	  ENVOY_VERSION=$$version $(MAKE) --no-print-directory test-envoy; done

test-compose: ## run envoy/docker-compose.yaml on a real docker daemon
	@tools/setup.sh wasm envoy
	@tools/test.sh compose

lint: ## check formatting, lints, documentation, dependencies and scripts
	@tools/setup.sh wasm lint
	@tools/lint.sh

fuzz: ## search for inputs that break the core, a minute for each target (ARGS="json_body --seconds 600")
	@tools/fuzz.sh $(ARGS)

bench-core: ## measure picks, rings, plans and request reading in the core
	@cargo bench --quiet -p warmroute-core -- $(ARGS)

bench-vm: wasm ## measure what a request costs inside the VM; ARGS=OLD.wasm compares with another build
	@tools/setup.sh wasm-test
	@node tools/bench-vm.mjs $(ARGS) target/wasm/warmroute_filter.wasm

bench-cost: wasm ## measure the CPU that a request costs in Envoy, with and without Warmroute
	@tools/setup.sh envoy bench
	@$(RUN) bench-cost -- $(ARGS)

docs: ## write docs/configuration.md anew from the types, and build the crates' documentation
	@UPDATE_DOCS=1 cargo test --quiet -p warmroute-tests --test documentation
	@cargo doc --workspace --no-deps
