#!/usr/bin/env bash
# Times all-reduce by gradlane, Gloo, a worker-aggregator, PyTorch's fp16 hook and Open MPI, in turn, on the same links,
# and writes tables and plots. `tools/compare.sh --help` has the options, docs/benchmarks.md the rest.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

# Sets `python` to one that has these modules. They are Debian packages, which another python3 in the PATH does not see.
find_python() {
  local look='import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))'
  for python in python3 /usr/bin/python3; do
    if "$python" -c "$look" "$@" 2>/dev/null; then return; fi
  done
  return 1
}

case " $* " in
  *" --render "*) modules=(matplotlib numpy) ;;
  *) modules=(matplotlib numpy sklearn torch) ;;
esac
# Open MPI can be left out; main.py says what it lacks if it is not.
if ! find_python "${modules[@]}" mpi4py && ! find_python "${modules[@]}"; then
  echo "tools/compare.sh: no python3 here has ${modules[*]}; run tools/setup.sh" >&2
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
