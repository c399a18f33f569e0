#!/usr/bin/env bash
# Builds gradlane, and measures all results again: what is missing or stale, in batches. Then writes pages and plots.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
source tools/demo/build.sh
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1

build=yes
for argument in "$@"; do
  case "$argument" in
    -h | --help | --list | --gradlane | --gradlane=*) build= ;;
  esac
done
if [ -n "$build" ]; then
  /usr/bin/python3 -P -m lab.results.reproduce "$@" --list > /dev/null  # before minutes of building, says what is wrong
  demo_build tools/gradlane tools/gradlaned client/all_reduce_example >&2  # with libgradlane
fi
cd "$caller"  # paths on the command line are the caller's
exec /usr/bin/python3 -P -m lab.results.reproduce "$@"
