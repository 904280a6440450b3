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

build() {  # name, cmake options...
  local name=$1
  shift
  echo "== build $name"
  cmake -S . -B "$root/$name" -G Ninja "${launcher[@]}" "$@" >"$root/$name.cmake.log" 2>&1 || { cat "$root/$name.cmake.log"; exit 1; }
  ninja -C "$root/$name" -j "$jobs" --quiet || exit 1
}

run() {  # name, ctest options...
  local name=$1
  shift
  echo "== test $name"
  ctest --test-dir "$root/$name" --output-on-failure --no-tests=error "$@"
}

mkdir -p "$root"
case "$suite" in plain | asan | tsan | all) ;; *) echo "usage: tools/test.sh [plain|asan|tsan|all]" >&2; exit 64 ;; esac
if [ "$suite" = plain ] || [ "$suite" = all ]; then
  build plain -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIERD_KILL_POINTS=ON
  run plain
fi
# Sanitizers run what is labelled unit (every component, both I/O engines) and san (end-to-end cases sized for them).
if [ "$suite" = asan ] || [ "$suite" = all ]; then
  build asan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIERD_SANITIZE=address -DTIERD_BENCH=OFF -DTIERD_KILL_POINTS=ON
  run asan -L 'unit|san'
fi
if [ "$suite" = tsan ] || [ "$suite" = all ]; then
  build tsan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIERD_SANITIZE=thread -DTIERD_BENCH=OFF -DTIERD_KILL_POINTS=ON
  run tsan -L 'tsan'
fi
