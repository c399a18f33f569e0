#!/usr/bin/env bash
# Runs tests on emulated NICs: guests of QEMU with DPDK's drivers behind an emulated IOMMU. See docs/nic.md.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

usage() {
  cat <<'HELP'
usage: lab/vm-test.sh [--list] [--row PATTERN] [--short] [--jobs N]
                        [--json FILE] [--keep] [--build FOLDER]

Plays rows in virtual machines without KVM: real drivers, a real IOMMU, a kernel
each. Builds build/, installs QEMU if it is missing (needs root for that),
and unpacks Debian's kernel into build-vm/. A line for each row: how long it
took, OK, FAILED or skipped, and what came of it; then how many there were.

  --list          names of the rows, and nothing else
  --row PATTERN   only these, as 'virtio*'; may be given again and again
  --short         one guest, one driver: at most 90 s
  --jobs N        rows at a time (2), of two CPUs each
  --json FILE     the results, as JSON too
  --keep          keep consoles and all that guests wrote, and say where
  --build FOLDER  programs from there, which is not built first

Exit status 0 if no row failed, 1 if one did, 77 if none could be played.
HELP
}

bad() {
  echo "lab/vm-test.sh: $1; see lab/vm-test.sh --help" >&2
  exit 2
}

build=yes
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --list | --short | --keep) arguments+=("$1") ;;
    --row | --jobs | --json | --build)
      [ $# -ge 2 ] || bad "$1 needs a value"
      value=$2
      [[ $1 != --jobs || $value =~ ^[1-9][0-9]*$ ]] || bad "--jobs $value: at least 1"
      [ "$1" != --build ] || build=
      # Relative paths start in the caller's folder.
      case "$1=$value" in --json=[!/]* | --build=[!/]*) value=$caller/$value ;; esac
      arguments+=("$1" "$value")
      shift
      ;;
    *) bad "unknown argument '$1'" ;;
  esac
  shift
done

source dev/build.sh
export PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1
case " ${arguments[*]} " in *" --list "*) exec python3 -P -m tests.vm "${arguments[@]}" ;; esac

# install PACKAGE... installs missing packages if it is run as root. Rows that lack a package are skipped and say so.
install() {
  local package missing=() log
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" -eq 0 ] || return 0
  step "packages: ${missing[*]}"
  log=$(mktemp)
  trap 'rm -f "$log"; exit 130' INT
  # --foreground lets Ctrl-C reach apt, too.
  { timeout --foreground 100 apt-get update && DEBIAN_FRONTEND=noninteractive \
    timeout --foreground 200 apt-get install -y --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1 || { tail -n 5 "$log" && echo "they could not be installed"; }
  trap - INT
  rm -f "$log"
}
install qemu-system-x86 busybox-static

if [ -n "$build" ]; then
  step "packages, build"
  tools/setup.sh --all --no-pytorch
  configure_native
  ninja -C build --quiet tools/gradlane tools/gradlaned tests/compress_test
fi

step "rows"
exec python3 -P -m tests.vm "${arguments[@]}"
