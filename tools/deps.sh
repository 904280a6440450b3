#!/usr/bin/env bash
# Installs what building, testing and running tierd needs on Debian 12; does nothing (and asks for no root) when all is there.
# usage: tools/deps.sh [build|package|test]     build: to build and run; package: to make packages; test (default): everything
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config libboost1.81-dev liburing-dev libleveldb-dev prometheus-cpp-dev libisal-dev
  libxxhash-dev libtomlplusplus-dev libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev zlib1g-dev fuse3
  dataset-fashion-mnist)
package=("${build[@]}" dpkg-dev patchelf)
test=("${package[@]}" libgtest-dev libgmock-dev libbenchmark-dev libseccomp-dev clang-14 python3 python3-jsonschema python3-prometheus-client fio strace xfsprogs
  # Ordinary programs that must behave under the preload library as without it.
  file nodejs perl rsync xz-utils zstd procps python3-numpy python3-pil python3-h5py python3-lmdb python3-torch libjemalloc2
  # Programs with another C library, and static ones.
  busybox-static musl-tools
  # What reads through the Python package.
  python3-fsspec python3-pandas python3-torchvision python3-zarr mypy
  # What admins run beside it.
  prometheus slurmctld slurmd slurm-client munge mandoc man-db lintian debootstrap systemd e2fsprogs mount curl zsh fish)
# Only root can use these (the tests that need them skip otherwise).
[ "$(id -u)" = 0 ] && test+=(glusterfs-server glusterfs-client)

what=${1:-test}
case "$what" in
  build) wanted=("${build[@]}") ;;
  package) wanted=("${package[@]}") ;;
  test) wanted=("${test[@]}") ;;
  *) echo "usage: tools/deps.sh [build|package|test]" >&2; exit 64 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} = 0 ] && exit 0

echo "installing: ${missing[*]}" >&2
sudo=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "tools/deps.sh: not root and no sudo; as root run: apt-get install ${missing[*]}" >&2; exit 1; }
  sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "tools/deps.sh: apt-get failed; see above" >&2
  exit 1
fi
