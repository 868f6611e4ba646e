#!/usr/bin/env bash
# Runs envoy/docker-compose.yaml as it is and sends requests through it.
#
# It uses the docker daemon that answers, else starts its own where that can be done (as root on Linux; on Debian it
# installs what is missing). That one runs in network, mount and process namespaces of its own: this machine's firewall,
# interfaces and mounts stay as they are, and all of it ends with one process. Local stand-ins, made of this machine's
# Envoy and C library, take the place of the two public images: no image registry is asked.
#
# COMPOSE="docker compose" chooses the tool. Without a daemon the test is skipped; with CI=true that is a failure unless
# WARMROUTE_ALLOW_SKIP=1.
set -euo pipefail
# shellcheck source=tools/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"

FILE=envoy/docker-compose.yaml
MOCK=target/debug/mock-model-server
FILTER=target/wasm/warmroute_filter.wasm
PROJECT=warmroute-test-$$
ENDPOINTS=(gpu-{0..7})
MODELS=(classifier-{01..16})

PASSED=0 FAILED=0 WHY=""
WORK="" CONFIG="" DATA="" DAEMON="" STARTED=""
NET=()

# --- the results --------------------------------------------------------------------------------------------------

# check NAME COMMAND…: a failing command leaves its reason in WHY.
check() {
  local name=$1
  shift
  WHY=""
  if "$@"; then
    PASSED=$((PASSED + 1))
    printf 'ok    %s\n' "$name"
  else
    FAILED=$((FAILED + 1))
    printf 'FAIL  %s%s\n' "$name" "${WHY:+: $WHY}"
  fi
}

skip() {
  printf 'compose: SKIPPED: %s\n' "$1"
  if [[ ${CI:-} == true && ${WARMROUTE_ALLOW_SKIP:-} != 1 ]]; then
    printf 'FAIL  in CI a skipped test is a failure (WARMROUTE_ALLOW_SKIP=1 allows it)\n'
    FAILED=1
  fi
  exit "$FAILED"
}

# eventually SECONDS COMMAND…: tries until it succeeds.
eventually() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    if ((SECONDS >= deadline)); then return 1; fi
    sleep 0.2
  done
}

# --- the daemon ---------------------------------------------------------------------------------------------------

daemon_answers() { limit 20 docker info --format '{{.ServerVersion}}' >/dev/null 2>&1; }

# Runs as the first process of its own namespaces. A fresh /run hides a containerd of the machine, which dockerd would
# use instead of its own and whose containers would land in the machine's network.
# shellcheck disable=SC2016
DAEMON_MAIN='
  mount -t proc proc /proc && mount -t tmpfs tmpfs /run && ip link set lo up &&
  exec dockerd --config-file "$1/daemon.json" --storage-driver=vfs --data-root "$2" --exec-root /run/docker \
    --host "unix://$1/docker.sock" --pidfile /run/docker.pid --cgroup-parent "$3"'

start_daemon() {
  [[ $(id -u) == 0 ]] || skip "no docker daemon answers, and only root can start one"
  local packages=()
  if ! have dockerd || ! have docker; then packages+=(docker.io); fi
  if ! find_compose; then packages+=(docker-compose); fi
  if ! have iptables; then packages+=(iptables); fi
  if ! have ip; then packages+=(iproute2); fi
  if ((${#packages[@]})); then
    have apt-get || skip "no docker daemon answers, and ${packages[*]} would have to be installed by hand"
    apt "${packages[@]}" || skip "apt-get could not install ${packages[*]}"
    say compose "installed ${packages[*]}"
    # Where services are managed, the package has just started one.
    if daemon_answers; then return; fi
  fi

  printf '{}\n' >"$WORK/daemon.json"
  mkdir -p target
  DATA=$(mktemp -d "$ROOT/target/compose-data.XXXXXX")
  # setpriv: should this script be killed, the daemon goes with it.
  setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child \
    bash -c "$DAEMON_MAIN" dockerd "$WORK" "$DATA" "/$PROJECT" >"$WORK/daemon.log" 2>&1 </dev/null {OUT}>&- {ERRORS}>&- &
  DAEMON=$!
  export DOCKER_HOST=unix://$WORK/docker.sock
  unset DOCKER_CONTEXT DOCKER_TLS_VERIFY
  if ! eventually 60 answers_or_gone || daemon_gone; then
    tail -n 15 "$WORK/daemon.log" >&2
    skip "dockerd does not start here ($(tail -n 1 "$WORK/daemon.log"))"
  fi
  NET=(nsenter --target "$DAEMON" --net)
  say compose "started dockerd $(limit 20 docker version --format '{{.Server.Version}}') in namespaces of its own"
}

answers_or_gone() { daemon_gone || daemon_answers; }
daemon_gone() { ! kill -0 "$DAEMON" 2>/dev/null; }

stop_daemon() {
  local first
  # unshare itself ignores SIGTERM while its child runs.
  first=$(cat "/proc/$DAEMON/task/$DAEMON/children" 2>/dev/null) || first=""
  if [[ -n $first ]]; then kill "${first% }" 2>/dev/null || true; fi
  if ! eventually 20 daemon_gone; then kill -KILL "$DAEMON" 2>/dev/null || true; fi
  wait "$DAEMON" 2>/dev/null || true
  find /sys/fs/cgroup -depth -type d -path "*/$PROJECT*" -exec rmdir {} + 2>/dev/null || true
}

find_compose() {
  if [[ -n ${COMPOSE:-} ]]; then
    read -ra COMPOSE_COMMAND <<<"$COMPOSE"
  elif docker compose version >/dev/null 2>&1; then
    COMPOSE_COMMAND=(docker compose)
  elif have docker-compose; then
    COMPOSE_COMMAND=(docker-compose)
  else
    return 1
  fi
}

# compose SECONDS ARGUMENT…
compose() {
  local seconds=$1
  shift
  limit "$seconds" "${COMPOSE_COMMAND[@]}" --project-name "$PROJECT" --file "$FILE" "$@"
}

# containers FORMAT: a line for each, in no order.
containers() {
  limit 20 docker ps --filter "label=com.docker.compose.project=$PROJECT" --format "{{.Label \"com.docker.compose.service\"}} $1"
}

# --- the images ---------------------------------------------------------------------------------------------------

# libraries FOLDER BINARY: what the dynamic loader needs for it, and the loader, at the same paths.
libraries() {
  local file
  mkdir -p "$1"
  { ldd "$2" || true; } | awk '$3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' | while read -r file; do
    cp --parents --dereference "$file" "$1"
  done
}

# image NAME FOLDER CHANGE…: an image with that folder as its root.
image() {
  local name=$1 folder=$2 change changes=()
  shift 2
  for change in "$@"; do changes+=(--change "$change"); done
  tar -C "$folder" -c . | timeout 120 docker import "${changes[@]}" - "$name" >/dev/null
}

# default_of VARIABLE: what the compose file takes when it is not set.
default_of() { sed -n "s/.*\${$1:-\([^}]*\)}.*/\1/p" "$FILE" | head -n 1; }

stand_ins() {
  local envoy_image base_image
  if [[ -n $DAEMON ]]; then
    # An empty daemon: the public names are free, and the file's own defaults are what runs.
    envoy_image=$(default_of ENVOY_IMAGE) base_image=$(default_of BASE_IMAGE)
    unset ENVOY_IMAGE BASE_IMAGE MOCK_IMAGE
  else
    export ENVOY_IMAGE=$PROJECT-envoy BASE_IMAGE=$PROJECT-base MOCK_IMAGE=$PROJECT-mock
    envoy_image=$ENVOY_IMAGE base_image=$BASE_IMAGE
  fi
  mkdir -p "$WORK/envoy/usr/local/bin" "$WORK/base"
  cp --dereference "$ENVOY" "$WORK/envoy/usr/local/bin/envoy"
  libraries "$WORK/envoy" "$ENVOY"
  libraries "$WORK/base" "$MOCK"
  # The public image, too, runs Envoy as user 101, who must be able to read the mounted files.
  image "$envoy_image" "$WORK/envoy" 'ENTRYPOINT ["/usr/local/bin/envoy"]' 'USER 101:101'
  image "$base_image" "$WORK/base"
}

# --- requests -----------------------------------------------------------------------------------------------------

http() { "${NET[@]}" curl --silent --show-error --max-time 20 "$@"; }

address_of() { printf '172.30.213.%d:8000\n' $((100 + ${1#gpu-})); }

# published SERVICE PORT: where this machine reaches it.
published() {
  containers '{{.Ports}}' | awk -v service="$1" '$1 == service' | grep -o "[0-9.]*:[0-9]*->$2/" | sed 's/->.*//'
}

# ask MODEL [CURL OPTION…]: one request through Envoy. Sets STATUS and SERVED, counts the answered ones.
STATUS="" SERVED="" ANSWERED=0
ask() {
  local model=$1 head
  shift
  head=$(http --output /dev/null --dump-header - "$@" --header "x-model-id: $model" \
    --header 'content-type: application/json' \
    --data "{\"model\":\"$model\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":1}" \
    "http://$ENVOY_AT/v1/chat/completions" 2>/dev/null | tr -d '\r') || head=""
  STATUS=$(awk 'NR == 1 { print $2 }' <<<"$head")
  SERVED=$(awk 'tolower($1) == "x-served-by:" { print $2 }' <<<"$head")
  if [[ $STATUS == 200 ]]; then ANSWERED=$((ANSWERED + 1)); fi
}

envoy_stat() { http "http://$ADMIN_AT/stats?filter=^$1\$" | awk -F': ' '{ value = $2 } END { print value + 0 }'; }

mock_stat() { http "http://$(published "$1" 8000)/mock/stats" | grep -o "\"$2\": *[0-9]*" | grep -o '[0-9]*$'; }

# --- what must hold -----------------------------------------------------------------------------------------------

declare -A HOME_OF

all_run() {
  local running
  running=$(containers '{{.State}}' | awk '$2 == "running" { print $1 }' | sort | tr '\n' ' ')
  WHY="running: $running"
  [[ $running == "envoy ${ENDPOINTS[*]} " ]]
}

ready() { [[ $(http "http://$ADMIN_AT/ready" 2>/dev/null) == LIVE ]]; }

loopback_only() {
  local ports
  ports=$(containers '{{.Ports}}' | tr -d ',' | grep -o '[^ ]*->[^ ]*')
  WHY=$(grep -v '^127\.0\.0\.1:' <<<"$ports") || true
  [[ -n $ports && -z $WHY ]]
}

one_endpoint_a_model() {
  local model
  for model in "${MODELS[@]}"; do
    for _ in 1 2 3 4 5; do
      ask "$model"
      WHY="$model: status $STATUS, served by '$SERVED', before by '${HOME_OF[$model]:-}'"
      [[ $STATUS == 200 && -n $SERVED && ${HOME_OF[$model]:-$SERVED} == "$SERVED" ]] || return 1
      HOME_OF[$model]=$SERVED
    done
  done
}

fixed_addresses() {
  local address known
  known=" $(for e in "${ENDPOINTS[@]}"; do address_of "$e"; done | tr '\n' ' ')"
  for address in "${HOME_OF[@]}"; do
    WHY="$address is none of$known"
    [[ $known == *" $address "* ]] || return 1
  done
}

models_spread() {
  local used
  used=$(printf '%s\n' "${HOME_OF[@]}" | sort -u | wc -l)
  WHY="${#MODELS[@]} models on $used endpoints"
  ((used >= 4))
}

forged_header_ignored() {
  local endpoint
  for endpoint in "${ENDPOINTS[@]}"; do
    ask classifier-01 --header "x-gateway-destination-endpoint: $(address_of "$endpoint")"
    WHY="asked for $(address_of "$endpoint"), served by $SERVED instead of ${HOME_OF[classifier-01]} (status $STATUS)"
    [[ $STATUS == 200 && $SERVED == "${HOME_OF[classifier-01]}" ]] || return 1
  done
}

picks_counted() {
  local picks
  picks=$(envoy_stat wasmcustom.warmroute.pick.ring)
  WHY="$picks picks, $ANSWERED answers"
  ((picks > 0 && picks == ANSWERED))
}

endpoints_add_up() {
  local endpoint requests sum=0
  for endpoint in "${ENDPOINTS[@]}"; do
    requests=$(mock_stat "$endpoint" requests) || return 1
    sum=$((sum + requests))
  done
  WHY="the endpoints saw $sum requests, Envoy answered $ANSWERED"
  ((sum == ANSWERED))
}

# A stopped container's address does not answer at all: the pick's second entry has to serve.
fallback_serves() {
  local victim
  for victim in "${ENDPOINTS[@]}"; do
    if [[ $(address_of "$victim") == "${HOME_OF[classifier-01]}" ]]; then break; fi
  done
  compose 60 stop --timeout 2 "$victim" >/dev/null 2>&1
  ask classifier-01
  WHY="status $STATUS, served by '$SERVED' with ${HOME_OF[classifier-01]} stopped"
  [[ $STATUS == 200 && -n $SERVED && $SERVED != "${HOME_OF[classifier-01]}" ]] || return 1
  compose 60 start "$victim" >/dev/null 2>&1
  WHY="$victim was started again and does not serve classifier-01"
  eventually 20 home_again
}

home_again() {
  for _ in 1 2 3; do
    ask classifier-01
    [[ $SERVED == "${HOME_OF[classifier-01]}" ]] || return 1
  done
}

# The files reach Envoy through a mounted folder: a rename outside must be seen inside.
config_reloads() {
  cp "$CONFIG/filter.yaml" "$CONFIG/filter.before"
  sed "s/\"address\": \"${HOME_OF[classifier-01]}\"/&, \"unhealthy\": true/" "$CONFIG/filter.yaml" >"$CONFIG/filter.next"
  mv "$CONFIG/filter.next" "$CONFIG/filter.yaml"
  WHY="classifier-01 stays on ${HOME_OF[classifier-01]}, which is marked unhealthy"
  eventually 20 left_home || return 1
  mv "$CONFIG/filter.before" "$CONFIG/filter.yaml"
  WHY="classifier-01 does not go back to ${HOME_OF[classifier-01]}"
  eventually 20 home_again
}

left_home() {
  for _ in 1 2 3; do
    ask classifier-01
    [[ $STATUS == 200 && -n $SERVED && $SERVED != "${HOME_OF[classifier-01]}" ]] || return 1
  done
}

# --- the run ------------------------------------------------------------------------------------------------------

build_mock() {
  local built=${CARGO_TARGET_DIR:-target}/debug/mock-model-server
  cargo build --quiet -p warmroute-tests --bin mock-model-server
  # The image is made from the repository's own folder.
  if ! [[ $built -ef $MOCK ]]; then install -D "$built" "$MOCK"; fi
}

up() {
  export ENVOY_PORT=0 ENVOY_ADMIN_PORT=0 WARMROUTE_CONFIG=$CONFIG
  local n
  for n in {0..7}; do export "GPU_${n}_PORT=0"; done
  STARTED=yes
  compose 300 up --detach >"$WORK/up.log" 2>&1 || {
    cat "$WORK/up.log" >&2
    WHY="${COMPOSE_COMMAND[*]} up failed"
    return 1
  }
}

take_down() {
  compose 120 down --volumes --timeout 2 >"$WORK/down.log" 2>&1 || {
    WHY=$(tail -n 1 "$WORK/down.log")
    return 1
  }
}

# Also after a failure or a signal.
finish() {
  local status=$? folder
  trap - EXIT
  # A signal may have come in a command whose output goes elsewhere.
  exec 1>&"$OUT" 2>&"$ERRORS"
  if ((status && FAILED == 0)); then check "the test runs to its end" false; fi
  if [[ -n $STARTED ]]; then
    if ((FAILED)); then compose 30 logs --no-color --tail 20 2>&1 | cut -c1-300 >&2 || true; fi
    check "the compose file goes down" take_down
    if [[ -z $DAEMON ]]; then limit 60 docker image rm "$PROJECT"-{envoy,base,mock} >/dev/null 2>&1 || true; fi
  fi
  if [[ -n $DAEMON ]]; then stop_daemon; fi
  for folder in "$WORK" "$DATA" "$CONFIG"; do
    if [[ -n $folder ]]; then rm -rf "$folder"; fi
  done
  printf '%d passed, %d failed\n' "$PASSED" "$FAILED"
  exit $((FAILED > 0))
}

exec {OUT}>&1 {ERRORS}>&2
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
WORK=$(mktemp -d)

[[ $(uname -s) == Linux ]] || skip "the images take this machine's binaries, which are not Linux's"
if ! have docker || ! daemon_answers; then start_daemon; fi
find_compose || skip "neither docker compose nor docker-compose is there"
have curl || skip "curl is not there"

[[ -n ${ENVOY:-} ]] || die "no Envoy is set up" "run tools/setup.sh envoy"
[[ -f $FILTER ]] || die "$FILTER is not built" "run make build"
build_mock
# Below the repository, since a daemon elsewhere (a desktop's virtual machine) may see nothing else of this machine.
CONFIG=$(mktemp -d "$ROOT/target/compose-config.XXXXXX")
cp envoy/compose/* "$CONFIG/"
chmod -R a+rX "$CONFIG"

stand_ins
check "the compose file comes up" up
ENVOY_AT=$(published envoy 10000) ADMIN_AT=$(published envoy 9901)
check "Envoy is ready" eventually 30 ready
check "all nine containers run" all_run
check "every published port is on the loopback address" loopback_only
check "each model is served by one endpoint" one_endpoint_a_model
check "endpoints are known by their fixed addresses" fixed_addresses
check "the models spread over the endpoints" models_spread
check "a forged destination header is not obeyed" forged_header_ignored
# The filter hands its counts over ten times a second.
check "Warmroute counts its picks" eventually 10 picks_counted
check "the endpoints' own counts add up to the answers" endpoints_add_up
check "a stopped endpoint's models go to the next one and come back" fallback_serves
check "a configuration renamed into place is taken at once, and so is the old one again" config_reloads
