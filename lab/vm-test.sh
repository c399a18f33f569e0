#!/usr/bin/env bash
# Runs tests on emulated NICs: guests of QEMU with DPDK's drivers behind an emulated IOMMU. See docs/nic.md.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

usage() {
  cat <<'HELP'
usage: lab/vm-test.sh [--list] [--row PATTERN] [--short] [--jobs N]
                        [--json FILE] [--keep] [--build FOLDER]

Runs tests, which are called rows, in virtual machines without KVM. Each guest
has its own kernel, real drivers, and emulated NICs and IOMMU. Builds build/,
installs QEMU if it is missing (needs root for that), and unpacks Debian's
kernel into build-vm/. Prints a line for each row: its time, OK, FAILED or
skipped, and the result. The last line counts the rows.

  --list          print the names of the rows, and run nothing
  --row PATTERN   run only these rows, such as 'virtio*'; may be repeated
  --short         run one guest with one driver: at most 90 s
  --jobs N        run N rows at a time (2); each needs two CPUs
  --json FILE     also write the results as JSON
  --keep          keep the consoles and files of guests, and print where
  --build FOLDER  use the programs in this folder, and do not build them

Exit status 0 if no row failed, 1 if one failed, 77 if none could run.
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
      [[ $1 != --jobs || $value =~ ^[1-9][0-9]*$ ]] || bad "--jobs $value: must be a whole number from 1 on"
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
    >"$log" 2>&1 || { tail -n 5 "$log" && echo "they could not be installed; rows that need them are skipped"; }
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
