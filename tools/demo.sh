#!/usr/bin/env bash
# Installs packages, builds and runs the demo: four nodes on this machine train a classifier of handwritten digits. They
# train once with raw gradients and four times with compressed ones. Ends with a table and a plot; see docs/demo.md.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

nodes=4
epochs=
quick=false

usage() {
  echo "usage: tools/demo.sh [--quick] [--json FILE] [--epochs N] [--nodes N]"
  echo "Installs missing packages (needs root for that), builds into build/, then trains on $nodes nodes of this machine:"
  echo "raw, then with error feedback fixed:adaptive (recommended), fixed:7 and fixed:5, and without it fixed:10. Ends with"
  echo "a table and a plot, build/demo.png; exit status 1 if replicas differ."
  echo "  --quick       4 trainings of 10 epochs each: less than a minute after the build"
  echo "  --json FILE   write the table as JSON to it"
  echo "  --epochs N    epochs of each training (50; with --quick 10)"
  echo "  --nodes N     number of nodes, each with a daemon and a trainer ($nodes)"
}

bad() {
  echo "tools/demo.sh: $1; see tools/demo.sh --help" >&2
  exit 2
}

json=
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --quick)
      quick=true
      shift
      continue
      ;;
    --json | --epochs | --nodes) [ $# -ge 2 ] || bad "$1 needs a value" ;;
    *) bad "unknown argument '$1'" ;;
  esac
  case "$1" in
    --json) json=$2 ;;
    --epochs) epochs=$2 ;;
    --nodes) nodes=$2 ;;
  esac
  shift 2
done
[ -n "$epochs" ] || { $quick && epochs=10 || epochs=50; }
[[ "$epochs" =~ ^[1-9][0-9]{0,3}$ ]] || bad "--epochs '$epochs': must be a whole number from 1 to 9999"
[[ "$nodes" =~ ^[1-9][0-9]?$ ]] && [ "$nodes" -le 32 ] || bad "--nodes '$nodes': must be a whole number from 1 to 32"
if [ -n "$json" ]; then
  [[ "$json" = /* ]] || json=$caller/$json
  # Finds an unwritable file before the work, not after it.
  touch "$json" 2>/dev/null || bad "--json '$json': cannot write to it"
fi

source tools/demo/build.sh
demo_build tools/gradlane tools/gradlaned client/all_reduce_example  # with libgradlane

training_start=$SECONDS
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
options=(--gradlane build/tools/gradlane --nodes "$nodes" --epochs "$epochs")
! $quick || options+=(--quick)
step "training"
python3 -B tools/demo/rows.py "${options[@]}" "$results" || exit
training_seconds=$((SECONDS - training_start))

step "result"
status=0
tools/demo/table.py ${json:+--json "$json"} "$results"/*.json || status=$?
tools/demo/plot.py build/demo.png "$results"/*.json
echo "packages $packages_seconds s, build $build_seconds s, training $training_seconds s"
echo
echo "next: a training of your own with PyTorch (docs/first-training.md), and what it would gain on your network"
echo "  PYTHONPATH=client/python torchrun --nproc_per_node 4 examples/ddp.py"
echo "  build/tools/gradlane plan --model resnet50 --nodes 8 --gbps 10"
exit "$status"
