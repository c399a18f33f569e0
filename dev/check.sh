#!/usr/bin/env bash
# Checks what no compiler checks: include directions, house style that a script can see, formatting, types in Python,
# links of pages, lists of mutants, prose and spelling.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh
help_if_asked "$@"

failed=0
dev/check_layers.py || failed=1
dev/check_docs.py || failed=1
dev/mutants.py --check || failed=1
dev/check_prose.py || failed=1
# Results on pages are those of the samples in docs/results/data.
PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -P -m lab.results.pages || failed=1
# dpkg-gensymbols compares the names with those of the built library, but only when packages are built.
diff <(sed -n 's/^    \(gradlane_[a-z0-9_]*\);$/\1/p' client/gradlane.map | LC_ALL=C sort) \
  <(sed -n 's/^ \(gradlane_[a-z0-9_]*\)@.*/\1/p' debian/libgradlane0.symbols | LC_ALL=C sort) ||
  { echo "dev/check.sh: client/gradlane.map and debian/libgradlane0.symbols have other names" >&2; failed=1; }
# codespell takes these for misspelt: names in the code, and words that tests misspell on purpose.
ignored=kinf,kno,inflight,keep-alives,ect,nin,fixe,fxed,lamda,nd
git ls-files -z -- ':!tests/fuzz/corpus' ':!tests/compress/golden' ':!docs/results' ':!*.abi' ':!*.npy' ':!*.png' |
  xargs -0 codespell --ignore-words-list "$ignored" || failed=1

mapfile -t sources < <(dev/check_layers.py --list)
[ ${#sources[@]} -gt 0 ] || { echo "dev/check.sh: found no sources" >&2; exit 1; }
if ! clang-format --dry-run -Werror "${sources[@]}"; then
  echo "dev/check.sh: run 'clang-format -i' on the files above" >&2
  failed=1
fi
# flake8 checks the style of all Python files (.flake8), mypy the types of the package.
/usr/bin/python3 -m flake8 -j1 client dev examples lab packaging tests tools || failed=1
/usr/bin/python3 -m mypy --no-error-summary --config-file pyproject.toml client/python/gradlane || failed=1
[ "$failed" -eq 0 ] && echo "layers, types, style, format, pages and prose are in order"
exit "$failed"
