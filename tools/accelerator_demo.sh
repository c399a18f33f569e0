#!/usr/bin/env bash
# Installs packages, builds, and demonstrates accelerator mode: an ordinary program sends floats over TCP between two
# hosts behind accelerators. It sends them unmarked, with ToS 0x28, and with ToS 0x28 and repacking. See
# docs/accelerator.md.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

usage() {
  echo "usage: sudo tools/accelerator_demo.sh [--json FILE] [--floats N] [--rate R] [--codec C]"
  echo "Installs missing packages, builds into build/, and sends the same floats over TCP three times, through a wire"
  echo "between two network namespaces. Ends with a table; exit status 1 if an error was larger than the codec allows."
  echo "  --json FILE   write the table as JSON to it"
  echo "  --floats N    floats per transfer (33554432)"
  echo "  --rate R      rate of the wire (200mbit)"
  echo "  --codec C     fixed:B or inceptionn:B (fixed:10)"
}

bad() {
  echo "tools/accelerator_demo.sh: $1; see tools/accelerator_demo.sh --help" >&2
  exit 2
}

options=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --json | --floats | --rate | --codec) [ $# -ge 2 ] || bad "$1 needs a value" ;;
    *) bad "unknown argument '$1'" ;;
  esac
  value=$2
  if [ "$1" = --json ]; then
    [[ "$value" = /* ]] || value=$caller/$value
    # Finds an unwritable file before the work, not after it.
    touch "$value" 2>/dev/null || bad "--json '$value': cannot write to it"
  fi
  options+=("$1" "$value")
  shift 2
done
[ "$(id -u)" -eq 0 ] || bad "network namespaces need root"

source tools/demo/build.sh
demo_build tools/gradlane tools/gradlaned

step "floats over TCP"
python3 -B tools/demo/accelerator.py "${options[@]}"
