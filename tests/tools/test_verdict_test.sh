#!/usr/bin/env bash
# Real runs of ctest over tests made for it: what may be tried again, what never, and which cases are told to be left out.
set -euo pipefail
verdict=$(cd "$(dirname "$0")/../../tools" && pwd)/test_verdict.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

failures=0
# expect NAME CODE TEXT LABEL COMMAND: the one test of a run, with that label, twice at most; what the verdict must be, and a line of it.
expect() {
  local code=0 out trusted
  rm -f attempt
  printf '%s' "$5" >body
  printf 'add_test(the_test /bin/bash "%s/body")\nset_tests_properties(the_test PROPERTIES LABELS "%s" TIMEOUT 1)\n' "$work" "$4" >CTestTestfile.cmake
  trusted=$(ctest -N -L '^trust$' | sed -n 's/^ *Test *#[0-9]*: //p')
  ctest --repeat until-pass:2 --output-on-failure >output 2>&1 || true
  out=$("$verdict" output Testing/Temporary/LastTest.log "$trusted") || code=$?
  if [ "$code" != "$2" ] || ! grep -q -- "$3" <<<"$out"; then
    printf '%s: exit %s, said:\n%s\n' "$1" "$code" "$out"
    failures=$((failures + 1))
  fi
}
first='[ -e attempt ] || { touch attempt; '  # only at the first attempt

expect "passes" 0 "" "e2e;trust" 'true'
expect "fails once" 0 "failed at least once: .*the_test" "e2e" "$first exit 1; }"
expect "a trusted one fails once" 1 "^failed, whatever later attempts say: the_test" "e2e;trust" "$first exit 1; }"
expect "a trusted one aborts once" 1 "^failed, whatever" "trust" "$first kill -ABRT \$\$; }"
expect "a trusted one is too slow once" 0 "failed at least once: .*Timeout" "trust" "$first exec sleep 5; }"
expect "another label that has the word in it" 0 "failed at least once" "trusted" "$first exit 1; }"
expect "crashes once" 1 "^crashed, whatever later attempts say: the_test" "e2e" "$first kill -SEGV \$\$; }"
expect "a bus error once" 1 "^crashed" "e2e" "$first kill -BUS \$\$; }"
expect "a data race once" 1 "^a sanitizer" "tsan" "$first echo 'WARNING: ThreadSanitizer: data race (pid=1)'; exit 66; }"
expect "undefined once" 1 "^a sanitizer" "unit" "$first echo 'a.cc:3:4: runtime error: shift exponent'; exit 1; }"
skipped=$'echo "/x/a_test.cc:31: Skipped"; echo "no namespace"; echo; echo "[  SKIPPED ] A.B (0 ms)"; echo "[  SKIPPED ] 1 test, listed below:"; echo "[  SKIPPED ] A.B"'
expect "a case that is left out" 0 "^skipped case: the_test A.B: no namespace$" "e2e" "$skipped"
expect "a case of Python's" 0 "^skipped case: the_test test_a (a.B) ... skipped 'no server'" "e2e" 'echo "test_a (a.B) ... skipped '"'no server'"'"; echo; echo "OK (skipped=1)"'
expect "cases of Python's that it does not name" 0 "^skipped cases: the_test (skipped=2)" "e2e" 'echo "OK (skipped=2)"'
[ "$failures" = 0 ]
