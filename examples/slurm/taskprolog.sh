#!/bin/bash
# TaskProlog= of slurm.conf: runs as the user before each task; lines "export NAME=value" on stdout become its environment.
base=${TIERD_SCRATCH:-/local/scratch}
job=job.$SLURM_JOB_ID

# Whether the directory is the one that prolog.sh made: no link, the user's, 0700, in a place where
# nobody but root can put another one in its stead.
is_ours() {
  local owner mode
  cd -P "$base" 2>/dev/null && read -r owner mode < <(stat -c '%u %a' .) || return 1
  [ "$owner" = 0 ] || [ "$owner" = "$EUID" ] || return 1
  if [ $((0$mode & 0022)) != 0 ] && [ $((0$mode & 01000)) = 0 ]; then
    echo "print tierd: no job directory: others may rename what is in $base: chmod +t $base"
    return 1
  fi
  [ -d "$job" ] && [ ! -L "$job" ] && [ "$(stat -c '%u %a' "$job")" = "$EUID 700" ]
}

if is_ours; then
  echo "export SLURM_TMPDIR=$base/$job"
  echo "export TMPDIR=$base/$job"
fi
# Where tierd runs as a service (tierd@USER), programs find it without tierctl run.
socket=/run/tierd/$(id -un)/tierd.sock
if [ -S "$socket" ]; then
  echo "export TIERD_SOCKET=$socket"
fi
exit 0
