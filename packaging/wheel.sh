#!/usr/bin/env bash
# Builds the wheel as `pip wheel .` does, with the part in C++ for PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh

out=build-static/wheel
torch=
twice=false
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=${2:?} && shift ;;
    --torch) torch+=:$(realpath -s "$(command -v "${2:?}")") && shift ;;
    --twice) twice=true ;;
    *)
      cat <<'HELP'
usage: packaging/wheel.sh [--out FOLDER] [--torch PYTHON]... [--twice]

  --out FOLDER    for the wheel (build-static/wheel)
  --torch PYTHON  the part in C++ is built for the PyTorch 2 of this Python (build-pytorch/bin/python, if it is there)
  --twice         and again, in another folder, time zone and locale: is the wheel the same, to the byte?
HELP
      [ "$1" = --help ] && exit 0 || exit 2
      ;;
  esac
  shift
done
if [ -z "$torch" ] && [ -x build-pytorch/bin/python ]; then
  torch=$PWD/build-pytorch/bin/python
fi

# build TREE FOLDER builds the wheel of the tree in the folder.
build() {
  local venv=$PWD/build-static/venv
  [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv"
  (cd "$1" && "$venv/bin/pip" wheel --no-deps --config-settings=torch="$torch" --wheel-dir "$2" .)
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
build . "$out"
ls -l --block-size=KB "$out"/*.whl | awk '{print $5, $NF}'

if $twice; then
  rm -rf build-static/again
  copy_tree build-static/tree
  # Without the compiler cache, as files from it would not be built a second time.
  (umask 027 && CCACHE_DISABLE=1 LC_ALL=C TZ=Asia/Tokyo build build-static/tree "$PWD/build-static/again")
  cmp "$(ls -t "$out"/*.whl | head -n 1)" build-static/again/*.whl
  echo "the second wheel is the same"
fi
