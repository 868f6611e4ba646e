#!/usr/bin/env bash
# Builds the filters for Envoy: target/wasm/warmroute_filter.wasm and, for the cost bench, warmroute_empty_filter.wasm.
# Each is trimmed to the exports that tools/exports/<name>.txt keeps, then optimised. Beside each lies
# <name>.unstripped.wasm, the same code with the names of its functions, for profiles.
set -euo pipefail
# shellcheck source=tools/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"

[[ -n ${BINARYEN:-} ]] || die "wasm-opt is not set up" "run tools/setup.sh wasm"

FILTERS=(warmroute_filter warmroute_empty_filter)
OUT=target/wasm
RAW=$(wasm_target_dir)/wasm32-wasip1/release

kept_exports() { sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "tools/exports/$1.txt"; }

# The reachability graph for wasm-metadce: only the kept exports are seen from outside.
graph() {
  kept_exports "$1" | awk '
    { names = names (NR > 1 ? ", " : "") "\"" $1 "\""; nodes = nodes ",\n{\"name\": \"" $1 "\", \"export\": \"" $1 "\"}" }
    END { print "[{\"name\": \"outside\", \"root\": true, \"reaches\": [" names "]}" nodes "]" }'
}

fingerprint() {
  { cat "$RAW/$1.wasm" "tools/exports/$1.txt" tools/build-wasm.sh && "$BINARYEN/wasm-opt" --version; } | git hash-object --stdin
}

trim() {
  local name=$1 work=$OUT/.work stamp
  stamp=$(fingerprint "$name")
  if [[ -f $OUT/$name.wasm && -f $OUT/$name.unstripped.wasm && $(cat "$OUT/.$name.from" 2>/dev/null) == "$stamp" ]]; then return; fi
  rm -rf "$work"
  mkdir -p "$work"
  graph "$name" >"$work/graph.json"
  "$BINARYEN/wasm-metadce" "$RAW/$name.wasm" -g --graph-file "$work/graph.json" -o "$work/kept.wasm" >"$work/unused.txt"
  local missing
  missing=$("$BINARYEN/wasm-dis" "$work/kept.wasm" | sed -n 's/^ *(export "\([^"]*\)".*/\1/p' | sort |
    comm -13 - <(kept_exports "$name" | sort))
  [[ -z $missing ]] || die "$name.wasm does not export: ${missing//$'\n'/ }" "see tools/exports/$name.txt"
  # The features of the module are read from its own target_features section: nothing newer is let in.
  "$BINARYEN/wasm-opt" "$work/kept.wasm" -O3 --converge -g -o "$work/$name.unstripped.wasm"
  "$BINARYEN/wasm-opt" "$work/$name.unstripped.wasm" --strip-debug --strip-producers --strip-target-features -o "$work/$name.wasm"
  # By rename, since a running Envoy may watch the file.
  mv "$work/$name.unstripped.wasm" "$work/$name.wasm" "$OUT/"
  printf '%s\n' "$stamp" >"$OUT/.$name.from"
  rm -rf "$work"
}

mkdir -p "$OUT"
if have flock; then
  exec {LOCK_FD}>"$OUT/.lock"
  flock "$LOCK_FD"
fi

wasm_cargo build --quiet --release --target wasm32-wasip1 -p warmroute-filter -p warmroute-empty-filter

for name in "${FILTERS[@]}"; do
  trim "$name"
  bytes=$(wc -c <"$OUT/$name.wasm")
  say wasm "$(printf '%s/%s.wasm: %d KiB (untrimmed %d KiB)' "$OUT" "$name" $(((bytes + 1023) / 1024)) $((($(wc -c <"$RAW/$name.wasm") + 1023) / 1024)))"
  ((bytes <= WASM_LIMIT_KIB * 1024)) || die "$name.wasm is larger than $WASM_LIMIT_KIB KiB"
done
