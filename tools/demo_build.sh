# demo_build.sh - set-up and build in front of a demonstration; sourced by its script, from the root of the repository
#
# demo_build MODULES TARGET... installs packages, builds the targets into build/, and sets `python` to one that has the
# Python modules, which are separated by spaces.

step() { printf '\n== %s\n' "$*"; }

demo_build() {
  local script=tools/${0##*/} modules=$1
  shift
  step "packages"
  tools/setup.sh

  step "build"
  local again=()
  [ -d build/meson-private ] && again=(--reconfigure)
  if ! meson setup "${again[@]}" build >build.log 2>&1; then
    tail -n 30 build.log >&2
    echo "$script: could not configure build; if it is from elsewhere, remove it and try again" >&2
    exit 1
  fi
  rm -f build.log
  local quiet=(--quiet)
  [ -t 1 ] && quiet=()  # ninja's line of progress is for terminals
  echo "some minutes the first time"
  ninja -C build "${quiet[@]}" "$@"

  # They are Debian packages, which another python3 in the PATH does not see.
  local look='import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))'
  for python in python3 /usr/bin/python3; do
    # shellcheck disable=SC2086  # words are what is wanted
    if "$python" -c "$look" $modules; then return; fi
  done
  echo "$script: no python3 here has $modules; run tools/setup.sh" >&2
  exit 1
}
