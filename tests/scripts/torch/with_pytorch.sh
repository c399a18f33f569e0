#!/usr/bin/env bash
# usage: with_pytorch.sh COMMAND... runs it with the python3 of build-pytorch/, or of another virtual environment that
# PYTORCH names, or, with PYTORCH=system, of PATH. Without PyTorch it skips the test: exit status 77, or 1 with CI=true.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
venv=${PYTORCH:-$root/build-pytorch}

if [ "$venv" = system ]; then
  venv=$root/build-pytorch-system
  mkdir -p "$venv"
elif [ -e "$venv/installed.txt" ]; then
  PATH=$venv/bin:$PATH
else
  echo "skipped: no PyTorch in $venv; tools/setup.sh --test installs it"
  [ "${CI:-}" != true ] || exit 1
  exit 77
fi
# Python's bytecode and the C++ extension are made once, before tests check what programs print.
export OMP_NUM_THREADS=1 TORCH_EXTENSIONS_DIR=$venv/extensions PYTHONPYCACHEPREFIX=$venv/pycache
unset PYTHONDONTWRITEBYTECODE
package=$root/client/python
made=$(cat "$package"/gradlane/torch/native/*.* "$package"/gradlane/torch/extension.py | sha256sum)
if [ "$(cat "$venv/made.txt" 2>/dev/null)" != "$made" ]; then
  CXX="$(command -v ccache || true) c++" PYTHONPATH=$package python3 -c 'from gradlane.torch import extension; extension.load()'
  echo "$made" >"$venv/made.txt"
fi
exec "$@"
