# Versions of the tools that this repository does not build itself. Sourced, never run.
# shellcheck shell=bash disable=SC2034

# Newest first. The first is what `make` uses; all of them are the matrix of `make test-envoy-matrix`.
ENVOY_VERSIONS="1.40.0 1.39.3 1.37.0 1.36.4"

# The override_host load-balancing policy, which obeys the filter's pick, came with this one.
ENVOY_MINIMUM="1.35"

CARGO_DENY_VERSION="0.20.2"
BINARYEN_VERSION="132.0.0"

# A filter above this is refused by tools/build-wasm.sh.
WASM_LIMIT_KIB=576
