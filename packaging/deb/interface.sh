#!/usr/bin/env bash
# usage: packaging/deb/interface.sh [--write]. Compares types and functions of libgradlane, as gradlane.h has them, with
# those of the last release in client/gradlane.abi (abidiff). New functions are allowed. Other differences, such as new
# members at the end of structs that contain their own size, are allowed only if existing programs still run. If they
# do, and at each release, --write writes the file again.
set -euo pipefail
cd "$(dirname "$0")/../.."
source dev/build.sh

configure build-package/interface -Dtests=disabled -Ddebug=true
library=client/libgradlane.so.$(dpkg-parsechangelog -S Version)
ninja -C build-package/interface --quiet "$library" >/dev/null
library=build-package/interface/$library
now=$PWD/client/gradlane.abi
[ "${1:-}" = --write ] || now=$PWD/build-package/gradlane.abi
# Leaves out line numbers and paths, which can change without the interface. The header is found by its name alone.
(cd client && abidw --header-file gradlane.h --drop-private-types --no-show-locs --no-comp-dir-path --no-corpus-path \
  --no-parameter-names --type-id-style hash --out-file "$now" "../$library")
# Compares two files, as abidiff of Debian 12 crashes if one of them is a library.
abidiff --no-added-syms client/gradlane.abi "$now" || {
  echo "packaging/deb/interface.sh: programs built with an earlier library may not run with this one" >&2
  exit 1
}
echo "$(grep -c "<elf-symbol .*type='func-type'" client/gradlane.abi) functions, and their types, are as in client/gradlane.abi"
