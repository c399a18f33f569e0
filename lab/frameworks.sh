#!/usr/bin/env bash
# usage: lab/frameworks.sh [FOLDER]. FOLDER is for the virtual environment that it makes (build/frameworks). Runs ordinary
# training scripts (tests/scripts/torch/ordinary/) with Gloo and with gradlane: plain PyTorch, Lightning, accelerate,
# DeepSpeed. Only the word for the backend differs. torchrun starts the scripts; no daemon is started by hand. The losses
# must agree. Then it runs the examples that need Lightning and accelerate.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh
help_if_asked "$@"
venv=${1:-build/frameworks}
packages=(torch==2.13.0 numpy==2.4.6 lightning==2.6.6 accelerate==1.15.0 deepspeed==0.19.8)

if [ ! -e "$venv/installed" ] || [ "$(cat "$venv/installed")" != "${packages[*]}" ]; then
  python3 -m venv "$venv" && "$venv/bin/pip" install --quiet -c dev/pip_versions.txt "${packages[@]}" ||
    { echo "lab/frameworks.sh: pip cannot install ${packages[*]}" >&2; exit 2; }
  echo "${packages[*]}" >"$venv/installed"
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$venv/bin/pip" install --quiet --force-reinstall --no-deps .

export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
failed=0

# trained WORD RANKS SCRIPT ARGUMENTS... trains with WORD as the backend. The output is in $scratch/out and
# $scratch/err.
trained() {
  local word=$1 ranks=$2 script=$3
  shift 3
  timeout 900 "$venv/bin/torchrun" --standalone --nproc_per_node "$ranks" "tests/scripts/torch/ordinary/$script.py" \
    "$word" "$@" >"$scratch/out" 2>"$scratch/err"
}

# compare RANKS SCRIPT ARGUMENTS... prints the losses with Gloo and with gradlane. It sets `failed` if they differ.
compare() {
  local ranks=$1 script=$2 theirs ours
  shift 2
  trained gloo "$ranks" "$script" "$@" || true  # Gloo may abort at the end
  theirs=$(grep -o '^loss .*' "$scratch/out" || { tail -n 5 "$scratch/err" >&2 && echo none; })
  if trained gradlane "$ranks" "$script" "$@"; then
    ours=$(grep -o '^loss .*' "$scratch/out" || echo none)
  else
    ours="failed: $(grep -E 'Error|gradlane:' "$scratch/err" | tail -n 1)"
  fi
  printf '%-16s %-6s %-5s  Gloo: %-32s gradlane: %s\n' "$script" "$*" "$ranks" "$theirs" "$ours"
  # The order of additions differs, so the last digits may differ.
  python3 - "$theirs" "$ours" <<'PYTHON' || failed=1
import sys
one, other = (words.split()[1:] for words in sys.argv[1:])
try:
    sys.exit(not (one and len(one) == len(other)
                  and all(abs(float(a) - float(b)) <= 2e-5 * max(1, abs(float(a))) for a, b in zip(one, other))))
except ValueError:
    sys.exit(1)
PYTHON
}

printf '%-16s %-6s %s\n' script "" ranks
compare 2 ddp_loop
compare 2 accumulate
compare 2 pipeline
compare 2 fsdp2
compare 4 fsdp2 hsdp
compare 2 with_lightning
compare 2 with_accelerate
compare 2 with_deepspeed 1
compare 2 with_deepspeed 2
PATH=$PWD/$venv/bin:$PATH PYTHONPATH=$PWD "$venv/bin/python3" -m tests.scripts.torch.examples_test build/tools/gradlane \
  with_lightning.py with_accelerate.py || failed=1
[ "$failed" -eq 0 ] || { echo "lab/frameworks.sh: losses differ, or a training failed; see above" >&2; exit 1; }
