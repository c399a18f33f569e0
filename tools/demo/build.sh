# build.sh - set-up and build in front of a demonstration; sourced by its script, from the root of the repository
#
# demo_build TARGET... installs packages and builds the targets into build/.

source tools/dev/build.sh

demo_build() {
  step "packages"
  tools/setup.sh

  step "build"
  configure_native
  build build "$@"
}
