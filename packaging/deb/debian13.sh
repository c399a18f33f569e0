#!/usr/bin/env bash
# usage: packaging/deb/debian13.sh [--pytorch-tests | --pytorch-suite]. Builds Debian packages of this tree on a Debian
# 13 from debootstrap, with its compiler, DPDK and Python. Installs them there, and runs rings in memory and on sockets,
# the C example, and a training with its PyTorch. With an option it builds everything there, with warnings as errors, and
# runs the tests of gradlane.torch, or PyTorch's own, with its PyTorch 2.6. Needs root, debootstrap, apt's registry, and
# 8 GB in TMPDIR (/tmp).
set -euo pipefail
cd "$(dirname "$0")/../.."
source dev/build.sh
help_if_asked "$@"
source packaging/deb/machines.sh

scratch=$(mktemp -d "${TMPDIR:-/tmp}/gradlane-debian13-XXXXXX")
chmod 755 "$scratch"
root=$scratch/debian
trap 'rm -rf --one-file-system "$scratch"' EXIT

inside() {
  in_root "$root" "$1" >"$scratch/log" 2>&1 || {
    tail -n 40 "$scratch/log"
    echo "packaging/deb/debian13.sh: failed: $1" >&2
    exit 1
  }
}

case "${1:-}" in
  "") tests= ;;
  --pytorch-tests) tests="--suite torch" ;;
  --pytorch-suite) tests=pytorch_suite ;;
  *) echo "packaging/deb/debian13.sh: unknown argument '$1'; see --help" >&2 && exit 2 ;;
esac

step "a bare Debian 13"
mkdir -p build-package
cache=build-package/trixie-$(cat debian/control packaging/deb/debian13.sh | sha256sum | cut -c 1-12).tar
if [ ! -e "$cache" ]; then
  debootstrap --variant=minbase trixie "$root" http://deb.debian.org/debian >"$scratch/log" 2>&1 ||
    { tail "$scratch/log"; exit 1; }
  mkdir -p "$root/srv/tree" && cp -r debian "$root/srv/tree/"
  inside 'apt-get update && apt-get install -y --no-install-recommends build-essential python3-torch python3-numpy \
    libtorch-dev pybind11-dev python3-dev pkg-config libgtest-dev libgmock-dev iproute2 nftables procps ethtool && apt-get build-dep -y --no-install-recommends /srv/tree && rm -r /srv/tree && apt-get clean'
  rm -f build-package/trixie-*.tar
  tar -C "$root" -cf "$cache.new" . && mv "$cache.new" "$cache"
else
  mkdir "$root" && tar -C "$root" -xf "$cache"
fi
in_root "$root" 'c++ --version | head -n 1; dpkg-query -W -f "\${Package} \${Version}\n" \
  libdpdk-dev libhwy-dev libspdlog-dev libssl-dev meson python3-torch systemd 2>/dev/null' || true

copy_tree "$root/srv/tree"
if [ -n "$tests" ]; then
  step "everything"
  inside 'cd /srv/tree && meson setup build && ninja -C build'
  step "tests"
  # Debian's PyTorch 2.6 is built without libuv, which its TCPStore uses by default.
  in_root "$root" "cd /srv/tree && CI=true PYTORCH=system USE_LIBUV=0 meson test -C build --print-errorlogs $tests"
  exit
fi

step "packages"
inside "cd /srv/tree && DEB_BUILD_OPTIONS=parallel=$(nproc) dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes"
in_root "$root" 'ls -l --block-size=KB /srv/*.deb' | awk '{print $5, $NF}'

step "installed, and run"
inside 'apt-get install -y --no-install-recommends /srv/*.deb && apt-get remove -y --purge libdpdk-dev'
in_root "$root" 'ldd /usr/bin/gradlaned | grep -o "librte_eal[^ ]*" | sort -u; gradlaned --version'
for link in vhost memif udp; do
  inside "gradlane run -n 3 --link $link -- gradlane perf -b 4K -e 1M -f 16"
  grep -h 'all results are' "$scratch/log" | sed "s/^/$link: /"
done
inside 'cd /tmp && cc -Wall -Werror /usr/share/doc/libgradlane-dev/examples/all_reduce.c \
  $(pkg-config --cflags --libs gradlane) -lm -o all_reduce && gradlane run -n 2 -- ./all_reduce'
grep -h 'wrong' "$scratch/log"
inside 'USE_LIBUV=0 gradlane run -n 2 -- python3 /usr/share/doc/python3-gradlane/examples/ddp.py'
grep -h 'weights' "$scratch/log"
