#!/bin/bash
# Epilog= of slurm.conf: what a job may have left, however it ended: a tierd of its own (it ends by itself with the job's last process; this is for when it cannot), its
# directory on the local disk, and the directory of its socket in /tmp (tierctl run makes one where the path of the scratch is too long for a socket).
. "$(dirname "$(readlink -f "$0")")/common.sh"

# Daemons that this job started. Others of the user, and those of its other jobs, say so by their environment.
end_daemons() {
  local pid
  for pid in $(pgrep -U "$SLURM_JOB_UID" -x tierd); do
    tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURM_JOB_ID=$SLURM_JOB_ID" && kill -KILL "$pid"
  done
}

# As the user: what lies in a directory of theirs may be a link to anywhere by the time that it is
# opened.
as_user() {
  if [ "$EUID" = 0 ]; then setpriv --reuid="$SLURM_JOB_UID" --regid=65534 --clear-groups "$@"; else "$@"; fi
}

# Of runs that were killed: the lock file says whose they were, and nobody holds the lock any more.
remove_sockets() {
  local lock
  for lock in /tmp/tierd-run-"$SLURM_JOB_UID"-??????/lock; do
    [ -f "$lock" ] && [ -s "$lock" ] && as_user flock -n "$lock" rm -rf --one-file-system "${lock%/lock}"
  done
}

# What runs of the user note of each other (docs/run.md), of daemons that are gone.
forget_daemons() {
  local ledger=/tmp/tierd-ledger-$SLURM_JOB_UID record
  for record in "$ledger"/*.json; do
    [ -f "$record" ] && as_user flock -n "$record" rm -f "$record" "${record%.json}.joined"
  done
  [ -f "$ledger/door" ] && ! ls "$ledger"/*.json && as_user flock -n "$ledger/door" rm -rf --one-file-system "$ledger"
}

# A large cache takes long to remove. It first goes out of sight, into a directory with a name that
# nobody can know before and that root alone can enter: a name that can be known may be a link.
remove_scratch() {
  local base gone
  cd -P "$scratch_base" && exec {base}<. || return
  gone=$(mktemp -d ".gone.$SLURM_JOB_ID.XXXXXXXX") && (enter "$gone" "$EUID" 700 && mv -T "/proc/self/fd/$base/$job" "./$job")
  # In a process group of its own from the start (set -m): slurmd kills that of this script when it
  # has ended. What a reboot kept an earlier one from removing goes too.
  set -m
  rm -rf --one-file-system .gone.* &
}

case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
within 750 end_daemons
within 1500 remove_scratch
within 1750 remove_sockets
within 1900 forget_daemons
exit 0
