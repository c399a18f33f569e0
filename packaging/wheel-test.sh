#!/usr/bin/env bash
# usage: packaging/wheel-test.sh [WHEEL]. Installs the wheel as users do, and runs it: with PyTorch in a fresh virtual
# environment, and on a bare Debian 12. This Debian has none of the packages that the wheel was built with. The wheel
# runs there alone and beside a DPDK of Debian, for a user without rights. On a second bare Debian, `pip install .` first
# says which packages are missing, then tools/setup.sh installs them, and it builds the same. Needs root, debootstrap,
# and the registries of pip and apt.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh
help_if_asked "$@"
source packaging/deb/machines.sh

wheel=$(realpath "${1:-$(ls -t build-static/wheel/*.whl | head -n 1)}")
scratch=$(mktemp -d /tmp/gradlane-wheel-XXXXXX)
# All mounts below are in namespaces that have ended by then.
trap 'rm -rf --one-file-system "$scratch"' EXIT
chmod 755 "$scratch"

fail() {
  echo "packaging/wheel-test.sh: $*" >&2
  exit 1
}

/usr/bin/python3 -m zipfile -l "$wheel" >"$scratch/list.txt"
grep -q 'sboms/gradlane.spdx.json' "$scratch/list.txt" || fail "the wheel has no bill of materials"
grep -q 'gradlane_native.so' "$scratch/list.txt" ||
  fail "the wheel has no part in C++ for PyTorch: run tools/setup.sh --test and packaging/wheel.sh"

step "a fresh virtual environment"
/usr/bin/python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet -c dev/pip_versions.txt "$wheel" "$(grep torch dev/pytorch.txt)"
/usr/bin/python3 tests/scripts/build/hardening_test.py \
  "$scratch"/venv/lib/python3*/site-packages/gradlane/{bin/gradlane,bin/gradlaned,lib/libgradlane.so.0} \
  "$scratch"/venv/lib/python3*/site-packages/gradlane/lib/libnccl-net-gradlane.so
cat >"$scratch/train.py" <<'PYTHON'
import torch
torch.distributed.init_process_group("gradlane")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1000))
model(torch.randn(32, 1000)).square().mean().backward()
backend = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
print(type(backend).__name__, backend.name(), model.module.weight.grad.double().sum().item())
torch.distributed.destroy_process_group()
PYTHON
(
  cd "$scratch"
  env -i HOME="$scratch" PATH="$scratch/venv/bin:/usr/bin:/bin" gradlane run -n 2 -- python train.py | tee trained.txt
  [ "$(grep -c 'Backend gradlane' trained.txt)" = 2 ] || fail "not both ranks printed their backend"
  [ ! -e .cache/torch_extensions ] || fail "the C++ part was compiled here, although the wheel contains it"
)

step "a Debian 12 with none of gradlane's packages"
root=$scratch/debian
debootstrap --variant=minbase --include=python3-numpy,python3-venv bookworm "$root" >"$scratch/debootstrap.log" ||
  { tail "$scratch/debootstrap.log"; fail "debootstrap has failed"; }
chroot "$root" python3 -m venv --system-site-packages /opt/venv
from_source=$scratch/source
cp -a "$root" "$from_source"
cp "$wheel" "$root/srv/"

# inside COMMAND runs COMMAND as user nobody, in namespaces of its own: no network but lo, 64 MiB of /dev/shm, no
# rights.
inside() {
  unshare --mount --pid --fork --net --ipc sh -c '
    ip link set lo up && mount -t proc proc "$1/proc" && mount -t sysfs -o ro sys "$1/sys" &&
    mount -t tmpfs -o size=64m,mode=1777 shm "$1/dev/shm" &&
    exec chroot "$1" setpriv --reuid=nobody --regid=nogroup --clear-groups --no-new-privs --bounding-set=-all \
      --inh-caps=-all env -i HOME=/tmp PATH=/opt/venv/bin:/usr/bin:/bin sh -c "$2"' inside "$root" "$1"
}
chroot "$root" sh -c '/opt/venv/bin/pip install --quiet --no-index --no-deps /srv/*.whl'

works() {
  inside 'gradlane run -n 2 -- gradlane perf -b 4K -e 4M -f 32' || fail "gradlane perf has failed"
  inside 'gradlane run -n 2 --link udp -- gradlane perf -b 1M -e 1M' || fail "gradlane perf has failed over UDP"
  inside 'gradlane run -n 2 -- python3 -c "
import gradlane
ring = gradlane.open()
floats = ring.zeros(1000)
floats[:] = ring.rank + 1
ring.all_reduce(floats)
print(\"the sum of 1 and 2:\", floats[0], floats[-1])"' || fail "the Python package does not work"
  inside 'gradlaned --nodes 127.0.0.1,127.0.0.2 --rank 0 --port net_pcap0,iface=lo 2>&1 | tail -n 1 | cut -c 1-150' |
    tee "$scratch/said.txt"
  grep -q 'no DPDK driver net_pcap: this program contains only the drivers bus_pci' "$scratch/said.txt" || fail "a driver was found"
  # Lists libraries of these names that daemons, trainers and the command line have mapped. Only the wheel's libisal may
  # be among them.
  inside 'gradlane run -n 2 --no-prefix -- sh -c \
    "sleep 1; grep -hos \"/.*lib\(rte_\|isal\|fmt\|spdlog\|yaml\|numa\|bsd\|crypto\|stdc++\).*\" /proc/[0-9]*/maps; true"' |
    sort -u | tee "$scratch/mapped.txt"
  [ "$(cat "$scratch/mapped.txt")" = /opt/venv/lib/python3.11/site-packages/gradlane/lib/libisal.so.2 ] ||
    fail "the programs load libraries from outside the wheel"
}
works

step "beside a foreign DPDK, with all its drivers"
chroot "$root" sh -c 'apt-get update && apt-get install -y --no-install-recommends dpdk librte-meta-net' \
  >"$scratch/apt.log" 2>&1 || { tail "$scratch/apt.log"; fail "apt-get has failed"; }
find "$root/usr/lib" -name 'librte_net_memif.so*' -o -name 'librte_eal.so*' | sed "s|$root||"
works

step "pip install . on a Debian 12 without the packages of tools/setup.sh"
root=$from_source
copy_tree "$root/srv/gradlane"
"$scratch/venv/bin/pip" download --quiet --dest "$root/srv/packages" meson-python ninja
install='PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/packages /opt/venv/bin/pip install --no-deps /srv/gradlane'
! in_root "$root" "$install" >"$scratch/pip.txt" 2>&1 || fail "pip has built gradlane without a compiler"
grep 'gradlane cannot be built' "$scratch/pip.txt" || { cat "$scratch/pip.txt"; fail "pip does not say what is missing"; }

step "pip install . with the packages of tools/setup.sh"
in_root "$root" /srv/gradlane/tools/setup.sh || fail "tools/setup.sh has failed"
in_root "$root" "$install" >"$scratch/pip.txt" 2>&1 || { tail -n 40 "$scratch/pip.txt"; fail "pip install . has failed"; }
works

echo "the wheel works: $(basename "$wheel")"
