# What tools/setup.sh found, for recipes and tests. Sourced, never run.
# shellcheck shell=bash
#
#   ENVOY               path of the Envoy binary, exported (the caller's own ENVOY wins)
#   wasm_cargo ARG…     cargo that can build the wasm targets
#   wasm_clippy ARG…    the same for clippy
#   WASM_TEST_RUNNER, CARGO_DENY, BINARYEN

# shellcheck source=tools/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

_asked_envoy=${ENVOY:-}
for _part in wasm binaryen wasm-test lint "envoy${ENVOY_VERSION:+-$ENVOY_VERSION}"; do
  # shellcheck disable=SC1090
  if [[ -f $CACHE/found/$_part ]]; then source "$CACHE/found/$_part"; fi
done
if [[ -n $_asked_envoy ]]; then ENVOY=$_asked_envoy; fi
if [[ -n ${ENVOY:-} ]]; then export ENVOY; fi
unset _asked_envoy _part

# Debian's compiler is a stable release; RUSTC_BOOTSTRAP only lets it build the standard library for the target.
# Every tool is named by its path, since rustup's shims of the same names may come first on the PATH.
_debian_wasm() {
  env -u RUSTUP_TOOLCHAIN -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS PATH="/usr/bin:$PATH" \
    RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc CARGO=/usr/bin/cargo RUSTC_BOOTSTRAP=1 \
    CARGO_TARGET_WASM32_WASIP1_LINKER="$WASM_LINKER" \
    CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="-C link-self-contained=no -L native=/usr/lib/wasm32-wasi" \
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$WASM_LINKER" \
    CARGO_UNSTABLE_BUILD_STD=std,panic_abort \
    "$@"
}

# Its own folder: another compiler in target/ would make every native build start afresh.
wasm_target_dir() { printf '%s\n' "$ROOT/target/wasm-build"; }

wasm_cargo() {
  case ${WASM_FROM:-} in
    rustup) CARGO_TARGET_DIR=$(wasm_target_dir) cargo "$@" ;;
    debian) CARGO_TARGET_DIR=$(wasm_target_dir) _debian_wasm /usr/bin/cargo "$@" ;;
    *) die "no wasm toolchain is set up" "run tools/setup.sh wasm" ;;
  esac
}

wasm_clippy() {
  case ${WASM_FROM:-} in
    rustup) CARGO_TARGET_DIR=$(wasm_target_dir) cargo clippy "$@" ;;
    debian) CARGO_TARGET_DIR=$(wasm_target_dir) _debian_wasm /usr/bin/cargo-clippy clippy "$@" ;;
    *) die "no wasm toolchain is set up" "run tools/setup.sh wasm" ;;
  esac
}
