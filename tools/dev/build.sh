# build.sh - the programs that tools/setup.sh installs, and build folders; sourced by scripts, from the root

# Debian's programs come before others of the same name: a pyenv's python3 has no NumPy, pip's meson other defaults.
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

# help_if_asked "$@": of scripts whose first comment says all that there is to say.
help_if_asked() {
  case "${1:-}" in
    -h | --help)
      (cd "${OLDPWD:-.}" && sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0")
      exit 0
      ;;
  esac
}

# copy_tree FOLDER: what a commit of this tree would have.
copy_tree() {
  rm -rf "$1"
  mkdir -p "$1"
  git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
    xargs -0 cp --parents --no-dereference -t "$1"
}

step() { printf '\n== %s\n' "$*"; }

# configure FOLDER OPTION... configures a build folder, or an existing one again, which picks up changed options. What
# another meson has made is made anew.
configure() {
  local folder=$1 log=$1.log
  shift
  if [ -d "$folder/meson-private" ]; then
    meson setup --reconfigure "$folder" "$@" >"$log" 2>&1 && { rm -f "$log"; return; }
    grep -q 'generated with Meson version' "$log" && rm -rf "$folder"
  fi
  if ! meson setup "$folder" "$@" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "tools/${0##*/}: could not configure $folder; if it is from elsewhere, remove it and try again" >&2
    exit 1
  fi
  rm -f "$log"
}
