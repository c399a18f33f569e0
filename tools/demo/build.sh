# build.sh - installation of packages and build for a demonstration; sourced by its script, in the root of the
# repository
#
# demo_build TARGET... installs packages and builds the targets into build/. It sets packages_seconds and build_seconds
# to the time that these two took.

source dev/build.sh

demo_build() {
  local start=$SECONDS
  step "packages"
  tools/setup.sh
  packages_seconds=$((SECONDS - start))

  step "build"
  configure_native
  build build "$@"
  build_seconds=$((SECONDS - start - packages_seconds))
}
