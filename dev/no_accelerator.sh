#!/bin/sh
# Builds gradlane without accelerator mode, and runs the suites unit and sim. Then asks for the mode: the programs must
# fail and say that they were built without it.
set -eu
cd "$(dirname "$0")/.."
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
folder=build-no-accelerator
[ -e "$folder/build.ninja" ] || meson setup "$folder" -Daccelerator=false
ninja -C "$folder" tools/gradlane tools/gradlaned
meson test -C "$folder" --suite unit --suite sim
file=$folder/accelerator.yaml
printf '%s\n' 'mode: accelerator' "host: {device: 'net_af_packet0,iface=h0'}" "wire: {device: 'net_af_packet1,iface=w0'}" \
  >"$file"
for command in "gradlaned --config $file" "gradlane check --config $file"; do
  # shellcheck disable=SC2086
  if text=$("$folder/tools"/$command 2>&1) || ! echo "$text" | grep -q 'built without'; then
    echo "$command should fail and say that it was built without accelerator mode: $text"
    exit 1
  fi
done
echo "OK: without accelerator mode"
