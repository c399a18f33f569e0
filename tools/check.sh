#!/usr/bin/env bash
# Checks what no compiler does: include directions, house style that a script can see, formatting, links of pages.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/dev/build.sh

failed=0
tools/dev/check_layers.py || failed=1
tools/dev/check_docs.py || failed=1

mapfile -t sources < <(tools/dev/check_layers.py --list)
[ ${#sources[@]} -gt 0 ] || { echo "tools/check.sh: found no sources" >&2; exit 1; }
if ! clang-format --dry-run -Werror "${sources[@]}"; then
  echo "tools/check.sh: run 'clang-format -i' on the files above" >&2
  failed=1
fi
[ "$failed" -eq 0 ] && echo "layers, style, format and pages are in order"
exit "$failed"
