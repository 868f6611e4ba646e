#!/usr/bin/env bash
# Runs the stages named, or all of them, each with its time, and ends with the sum: N passed, N failed.
#
#   lint     formatting, lints, documentation, dependencies
#   native   the core, the command line, fuzz targets, simulation and test tools on this machine
#   wasm     the core's tests compiled to wasm32, under Node
#   envoy    the built filter in a real Envoy
#   compose  envoy/docker-compose.yaml on a real docker daemon
set -euo pipefail
# shellcheck source=tools/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"

LOGS=target/test
mkdir -p "$LOGS"

lint() { tools/lint.sh; }

native() {
  local status=0
  cargo test --no-fail-fast -p warmroute-core -p warmroute-control -p warmroute-fuzz -p warmroute-sim || status=1
  cargo test --no-fail-fast -p warmroute-tests --lib --bins || status=1
  return "$status"
}

wasm() {
  CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER=$WASM_TEST_RUNNER \
    wasm_cargo test --no-fail-fast --target wasm32-unknown-unknown -p warmroute-core --lib --tests
}

envoy() {
  tools/build-wasm.sh && cargo test --no-fail-fast -p warmroute-tests --test '*'
}

# Has its own sum, since it runs no Rust test; where no daemon can be started it says so and counts as ignored.
compose() {
  tools/build-wasm.sh && tools/test-compose.sh
}

# Sums "test result: ok. 3 passed; 0 failed; 1 ignored; …" over the runners of a stage's log.
count() {
  if [[ $1 == compose ]]; then
    if [[ $2 == ignored ]]; then
      grep -c '^compose: SKIPPED' "$LOGS/compose.log" || true
    else
      sed -n "s/^.*\b\([0-9][0-9]*\) $2.*/\1/p" "$LOGS/compose.log" | tail -n 1
    fi
    return
  fi
  sed -n "s/^test result:.*[ .]\([0-9][0-9]*\) $2[;.].*/\1/p" "$LOGS/$1.log" | awk '{ sum += $1 } END { print sum + 0 }'
}

PASSED=0 FAILED=0 IGNORED=0
SUMMARY=()

run_stage() {
  local stage=$1 begun=$SECONDS status=0 passed=0 failed=0 ignored=0 note=""
  printf '\n== %s\n' "$stage"
  "$stage" 2>&1 | tee "$LOGS/$stage.log" || status=1
  if [[ $stage != lint ]]; then
    passed=$(count "$stage" passed) failed=$(count "$stage" failed) ignored=$(count "$stage" ignored)
    if ((passed + failed == 0)) && [[ $stage != compose || $ignored == 0 ]]; then status=1 note=", no test ran"; fi
  fi
  # A stage can fail with no failed test: it did not compile, or a process died. That counts as one.
  if ((status && failed == 0)); then failed=1; fi
  if ((ignored)); then note="$note, $ignored ignored"; fi
  PASSED=$((PASSED + passed)) FAILED=$((FAILED + failed)) IGNORED=$((IGNORED + ignored))
  SUMMARY+=("$(printf '%-8s %s  %4d s  %d passed, %d failed%s' "$stage" "$( ((failed)) && echo FAILED || echo 'ok    ')" \
    $((SECONDS - begun)) "$passed" "$failed" "$note")")
}

stages=("$@")
if ((${#stages[@]} == 0)); then stages=(lint native wasm envoy compose); fi
for stage in "${stages[@]}"; do
  case $stage in
    lint | native | wasm | envoy | compose) run_stage "$stage" ;;
    *) die "unknown stage '$stage'" "stages: lint native wasm envoy compose" ;;
  esac
done

printf '\n'
printf '%s\n' "${SUMMARY[@]}"
printf '%d passed, %d failed\n' "$PASSED" "$FAILED"
((FAILED == 0))
