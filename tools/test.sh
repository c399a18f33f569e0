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

Installs missing packages (needs root for that), builds, runs the suites: system in build/, unit and sim with
AddressSanitizer and UndefinedBehaviorSanitizer in build-sanitize/, threads with ThreadSanitizer in build-thread/, and
fuzzers. At the end: the ten slowest tests, and how many there were.

  --quick       unit and sim, without sanitizers: for the time in between
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

# ---- Tests

# test_in FOLDER OPTION...
test_in() {
  local folder=$1
  shift
  run meson test -C "$folder" --print-errorlogs "$@" || failed=1
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

configure_native
if $quick; then
  step "unit, sim"
  test_in build --suite unit --suite sim
  summary
fi

start tools/setup.sh --pytorch >build-pytorch.log 2>&1  # meanwhile
pytorch=$!
configure_sanitize
configure_thread

wait "$pytorch" || true
cat build-pytorch.log

step "system: whole programs"
test_in build --num-processes 4 --suite system

step "unit, sim with AddressSanitizer and UndefinedBehaviorSanitizer"
test_in build-sanitize --suite unit --suite sim

step "what depends on the compiler, as it is installed"
test_in build compress_1 compress_2 accelerator_tcp_sound scale

step "threads with ThreadSanitizer"
test_in build-thread --suite threads

run ninja -C build-sanitize --quiet fuzzers
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
