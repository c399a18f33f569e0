#!/usr/bin/env bash
# Runs the tests of gradlane.torch on a version of PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh

version=2.13
what=tests
while [ $# -gt 0 ]; do
  case "$1" in
    --version) version=${2:?} && shift ;;
    tests | suite) what=$1 ;;
    *)
      cat <<'HELP'
usage: lab/pytorch.sh [--version 2.13|newest|2.6] [tests|suite]

  --version 2.13    the version in build-pytorch/, which tools/setup.sh --test installs (default)
  --version newest  the version of dev/pytorch_newest.txt, in build-pytorch-newest/; downloads 5.3 GB once
  --version 2.6     the oldest supported version, in a Debian 13 tree (packaging/deb/debian13.sh, needs root)
  tests             run gradlane's PyTorch tests of all suites (default)
  suite             run PyTorch's own tests of torch.distributed
HELP
      [ "$1" = --help ] && exit 0 || exit 2
      ;;
  esac
  shift
done

case "$version" in
  2.13) dev/pytorch.sh && export PYTORCH=$PWD/build-pytorch ;;
  newest) dev/pytorch.sh newest && export PYTORCH=$PWD/build-pytorch-newest ;;
  2.6) exec packaging/deb/debian13.sh "--pytorch-$what" ;;
  *) echo "lab/pytorch.sh: unknown version '$version'; see lab/pytorch.sh --help" >&2 && exit 2 ;;
esac
configure_native
export CI=true  # tests fail instead of being skipped
if [ "$what" = suite ]; then
  meson test -C build --print-errorlogs pytorch_suite
else
  meson test -C build --print-errorlogs --suite torch
fi
