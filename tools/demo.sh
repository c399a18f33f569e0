#!/usr/bin/env bash
# Installs packages, builds and runs the demo: four nodes on this machine train a classifier of handwritten digits. They
# train once with raw gradients and three times with compressed ones. Ends with a table of the four; see docs/demo.md.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

nodes=4
epochs=50

usage() {
  echo "usage: tools/demo.sh [--json FILE] [--epochs N] [--nodes N]"
  echo "Installs missing packages (needs root for that), builds into build/, then trains four times on $nodes nodes:"
  echo "raw, fixed:10, and with error feedback fixed:7 and fixed:5. Ends with a table; exit status 1 if replicas differ."
  echo "  --json FILE   write the table as JSON to it"
  echo "  --epochs N    epochs of each training ($epochs); ratios and accuracies in the README are for $epochs"
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
files=()

# train NAME OPTION... trains once, on all nodes.
train() {
  local name=$1
  shift
  step "training with $name"
  local file=$results/${#files[@]}.json
  if ! PYTHONDONTWRITEBYTECODE=1 build/tools/gradlane run -n "$nodes" --no-prefix -- \
    python3 tools/demo/digits.py --epochs "$epochs" --json "$file" "$@"; then
    echo "tools/demo.sh: the training with $name failed; see above" >&2
    exit 1
  fi
  files+=("$file")
}
train "raw" --codec raw
train "fixed:10" --codec fixed:10
train "fixed:7 and error feedback" --codec fixed:7 --feedback
train "fixed:5 and error feedback" --codec fixed:5 --feedback

step "result"
tools/demo/table.py ${json:+--json "$json"} "${files[@]}"
echo "packages $packages_seconds s, build $build_seconds s, training $((SECONDS - training_start)) s"
