#!/usr/bin/env bash
# Shows what tierd does, on real input: installs what is missing, builds, and trains a small classifier on the 70,000 images of Fashion-MNIST
# behind a slow file system (1 ms per operation, 200 MB/s): 4 epochs straight from it, then 4 epochs through tierd.
# usage: tools/quickstart.sh        needs about 500 MB in ${TMPDIR:-/var/tmp}; root or sudo only if packages are missing
# TIERD_QUICKSTART_BUILD: a build tree that is there, instead of build/quick; TIERD_QUICKSTART_IMAGES: so many of the images of each set only (its test).
# exit 0 when tierd kept its promises; 1 when the source was opened after the first epoch, a result differs in any digit, or tierd was not faster.
set -euo pipefail
unset TIERD_DISABLE TIERD_PREFIX  # the user's own, and so is a configuration file: none is read
cd "$(dirname "${BASH_SOURCE[0]}")/.."

epochs=4
threads=16
build=${TIERD_QUICKSTART_BUILD:-build/quick}
work=
tierd_pid=
trainer_pid=
rig=off  # on: the source is behind the slow file system; off: a plain directory

say() { printf '%s\n' "$*"; }
fail() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

# Ends a child of ours: asks, waits 10 s, insists.
end_child() {
  local pid=$1 i
  kill "$pid" 2>/dev/null || return 0
  for ((i = 0; i < 100; i++)); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
}

clean_up() {
  local status=$?
  set +e
  trap - EXIT
  trap '' INT TERM HUP
  [ -n "$trainer_pid" ] && end_child "$trainer_pid"
  [ -n "$tierd_pid" ] && end_child "$tierd_pid"
  if [ -n "$work" ]; then
    [ -S "$work/rig.sock" ] && "$build/tests/pfs_sim/pfs_sim" ctl "$work/rig.sock" quit >/dev/null 2>&1
    local i mounted=" ${work// /\\040}/pfs "  # as /proc/mounts has it
    for ((i = 0; i < 100; i++)); do
      grep -qF "$mounted" /proc/mounts || break
      sleep 0.1
    done
    # Never remove files below a mount that would not go away.
    if grep -qF "$mounted" /proc/mounts; then
      printf 'quickstart: %s is still mounted; umount it and remove %s\n' "$work/pfs" "$work" >&2
    else
      rm -rf "$work"
    fi
  fi
  exit "$status"
}

build_all() {
  tools/deps.sh build
  local launcher=()
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
  mkdir -p "$build"
  if [ ! -f "$build/build.ninja" ]; then
    say "building in $build (once; a few minutes on two cores)"
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DTIERD_TESTS=OFF -DTIERD_BENCH=OFF -DTIERD_UNITY=ON "${launcher[@]}" \
      >"$build/cmake.log" 2>&1 || { tail -n 20 "$build/cmake.log" >&2; fail "cmake failed; see $build/cmake.log"; }
  fi
  # No more than it needs itself: the rest is for who goes on (go_on).
  ninja -C "$build" tierd tierctl tier_trainer fashion_files pfs_sim >"$build/ninja.log" 2>&1 ||
    { tail -n 30 "$build/ninja.log" >&2; fail "the build failed; see $build/ninja.log"; }
}

start_source() {
  say "writing ${TIERD_QUICKSTART_IMAGES:-70,000} image files"
  "$build/examples/trainer/fashion_files" "$work/images" ${TIERD_QUICKSTART_IMAGES:+--most "$TIERD_QUICKSTART_IMAGES"} >/dev/null
  mkdir "$work/pfs"
  local status=0
  "$build/tests/pfs_sim/pfs_sim" "$work/images" "$work/pfs" --control "$work/rig.sock" --latency-us 1000 --bandwidth 200000000 \
    --background --pid "$work/rig.pid" >"$work/rig.log" 2>&1 || status=$?
  if [ "$status" = 0 ]; then
    rig=on
    source=$work/pfs
    say "source: the images behind a file system with 1 ms per operation and 200 MB/s"
  elif [ "$status" = 77 ]; then
    source=$work/images
    say "source: a plain local directory, because FUSE cannot be used here ($(tail -n 1 "$work/rig.log"))."
    say "        So nothing is slow to begin with: opens and bytes of the source cannot be counted, and speed is not judged."
  else
    cat "$work/rig.log" >&2
    fail "the slow file system did not start"
  fi
}

start_tierd() {
  mkdir -m 700 "$work/run" "$work/cache"
  : >"$work/tierd.out"
  local ssd=(--ssd "$work/cache" --ssd-capacity "1 GiB")
  case $(stat -f -c %T "$work") in
    tmpfs | ramfs)
      say "  ($work is in memory: without an SSD tier; TMPDIR names another directory)"
      ssd=(--ssd off)
      ;;
  esac
  "$build/tierd/tierd" --config none --source "$source" --ram "256 MiB" "${ssd[@]}" --socket "$work/run/tierd.sock" \
    --metrics off >"$work/tierd.out" 2>"$work/tierd.log" &
  tierd_pid=$!
  local i
  for ((i = 0; i < 300; i++)); do
    grep -q '^tierd ready' "$work/tierd.out" && return 0
    kill -0 "$tierd_pid" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/tierd.out" "$work/tierd.log" >&2
  fail "tierd did not start"
}

# Sets the variable $1 to the number behind "$2": in a line of JSON as we print it. While the job runs nothing here is a command substitution: bash 5.2 parses those as it
# expands them, and a trap that comes meanwhile ends in "unexpected EOF".
number() {
  local -n into=$1
  into=
  if [[ $3 =~ .*\"$2\":\ *([-+.eE0-9]+) ]]; then into=${BASH_REMATCH[1]}; fi
}

# Sets opens and bytes to what the source has seen since the last reset, and resets.
count_source() {
  opens=- bytes=-
  [ "$rig" = on ] || return 0
  local json
  "$build/tests/pfs_sim/pfs_sim" ctl "$work/rig.sock" counters >"$work/counters"
  "$build/tests/pfs_sim/pfs_sim" ctl "$work/rig.sock" counters reset >/dev/null
  IFS= read -r -d '' json <"$work/counters" || true
  json=${json//$'\n'/}
  opens=
  if [[ $json =~ \"open\":\ *\{([^}]*)\} ]]; then number opens count "${BASH_REMATCH[1]}"; fi
  number bytes bytes_read "$json"
  [ -n "$opens" ] && [ -n "$bytes" ] || fail "the counters of the slow file system could not be read"
}

# train posix|tier: runs the job, prints a row per epoch, fills results_$1 (one "accuracy loss" per epoch), opens_$1 (per epoch) and seconds_$1.
train() {
  local reader=$1 line epoch seconds rate accuracy loss
  local -n results=results_$1 opened=opens_$1 missed=missed_$1 total=seconds_$1
  results=() opened=() missed=() total=0
  count_source
  # The trainer waits for a line after each epoch, so that no read of the next one is in the counters.
  rm -f "$work/to" "$work/from"
  mkfifo "$work/to" "$work/from"
  TIERD_SOCKET="$work/run/tierd.sock" "$build/examples/trainer/tier_trainer" "$source" --reader "$reader" \
    --epochs $epochs --threads $threads --json --step <"$work/to" >"$work/from" 2>"$work/trainer.log" &
  trainer_pid=$!
  local from to
  exec {to}>"$work/to" {from}<"$work/from"
  printf '  %5s %8s %10s %9s %12s %8s %8s %8s %8s  %s\n' epoch seconds samples/s "src opens" "src bytes" RAM SSD source direct "accuracy (loss)"
  while IFS= read -r line <&"$from"; do
    number epoch epoch "$line"
    count_source
    number seconds seconds "$line"
    number rate samples_per_s "$line"
    number accuracy accuracy "$line"
    number loss loss "$line"
    local ram=- ssd=- via=- bypass=-
    if [ "$reader" = tier ]; then
      number ram ram "$line"
      number ssd ssd "$line"
      number via source "$line"
      number bypass bypass "$line"
      missed+=($((via + bypass)))
    fi
    printf '  %5s %8s %10s %9s %12s %8s %8s %8s %8s  %s (%s)\n' "$epoch" "$seconds" "$rate" "$opens" "$bytes" "$ram" "$ssd" "$via" "$bypass" "$accuracy" "$loss"
    results+=("$accuracy $loss")
    opened+=("$opens")
    awk "BEGIN { print $total + $seconds }" >"$work/total"
    read -r total <"$work/total"
    [ "$epoch" = "$epochs" ] || echo go >&"$to"
  done
  exec {from}<&- {to}>&-
  wait "$trainer_pid" || { cat "$work/trainer.log" >&2; trainer_pid=; fail "the training job failed"; }
  trainer_pid=
  [ ${#results[@]} = $epochs ] || fail "the training job ended early"
}

judge() {
  local bad=0 epoch
  for ((epoch = 1; epoch <= epochs; epoch++)); do
    if [ "${results_posix[epoch - 1]}" != "${results_tier[epoch - 1]}" ]; then
      say "FAILED: epoch $epoch gave another result through tierd: ${results_tier[epoch - 1]}, not ${results_posix[epoch - 1]}"
      bad=1
    fi
    [ "$epoch" = 1 ] && continue
    if [ "$rig" = on ] && [ "${opens_tier[epoch - 1]}" != 0 ]; then
      say "FAILED: epoch $epoch through tierd opened ${opens_tier[epoch - 1]} files of the source"
      bad=1
    elif [ "$rig" = off ] && [ "${missed_tier[epoch - 1]}" != 0 ]; then
      say "FAILED: epoch $epoch through tierd read ${missed_tier[epoch - 1]} files of the source"
      bad=1
    fi
  done
  local ratio
  ratio=$(awk "BEGIN { printf \"%.1f\", $seconds_posix / $seconds_tier }")
  if [ "$rig" = on ] && awk "BEGIN { exit !($seconds_tier >= $seconds_posix) }"; then
    say "FAILED: tierd was not faster: $seconds_tier s, straight from the source $seconds_posix s"
    bad=1
  fi
  [ $bad = 0 ] || return 1
  say "All $epochs epochs: $seconds_posix s straight from the source, $seconds_tier s through tierd (${ratio}x); accuracy and loss equal in every digit;"
  say "no file of the source was opened after the first epoch."
}

go_on() {
  cat <<EOF

To go on with data of your own:
  ninja -C $build                                            # the rest of it: libraries, Python package
  $build/tierctl/tierctl run --source /path/to/your/dataset -- python3 train.py
or, step by step:
  $build/tierd/tierd --source /path/to/your/dataset          # no configuration needed; prints its socket and where it caches
  $build/tierctl/tierctl status                              # tiers, hits, what is degraded and why
  $build/tierctl/tierctl prefetch --wait /path/to/your/dataset
  README.md says how to use it from C and C++; client_lib/examples holds two short programs.
EOF
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0  # its test wants the functions only

usage="usage: tools/quickstart.sh        takes no arguments; trains behind a slow file system, without and with tierd, building and installing what it needs first"
case ${1-} in
  -h | --help) say "$usage"; exit 0 ;;
esac
[ $# = 0 ] || { say "$usage" >&2; exit 64; }
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
build_all
work=$(mktemp -d "${TMPDIR:-/var/tmp}/tierd-quickstart.XXXXXX")
work=$(cd "$work" && pwd -P)
[ ${#work} -le 80 ] || fail "$work is too long for a socket's path: set TMPDIR to a shorter one"
start_source
say ""
say "Straight from the source ($threads reader threads, a new random order per epoch):"
train posix
say ""
say "Through tierd:"
start_tierd
train tier
say ""
status=0
judge || status=1
go_on
say "All of it, installing and building included, took $SECONDS s."
exit $status
