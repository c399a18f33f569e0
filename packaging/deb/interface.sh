#!/usr/bin/env bash
# usage: packaging/deb/interface.sh [--write]. Compares types and functions of libgradlane, as gradlane.h has them, with
# those of the last release, client/gradlane.abi (abidiff). New functions are welcome; all else that is found must be
# what programs that are built can live with, as members at the end of structs that tell their size. Then, and at each
# release, --write makes the file anew.
set -euo pipefail
cd "$(dirname "$0")/../.."
source dev/build.sh

configure build-package/interface -Dtests=disabled -Ddebug=true
library=client/libgradlane.so.$(dpkg-parsechangelog -S Version)
ninja -C build-package/interface --quiet "$library" >/dev/null
library=build-package/interface/$library
now=$PWD/client/gradlane.abi
[ "${1:-}" = --write ] || now=$PWD/build-package/gradlane.abi
# Without lines and paths, which change when nothing does. The header is found by its name alone.
(cd client && abidw --header-file gradlane.h --drop-private-types --no-show-locs --no-comp-dir-path --no-corpus-path \
  --no-parameter-names --type-id-style hash --out-file "$now" "../$library")
# Of two files: abidiff of Debian 12 crashes where one of them is a library.
abidiff --no-added-syms client/gradlane.abi "$now" || {
  echo "packaging/deb/interface.sh: programs that are built may not run with this library" >&2
  exit 1
}
echo "$(grep -c "<elf-symbol .*type='func-type'" client/gradlane.abi) functions, and their types, are as in client/gradlane.abi"
