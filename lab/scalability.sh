#!/usr/bin/env bash
# Times all-reduce by an aggregator, a ring and the direct exchange on 4, 6 and 8 nodes, and in the simulator up to 64.
# Writes tables and a plot. `lab/scalability.sh --help` has the options, docs/benchmarks.md the rest.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

source "$root/dev/build.sh"

if ! python3 -c "import matplotlib, numpy" 2>/dev/null; then
  echo "lab/scalability.sh: $(command -v python3) lacks matplotlib or numpy; run tools/setup.sh --all" >&2
  exit 2
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
exec python3 -P -m lab.compare.scalability "$@"
