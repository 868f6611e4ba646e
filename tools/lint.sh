#!/usr/bin/env bash
# Formatting, lints, documentation, dependencies and the scripts here. Every check runs; one failure fails the whole.
set -euo pipefail
# shellcheck source=tools/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"

FAILED=()

# A check that cannot be made on this machine says so and returns this.
NOT_CHECKED=100

check() {
  local name=$1 status=0
  shift
  "$@" || status=$?
  case $status in
    0) say "$name" ok ;;
    "$NOT_CHECKED") ;;
    *)
      say "$name" FAILED
      FAILED+=("$name")
      ;;
  esac
}

WASM_CRATES=(-p warmroute-core -p warmroute-filter -p warmroute-empty-filter)

advisories() {
  # Their database is a git repository, which not every build machine can reach.
  if limit 60 "$CARGO_DENY" fetch db >/dev/null 2>&1; then
    "$CARGO_DENY" --log-level error check advisories
  else
    say advisories "NOT CHECKED: the advisory database could not be fetched"
    return "$NOT_CHECKED"
  fi
}

scripts() {
  if ! have shellcheck; then
    say shellcheck "NOT CHECKED: shellcheck is not installed"
    return "$NOT_CHECKED"
  fi
  shellcheck -x tools/*.sh .ci/run
}

# The SDK's host calls panic on statuses that they do not list, and its getters call them.
host_calls() {
  ! grep -nE 'hostcalls::|self\.(get|set|add|send|remove|resume|reset)_' filter/src/*.rs ||
    { echo "host calls belong into filter/src/host.rs, over the raw imports" && return 1; }
}

check fmt cargo fmt --all --check
check clippy cargo clippy --quiet --workspace --all-targets -- -D warnings
check clippy-wasm wasm_clippy --quiet --target wasm32-wasip1 "${WASM_CRATES[@]}" -- -D warnings
check rustdoc env RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
check dependencies "$CARGO_DENY" --log-level error check bans licenses sources
check advisories advisories
check host-calls host_calls
check scripts scripts

((${#FAILED[@]} == 0)) || die "lint failed: ${FAILED[*]}"
