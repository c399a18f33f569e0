#!/usr/bin/env bash
# Runs the tests of gradlane.torch on PyTorch 2, of the virtual environment that tools/setup.sh --pytorch makes.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build-pytorch
build=build
short=
while [ $# -gt 0 ]; do
  case "$1" in
    --short) short=${2:?} && shift ;;
    --venv) venv=${2:?} && shift ;;
    --build) build=${2:?} && shift ;;
    *)
      cat <<'HELP'
usage: tools/pytorch_2.sh [--short tests|suite] [--venv FOLDER] [--build FOLDER]

  --short WHAT    what CI has time for: of gradlane's tests, or of PyTorch's own; without, all of both
  --venv FOLDER   a virtual environment with PyTorch 2, NumPy and expecttest (build-pytorch)
  --build FOLDER  where gradlane was built (build)
HELP
      [ "$1" = --help ] && exit 0 || exit 2
      ;;
  esac
  shift
done
build=$(realpath "$build")
gradlane=$build/tools/gradlane
python=$venv/bin/python

if [ ! -x "$gradlane" ]; then
  echo "tools/pytorch_2.sh: no $gradlane; run 'meson setup build && ninja -C build'" >&2
  exit 2
fi
if [ ! -e "$venv/installed.txt" ] && ! "$python" -c 'import torch, numpy, expecttest' 2>/dev/null; then
  echo "no PyTorch 2 in $venv/, where tools/setup.sh --pytorch installs it"
  [ "${CI:-}" = true ] && exit 1 || exit 77  # to meson: skipped
fi

export PYTHONPATH=$PWD/client/python:$PWD PYTHONSAFEPATH=1 OMP_NUM_THREADS=1
export GRADLANE_LIBRARY=$build/client/libgradlane.so.0 GRADLANED=$build/tools/gradlaned
# What is made while it runs, once: the part in C++ for this PyTorch, and what Python compiles.
export TORCH_EXTENSIONS_DIR=$build/torch-extensions PYTHONPYCACHEPREFIX=$build/pycache
failed=()

# VARIABLE=VALUE or -, number of ranks, module, tests.
ranks() {
  local variable=$1 count=$2 module=$3
  shift 3
  [ "$variable" != - ] || variable=_=_
  echo "---- $module $* on $count ranks, $variable"
  env "$variable" "$gradlane" run -n "$count" -- "$python" -m "tests.scripts.torch.$module" "$@" ||
    failed+=("$module, $count ranks, $variable")
}

failures() {
  echo "---- failures_test $*"
  "$python" -m tests.scripts.torch.failures_test "$gradlane" "$build/tools/gradlaned" "$@" || failed+=(failures_test)
}

# What init_process_group() starts.
torchrun() {
  echo "---- torchrun_test $*"
  "$python" -m tests.scripts.torch.torchrun_test "$build/tools/gradlaned" "$@" || failed+=(torchrun_test)
}

elastic() {
  echo "---- elastic_test"
  "$python" -m tests.scripts.torch.elastic_test "$build/tools/gradlaned" || failed+=(elastic_test)
}

suite() {
  echo "---- PyTorch's own tests $*"
  "$gradlane" run -n 3 --no-prefix -- "$python" tools/pytorch_suite.py "$@" || failed+=("PyTorch's own")
}

case "$short" in
  tests)
    ranks - 2 modern_test
    ranks - 3 delegate_test
    ranks - 2 fsdp_test
    ranks - 2 cuda_test gradlane
    ranks HSDP=gloo 4 hsdp_test
    ranks - 2 study_gpt_test
    ranks GRADLANE_EXTENSION=0 2 modern_test Trainings.test_ddp Trainings.test_objects
    failures Failures.test_a_rank_is_killed Failures.test_abort
    torchrun Torchrun.test_two Torchrun.test_restart_before_init
    ;;
  suite)
    suite --short
    ;;
  *)
    for count in 1 2 3; do
      for module in modern_test backend_test backend_async_test ddp_test delegate_test; do
        ranks - "$count" "$module"
      done
    done
    ranks - 2 hook_test gradlane
    for count in 2 3; do
      ranks - "$count" fsdp_test
      ranks - "$count" cuda_test gradlane
    done
    ranks FSDP=gloo 2 fsdp_test
    ranks - 4 hsdp_test
    ranks HSDP=gloo 4 hsdp_test
    ranks - 2 study_gpt_test
    ranks MODERN=cpu:gradlane 2 modern_test
    ranks TORCH_DISTRIBUTED_DEBUG=DETAIL 2 modern_test
    ranks GRADLANE_EXTENSION=0 2 modern_test Operations Trainings.test_ddp Trainings.test_zero Trainings.test_objects
    failures
    torchrun
    elastic
    suite
    ;;
esac

if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "PyTorch $("$python" -c 'import importlib.metadata as all; print(all.version("torch"))'): all tests have passed"
