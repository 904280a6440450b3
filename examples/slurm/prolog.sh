#!/bin/bash
# Prolog= of slurm.conf: a directory of the job's own on the local disk, for its user alone. taskprolog.sh makes it the job's TMPDIR, and tierctl run finds it there.
. "$(dirname "$(readlink -f "$0")")/common.sh"

make_scratch() {
  mkdir -p "$scratch_base" && cd -P "$scratch_base" && mkdir -m 0700 "$job" && enter "$job" "$EUID" 700 && chown -h "$SLURM_JOB_UID" .
}

case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
within 1500 make_scratch
exit 0
