#!/usr/bin/env bash
# Builds the wheel: the Python package with the library and the programs in it, for machines that have nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh

out=build-static/wheel
torch=()
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=${2:?} && shift ;;
    --torch) torch+=(--torch "${2:?}") && shift ;;
    *)
      cat <<'HELP'
usage: packaging/wheel.sh [--out FOLDER] [--torch PYTHON]...

  --out FOLDER    for the wheel (build-static/wheel)
  --torch PYTHON  the part in C++ is built for the PyTorch 2 of this Python (build-pytorch/bin/python, if it is there)
HELP
      [ "$1" = --help ] && exit 0 || exit 2
      ;;
  esac
  shift
done
if [ ${#torch[@]} -eq 0 ] && [ -x build-pytorch/bin/python ]; then
  torch=(--torch build-pytorch/bin/python)
fi

configure build-static -Dstatic=true
ninja -C build-static --quiet tools/gradlane tools/gradlaned client/libgradlane.so.0.1.0
packaging/wheel/pack.py build-static "$out" "${torch[@]}"
