#!/usr/bin/env bash
# The quickstart as a user meets it: a second call builds nothing; where FUSE cannot be used it says so and takes a plain directory; nothing is left behind.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TIERD_QUICKSTART_IMAGES=2000 TMPDIR=$work
fail() { cat "$work.out"; rm -f "$work.out"; printf 'quickstart_test: %s\n' "$*" >&2; exit 1; }

# expect WORDS...: each was said.
expect() {
  for words in "$@"; do grep -q -- "$words" "$work.out" || fail "did not say: $words"; done
}
tools/quickstart.sh >"$work.out" 2>&1 || fail "exit $?"
expect "accuracy and loss equal in every digit" "no file of the source was opened after the first epoch"
grep -q "^building" "$work.out" && fail "built what was built"
[ -z "$(ls -A "$work")" ] || fail "left $(ls -A "$work")"

# Where mounts are refused; what a unit takes away is handy for that.
under=$TIERD_QUICKSTART_BUILD/tests/service/unit_exec
if [ -x "$under" ]; then
  "$under" systemd/tierd@.service tools/quickstart.sh >"$work.out" 2>&1 || fail "without FUSE: exit $?"
  expect "a plain local directory, because FUSE cannot be used here" "speed is not judged" "accuracy and loss equal in every digit"
  [ -z "$(ls -A "$work")" ] || fail "without FUSE: left $(ls -A "$work")"
fi
rm -f "$work.out"
