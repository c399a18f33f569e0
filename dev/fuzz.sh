#!/usr/bin/env bash
# Builds a fuzzer and searches for new findings, starting from its corpus: dev/fuzz.sh NAME [SECONDS] (60).
set -euo pipefail
cd "$(dirname "$0")/.."
source dev/build.sh
help_if_asked "$@"

name=${1:?name a fuzzer of tests/fuzz/meson.build}
declare -A longest=([bundle]=1600 [calibration]=4096 [codec]=600 [config]=2048 [exchange]=4096 [http]=1024
  [profile]=2048 [server]=2048 [superpacket]=4096 [top]=4096 [trainer]=600)
findings=build-findings/$name/  # this folder stays when build folders are removed
grown=build-fuzz/corpus/$name
mkdir -p "$findings" "$grown"
[ -d build-fuzz/meson-private ] || configure_fuzz
ninja -C build-fuzz --quiet "tests/fuzz/${name}_fuzz"
if ! "build-fuzz/tests/fuzz/${name}_fuzz" "$grown" "tests/fuzz/corpus/$name" -max_len="${longest[$name]:-256}" \
  -timeout=20 -max_total_time="${2:-60}" -verbosity=0 -print_final_stats=1 -artifact_prefix="$findings"; then
  echo "dev/fuzz.sh: $name failed; fix the bug, and copy the input from $findings to tests/fuzz/corpus/$name" >&2
  exit 1
fi
