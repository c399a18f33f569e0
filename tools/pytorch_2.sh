#!/usr/bin/env bash
# Runs the tests of gradlane.torch on PyTorch 2, in a virtual environment that it makes. Usage: tools/pytorch_2.sh
# [FOLDER [VERSION]]: where the environment is, or will be (build/pytorch-2), and which PyTorch (2.13.0).
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-build/pytorch-2}
version=${2:-2.13.0}
gradlane=build/tools/gradlane

if [ ! -x "$gradlane" ]; then
  echo "tools/pytorch_2.sh: no $gradlane; run 'meson setup build && ninja -C build'" >&2
  exit 2
fi
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv" || { echo "tools/pytorch_2.sh: no venv; install python3-venv" >&2; exit 2; }
fi
if ! "$venv/bin/python" -c "import torch; assert torch.__version__.split('+')[0] == '$version'" 2>/dev/null; then
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    echo "tools/pytorch_2.sh: $venv has no pip, which PyTorch $version would come from" >&2
    exit 2
  fi
  "$venv/bin/python" -m pip install --quiet "torch==$version" numpy ||
    { echo "tools/pytorch_2.sh: pip cannot install torch==$version" >&2; exit 2; }
fi

export PYTHONPATH=$PWD/client/python:$PWD PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
export GRADLANE_LIBRARY=${GRADLANE_LIBRARY:-$PWD/build/client/libgradlane.so.0}
failed=()

# VARIABLE=VALUE or -, number of ranks, module, tests.
ranks() {
  local variable=$1 count=$2 module=$3
  shift 3
  [ "$variable" != - ] || variable=_=_
  echo "---- $module $* on $count ranks${variable:+, $variable}"
  env "$variable" "$gradlane" run -n "$count" -- "$venv/bin/python" -m "tests.scripts.torch.$module" "$@" ||
    failed+=("$module, $count ranks, $variable")
}

for count in 1 2 3; do
  for module in modern_test backend_test backend_async_test ddp_test delegate_test; do
    ranks - "$count" "$module"
  done
done
ranks - 2 hook_test gradlane
for count in 2 3; do
  ranks - "$count" fsdp_test
done
ranks FSDP=gloo 2 fsdp_test
ranks MODERN=cpu:gradlane 2 modern_test
ranks TORCH_DISTRIBUTED_DEBUG=DETAIL 2 modern_test
ranks GRADLANE_EXTENSION=0 2 modern_test Operations Trainings.test_ddp Trainings.test_zero Trainings.test_objects
echo "---- failures_test"
"$venv/bin/python" -m tests.scripts.torch.failures_test "$gradlane" build/tools/gradlaned || failed+=(failures_test)

if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "PyTorch $version: all tests have passed"
