#!/usr/bin/env bash
# Installs packages, builds, runs all checks and tests. Ends with a line that counts them; its exit status is that of all.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'HELP'
usage: tools/test.sh [--quick | --suite NAME [--repeat N] | --nightly [--minutes N]]

Installs missing packages (needs root for that), builds, checks style and types, and runs four suites, of which the next
is built while the last one runs:
  system   whole programs, in build/
  unit     pure code, with AddressSanitizer and UndefinedBehaviorSanitizer, in build-sanitize/; what fuzzers once found
  sim      whole nodes in virtual time, likewise
  threads  what threads share, with ThreadSanitizer, in build-thread/

  --quick        unit and sim, without sanitizers, in build/: for the time in between
  --suite NAME   this suite alone
  --repeat N     that suite N times; what came of it is in build/repeat-NAME.json, from which it goes on if interrupted
  --nightly      what takes too long for every change (tools/dev/nightly.toml), one after the other; called again, it goes
                 on where it stopped
  --minutes N    with --nightly: begin nothing that would take longer than that

At the end: the ten slowest tests, what was skipped and why, CPU seconds, and how many tests there were.
HELP
}

bad() {
  echo "tools/test.sh: $1; see tools/test.sh --help" >&2
  exit 2
}

mode=all suite='' repeat='' minutes=''
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) mode=quick ;;
    --nightly) mode=nightly ;;
    --suite | --repeat | --minutes)
      [ $# -gt 1 ] || bad "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    -h | --help) usage && exit ;;
    *) bad "unknown argument '$1'" ;;
  esac
  shift
done
[[ -z $suite || $suite =~ ^(unit|sim|threads|system)$ ]] || bad "there is no suite '$suite'"
[ -z "$repeat" ] || [ -n "$suite" ] || bad "--repeat is for one --suite"
[[ $repeat$minutes =~ ^[0-9]*$ ]] || bad "--repeat and --minutes take a whole number"

source tools/dev/build.sh

step "packages"
case "$mode" in
  nightly) tools/setup.sh --all ;;
  *) tools/setup.sh --test --no-pytorch ;;
esac

step "$mode${suite:+: $suite}"
case "$mode" in
  nightly) exec tools/dev/nightly.py ${minutes:+--minutes "$minutes"} ;;
  quick) exec tools/dev/run_suites.py --check --native --suite unit --suite sim ;;
esac
[ -n "$suite" ] || exec tools/dev/run_suites.py --check
[ -n "$repeat" ] || exec tools/dev/run_suites.py --suite "$suite"
tools/dev/run_suites.py --suite "$suite" &&
  exec tools/dev/repeat_tests.py --suite "$suite" --times "$repeat" --results "build/repeat-$suite.json"
