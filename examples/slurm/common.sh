# What prolog and epilog share. They run as root on each node of a job, before its first and after its last process; Slurm drains a node whose prolog fails or hangs, so these
# never do: all that can block runs below `within`, and the exit code is always 0.

exec 2>/dev/null  # what is killed below is not worth a line in the log of slurmd

# Local disk on which each job gets a directory.
scratch_base=${TIERD_SCRATCH:-/local/scratch}
scratch=$scratch_base/job.${SLURM_JOB_ID:-none}

# Runs a function, for 1.5 seconds at most, silently. A disk that hangs keeps the process that asks it, not the job.
within() {
  ( "$@" ) </dev/null >/dev/null 2>&1 &
  local work=$! waited=0
  while [ $waited -lt 75 ] && kill -0 $work 2>/dev/null; do
    sleep 0.02
    waited=$((waited + 1))
  done
  kill -KILL $work 2>/dev/null
}
