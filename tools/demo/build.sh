# build.sh - set-up and build in front of a demonstration; sourced by its script, from the root of the repository
#
# demo_build TARGET... installs packages and builds the targets into build/; packages_seconds and build_seconds are how
# long these took.

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
