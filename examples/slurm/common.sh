# What prolog and epilog share. They run as root on each node of a job, before its first and after its last process; Slurm drains a node whose prolog fails or hangs, so these
# never do: all that can block runs below `within`, and the exit code is always 0.

exec 2>/dev/null  # what is killed below is not worth a line in the log of slurmd

# Local disk on which each job gets a directory.
scratch_base=${TIERD_SCRATCH:-/local/scratch}
job=job.${SLURM_JOB_ID:-none}

begin=${EPOCHREALTIME//[!0-9]/}  # microseconds

# within MILLISECONDS FUNCTION: runs it, silently, until so long after the begin of the script at most. A disk that hangs keeps the process that asks it, not the job. The clock is
# asked, as on a busy node a pause takes longer than it says.
within() {
  local deadline=$((begin + $1 * 1000))
  ( "$2" ) </dev/null >/dev/null 2>&1 &
  local work=$!
  while kill -0 $work && [ "${EPOCHREALTIME//[!0-9]/}" -lt $deadline ]; do
    sleep 0.02
  done
  kill -KILL $work
}

# enter NAME OWNER MODE: makes the directory NAME of the working directory the working directory,
# if it is no link and has this owner and mode. From then on "." is this very directory: others may
# swap its name, but not what the script acts on.
enter() {
  local parent
  parent=$(pwd -P) && cd -P "./$1" && [ "$(pwd -P)" = "${parent%/}/$1" ] && [ "$(stat -c '%u %a' .)" = "$2 $3" ]
}
