#!/usr/bin/env bash
# Builds and runs the benchmarks, prints one table of our bars and writes the same as a JSON list.
# usage: tools/bench.sh [--only A1.1r,A3] [--json FILE] [--rounds N]
#   --only    rows by id; "A3" means all rows A3.*, but for A12.10m: ten million files, ten minutes or so and 4 GB, as root; only by its own id
#   --rounds  instead of the usual 5 to 11 measurements per side; for a quick look
# Needs up to 14 GB in ${TMPDIR:-/var/tmp} (A5: 4 GiB of files, as many for fio, 5 GiB of cache; C5; A9: a million files), on a local disk. Rows behind the slow
# file system are refused when its self-test says that this machine is too busy for them. exit 0 when every row asked for was measured, 1 when one could not be
# (what it needs is not here, a side failed, or there is no such row); a bar that is not met is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

only= json= rounds=
while [ $# -gt 0 ]; do
  case "$1" in
    --only | --json | --rounds)
      [ $# -ge 2 ] || { echo "tools/bench.sh: $1 wants a value" >&2; exit 64; }
      declare "${1#--}=$2"
      shift 2
      ;;
    *) sed -n '3p' "$0" >&2; exit 64 ;;
  esac
done

build=build/bench
work=
child=

# Whatever a program that was cut short could not undo: its mounts and loop devices below the work directory.
clean_up() {
  local status=$?
  set +e
  trap - EXIT
  trap '' INT TERM HUP
  if [ -n "$child" ] && kill -TERM "$child" 2>/dev/null; then wait "$child" 2>/dev/null; fi
  if [ -n "$work" ]; then
    local mount device
    for mount in $(awk -v w="$work/" 'index($2, w) == 1 { print $2 }' /proc/mounts); do umount "$mount" || umount -l "$mount"; done
    for device in $(losetup -n -O NAME,BACK-FILE 2>/dev/null | awk -v w="$work/" 'index($2, w) == 1 { print $1 }'); do losetup -d "$device"; done
    grep -q " $work/" /proc/mounts || rm -rf "$work"
  fi
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

tools/deps.sh test
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
mkdir -p "$build"
[ -f "$build/build.ninja" ] || cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIERD_TESTS=OFF -DTIERD_UNITY=ON "${launcher[@]}" >"$build/cmake.log" 2>&1 ||
  { tail -n 20 "$build/cmake.log" >&2; exit 1; }
topics=(hit lookup shard ssd records first_epoch prefetch restart memory policy nodaemon loop_lag preload loaders python seeds simulate plans ahead epochs)
# Which rows a program has; the ones in `rig` stand on the slow file system.
declare -A rows=([hit]="A1 A2" [lookup]=A3 [shard]="A4 A4b" [ssd]="A5 A5b" [records]=A5c [first_epoch]=A6 [prefetch]=A7 [restart]=A8 [memory]=A9 [policy]=A10 [nodaemon]=A11 [loop_lag]=A12 [preload]="B1 B2 B5" [loaders]="B4 B5b B6 B7 B8" [python]=B3 [seeds]=C7 [simulate]=C2 [plans]="C3 C4 C6" [ahead]=C5 [epochs]=C9)
rig=(first_epoch prefetch loaders plans epochs)

wanted() {  # topic: is one of its rows asked for?
  [ -z "$only" ] && return 0
  local id row
  for id in ${only//,/ }; do
    for row in ${rows[$1]}; do
      if [ "${id%%.*}" = "$row" ]; then return 0; fi
    done
  done
  return 1
}

for id in ${only//,/ }; do
  known=0
  for topic in "${topics[@]}"; do only=$id wanted "$topic" && known=1; done
  [ $known = 1 ] || { echo "tools/bench.sh: no row $id" >&2; exit 64; }
done

targets=(bench_table pfs_sim)
for topic in "${topics[@]}"; do
  if wanted "$topic"; then targets+=("bench_$topic"); fi
done
ninja -C "$build" "${targets[@]}" >"$build/ninja.log" 2>&1 || { tail -n 30 "$build/ninja.log" >&2; exit 1; }

work=$(mktemp -d "${TMPDIR:-/var/tmp}/tierd-bench.XXXXXX")
work=$(cd "$work" && pwd -P)  # as /proc/mounts and losetup name it
case $work in *[[:space:]]*) echo "tools/bench.sh: a blank in $work: set TMPDIR" >&2; exit 64 ;; esac
case $(stat -f -c %T "$work") in
  tmpfs | ramfs) echo "tools/bench.sh: $work lies in memory: what A5, A8, A9, B4, C5 and C9 measure there is no disk (TMPDIR names another place)" >&2 ;;
esac
export TIERD_BENCH_DIR=$work TIERD_BENCH_RIG=ok
for topic in "${rig[@]}"; do
  if wanted "$topic" && [ "$TIERD_BENCH_RIG" = ok ]; then
    "$build/tests/pfs_sim/pfs_sim" selftest >&2 || TIERD_BENCH_RIG=slow
    break
  fi
done

arguments=()
[ -n "$only" ] && arguments+=(--only "$only")
[ -n "$rounds" ] && arguments+=(--rounds "$rounds")
status=0
for topic in "${topics[@]}"; do
  wanted "$topic" || continue
  "$build/bench/bench_$topic" "${arguments[@]}" >>"$work/rows" &
  child=$!
  wait "$child" || status=1
  child=
done
all=$(printf '%s,' ${rows[@]})
"$build/bench/bench_table" "$work/rows" "${only:-$all}" ${json:+"$json"} || status=1
exit $status
