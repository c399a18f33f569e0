#!/usr/bin/env bash
# Installs the Debian 12 packages that gradlane needs, as root. Prints nothing if all are installed.
#
#     tools/setup.sh             packages for the build and tools/demo.sh
#     tools/setup.sh --test      also packages for tools/test.sh, and PyTorch from pip in build-pytorch/
#     tools/setup.sh --all       also packages for nightly tests, comparisons and packaging
#     tools/setup.sh --pytorch   only PyTorch; the packages of --test must be installed
#     tools/setup.sh --missing   installs nothing; says which packages for the build are missing, if any
#
# --no-pytorch, after --test or --all: does not install PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh
help_if_asked "$@"

# At most 20 packages, because a new user waits until they are installed.
build_packages=(
  gcc g++ meson ninja-build pkg-config
  # libraries; libdpdk-dev depends on the drivers
  libcli11-dev libdpdk-dev libfmt-dev libhwy-dev libisal-dev libnuma-dev libspdlog-dev libssl-dev libyaml-cpp-dev
  nlohmann-json3-dev
)
packages=(
  "${build_packages[@]}"
  # `pip install .`, and the part in C++ for PyTorch
  python3-dev python3-venv
  # the demo's trainers, in Python, and its plot
  python3-numpy libopenblas0-serial python3-matplotlib
)
test_packages=(
  # unit tests; sanitizers and fuzzing; links of programs with sanitizers
  libgtest-dev clang libclang-rt-14-dev mold
  # networks of namespaces
  ethtool iproute2 iputils-ping nftables procps
  # programs in a terminal; systemd-analyze for the service's unit; the dissector; objdump, to see where instructions
  # are
  tmux systemd tshark binutils
  # the calls of daemons; a store for elastic trainings
  strace etcd-server
  # format, types, style and spelling
  clang-format mypy python3-flake8 codespell
)
all_packages=(
  # metrics: promtool and the Prometheus server
  prometheus
  # testpmd, for comparisons; dev/instructions.py
  dpdk dpdk-dev valgrind
  # background traffic for accelerator tests; an emulated CPU without AVX
  iperf3 qemu-user
  # Open MPI, for comparisons
  openmpi-bin python3-mpi4py
  # the test of the documentation site
  chromium
  # packaging/package.sh, packaging/package-test.sh
  abigail-tools debhelper debootstrap devscripts dh-python lintian man-db
)

# ---- Debian's packages

log=$(mktemp)
policy=/usr/sbin/policy-rc.d
made_policy=false
trap 'rm -f "$log"; ! $made_policy || rm -f "$policy"' EXIT

# Some packages start services that nobody wants here, as prometheus and etcd-server do. Package scripts ask this program
# first, and its exit status 101 says no.
start_no_services() {
  [ ! -e "$policy" ] || return 0
  made_policy=true
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
}

# apt OPTION... runs apt-get and shows its progress. All other output goes to the log.
apt() {
  local phase name percent rest
  LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends -o APT::Status-Fd=3 "$@" \
    3>&1 >>"$log" 2>&1 | while IFS=: read -r phase name percent rest; do
    [[ ! $phase =~ ^(dl|pm)status$ ]] || echo "[${percent%%.*}%]"
  done && echo "[100%]"
}

# find_missing PACKAGE... sets `missing` to those that are not installed.
find_missing() {
  local package
  missing=()
  for package; do
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
}

# packaging/wheel/backend.py prints this line if a build fails.
say_missing() {
  find_missing "${build_packages[@]}"
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "these packages are missing: ${missing[*]}; 'sudo tools/setup.sh' installs them on Debian 12"
  exit 1
}

install_packages() {
  find_missing "${packages[@]}"
  [ ${#missing[@]} -eq 0 ] && return

  if [ "$(id -u)" -ne 0 ]; then
    echo "tools/setup.sh: these packages are missing, and installing them needs root: ${missing[*]}" >&2
    echo "tools/setup.sh: run 'sudo tools/setup.sh${options:+ $options}', then go on as yourself" >&2
    exit 1
  fi
  echo "installing ${#missing[@]} packages and what they depend on: ${missing[*]}"
  start_no_services
  if ! {
    apt update >/dev/null &&
      LC_ALL=C apt-get install --print-uris -y --no-install-recommends "${missing[@]}" 2>>"$log" |
      sed -nE 's/^Need to get (.*) of archives\.$/to download: \1/p' &&
      apt install --download-only "${missing[@]}" | show_progress "downloading" &&
      apt install "${missing[@]}" | show_progress "installing"
  }; then
    tail -n 20 "$log" >&2
    echo "tools/setup.sh: apt-get could not install the packages above (gradlane is made for Debian 12)" >&2
    exit 1
  fi
  # The services must not start at the next boot either.
  if [ -d /run/systemd/system ]; then
    [[ " ${missing[*]} " != *" prometheus "* ]] || systemctl disable --quiet prometheus.service || true
    [[ " ${missing[*]} " != *" etcd-server "* ]] || systemctl disable --quiet etcd.service || true
  fi
}

options=$*
pytorch=false
for option in "$@"; do
  case "$option" in
    --test) packages+=("${test_packages[@]}") pytorch=true ;;
    --all) packages+=("${test_packages[@]}" "${all_packages[@]}") pytorch=true ;;
    --pytorch) packages=() pytorch=true ;;
    --no-pytorch) pytorch=false ;;
    --missing) say_missing && exit ;;
    *)
      echo "tools/setup.sh: unknown argument '$option'; see tools/setup.sh --help" >&2
      exit 2
      ;;
  esac
done
install_packages
# Without PyTorch, its tests are skipped; in CI they fail.
! $pytorch || dev/pytorch.sh || true
