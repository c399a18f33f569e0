#!/usr/bin/env bash
# Runs the tests of gradlane.torch on a version of PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/dev/build.sh

version=2.13
what=tests
while [ $# -gt 0 ]; do
  case "$1" in
    --version) version=${2:?} && shift ;;
    tests | suite) what=$1 ;;
    *)
      cat <<'HELP'
usage: tools/pytorch.sh [--version 2.13|newest|2.6] [tests|suite]

  --version 2.13    in build-pytorch/, where tools/setup.sh --test installs it; the default
  --version newest  that of tools/dev/pytorch_newest.txt, by pip in build-pytorch-newest/: downloads 5.3 GB, once
  --version 2.6     Debian 13's, the oldest that gradlane supports, on a Debian 13 (tools/package/debian13.sh: needs root)
  tests             gradlane's, of all suites; the default
  suite             PyTorch's own of torch.distributed
HELP
      [ "$1" = --help ] && exit 0 || exit 2
      ;;
  esac
  shift
done

case "$version" in
  2.13) tools/dev/pytorch.sh && export PYTORCH=$PWD/build-pytorch ;;
  newest) tools/dev/pytorch.sh newest && export PYTORCH=$PWD/build-pytorch-newest ;;
  2.6) exec tools/package/debian13.sh "--pytorch-$what" ;;
  *) echo "tools/pytorch.sh: unknown version '$version'; see tools/pytorch.sh --help" >&2 && exit 2 ;;
esac
configure_native
export CI=true  # nothing of it is skipped
if [ "$what" = suite ]; then
  meson test -C build --print-errorlogs pytorch_suite
else
  meson test -C build --print-errorlogs --suite torch
fi
