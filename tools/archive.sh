#!/usr/bin/env bash
# Makes an archive of a build that runs wherever it is unpacked, without root and without anything installed: the libraries that it needs beside libc are in lib/tierd, where its programs look first.
# usage: tools/archive.sh BUILD FILE.tar.gz
set -euo pipefail
[ $# = 2 ] || { echo "usage: tools/archive.sh BUILD FILE.tar.gz" >&2; exit 64; }
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "$1" --prefix "$stage/tierd" --strip >/dev/null
mkdir -p "$stage/tierd/lib/tierd"
for program in "$stage"/tierd/bin/*; do
  # What belongs to libc comes with the system: a program has to use the one whose loader starts it.
  ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' | xargs -r cp -Lnt "$stage/tierd/lib/tierd"
  # An RPATH, not a RUNPATH: it holds for what those libraries need too.
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib/tierd' "$program"
done
tar -C "$stage" --owner=0 --group=0 -czf "$2" tierd
