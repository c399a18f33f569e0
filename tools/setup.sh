#!/usr/bin/env bash
# Installs every Debian 12 package that building and testing gradlane needs. Does nothing, silently, when all are there.
set -euo pipefail

packages=(
  # build
  gcc g++ meson ninja-build pkg-config
  # libraries of the command line and the tests
  libcli11-dev libfmt-dev libhwy-dev libisal-dev nlohmann-json3-dev libgtest-dev
  # the daemon, its configuration and logs; dpdk has the drivers, dpdk-dev testpmd, to compare with
  dpdk dpdk-dev libdpdk-dev libnuma-dev libspdlog-dev libssl-dev libyaml-cpp-dev
  # tests in network namespaces
  ethtool iperf3 iproute2 iputils-ping nftables procps
  # trainers in Python, and the data of the demo
  python3-numpy python3-sklearn libopenblas0-serial
  # PyTorch, and what gradlane is compared with
  python3-torch openmpi-bin python3-mpi4py python3-matplotlib
  # checks: sanitizers and fuzzing, formatting, an emulated CPU without AVX
  clang libclang-rt-14-dev clang-format binutils python3 qemu-user
  # types and style of Python
  mypy python3-flake8
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "tools/setup.sh: these packages are missing, and installing them needs root: ${missing[*]}" >&2
  echo "tools/setup.sh: run 'sudo tools/setup.sh', then go on as yourself" >&2
  exit 1
fi

echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "tools/setup.sh: apt-get could not install the packages above (gradlane is made for Debian 12)" >&2
  exit 1
fi
