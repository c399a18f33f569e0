#!/usr/bin/env bash
# usage: packaging/package-test.sh. Installs the packages that packaging/package.sh --older has built on a bare Debian
# 12, uses each of them, and purges all again. Then it boots four bare machines with systemd. Two of them run a training
# by the commands of docs/install.md. All four become a ring, in which two have an older release, and one is upgraded
# during a training. Needs root, debootstrap, apt's registry, and 12 GB in TMPDIR (/tmp). It takes some minutes; the
# first time most of that is apt.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh
help_if_asked "$@"
source packaging/deb/machines.sh

packages=$PWD/build-package/first
older=$PWD/build-package/older
scratch=$(mktemp -d "${TMPDIR:-/tmp}/gradlane-package-XXXXXX")
chmod 755 "$scratch"
root=$scratch/debian
trap 'end_machines; rm -rf --one-file-system "$scratch"' EXIT

fail() {
  echo "packaging/package-test.sh: $*" >&2
  exit 1
}
for folder in "$packages" "$older"; do
  ls "$folder"/*.deb >/dev/null || fail "there are no packages in $folder; run packaging/package.sh --older first"
done

# says COMMAND... prints matching lines of the command's output. It fails, with the output, if the command fails or no
# line matches $wanted.
says() {
  local text
  text=$("$@" 2>&1) || { echo "$text" | tail -n 30; fail "$* has failed"; }
  grep -qE -- "$wanted" <<<"$text" || { echo "$text" | tail -n 30; fail "$* does not say '$wanted'"; }
  grep -E -- "${shown:-$wanted}" <<<"$text" | head -n "${lines:-4}"
}
quietly() { "$@" >"$scratch/apt.log" 2>&1 || { tail -n 20 "$scratch/apt.log"; fail "apt-get has failed"; }; }

# A command that lists all files and folders. It leaves out files that any running machine writes, and the PyTorch that
# this script copies.
list='find / -xdev -not -path "/srv/*" -not -path "/var/cache/*" -not -path "/var/lib/apt/*" -not -path "/var/lib/dpkg/*" \
  -not -path "/var/lib/systemd/*" -not -path "/var/log/*" -not -path "/etc/*-" -not -path "/tmp/*" \
  -not -path "/var/tmp/systemd-*" -not -path "/root/.cache*" -not -path "/usr/local/lib/python3*" | LC_ALL=C sort'
ours='gradlane|gradlane-doc|libgradlane0|libgradlane-dev|python3-gradlane'

source packaging/deb/one.sh
source packaging/deb/four.sh

dev/pytorch.sh
step "a bare Debian 12"
# First installs all packages that are not ours, so that all later changes are made by our packages. The result is kept
# for the next time.
extra="systemd dbus python3-dev python3-numpy binutils gcc g++ libc6-dev pkg-config man-db bash-completion libgomp1"
recommended=$(dpkg-deb -f "$packages"/gradlane_*.deb Recommends | tr -s ',\n' ' ')
cache=build-package/debian-$({ cat debian/control && echo "$extra $recommended"; } | sha256sum | cut -c 1-12).tar
if [ ! -e "$cache" ]; then
  debootstrap --variant=minbase bookworm "$root" http://deb.debian.org/debian >"$scratch/debootstrap.log" 2>&1 ||
    { tail "$scratch/debootstrap.log"; fail "debootstrap has failed"; }
  cp "$packages"/*.deb "$root/srv/"
  quietly in_root "$root" "
    set -eo pipefail
    apt-get update
    others=\$(apt-get --simulate install --no-install-recommends /srv/*.deb | awk '/^Inst/ {print \$2}' |
      grep -vxE '$ours')
    apt-get install -y --no-install-recommends \$others $recommended $extra
    rm /srv/*.deb"
  rm -f build-package/debian-*.tar
  tar -C "$root" -cf "$cache.new" . && mv "$cache.new" "$cache"
else
  mkdir "$root" && tar -C "$root" -xf "$cache"
fi
# Copies PyTorch to the folder where pip installs it.
mkdir -p "$root/usr/local/lib/python3.11/dist-packages"
cp -r build-pytorch/lib/python3.11/site-packages/. "$root/usr/local/lib/python3.11/dist-packages/"
mkdir "$root/srv/older"
cp "$packages"/*.deb packaging/deb/{check_sbom,train_until}.py "$root/srv/"
cp "$older"/*.deb "$root/srv/older/"
in_root "$root" 'useradd --create-home alice'

one_machine
four_machines
echo "the packages work"
