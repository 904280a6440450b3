#!/bin/bash
# Epilog= of slurm.conf: what a job may have left, however it ended: a tierd of its own (it ends by itself with the job's last process; this is for when it cannot), its
# directory on the local disk, and the short name for a socket in /tmp.
. "$(dirname "$(readlink -f "$0")")/common.sh"

# Daemons that this job started. Others of the user, and those of its other jobs, say so by their environment.
end_daemons() {
  local pid
  for pid in $(pgrep -x tierd); do
    tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURM_JOB_ID=$SLURM_JOB_ID" && kill -KILL "$pid"
  done
}

remove_scratch() {
  local link
  for link in /tmp/tierd-run-"$SLURM_JOB_UID"-*/of; do
    case $(readlink "$link") in "$scratch"/*) rm -rf --one-file-system "${link%/of}" ;; esac
  done
  # A large cache takes long to remove: out of sight at once, then in the background.
  mv "$scratch" "$scratch_base/.gone.$SLURM_JOB_ID" && setsid rm -rf --one-file-system "$scratch_base/.gone.$SLURM_JOB_ID" &
}

case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
within end_daemons
within remove_scratch
exit 0
