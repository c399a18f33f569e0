#!/usr/bin/env bash
# Builds gradlane for 64-bit ARM on another machine, runs its unit tests of codecs and collectives in QEMU, and counts
# the instructions of its kernels. apt fetches packages, and arm64 libraries are unpacked to build-arm64-root/. Nothing
# else on this system changes, except that missing programs (cross compiler, QEMU, meson) are installed, which needs
# root.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh

root=$PWD/build-arm64-root
libraries=$root/usr/lib/aarch64-linux-gnu
qemu=(qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$libraries")
programs=(g++-aarch64-linux-gnu qemu-user meson ninja-build pkg-config)
# Packages of tools/setup.sh whose libraries are linked.
wanted=(libdpdk-dev libisal-dev libhwy-dev libgtest-dev libgmock-dev libfmt-dev nlohmann-json3-dev libcli11-dev
  libnuma-dev libspdlog-dev libssl-dev libyaml-cpp-dev)
tests=(compress_1 compress_2 collectives)
exchange=(collectives_exchange_1 collectives_exchange_2 collectives_exchange_3 collectives_exchange_4)
whole=false
count=true

fail() {
  echo "packaging/arm64.sh: $*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case "$1" in
    --whole) whole=true ;;
    --no-count) count=false ;;
    *)
      cat <<'HELP'
usage: packaging/arm64.sh [--whole] [--no-count]

  --whole     builds daemon, command line and all tests, too, and runs the tests of the exchange, which takes long
  --no-count  does not count instructions
HELP
      [ "$1" = --help ] && exit 0 || exit 2
      ;;
  esac
  shift
done

install_programs() {
  local missing=() package
  for package in "${programs[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  [ "$(id -u)" -eq 0 ] || fail "these packages are missing, and installing them needs root: ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >"$root.log" 2>&1 ||
    fail "apt-get could not install ${missing[*]}: see $root.log"
}

# Runs apt with a system of its own, which has nothing installed and is arm64 only. Any user may do that.
arm64_apt() {
  apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$root.apt" \
    -o Dir::State::status="$root.apt/status" -o Dir::Cache="$root.apt" -o Dir::Etc::sourceparts=- \
    -o Dir::Etc::sourcelist="$root.apt/sources.list" "$@" >"$root.log" 2>&1 || fail "apt-get has failed: see $root.log"
}

# Unpacks the libraries once, and again if other packages are wanted. Libc and the C++ library come with the cross
# compiler.
unpack_libraries() {
  [ "$(cat "$root/packages.txt" 2>/dev/null)" = "${wanted[*]}" ] && return
  step "arm64 libraries, to ${root##*/}"
  rm -rf "$root" "$root.apt"
  mkdir -p "$root" "$root.apt/lists/partial" "$root.apt/archives/partial"
  : >"$root.apt/status"
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg
  cat >"$root.apt/sources.list" <<SOURCES
deb [signed-by=$keys] http://deb.debian.org/debian bookworm main
deb [signed-by=$keys] http://deb.debian.org/debian bookworm-updates main
deb [signed-by=$keys] http://deb.debian.org/debian-security bookworm-security main
SOURCES
  arm64_apt update
  arm64_apt install -y --download-only --no-install-recommends "${wanted[@]}"
  local package
  for package in "$root.apt"/archives/*.deb; do
    case ${package##*/} in
      libc6_* | libc6-dev_* | libcrypt-dev_* | linux-libc-dev_* | libstdc++6_* | libgcc-s1_*) continue ;;
    esac
    dpkg-deb --fsys-tarfile "$package" |
      tar -x -C "$root" --exclude='./usr/share/doc' --exclude='./etc' --exclude='./var' --exclude='./dev'
  done
  rm -rf "$root.apt"
  echo "${wanted[*]}" >"$root/packages.txt"
}

# build FOLDER ARGUMENTS TARGET... cross-builds targets with further arguments for the compiler.
build() {
  local folder=$1 arguments=$2
  shift 2
  printf "[constants]\nroot = '%s'\nmore = [%s]\n" "$root" "$arguments" >"$root/$folder.txt"
  configure "$folder" --cross-file "$root/$folder.txt" --cross-file packaging/cross/arm64.txt
  ninja -C "$folder" --quiet "$@"
}

install_programs
unpack_libraries

step "the cross build"
targets=()
if ! $whole; then
  targets=(tests/compress/repeat_op)
  for test in "${tests[@]}"; do targets+=("tests/${test%_[12]}_test"); done
  mapfile -t targets < <(printf '%s\n' "${targets[@]}" | sort -u)
fi
build build-arm64 "" "${targets[@]}"
aarch64-linux-gnu-objdump -d build-arm64/compress/neon/libcompress_neon.a >build-arm64/neon.txt
! grep -qwE 'aes[a-z]*|pmull2?|sha[0-9a-z]*' build-arm64/neon.txt || fail "a kernel has instructions that not all CPUs have"
echo "$(grep -cE '^ +[0-9a-f]+:' build-arm64/neon.txt) instructions of NEON kernels, none of an extension"

step "tests in QEMU"
$whole && tests+=("${exchange[@]}")
meson test -C build-arm64 --no-rebuild --timeout-multiplier 20 "${tests[@]}"

$count || exit 0
step "instructions for each float (QEMU counts)"
build build-arm64-plain "'-fno-tree-vectorize'" tests/compress/repeat_op
dev/count_steps.py --least 5 --codecs "fixed:10,fixed:14,bf16,fp16" \
  --plain build-arm64-plain/tests/compress/repeat_op build-arm64/tests/compress/repeat_op "${qemu[@]}"
