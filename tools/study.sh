#!/usr/bin/env bash
# Set-up, build, and then the training study: two networks under PyTorch's DDP on four nodes at 1 Gb/s, their gradients
# averaged by Gloo, a worker-aggregator and gradlane with each codec. Ends with tables and plots; see docs/study.md.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
export PYTHONDONTWRITEBYTECODE=1

# What cannot be used is said before the work, not after it. Debian's python3 may not be the first in the PATH.
python3 tools/study/study.py --check "$@"
build=yes
for argument in "$@"; do
  case "$argument" in
    -h | --help) exit 0 ;;
    --gradlane | --gradlane=* | --report) build= ;;
  esac
done

modules="numpy sklearn torch matplotlib"
if [ -n "$build" ]; then
  source tools/demo_build.sh
  demo_build "$modules" tools/gradlane tools/gradlaned client/all_reduce_example >&2  # with libgradlane
else
  python=python3
  "$python" -c "import ${modules// /, }" 2>/dev/null || python=/usr/bin/python3
fi

tools=$PWD/tools/study
cd "$caller"  # paths on the command line are the caller's
exec "$python" "$tools/study.py" "$@"
