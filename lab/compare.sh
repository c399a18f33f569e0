#!/usr/bin/env bash
# Times all-reduce by gradlane, Gloo, a worker-aggregator, PyTorch's fp16 hook and Open MPI, in turn, on the same links,
# and writes tables and plots. `lab/compare.sh --help` has the options, docs/benchmarks.md the rest.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

source "$root/dev/build.sh"
use_pytorch "$root"

case " $* " in
  *" --render "*) modules="matplotlib, numpy" ;;
  *) modules="matplotlib, numpy, torch" ;;  # main.py checks for Open MPI
esac
if ! python3 -c "import $modules" 2>/dev/null; then
  echo "lab/compare.sh: $(command -v python3) lacks one of $modules; run tools/setup.sh --all" >&2
  exit 2
fi

case " $* " in
  *" --gradlane"* | *" --help "* | *" -h "* | *" --render "*) ;;
  *)
    if [ ! -x "$root/build/tools/gradlane" ]; then
      echo "lab/compare.sh: build/tools/gradlane is missing; run 'meson setup build && ninja -C build'" >&2
      exit 2
    fi
    ;;
esac
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
exec python3 -P -m lab.compare.main "$@"
