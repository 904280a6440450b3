#!/usr/bin/env bash
# What a run of ctest with --repeat has shown beside its exit code: tests that failed at least once, tests and single cases that were skipped, and what no later attempt makes good.
# usage: tools/test_verdict.sh OUTPUT LOG TRUSTED     OUTPUT: what ctest printed; LOG: its Testing/Temporary/LastTest.log; TRUSTED: names of the tests with label trust, one a line (ctest -N, before the run: it empties LOG)
# Exit 1: a test that is trusted failed (its deadline apart: a machine may be slow), a program crashed, or a sanitizer had something to say. Load does none of these.
set -euo pipefail
output=$1 log=$2 trusted=$3

# Names of the tests in the lines of OUTPUT that match.
tests() { { grep -E "$1" "$output" || true; } | sed -E 's/^.*Test +#[0-9]+: ([^ ]+) .*/\1/' | sort -u; }

grep -E '\*\*\*(Failed|Timeout|Exception)' "$output" | sed 's/^/failed at least once: /' || true
grep -E '\*\*\*Skipped' "$output" | sed 's/^/skipped: /' || true
# Of GoogleTest the lines with a time (the others repeat them), of unittest those of single cases, or their number where it names none.
awk '
  /^[0-9]+\/[0-9]+ Test(ing)?: / { test = $NF; named = 0 }
  /: Skipped$/ { getline why }
  /^\[  SKIPPED \] .*\([0-9]+ ms\)$/ { sub(/^\[  SKIPPED \] /, ""); sub(/ \([0-9]+ ms\)$/, ""); print "skipped case: " test " " $0 ": " why }
  / \.\.\. skipped / { named = 1; print "skipped case: " test " " $0 }
  /^OK \(skipped=[0-9]+\)$/ && !named { print "skipped cases: " test " " $2 }
' "$log" | sort -u

verdict=0
final() {  # what, names of tests
  local test
  for test in $2; do
    echo "$1, whatever later attempts say: $test"
    verdict=1
  done
}
final "failed" "$(tests '\*\*\*(Failed|Exception)' | grep -Fx -- "$trusted" || true)"
final "crashed" "$(tests '\*\*\*Exception: (SegFault|Illegal|Numerical)|Bus error\*\*\*')"
if grep -E '(ERROR|WARNING): (Address|Leak|Thread)Sanitizer|: runtime error: ' "$output"; then
  echo "a sanitizer had that to say, whatever later attempts say"
  verdict=1
fi
exit "$verdict"
