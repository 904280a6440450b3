#!/usr/bin/env bash
# The quickstart's verdict: it must fail when the source was opened after the first epoch, when a result differs in any digit, or when tierd was not faster.
# And its arguments, of which there are none: whoever asks for help gets no job, nor packages.
set -euo pipefail
source "$(dirname "$0")/../../tools/quickstart.sh"

failures=0
# expect NAME CODE TEXT: judges what is in the variables.
expect() {
  local code=0 out
  out=$(judge) || code=$?
  if [ "$code" != "$2" ] || ! grep -q -- "$3" <<<"$out"; then
    printf '%s: exit %s, said:\n%s\n' "$1" "$code" "$out"
    failures=$((failures + 1))
  fi
}
good() {
  rig=on
  results_posix=("0.80 1.25" "0.81 1.125" "0.82 1.0625" "0.83 1.03125") results_tier=("${results_posix[@]}")
  opens_posix=(70000 70000 70000 70000) opens_tier=(70000 0 0 0)
  missed_posix=(0 0 0 0) missed_tier=(70000 0 0 0)
  seconds_posix=100 seconds_tier=12
}

good; expect "all is well" 0 "8.3x"
good; opens_tier[2]=1; expect "one open in epoch 3" 1 "epoch 3 through tierd opened 1 files"
good; results_tier[3]="0.83 1.03126"; expect "the last digit of a loss" 1 "epoch 4 gave another result"
good; results_tier[0]="0.8 1.25"; expect "a digit fewer" 1 "epoch 1 gave another result"
good; seconds_tier=100; expect "as slow" 1 "not faster"
good; seconds_tier=100.5; opens_tier[1]=7; expect "two things wrong, the first" 1 "opened 7 files"
good; seconds_tier=100.5; opens_tier[1]=7; expect "two things wrong, the second" 1 "not faster"
# Without FUSE the rig counts nothing and speed is not judged; the trainer's own count must do.
good; rig=off opens_tier=(- - - -) seconds_tier=200; expect "a plain directory" 0 "equal in every digit"
good; rig=off opens_tier=(- - - -) missed_tier[1]=3; expect "a plain directory read again" 1 "epoch 2 through tierd read 3 files"

# called CODE TEXT ARGUMENT...: what it says and how it ends, in no time; where it would begin there is nothing to begin with.
called() {
  local code=0 out want=$1 text=$2
  shift 2
  out=$(TMPDIR=/nonexistent TIERD_QUICKSTART_BUILD=/nonexistent PATH=/nonexistent "$BASH" "$PWD/tools/quickstart.sh" "$@" 2>&1) || code=$?
  if [ "$code" != "$want" ] || [[ $out != *"$text"* ]]; then
    printf 'quickstart.sh %s: exit %s, said:\n%s\n' "$*" "$code" "$out"
    failures=$((failures + 1))
  fi
}
called 0 "usage: tools/quickstart.sh" --help
called 0 "usage: tools/quickstart.sh" -h
called 64 "usage: tools/quickstart.sh" --epochs 3
called 64 "usage: tools/quickstart.sh" ""
[ "$failures" = 0 ]
