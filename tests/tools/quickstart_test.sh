#!/usr/bin/env bash
# The quickstart as a user meets it: what it prints, whatever that user has set up for tierd; a second call builds nothing; where FUSE cannot be used it says so and takes
# a plain directory; a result that differs makes it fail; interrupted or not, it leaves nothing behind: no file, no mount, no process.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tmp" "$work/home/tierd"
export TIERD_QUICKSTART_IMAGES=2000 TMPDIR=$work/tmp
build=$TIERD_QUICKSTART_BUILD
out=$work/out
fail() { cat "$out"; printf 'quickstart_test: %s\n' "$*" >&2; exit 1; }

# The user's own: none of it reaches the demonstration.
echo 'nonsense' >"$work/home/tierd/tierd.toml"
export XDG_CONFIG_HOME=$work/home TIERD_DISABLE=1 TIERD_PREFIX=/nowhere

# expect WORDS...: each was said.
expect() {
  for words in "$@"; do grep -q -- "$words" "$out" || fail "did not say: $words"; done
}
# expect_rows COUNT COLUMNS: so many epochs with these opens, bytes and origins, each with accuracy and loss.
expect_rows() {
  local rows
  rows=$(grep -cE "^ +[1-4] +[0-9.]+ +[1-9][0-9]* +$2 +[0-9.]+ \([0-9.]+\)$" "$out") || true
  [ "$rows" = "$1" ] || fail "$rows rows, not $1, of: $2"
}
nothing_left() {
  local i
  for ((i = 0; i < 50; i++)); do  # whoever lost its terminal ends by itself
    grep -qlas -- "[/]${TMPDIR#/}/" /proc/[0-9]*/cmdline || break
    sleep 0.1
  done
  [ "$i" -lt 50 ] || fail "left running: $(grep -has -- "[/]${TMPDIR#/}/" /proc/[0-9]*/cmdline | tr '\0\n' ' ;')"
  ! grep -q " $TMPDIR/" /proc/mounts || fail "left mounted: $(grep " $TMPDIR/" /proc/mounts)"
  [ -z "$(ls -A "$TMPDIR")" ] || fail "left $(ls -A "$TMPDIR")"
}
fuse_is_there() {
  mkdir -p "$work/probe"
  (exec 9<>/dev/fuse && mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 probe "$work/probe" && umount -l "$work/probe") 2>/dev/null
}

tools/quickstart.sh >"$out" 2>&1 || fail "exit $?"
expect "accuracy and loss equal in every digit" "no file of the source was opened after the first epoch" "^To go on with data of your own:" "^All of it, .* took [0-9]* s.$"
if fuse_is_there; then expect "the images behind a file system with 1 ms per operation"; fi
if grep -q "behind a file system" "$out"; then
  expect_rows 4 "4000 +[1-9][0-9]+ +- +- +- +-"
  expect_rows 1 "4000 +[1-9][0-9]+ +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+"
  expect_rows 3 "0 +0 +[0-9]+ +[0-9]+ +0 +0"
fi
nothing_left

# Where mounts are refused; what a unit takes away is handy for that.
under=$build/tests/service/unit_exec
if [ -x "$under" ]; then
  "$under" systemd/tierd@.service tools/quickstart.sh >"$out" 2>&1 || fail "without FUSE: exit $?"
  expect "a plain local directory, because FUSE cannot be used here" "speed is not judged" "accuracy and loss equal in every digit"
  expect_rows 4 "- +- +- +- +- +-"
  expect_rows 4 "- +- +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+"
  nothing_left
  grep -q "no work to do" "$build/ninja.log" || fail "built what was built"
fi

# A build whose trainer does what $work/trainer says when it reads through tierd.
fake=$work/build
mkdir -p "$fake/examples/trainer"
for target in tierd tierctl tier_trainer fashion_files pfs_sim; do echo "build $target: phony"; done >"$fake/build.ninja"
ln -s "$build/tierd" "$build/tierctl" "$build/tests" "$fake"
ln -s "$build/examples/trainer/fashion_files" "$fake/examples/trainer"
cat >"$fake/examples/trainer/tier_trainer" <<END
#!/usr/bin/env bash
case " \$* " in *" --reader tier "*) "$build/examples/trainer/tier_trainer" "\$@" | . "$work/trainer" ;; *) exec "$build/examples/trainer/tier_trainer" "\$@" ;; esac
END
chmod +x "$fake/examples/trainer/tier_trainer"
export TIERD_QUICKSTART_BUILD=$fake TIERD_QUICKSTART_IMAGES=300

# One digit more in the loss of epoch 3.
echo "sed -u '3s/\"loss\": *[0-9.]*/&1/'" >"$work/trainer"
code=0
tools/quickstart.sh >"$out" 2>&1 || code=$?
[ "$code" = 1 ] || fail "another result: exit $code, not 1"
expect "FAILED: epoch 3 gave another result through tierd" "^To go on with data of your own:"
if grep -q "FAILED: epoch [124]" "$out"; then fail "said more than one epoch is wrong"; fi
nothing_left

# It ends at once: what it said is shown.
cp "$fake/examples/trainer/tier_trainer" "$work/good"
printf '#!/bin/sh\necho no images today >&2\nexit 1\n' >"$fake/examples/trainer/tier_trainer"
if tools/quickstart.sh >"$out" 2>&1; then fail "a trainer that fails is no failure"; fi
expect "^no images today$" "^quickstart: the training job failed$"
nothing_left
cp "$work/good" "$fake/examples/trainer/tier_trainer"

# Ctrl-C in the second epoch through tierd, which does not end.
echo 'IFS= read -r line; printf "%s\n" "$line"; exec cat >/dev/null' >"$work/trainer"
setsid env --default-signal=INT tools/quickstart.sh >"$out" 2>&1 &
pid=$!
for ((i = 0; i < 600; i++)); do
  [ "$(grep -cE "^ +1 +[0-9.]+ " "$out")" = 2 ] && break
  sleep 0.1
done
kill -INT -- "-$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 130 ] || fail "Ctrl-C: exit $code, not 130"
nothing_left
