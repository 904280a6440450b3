#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors, and runs every test: plain, in a restricted environment, under the systemd unit's filter and limits, ASan+UBSan, TSan.
# usage: tools/test.sh [plain|restricted|unit|asan|tsan|all]     default: all      build trees: $TIERD_BUILD or ./build
#        tools/test.sh large           before a release: what the environment sizes (docs/testing.md), at full size
#        tools/test.sh platforms       programs of another system than this one (tests/platforms): a Debian 11 root; needs root
#        tools/test.sh ecosystem       beside libraries that hook the same calls: MPI, UCX, allocators, libfaketime, fakeroot; installs them
#        tools/test.sh sanitizers      only compiles for asan and tsan, with what nobody else wants of the processors
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022  # tierd refuses configurations that a group may write
tools/deps.sh test

suite=${1:-all}
root=${TIERD_BUILD:-build}
jobs=$(nproc)
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)

# Builds in another checkout may reuse what was compiled here.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

build() {  # name, target, cmake options...
  local name=$1 target=$2
  shift 2
  echo "== build $name (after $SECONDS s)"
  cmake -S . -B "$root/$name" -G Ninja -DTIERD_UNITY=ON "${launcher[@]}" "$@" >"$root/$name.cmake.log" 2>&1 || { cat "$root/$name.cmake.log"; exit 1; }
  "${politely[@]}" ninja -C "$root/$name" -j "$jobs" --quiet "$target" >"$root/$name.log" 2>&1 || { tail -n 60 "$root/$name.log"; exit 1; }
}

politely=()  # how a compiler is started
failed=0  # suites; the rest still runs
under=()  # a program that the tests are started by
run() {  # build, name of the log, ctest options...; one test more at a time than processors, as many wait
  local name=$1 log="$root/$2.tests" trusted status=0
  echo "== test $2 (after $SECONDS s)"
  shift 2
  trusted=$(ctest --test-dir "$root/$name" -N -L '^trust$' | sed -n 's/^ *Test *#[0-9]*: //p')
  # A test that fails is tried again, twice at most, so that hiccups of a noisy machine do not cost the whole run; it is named at the end either way. Not so what load
  # does not do: wrong bytes (label trust), crashes, reports of sanitizers.
  "${under[@]}" ctest --test-dir "$root/$name" -j $((jobs + 1)) --output-on-failure --no-tests=error --repeat until-pass:3 "$@" 2>&1 | tee "$log" || status=$?
  tools/test_verdict.sh "$log" "$root/$name/Testing/Temporary/LastTest.log" "$trusted" || status=$?
  [ "$status" = 0 ] || failed=1
}

# Not optimized more than the tests' run time asks for: with UBSan -O1 takes twice as long to compile.
sanitizer() {  # name, kind, target, -O
  local flags="$4 -g1 -Wno-error=maybe-uninitialized"
  build "$1" "$3" -DTIERD_SANITIZE="$2" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_C_FLAGS="$flags" -DTIERD_BENCH=OFF -DTIERD_KILL_POINTS=ON
}
build_asan() { sanitizer asan address sanitizer_tests -O0; }
build_tsan() { sanitizer tsan thread tsan_tests -O1; }
mkdir -p "$root"
case "$suite" in plain | restricted | unit | asan | tsan | sanitizers | large | platforms | ecosystem | all) ;; *) echo "usage: tools/test.sh [plain|restricted|unit|asan|tsan|sanitizers|large|platforms|ecosystem|all]" >&2; exit 64 ;; esac
if [ "$suite" = sanitizers ]; then
  echo 19 2>/dev/null >/proc/self/autogroup || true  # a session of its own is a group to the scheduler: SCHED_IDLE counts inside it only
  politely=(chrt --idle 0 nice -n 19)
  build_tsan
  build_asan
  exit 0
fi
if [ "$suite" != asan ] && [ "$suite" != tsan ]; then
  build plain all -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1 -DNDEBUG" -DTIERD_KILL_POINTS=ON  # -g1: names and lines, and less to compile
fi
# Tests wait a third of their time.
if [ "$suite" = all ]; then
  setsid tools/test.sh sanitizers >"$root/sanitizers.log" 2>&1 &
  ahead=$!
  trap 'kill -- -"$ahead" 2>/dev/null || true' EXIT
fi
beside=()  # suites with a daemon under the unit, which run below as unit.daemons
[ "$suite" != all ] || beside=(--label-exclude '^service$')
if [ "$suite" = plain ] || [ "$suite" = all ]; then
  run plain plain "${beside[@]}"
fi
if [ "$suite" = large ]; then
  export TIERD_CRASH_KILLS=500 TIERD_CRASH_HITS=10 TIERD_TEST_DIRECTORY_FILES=1000000 TIERD_TEST_INDEX_FILES=10000000 TIERD_ORACLE_SAMPLE_MB=1600
  for test in ram/ram_index_test engine/engine_source_test e2e/e2e_oracle_test crash/crash_loop_test; do  # by themselves: CTest's time limits are for the usual size
    echo "== test large, $test (after $SECONDS s)"
    "$root/plain/tests/$test" --gtest_brief=1 || failed=1
  done
fi
if [ "$suite" = platforms ]; then
  for test in tests/platforms/*_test.py; do
    echo "== test platforms, $test (after $SECONDS s)"
    /usr/bin/python3 "$test" "$root/plain" || failed=1
  done
fi
if [ "$suite" = ecosystem ]; then
  read -ra packages <<<"$(/usr/bin/python3 tests/ecosystem/outsiders.py --packages)"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >"$root/ecosystem.packages.log" 2>&1 || { tail -n 20 "$root/ecosystem.packages.log"; exit 1; }
  /usr/bin/python3 tests/ecosystem/outsiders.py "$root/plain/tierctl/tierctl" || failed=1
fi
# Every suite once more where io_uring, namespaces, huge pages and large limits are refused (tests/restricted). The long loops are shorter here, not out.
# Out are only tests that ask nothing of the system: what the source looks like (floors), models of the protocol (*model*), and the rig's speed (selftest).
if [ "$suite" = restricted ] || [ "$suite" = all ]; then
  under=("$root/plain/tests/restricted/restricted_exec")
  export TIERD_CRASH_KILLS=24 TIERD_ORACLE_MB=60 TIERD_ORACLE_SAMPLE_MB=30
  run plain restricted "${beside[@]}" --exclude-regex '^(floors|fuzz_clang|slot_model_test|session_model_test|pfs_sim_selftest)$'
  unset TIERD_CRASH_KILLS TIERD_ORACLE_MB TIERD_ORACLE_SAMPLE_MB
  under=()
fi
# Every suite once more with what the systemd unit leaves a daemon: programs that are one wholly (label unit), of the others the daemons that they start. Out are tests of units, packages and documents, and of daemons
# that `tierctl run` or Slurm starts, which no unit governs.
if [ "$suite" = unit ] || [ "$suite" = all ]; then
  unit=("$PWD/$root/plain/tests/service/unit_exec" "$PWD/systemd/tierd@.service")
  [ "${root#/}" = "$root" ] || unit[0]=$root/plain/tests/service/unit_exec
  under=("${unit[@]}")
  run plain unit -L unit --exclude-regex '^(floors|pfs_gluster_test)$'  # the rig's own Gluster mounts
  under=()
  export TIERD_UNDER="${unit[*]}" TIERD_CRASH_KILLS=24 TIERD_ORACLE_MB=60 TIERD_ORACLE_SAMPLE_MB=30
  run plain unit.daemons -LE 'unit|docs|tools|service' --exclude-regex '^(service_|package_|slurm_|monitoring_prometheus|install_|floors|fuzz_)'
  unset TIERD_UNDER TIERD_CRASH_KILLS TIERD_ORACLE_MB TIERD_ORACLE_SAMPLE_MB
fi
# Sanitizers run what is labelled unit (every component, both I/O engines) and san (end-to-end cases sized for them).
if [ "$suite" = all ]; then
  echo "== build sanitizers, the rest (after $SECONDS s)"
  wait "$ahead" || { cat "$root/sanitizers.log"; exit 1; }
  trap - EXIT
fi
if [ "$suite" = tsan ] || [ "$suite" = all ]; then
  build_tsan
  run tsan tsan -L 'tsan'
fi
if [ "$suite" = asan ] || [ "$suite" = all ]; then
  build_asan
  run asan asan -L 'unit|san' --exclude-regex '^slot_model_test$'  # all schedules of a model: a quarter of an hour there, and no memory to misuse
fi
echo "== done after $SECONDS s"
exit "$failed"
