#!/bin/bash
# TaskProlog= of slurm.conf: runs as the user before each task; lines "export NAME=value" on stdout become its environment.
scratch=${TIERD_SCRATCH:-/local/scratch}/job.$SLURM_JOB_ID
if [ -d "$scratch" ] && [ -w "$scratch" ]; then
  echo "export SLURM_TMPDIR=$scratch"
  echo "export TMPDIR=$scratch"
fi
# Where tierd runs as a service (tierd@USER), programs find it without tierctl run.
socket=/run/tierd/$(id -un)/tierd.sock
if [ -S "$socket" ]; then
  echo "export TIERD_SOCKET=$socket"
fi
exit 0
