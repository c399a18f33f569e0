# build.sh - functions for the programs that tools/setup.sh installs, and for build folders. Scripts source it in the
# root of the repository.

# Debian's programs come before others of the same name: the python3 of a pyenv has no NumPy, and pip's meson has other
# defaults.
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

# help_if_asked "$@" prints the first comment of the script and exits, if the first argument is -h or --help.
help_if_asked() {
  case "${1:-}" in
    -h | --help)
      (cd "${OLDPWD:-.}" && sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0")
      exit 0
      ;;
  esac
}

# use_pytorch ROOT makes python3 the one with PyTorch that tools/setup.sh --test installs. It has Debian's packages,
# too.
use_pytorch() {
  local venv=$1/build-pytorch
  PATH=$venv/bin:$PATH
  export TORCH_EXTENSIONS_DIR=$venv/extensions PYTHONPYCACHEPREFIX=$venv/pycache
}

# copy_tree FOLDER replaces FOLDER with a copy of the files that a commit of this tree would have.
copy_tree() {
  rm -rf "$1"
  mkdir -p "$1"
  git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
    xargs -0 cp --parents --no-dereference -t "$1"
}

# show_progress WHAT shows the percentages of the lines "[ 45%] ..." of its input. On a terminal it rewrites one line;
# elsewhere it prints a line for each tenth. It passes other lines on.
show_progress() {
  local line percent shown=-1
  while IFS= read -r line; do
    if [[ ! $line =~ ^\[\ *([0-9]+)%\] ]]; then
      [ ! -t 1 ] || [ "$shown" -lt 0 ] || echo
      printf '%s\n' "$line"
      continue
    fi
    percent=${BASH_REMATCH[1]}
    if [ -t 1 ]; then
      [ "$percent" -le "$shown" ] || printf '\r%s: %d %%' "$1" "$percent"
    else
      [ $((percent / 10)) -le $((shown / 10)) ] || printf '%s: %d %%\n' "$1" "$percent"
    fi
    [ "$percent" -le "$shown" ] || shown=$percent
  done
  [ ! -t 1 ] || [ "$shown" -lt 0 ] || echo
}

step() { printf '\n== %s\n' "$*"; }

# configure FOLDER OPTION... configures a build folder, or reconfigures an existing one with changed options. It deletes
# a folder that another Meson version has made.
configure() {
  local folder=$1 log=$1.log
  shift
  if [ -d "$folder/meson-private" ]; then
    meson setup --reconfigure "$folder" "$@" >"$log" 2>&1 && { rm -f "$log"; return; }
    grep -q 'generated with Meson version' "$log" && rm -rf "$folder"
  fi
  if ! meson setup "$folder" "$@" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "tools/${0##*/}: could not configure $folder; if another checkout made it, remove it and try again" >&2
    exit 1
  fi
  rm -f "$log"
}

# ---- The build folders

# Programs with sanitizers have line numbers as their only debugging information, for reports.
sanitizer_args=-gline-tables-only
sanitizer_options=(-Dunity=on -Dunity_size=8 -Dassertions=true -Db_lundef=false -Doptimization=1)

# Configures the build that users run. The demo and the tests of complete programs share it.
configure_native() { configure build -Dassertions=false; }

# configure_clang FOLDER OPTION... configures a build folder with Clang and mold, and with ccache if it is installed.
configure_clang() {
  local ccache=
  [ ! -x /usr/bin/ccache ] || ccache="ccache "
  CC="${ccache}clang" CXX="${ccache}clang++" CC_LD=mold CXX_LD=mold configure "$@"
}
# Configures a folder with AddressSanitizer and UndefinedBehaviorSanitizer.
configure_sanitize() { configure_address build-sanitize; }
configure_address() {
  configure_clang "$@" "${sanitizer_options[@]}" -Db_sanitize=address,undefined \
    "-Dcpp_args=-fno-sanitize-recover=all $sanitizer_args" "-Dc_args=-fno-sanitize-recover=all $sanitizer_args"
}
# Configures a folder with the same sanitizers and libFuzzer's instrumentation, which takes up to a third of the compile
# time.
configure_fuzz() { configure_address build-fuzz -Dfuzz=true; }
# Configures a folder with ThreadSanitizer.
configure_thread() {
  configure_clang build-thread "${sanitizer_options[@]}" -Doptimization=0 -Db_sanitize=thread "-Dcpp_args=$sanitizer_args" \
    "-Dc_args=$sanitizer_args"
}

# build FOLDER TARGET... builds the targets and shows the progress. Without a terminal, ninja gets SIGTERM when the
# script dies.
build() {
  local folder=$1
  shift
  if [ -t 1 ]; then
    ninja -C "$folder" "$@"
  else
    NINJA_STATUS='[%p] ' setpriv --pdeathsig TERM -- ninja -C "$folder" "$@" | sed -u '/^ninja: Entering/d' |
      show_progress "built"
  fi
}
