#!/usr/bin/env bash
# Installs every Debian 12 package that building and testing gradlane needs. Does nothing, silently, when all are there.
# With --pytorch also PyTorch 2, which Debian has not, by pip into build-pytorch/, for the tests that want it; with
# --package what Debian packages are built and tested with.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  # build
  gcc g++ meson ninja-build pkg-config
  # libraries of the command line and the tests
  libcli11-dev libfmt-dev libhwy-dev libisal-dev nlohmann-json3-dev libgtest-dev
  # the daemon, its configuration and logs; dpdk has the drivers, dpdk-dev testpmd, to compare with
  dpdk dpdk-dev libdpdk-dev libnuma-dev libspdlog-dev libssl-dev libyaml-cpp-dev
  # tests in network namespaces
  ethtool iperf3 iproute2 iputils-ping nftables procps
  # tests in a terminal
  tmux
  # tests of metrics: promtool, and who scrapes
  prometheus
  # systemd-analyze: the service's unit
  systemd
  # trainers in Python, and the data of the demo
  python3-numpy python3-sklearn libopenblas0-serial
  # PyTorch, and what gradlane is compared with
  python3-torch openmpi-bin python3-mpi4py python3-matplotlib
  # checks: sanitizers and fuzzing, formatting, an emulated CPU without AVX
  clang libclang-rt-14-dev clang-format binutils python3 qemu-user
  # the dissector
  tshark
  # types and style of Python
  mypy python3-flake8
  # PyTorch 2 for tests, by pip
  python3-dev python3-venv
)
# --package: tools/package.sh, tools/package-test.sh
packaging=(abigail-tools debhelper debootstrap devscripts dh-python lintian man-db)

log=$(mktemp)
policy=/usr/sbin/policy-rc.d
made_policy=false
trap 'rm -f "$log"; ! $made_policy || rm -f "$policy"' EXIT

# ---- Debian's packages

# Packages bring services, as prometheus does, which nobody wants here: dpkg asks this program before it starts any.
start_no_services() {
  [ ! -e "$policy" ] || return 0
  made_policy=true
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
}

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return

  if [ "$(id -u)" -ne 0 ]; then
    echo "tools/setup.sh: these packages are missing, and installing them needs root: ${missing[*]}" >&2
    echo "tools/setup.sh: run 'sudo tools/setup.sh', then go on as yourself" >&2
    exit 1
  fi
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  start_no_services
  if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "tools/setup.sh: apt-get could not install the packages above (gradlane is made for Debian 12)" >&2
    exit 1
  fi
  # Nor at the next boot.
  if [ -d /run/systemd/system ] && [[ " ${missing[*]} " == *" prometheus "* ]]; then
    systemctl disable --quiet prometheus.service || true
  fi
}

# ---- PyTorch 2

# Made once, and again when other versions are wanted. Without it, tests on PyTorch 2 are skipped, but fail in CI.
install_pytorch() {
  local venv=build-pytorch wanted=tools/dev/pytorch_2.txt
  cmp -s "$wanted" "$venv/installed.txt" && return
  echo "installing $(tr '\n' ' ' <"$wanted")in $venv/"
  rm -rf "$venv"
  # Python compiles what is imported, then.
  if /usr/bin/python3 -m venv "$venv" >"$log" 2>&1 &&
    "$venv/bin/pip" install --no-compile -r "$wanted" -c tools/dev/pip_versions.txt >"$log" 2>&1; then
    cp "$wanted" "$venv/installed.txt"
  else
    tail -n 5 "$log" >&2
    echo "tools/setup.sh: pip could not install PyTorch 2: tests on it are skipped, and fail in CI" >&2
  fi
}

[ "${1:-}" != --package ] || packages+=("${packaging[@]}")
install_packages
[ "${1:-}" != --pytorch ] || install_pytorch
