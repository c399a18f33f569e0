#!/usr/bin/env bash
# Sets up, builds and runs the training study: two networks under PyTorch's DDP on four nodes at 1 Gb/s. Gloo, a
# worker-aggregator and gradlane with each codec average their gradients. Ends with tables and plots; see docs/study.md.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
source tools/demo/build.sh
use_pytorch "$PWD"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1

# Wrong arguments are reported before the build, not after it.
python3 -P -m lab.study.main --check "$@"
build=yes
for argument in "$@"; do
  case "$argument" in
    -h | --help) exit 0 ;;
    --gradlane | --gradlane=* | --report | --record | --record=*) build= ;;
  esac
done

if [ -n "$build" ]; then
  demo_build tools/gradlane tools/gradlaned client/all_reduce_example >&2  # with libgradlane
fi

cd "$caller"  # paths on the command line are the caller's
exec python3 -P -m lab.study.main "$@"
