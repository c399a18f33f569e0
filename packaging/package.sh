#!/usr/bin/env bash
# Builds the Debian packages of this tree, checks them with lintian and hardening-check, and compares the library's
# interface with that of the last release.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh

out=build-package
twice=false
older=false
while [ $# -gt 0 ]; do
  case "$1" in
    --twice) twice=true ;;
    --older) older=true ;;
    *)
      cat <<'HELP'
usage: packaging/package.sh [--twice] [--older]

Builds gradlane, libgradlane0, libgradlane-dev, python3-gradlane and gradlane-doc in build-package/, from what is in this
tree, committed or not. What it needs: tools/setup.sh --all.

  --twice  and again, in another folder, time zone and locale: are all packages the same, to the byte?
  --older  and as version 0.0.9, in build-package/older/, for packaging/package-test.sh to upgrade from
HELP
      [ "$1" = --help ] && exit 0 || exit 2
      ;;
  esac
  shift
done
version=$(dpkg-parsechangelog -S Version)

fail() {
  echo "packaging/package.sh: $*" >&2
  exit 1
}

# build FOLDER [VERSION] copies $out/tree into FOLDER, as that version, and builds its packages there.
build() {
  local as=${2:-$version}
  local tree=$1/gradlane-$as
  rm -rf "$1"
  mkdir -p "$1"
  cp -R --no-dereference "$out/tree" "$tree"
  sed -i "s/version: '$version'/version: '$as'/" "$tree/meson.build"
  if [ "$as" != "$version" ]; then
    sed -i "1s/($version)/($as)/; s/^\( -- .*>  \).*/\1Thu, 01 Jan 2026 12:00:00 +0000/" "$tree/debian/changelog"
  fi
  (
    cd "$tree"
    export DEB_BUILD_OPTIONS="parallel=$(nproc)"
    dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes
  ) >"$1/build.log" 2>&1 || { tail -n 40 "$1/build.log"; fail "dpkg-buildpackage has failed: $1/build.log"; }
}

grep -q "version: '$version'" meson.build || fail "debian/changelog has another version than meson.build"
grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md does not have version $version"

step "build"
copy_tree "$out/tree"  # one copy for all builds, as the tree may change meanwhile
LC_ALL=C.UTF-8 TZ=UTC build "$out/first"
ls -l --block-size=KB "$out/first"/*.deb | awk '{print $5, $NF}'

step "lintian"
lintian --allow-root --fail-on error,warning "$out/first"/*.changes

step "hardening"
unpacked=$out/unpacked
rm -rf "$unpacked"
for package in gradlane libgradlane0; do dpkg-deb -x "$out/first/${package}_${version}_amd64.deb" "$unpacked"; done
# The library has no further calls that could be fortified.
hardening-check --color --nocfprotection "$unpacked"/usr/bin/gradlane "$unpacked"/usr/bin/gradlaned
hardening-check --color --nocfprotection "$unpacked"/usr/lib/*/{libgradlane.so.0,gradlane/libnccl-net-gradlane.so}

step "interface"
packaging/deb/interface.sh

if $older; then
  step "an older release"
  LC_ALL=C.UTF-8 TZ=UTC build "$out/older" 0.0.9
  ls "$out/older"/*.deb
fi

if $twice; then
  step "once more"
  # Without the compiler cache, as files from it would not be built a second time.
  (umask 027 && CCACHE_DISABLE=1 LC_ALL=C TZ=Asia/Tokyo build "$out/second")
  (cd "$out/first" && sha256sum -- *.deb) >"$out/first.txt"
  (cd "$out/second" && sha256sum -- *.deb) >"$out/second.txt"
  diff "$out/first.txt" "$out/second.txt" || fail "the two builds are not the same"
  cat "$out/first.txt"
fi
