#!/usr/bin/env bash
# Installs packages, builds, checks style, and runs the tests. The last line counts passed, failed and skipped tests.
# Exit status: 0 if no check and no test failed.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'HELP'
usage: tools/test.sh [--quick | --suite NAME [--repeat N] | --nightly [--minutes N]]

Installs missing packages (needs root for that), builds, checks style and types, and runs four suites. It builds the
next folder while the tests of the previous one run:
  system   complete programs, in build/; the first time, 200 MB of PyTorch are downloaded
  unit     code without sleeps, sockets and processes, and inputs that fuzzers found; with AddressSanitizer and
           UndefinedBehaviorSanitizer, in build-sanitize/
  sim      complete nodes in virtual time, with the same sanitizers, in build-sanitize/
  threads  data that threads share, and sockets; in build-sanitize/, and with ThreadSanitizer in build-thread/

  --quick        run unit and sim without sanitizers, in build/; use it while you edit
  --suite NAME   run only this suite
  --repeat N     with --suite: run it N times; results are in build/repeat-NAME.json, and a later call continues there
  --nightly      run the tests that take too long for each change (dev/nightly.toml), one after the other; a later
                 call continues where this one stopped
  --minutes N    with --nightly: start no item that is expected to end after N minutes

Prints at the end: the ten slowest tests, the skipped tests with the reason, CPU seconds, and the number of tests.
HELP
}

bad() {
  echo "tools/test.sh: $1; see tools/test.sh --help" >&2
  exit 2
}

mode=all suite='' repeat='' minutes=''
while [ $# -gt 0 ]; do
  case "$1" in
    --quick | --nightly)
      [ "$mode" = all ] || bad "$1 and --$mode exclude each other"
      mode=${1#--}
      ;;
    --suite | --repeat | --minutes)
      [ $# -gt 1 ] || bad "$1 needs a value"
      name=${1#--}
      [ -z "${!name}" ] || bad "$1 can be given once"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    -h | --help) usage && exit ;;
    *) bad "unknown argument '$1'" ;;
  esac
  shift
done
[[ -z $suite || $suite =~ ^(unit|sim|threads|system)$ ]] || bad "--suite '$suite': must be unit, sim, threads or system"
[ -z "$suite" ] || [ "$mode" = all ] || bad "--suite and --$mode exclude each other"
[ -z "$minutes" ] || [ "$mode" = nightly ] || bad "--minutes needs --nightly"
[ -z "$repeat" ] || [ -n "$suite" ] || bad "--repeat needs --suite NAME"
[[ $repeat =~ ^([1-9][0-9]*)?$ && $minutes =~ ^([1-9][0-9]*)?$ ]] || bad "--repeat and --minutes take a whole number from 1 on"

source dev/build.sh

step "packages"
case "$mode" in
  nightly) tools/setup.sh --all ;;
  *) tools/setup.sh --test --no-pytorch ;;
esac

step "tests: ${suite:-$mode}"
case "$mode" in
  nightly) exec dev/nightly.py ${minutes:+--minutes "$minutes"} ;;
  quick) exec dev/run_suites.py --check --native --suite unit --suite sim ;;
esac
[ -n "$suite" ] || exec dev/run_suites.py --check
[ -n "$repeat" ] || exec dev/run_suites.py --suite "$suite"
dev/run_suites.py --suite "$suite" &&
  exec dev/repeat_tests.py --suite "$suite" --times "$repeat" --results "build/repeat-$suite.json"
