#!/usr/bin/env bash
# Fuzzes the targets of tests/fuzz under libFuzzer, guided by coverage: tools/fuzz.sh [TARGET…] [--seconds N]
#
# All targets for 60 seconds each, unless said otherwise. What was learnt stays in target/fuzz/corpus and is gone on from.
# Ends with an error at the first input that fails, and names its file: put it into tests/fuzz/corpus/TARGET, where
# `cargo test -p warmroute-fuzz` runs it from then on.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

WORK=${CARGO_TARGET_DIR:-$ROOT/target}/fuzz
SECONDS_EACH=60
TARGETS=()

while (($#)); do
  case $1 in
    --seconds)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "--seconds needs a number of seconds"
      SECONDS_EACH=$2
      shift 2
      ;;
    -*) die "unknown option $1" "tools/fuzz.sh [TARGET…] [--seconds N]" ;;
    *)
      [[ -d tests/fuzz/corpus/$1 ]] || die "no target $1" "each has a folder in tests/fuzz/corpus"
      TARGETS+=("$1")
      shift
      ;;
  esac
done
if ((${#TARGETS[@]} == 0)); then
  for corpus in tests/fuzz/corpus/*/; do TARGETS+=("$(basename "$corpus")"); done
fi

# libFuzzer itself is C++.
compiler() {
  have c++ || have g++ || have clang++ || { can_apt && apt g++; } || die "no C++ compiler" "install g++ or clang"
}

# Coverage by flags that a stable rustc takes: what cargo-fuzz passes, without a sanitizer. With --target, build scripts
# and macros are not instrumented.
COVERAGE=(
  --cfg=fuzzing
  -Cpasses=sancov-module
  -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares
)

build() {
  local host
  host=$(rustc -vV | sed -n 's/^host: //p')
  say build "tests/fuzz/libfuzzer for $host"
  RUSTFLAGS="${COVERAGE[*]}" cargo build --quiet --release --target "$host" --target-dir "$WORK/build" \
    --manifest-path tests/fuzz/libfuzzer/Cargo.toml
  FUZZER=$WORK/build/$host/release/warmroute-libfuzzer
}

# The number that libFuzzer gives for a name at its end.
stat() { sed -n "s/^stat::$1: *//p" "$2"; }

fuzz() {
  local target=$1 log=$WORK/$1.log learnt=$WORK/corpus/$1 failed=$WORK/failed/$1 input
  mkdir -p "$learnt" "$failed"
  if ! WARMROUTE_FUZZ_TARGET=$target "$FUZZER" "$learnt" "tests/fuzz/corpus/$target" \
    -artifact_prefix="$failed/" -max_total_time="$SECONDS_EACH" -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 </dev/null >"$log" 2>&1; then
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    grep -A 3 'panicked at' "$log" >&2 || tail -n 25 "$log" >&2
    die "$target fails on ${input:-an input that was not written}" "the whole story is in $log"
  fi
  say "$target" "$(stat number_of_executed_units "$log") executions in $SECONDS_EACH s, $(coverage "$log"), no failure"
}

# "… cov: 512 ft: 2310 corp: …" of the last line that has it.
coverage() { sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) .*/\1 edges/p' "$1" | tail -n 1; }

compiler
build
for target in "${TARGETS[@]}"; do fuzz "$target"; done
