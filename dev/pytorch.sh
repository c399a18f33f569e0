#!/usr/bin/env bash
# usage: dev/pytorch.sh [cuda | newest]. Installs PyTorch for tests by pip into a virtual environment, and builds
# gradlane's C++ extension for it. Prints nothing if it is installed.
#
# default   the CPU build of the version in pytorch.txt, in build-pytorch/. pip looks in its configured places
#           (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS), then in PyTorch's index, download.pytorch.org/whl/cpu
# cuda      the same version in build-pytorch/, but PyPI's CUDA build, several GB: for machines where pip cannot find
#           the CPU build
# newest    PyPI's CUDA build of the version in pytorch_newest.txt, in build-pytorch-newest/
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh
help_if_asked "$@"

wanted=dev/pytorch.txt venv=build-pytorch
case "${1:-}" in
  '' | cuda) ;;
  newest) wanted=dev/pytorch_newest.txt venv=build-pytorch-newest ;;
  *) echo "dev/pytorch.sh: unknown argument '$1'; see dev/pytorch.sh --help" >&2 && exit 2 ;;
esac
! cmp -s "$wanted" "$venv/installed.txt" || exit 0

torch=$(grep '^torch==' "$wanted")
mapfile -t others < <(grep -v '^torch==' "$wanted")
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# pip_install WHAT OPTION... installs WHAT and the other packages. Python compiles modules later, when they are
# imported.
pip_install() {
  PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/pip" install --no-compile "$@" "${others[@]}" 2>&1 | tee "$log" |
    sed -unE 's/^ *(Downloading) .*\/?([^/ ]+ \([0-9.]+ [MG]B\)).*/\1 \2/p'
}
for_cpus() {
  pip_install "$torch+cpu" -c dev/pip_versions.txt ||
    pip_install "$torch+cpu" -c dev/pip_versions.txt --timeout 20 --retries 1 \
      --extra-index-url https://download.pytorch.org/whl/cpu
}
for_gpus() {
  echo "installing $torch from PyPI, with CUDA's packages: 5.3 GB to download"
  pip_install "$torch"
}

rm -rf "$venv"
# NumPy and Matplotlib come from Debian.
if ! /usr/bin/python3 -m venv --system-site-packages "$venv" >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  echo "dev/pytorch.sh: cannot make a virtual environment; run 'apt install python3-venv'" >&2
  exit 1
fi
if [ -z "${1:-}" ]; then
  echo "installing $torch for CPUs in $venv/: about 200 MB to download"
  for_cpus
else
  for_gpus
fi || {
  tail -n 5 "$log" >&2
  echo "dev/pytorch.sh: pip could not install $torch" >&2
  [ -n "${1:-}" ] ||
    echo "dev/pytorch.sh: try 'dev/pytorch.sh cuda', which installs PyPI's CUDA build: 5.3 GB to download" >&2
  exit 1
}
cp "$wanted" "$venv/installed.txt"
PYTORCH=$PWD/$venv tests/scripts/torch/with_pytorch.sh true
