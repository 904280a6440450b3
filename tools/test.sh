#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors, and runs every test: plain, ASan+UBSan, TSan.
# usage: tools/test.sh [plain|asan|tsan|all]     default: all      build trees: $TIERD_BUILD or ./build
set -euo pipefail
cd "$(dirname "$0")/.."
tools/deps.sh test

suite=${1:-all}
root=${TIERD_BUILD:-build}
jobs=$(nproc)
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)

# Builds in another checkout may reuse what was compiled here.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

build() {  # name, target, cmake options...
  local name=$1 target=$2
  shift 2
  echo "== build $name"
  cmake -S . -B "$root/$name" -G Ninja "${launcher[@]}" "$@" >"$root/$name.cmake.log" 2>&1 || { cat "$root/$name.cmake.log"; exit 1; }
  ninja -C "$root/$name" -j "$jobs" --quiet "$target" >"$root/$name.log" 2>&1 || { tail -n 60 "$root/$name.log"; exit 1; }
}

run() {  # name, ctest options...
  local name=$1
  shift
  echo "== test $name"
  # The machines are noisy: what fails once is tried twice more, and ctest says so.
  ctest --test-dir "$root/$name" --output-on-failure --no-tests=error --repeat until-pass:3 "$@"
}

sanitizer_flags=(-DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g1 -Wno-error=maybe-uninitialized" -DCMAKE_C_FLAGS="-O1 -g1 -Wno-error=maybe-uninitialized" -DTIERD_BENCH=OFF -DTIERD_KILL_POINTS=ON)
mkdir -p "$root"
case "$suite" in plain | asan | tsan | all) ;; *) echo "usage: tools/test.sh [plain|asan|tsan|all]" >&2; exit 64 ;; esac
if [ "$suite" = plain ] || [ "$suite" = all ]; then
  build plain all -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIERD_KILL_POINTS=ON
  run plain
fi
# Sanitizers run what is labelled unit (every component, both I/O engines) and san (end-to-end cases sized for them).
if [ "$suite" = asan ] || [ "$suite" = all ]; then
  build asan sanitizer_tests -DTIERD_SANITIZE=address "${sanitizer_flags[@]}"
  run asan -L 'unit|san'
fi
if [ "$suite" = tsan ] || [ "$suite" = all ]; then
  build tsan tsan_tests -DTIERD_SANITIZE=thread "${sanitizer_flags[@]}"
  run tsan -L 'tsan'
fi
