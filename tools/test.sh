#!/usr/bin/env bash
# Set-up, build, all checks and tests. Ends with one line that counts them; its exit status is that of all together.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  "") ;;
  -h | --help)
    echo "usage: tools/test.sh"
    echo "Installs missing packages (needs root for that), builds into build-test/, build-sanitize/ and build-thread/, runs all tests."
    echo "FUZZ_SECONDS sets how long each fuzzer looks for new findings (default 8)."
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

step "packages"
tools/setup.sh

step "layers, style, format"
tools/check.sh || failed=1

step "build"
configure build-test -Dunity=on -Dassertions=true
ninja -C build-test --quiet

# Lines for reports, and no more of debugging information, which takes long to write.
CXX=clang++ CC=clang configure build-sanitize -Dunity=on -Dassertions=true -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
  -Doptimization=1 "-Dcpp_args=-fno-sanitize-recover=all -gline-tables-only" \
  "-Dc_args=-fno-sanitize-recover=all -gline-tables-only"
CXX=clang++ CC=clang configure build-thread -Dunity=on -Dassertions=true -Db_sanitize=thread -Db_lundef=false -Doptimization=1 \
  -Dcpp_args=-gline-tables-only -Dc_args=-gline-tables-only
threads=$(meson introspect build-thread --tests |
  python3 -c 'import json, sys
for test in json.load(sys.stdin):
    if "gradlane:threads" in test["suite"]: print("tests/" + test["cmd"][0].rsplit("/", 1)[1])')

# Builds what comes next, from the CPU time that tests leave. Each test is a session, which the kernel may schedule as a
# group (autogroup): so this is a session too, and its group comes last.
early_builds() {
  # shellcheck disable=SC2016  # for the inner shell
  exec setsid bash -c '
    { [ -w /proc/self/autogroup ] && echo 19 >/proc/self/autogroup; } 2>/dev/null
    trap "kill \$! 2>/dev/null; wait; exit 1" TERM
    chrt --idle 0 ninja -C build-sanitize --quiet & wait $!
    chrt --idle 0 ninja -C build-thread --quiet "$@" & wait $!' early "$@" >build-sanitize/early.log 2>&1
}

step "tests"
# shellcheck disable=SC2086  # words are what is wanted
early_builds $threads &
early=$!
meson test -C build-test --no-rebuild --num-processes 3 --print-errorlogs || failed=1
kill "$early" 2>/dev/null || true
wait "$early" || true

step "build with AddressSanitizer and UndefinedBehaviorSanitizer"
ninja -C build-sanitize --quiet

step "tests with sanitizers"
meson test -C build-sanitize --no-rebuild --print-errorlogs || failed=1

step "build with ThreadSanitizer"
# shellcheck disable=SC2086  # words are what is wanted
ninja -C build-thread --quiet $threads

step "tests with ThreadSanitizer"
meson test -C build-thread --suite threads --no-rebuild --print-errorlogs || failed=1

# fuzz TARGET SECONDS OPTION... looks for new findings, from the corpus of TARGET on.
fuzz() {
  local target=$1 seconds=$2
  shift 2
  local findings=build-findings/$target/  # kept when build folders are removed
  local grown=build-sanitize/corpus/$target log=build-sanitize/fuzz-$target.log
  mkdir -p "$findings" "$grown"
  if ! "build-sanitize/tests/${target}_fuzz" "$grown" "tests/fuzz/corpus/$target" -max_total_time="$seconds" \
    -verbosity=0 -print_final_stats=1 -artifact_prefix="$findings" "$@" 2>"$log"; then
    tail -n 40 "$log" >&2
    echo "the fuzzer found something: add the file in $findings to tests/fuzz/corpus/$target and mend it" >&2
    return 1
  fi
  echo "$target: $(grep -E 'number_of_executed_units' "$log")"
}
step "fuzzing for $fuzz_seconds s each, two at a time"
fuzz codec "$fuzz_seconds" -max_len=600 -timeout=10 &
fuzz exchange "$fuzz_seconds" -max_len=4096 -timeout=20 || failed=1
wait $! || failed=1
fuzz config "$fuzz_seconds" -max_len=2048 -timeout=10 &
fuzz frame "$fuzz_seconds" -max_len=256 -timeout=10 || failed=1
wait $! || failed=1
fuzz bundle "$fuzz_seconds" -max_len=1600 -timeout=10 &
fuzz probe "$fuzz_seconds" -max_len=256 -timeout=10 || failed=1
wait $! || failed=1
fuzz server "$fuzz_seconds" -max_len=2048 -timeout=20 &
fuzz trainer "$fuzz_seconds" -max_len=600 -timeout=20 || failed=1
wait $! || failed=1

step "summary"
tools/dev/count_tests.py build-test/meson-logs/testlog.junit.xml build-sanitize/meson-logs/testlog.junit.xml \
  build-thread/meson-logs/testlog.junit.xml || failed=1
exit "$failed"
