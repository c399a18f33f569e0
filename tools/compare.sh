#!/usr/bin/env bash
# Times all-reduce by gradlane, Gloo, a worker-aggregator, PyTorch's fp16 hook and Open MPI, in turn, on the same links,
# and writes tables and plots. `tools/compare.sh --help` has the options, docs/benchmarks.md the rest.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

# They are Debian packages, which another python3 in the PATH does not see.
look='import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))'
for python in python3 /usr/bin/python3 none; do
  "$python" -c "$look" torch mpi4py matplotlib numpy sklearn 2>/dev/null && break
done
if [ "$python" = none ]; then
  echo "tools/compare.sh: no python3 here has torch, mpi4py, matplotlib, numpy and sklearn; run tools/setup.sh" >&2
  exit 2
fi

case " $* " in
  *" --gradlane"* | *" --help "* | *" -h "* | *" --render "*) ;;
  *)
    if [ ! -x "$root/build/tools/gradlane" ]; then
      echo "tools/compare.sh: no build/tools/gradlane; run 'meson setup build && ninja -C build'" >&2
      exit 2
    fi
    ;;
esac
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$root/tools/compare/main.py" "$@"
