#!/usr/bin/env bash
# usage: dev/site.sh [--draft | --serve]. Builds the documentation site from README.md and docs/ in build-site/html/.
# Open build-site/html/index.html; the site needs no web server and no network.
#
# default   fails if a link or an anchor is dead, or if docs/README.md lacks a page
# --draft   only prints these faults
# --serve   serves the site at http://127.0.0.1:8000 and builds it again when a page changes, until Ctrl-C
#
# pip installs MkDocs in build-site/ the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh
help_if_asked "$@"

venv=build-site
command=(build --strict)
case "${1:-}" in
  '') ;;
  --draft) command=(build) ;;
  --serve) command=(serve --dev-addr 127.0.0.1:8000) ;;
  *) echo "dev/site.sh: unknown argument '$1'; see dev/site.sh --help" >&2 && exit 2 ;;
esac

if ! cmp -s dev/site.txt "$venv/installed.txt"; then
  rm -rf "$venv"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  echo "installing MkDocs in $venv/: about 20 MB to download"
  if ! { /usr/bin/python3 -m venv "$venv" &&
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/pip" install --no-deps -r dev/site.txt; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "dev/site.sh: pip could not install the packages of dev/site.txt (python3 -m venv needs python3-venv)" >&2
    exit 1
  fi
  cp dev/site.txt "$venv/installed.txt"
fi
# Material for MkDocs prints advertisements for its successor unless this is set.
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" "${command[@]}" 2>&1 | sed -u "/^INFO  .*\(Cleaning\|Building\|built\)/d"
[ "${command[0]}" = serve ] || echo "build-site/html/index.html is the front page"
