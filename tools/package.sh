#!/usr/bin/env bash
# Makes Debian packages (tierd, libtier1, libtier-dev, python3-tierd) and a relocatable archive that needs no root, from a release build.
# usage: tools/package.sh [OUTPUT]     default: build/packages      build tree: $TIERD_BUILD/package or build/package
set -euo pipefail
cd "$(dirname "$0")/.."
tools/deps.sh package
output=${1:-build/packages}
build=${TIERD_BUILD:-build}/package
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
cmake -S . -B "$build" -G Ninja "${launcher[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_INSTALL_PREFIX=/usr -DTIERD_PYTHON_DIR=lib/python3/dist-packages -DTIERD_TESTS=OFF -DTIERD_BENCH=OFF -DTIERD_UNITY=ON
ninja -C "$build"
mkdir -p "$output"
(cd "$build" && cpack -G DEB -B packages)
cp "$build"/packages/*.deb "$output"
tools/archive.sh "$build" "$output/tierd.tar.gz"
ls -l "$output"
