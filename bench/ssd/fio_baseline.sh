#!/bin/sh
# The other side of ssd_read: fio io_uring O_DIRECT, one job, over the region files of the same directory.
# Usage: fio_baseline.sh DIR BYTES DEPTH SECONDS. Prints requests/s, MB/s, CPU-s/GB.
set -eu
bytes=$(( ($2 + 511) / 512 * 512 ))
fio --name=r --filename="$1/regions-0000" --readonly --rw=randread --bs="$bytes" --ba=512 --iodepth="$3" --ioengine=io_uring --direct=1 \
    --runtime="$4" --time_based --norandommap --output-format=json |
  python3 -c '
import json, sys
j = json.load(sys.stdin)["jobs"][0]
r = j["read"]
gb = r["io_bytes"] / 1e9
per_gb = j["job_runtime"] / 1e5 / gb
user, system = j["usr_cpu"] * per_gb, j["sys_cpu"] * per_gb
print("%.0f requests/s, %.1f MB/s, %.3f CPU-s/GB (user %.3f, system %.3f)" % (r["iops"], r["bw_bytes"] / 1e6, user + system, user, system))'
