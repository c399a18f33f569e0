#!/usr/bin/env bash
# Set-up, build, all checks and tests. Ends with one line that counts them; its exit status is that of all together.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=false
case "${1:-}" in
  "") ;;
  --quick) quick=true ;;
  -h | --help)
    cat <<'HELP'
usage: tools/test.sh [--quick]

Installs missing packages (needs root for that), builds, runs all tests: what needs whole programs in build-test/, unit
tests with AddressSanitizer and UndefinedBehaviorSanitizer in build-sanitize/, those with threads with ThreadSanitizer in
build-thread/, and fuzzers. At the end: the ten slowest tests, and how many there were.

  --quick       unit tests and short tests of whole programs, without sanitizers and fuzzers: for the time in between
  FUZZ_SECONDS  in the environment: how long each fuzzer looks for new findings (default 8)
HELP
    exit 0
    ;;
  *)
    echo "tools/test.sh: unknown argument '$1'; see tools/test.sh --help" >&2
    exit 2
    ;;
esac

fuzz_seconds=${FUZZ_SECONDS:-8}
failed=0

source tools/dev/build.sh

# ---- Nothing outlives this script: what it starts ends with it, however it ends.

set -m  # what runs in the background can be interrupted
# What still runs, that is: the numbers of what has ended may be others' by now.
end_children() {
  local running
  running=$(jobs -p)
  # shellcheck disable=SC2086  # words are what is wanted
  [ -z "$running" ] || kill $running 2>/dev/null || true
  wait || true
}
trap 'end_children; exit 130' INT
trap 'end_children; exit 143' TERM
trap end_children EXIT

# start COMMAND... in the background; `$!` is its process.
start() {
  setpriv --pdeathsig TERM -- "$@" </dev/null &
}
# run COMMAND... to its end. Traps wait for no foreground process.
run() {
  start "$@"
  wait "$!"
}

# ---- Builds

# Lines for reports, and no more of debugging information, which takes long to write.
for_sanitizers=(-Dunity=on -Dunity_size=8 -Dassertions=true -Db_lundef=false -Doptimization=1)
lines=-gline-tables-only

build_tests() {
  configure build-test -Dunity=on -Dassertions=true
  run ninja -C build-test --quiet "$@"
}

# Targets of build-test that unit tests are not: these run with sanitizers.
programs() {
  meson introspect build-test --targets | python3 -c '
import json, sys
for target in json.load(sys.stdin):
    name = target["filename"][0].split("/build-test/", 1)[1]
    if target["build_by_default"] and not (name.startswith("tests/") and name.endswith("_test")): print(name)'
}

configure_sanitizers() {
  CXX=clang++ CC=clang configure build-sanitize "${for_sanitizers[@]}" -Dfuzz=true -Db_sanitize=address,undefined \
    "-Dcpp_args=-fno-sanitize-recover=all $lines" "-Dc_args=-fno-sanitize-recover=all $lines"
  CXX=clang++ CC=clang configure build-thread "${for_sanitizers[@]}" -Db_sanitize=thread \
    "-Dcpp_args=$lines" "-Dc_args=$lines"
  threads=$(meson introspect build-thread --tests | python3 -c '
import json, sys
for test in json.load(sys.stdin):
    if "gradlane:threads" in test["suite"]: print("tests/" + test["cmd"][0].rsplit("/", 1)[1])')
}

# Builds what comes next, from the CPU time that tests leave. Each test is a session, which the kernel may schedule as a
# group (autogroup): so this is a session too, and its group comes last.
start_early_builds() {
  # Leads no process group, so that setsid need not fork: whoever waits for `early` waits for its ninja, which removes
  # what it has left half done.
  set +m
  # shellcheck disable=SC2016,SC2086  # for the inner shell; words are what is wanted
  start setsid bash -c '
    { [ -w /proc/self/autogroup ] && echo 19 >/proc/self/autogroup; } 2>/dev/null
    trap "kill \$! 2>/dev/null; wait; exit 1" TERM
    setpriv --pdeathsig TERM -- chrt --idle 0 ninja -C build-sanitize --quiet & wait $!
    setpriv --pdeathsig TERM -- chrt --idle 0 ninja -C build-thread --quiet "$@" & wait $!' early $threads \
    >build-sanitize/early.log 2>&1
  early=$!
  set -m
}

# test_in FOLDER OPTION...
test_in() {
  local folder=$1
  shift
  run meson test -C "$folder" --no-rebuild --print-errorlogs "$@" || failed=1
  logs+=("$folder/meson-logs/testlog")
}
logs=()

summary() {
  step "summary"
  tools/dev/count_tests.py --slowest 10 "${logs[@]/%/.junit.xml}" || failed=1
  exit "$failed"
}

# ---- Fuzzing

# fuzz TARGET LENGTH looks for new findings, from the corpus of TARGET on; `$!` is its process.
fuzz() {
  local findings=build-findings/$1/  # kept when build folders are removed
  local grown=build-sanitize/corpus/$1
  mkdir -p "$findings" "$grown"
  start "build-sanitize/tests/fuzz/$1_fuzz" "$grown" "tests/fuzz/corpus/$1" -max_len="$2" -timeout=20 \
    -max_total_time="$fuzz_seconds" -verbosity=0 -print_final_stats=1 -artifact_prefix="$findings" \
    2>"build-sanitize/fuzz-$1.log"
}
# fuzzed TARGET PROCESS waits for the end.
fuzzed() {
  local log=build-sanitize/fuzz-$1.log
  if ! wait "$2"; then
    tail -n 40 "$log" >&2
    echo "the fuzzer found something: add the file in build-findings/$1/ to tests/fuzz/corpus/$1 and mend it" >&2
    return 1
  fi
  echo "$1: $(grep -E 'number_of_executed_units' "$log")"
}
# fuzz_both TARGET LENGTH TARGET LENGTH, of which a core each has one.
fuzz_both() {
  fuzz "$1" "$2"
  local first=$!
  fuzz "$3" "$4"
  local second=$!
  fuzzed "$1" "$first" || failed=1
  fuzzed "$3" "$second" || failed=1
}

# ---- All of it

step "packages"
tools/setup.sh --test --no-pytorch

step "layers, style, format, types"
run tools/check.sh || failed=1

if $quick; then
  step "build"
  build_tests
  step "tests: units, and short ones of whole programs"
  test_in build-test --num-processes 3 --no-suite long
  summary
fi

start tools/setup.sh --pytorch >build-pytorch.log 2>&1  # meanwhile
pytorch=$!

step "build"
configure build-test -Dunity=on -Dassertions=true
# shellcheck disable=SC2046  # words are what is wanted
build_tests $(programs) tests/compress_test tests/compress/all_floats_test tests/scale_test \
  tests/accelerator_tcp_sound_test
configure_sanitizers

wait "$pytorch" || true
cat build-pytorch.log

step "tests of whole programs"
start_early_builds
test_in build-test --num-processes 4 --no-suite sanitized
kill "$early" 2>/dev/null || true
wait "$early" || true

step "build with AddressSanitizer and UndefinedBehaviorSanitizer"
run ninja -C build-sanitize --quiet

step "tests with AddressSanitizer and UndefinedBehaviorSanitizer"
test_in build-sanitize

step "build with ThreadSanitizer"
# shellcheck disable=SC2086  # words are what is wanted
run ninja -C build-thread --quiet $threads

step "tests with ThreadSanitizer"
test_in build-thread --suite threads

step "fuzzing for $fuzz_seconds s each, two at a time"
fuzz_both codec 600 exchange 4096
fuzz_both config 2048 frame 256
fuzz_both bundle 1600 probe 256
fuzz_both server 2048 trainer 600
fuzz_both calibration 4096 profile 2048
fuzz superpacket 4096
superpacket=$!
fuzz_seconds=$(((fuzz_seconds + 3) / 4)) fuzz npy 256  # a small parser
fuzzed npy $! || failed=1
fuzz_seconds=$(((fuzz_seconds + 3) / 4)) fuzz http 1024
fuzzed http $! || failed=1
fuzz_seconds=$(((fuzz_seconds + 3) / 4)) fuzz top 4096
fuzzed top $! || failed=1
fuzzed superpacket "$superpacket" || failed=1

summary
