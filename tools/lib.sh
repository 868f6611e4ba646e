# Helpers of the scripts beside it. Sourced, never run.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${WARMROUTE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/warmroute}
# shellcheck source=tools/versions.sh
source "$ROOT/tools/versions.sh"

say() { printf '  %-12s %s\n' "$1" "$2"; }

die() {
  printf 'error: %s\n' "$1" >&2
  shift
  if (($#)); then printf '       %s\n' "$@" >&2; fi
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# limit SECONDS COMMAND…: no download may hang a build. stdin is closed, so nothing can ask.
limit() {
  local seconds=$1
  shift
  if have timeout; then
    timeout "$seconds" "$@" </dev/null
  elif have gtimeout; then
    gtimeout "$seconds" "$@" </dev/null
  else
    "$@" </dev/null
  fi
}

# quietly SECONDS COMMAND…: the output is shown only when the command fails.
quietly() {
  local log status=0
  log=$(mktemp)
  limit "$@" >"$log" 2>&1 || status=$?
  if ((status)); then tail -n 25 "$log" >&2; fi
  rm -f "$log"
  return "$status"
}

# one_at_a_time NAME: holds the lock of that name until this shell ends, so that two runs do not install the same thing.
one_at_a_time() {
  mkdir -p "$CACHE/locks"
  if have flock; then
    exec {LOCK_FD}>"$CACHE/locks/$1"
    flock -w 1800 "$LOCK_FD" || die "another run holds the lock $CACHE/locks/$1 for half an hour"
  fi
}

# at_least 1.35 1.40.0: is the second version the first or newer?
at_least() {
  [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]
}

# remember FILE NAME=VALUE…: what setup found, for tools/env.sh to read.
remember() {
  local file=$CACHE/found/$1 pair
  shift
  mkdir -p "$CACHE/found"
  for pair in "$@"; do printf '%s=%q\n' "${pair%%=*}" "${pair#*=}"; done >"$file.$$"
  mv "$file.$$" "$file"
}

can_apt() { have apt-get && [[ $(id -u) == 0 ]]; }

# apt PACKAGE…: installs Debian packages; the caller has checked can_apt.
apt() {
  local get=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  quietly 600 "${get[@]}" install -y --no-install-recommends "$@" 2>/dev/null && return 0
  quietly 300 "${get[@]}" update || return 1
  quietly 900 "${get[@]}" install -y --no-install-recommends "$@"
}
