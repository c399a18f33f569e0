#!/usr/bin/env bash
# usage: tools/package-test.sh. Installs the packages that tools/package.sh has built on a bare Debian 12, uses each of
# them, has two machines boot from that, with systemd, and train over a cable between them by the commands of
# docs/install.md, and purges all again. Needs root, debootstrap, and apt's registry. Some minutes; most of that is apt.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/dev/build.sh
source tools/package/machines.sh

packages=$PWD/build-package/first
scratch=$(mktemp -d /tmp/gradlane-package-XXXXXX)
chmod 755 "$scratch"
root=$scratch/debian
trap 'end_machines; rm -rf --one-file-system "$scratch"' EXIT

fail() {
  echo "tools/package-test.sh: $*" >&2
  exit 1
}
ls "$packages"/*.deb >/dev/null || fail "there are no packages in $packages: tools/package.sh"

# says COMMAND... what it says; fails, with that, if it fails or does not say $wanted.
says() {
  local text
  text=$("$@" 2>&1) || { echo "$text" | tail -n 30; fail "$* has failed"; }
  grep -qE -- "$wanted" <<<"$text" || { echo "$text" | tail -n 30; fail "$* does not say '$wanted'"; }
  grep -E -- "${shown:-$wanted}" <<<"$text" | head -n "${lines:-4}"
}

# ---- One machine, that does not run

step "a bare Debian 12"
# What is not ours is installed first: what the packages leave is what is there beyond it. Kept for the next time.
extra="systemd dbus python3-torch gcc libc6-dev pkg-config man-db bash-completion libgomp1"
ours='gradlane|gradlane-doc|libgradlane0|libgradlane-dev|python3-gradlane'
quietly() { "$@" >"$scratch/apt.log" 2>&1 || { tail -n 20 "$scratch/apt.log"; fail "apt-get has failed"; }; }
cache=build-package/debian-$({ cat debian/control && echo "$extra"; } | sha256sum | cut -c 1-12).tar
if [ ! -e "$cache" ]; then
  debootstrap --variant=minbase bookworm "$root" http://deb.debian.org/debian >"$scratch/debootstrap.log" 2>&1 ||
    { tail "$scratch/debootstrap.log"; fail "debootstrap has failed"; }
  cp "$packages"/*.deb "$root/srv/"
  quietly in_root "$root" "
    set -eo pipefail
    apt-get update
    others=\$(apt-get --simulate install --no-install-recommends /srv/*.deb | awk '/^Inst/ {print \$2}' |
      grep -vxE '$ours')
    apt-get install -y --no-install-recommends \$others $extra
    rm /srv/*.deb"
  rm -f build-package/debian-*.tar
  tar -C "$root" -cf "$cache.new" . && mv "$cache.new" "$cache"
else
  mkdir "$root" && tar -C "$root" -xf "$cache"
fi
cp "$packages"/*.deb "$root/srv/"
files() {
  in_root "$root" "find / -xdev -not -path '/srv/*' -not -path '/var/cache/*' -not -path '/var/lib/apt/*' \
    -not -path '/var/lib/dpkg/*' -not -path '/var/log/*' -not -path '/etc/*-' -not -path '/tmp/*' | LC_ALL=C sort"
}
files >"$scratch/before.txt"
installed() { quietly in_root "$root" 'apt-get install -y --no-install-recommends /srv/*.deb'; }
installed
in_root "$root" 'dpkg-query -W -f "\${Package} \${Version} \${Installed-Size} KiB\n" "*gradlane*"'
in_root "$root" 'useradd --create-home alice && usermod -aG gradlane alice'

step "programs, library, Python, manual, completion"
wanted='all results are as the codec promises' says in_root "$root" \
  'gradlane run -n 2 -- gradlane perf -b 4K -e 1M -f 16'
wanted='all results are as the codec promises' says in_root "$root" \
  'gradlane run -n 3 --link udp -- gradlane perf -b 1M -e 1M'
wanted='wrong 0' says in_root "$root" '
  cd /tmp && cc -Wall -Werror /usr/share/doc/libgradlane-dev/examples/all_reduce.c \
    $(pkg-config --cflags --libs gradlane) -lm -o all_reduce && gradlane run -n 2 -- ./all_reduce'
wanted='the sum: 3.0' says in_root "$root" 'gradlane run -n 2 -- python3 -c "
import gradlane
ring = gradlane.open()
floats = ring.zeros(1000)
floats[:] = ring.rank + 1
ring.all_reduce(floats)
print(\"the sum:\", floats[0])"'
wanted='weights [0-9a-f]{16}' says in_root "$root" \
  'gradlane run -n 2 -- python3 /usr/share/doc/python3-gradlane/examples/train.py'
for page in $(cd "$root/usr/share/man" && ls man1/gradlane* man8/gradlane* | sed 's|.*/||; s|\.gz||'); do
  name=${page%.*}
  wanted="^ *${name} - " says in_root "$root" "MANWIDTH=200 man ${page##*.} $name"
done
complete() {
  wanted=$2 says in_root "$root" "source /usr/share/bash-completion/bash_completion
    source /usr/share/bash-completion/completions/gradlane
    COMP_WORDS=($1) && COMP_CWORD=\$((\${#COMP_WORDS[@]} - 1)) && _gradlane && echo \"$1: \${COMPREPLY[*]}\""
}
complete 'gradlane st' 'stats'
complete 'gradlane run --link v' 'vhost veth'
complete 'gradlane bench codec --q' '--quick'
complete 'gradlaned --ti' '--tidy'

step "the unit, as systemd sees it"
in_root "$root" 'systemd-analyze verify --man=no /lib/systemd/system/gradlaned@.service' || fail "not as it should be"
unit=$(in_root "$root" 'cat /lib/systemd/system/gradlaned@.service')
for dropin in "" packets.conf card.conf; do
  mkdir -p "$scratch/offline"
  { echo "$unit"; [ -z "$dropin" ] || grep -v '^#' "$root/usr/share/doc/gradlane/examples/systemd/$dropin"; } \
    >"$scratch/offline/gradlaned@.service"
  echo "${dropin:-sockets of the kernel}: $(systemd-analyze security --offline=true --no-pager \
    "$scratch/offline/gradlaned@.service" | grep -a 'Overall' | sed 's/.*level for [^:]*: //; s/[^ -~]//g')"
done

# ---- Two machines that run

step "two machines, and a training over both"
boot_machine "$root" "$scratch/0" node-a
boot_machine "$root" "$scratch/1" node-b
connect_machines
# The commands that people are told, but for the first one, which has been run above: they have no network but that.
mapfile -t commands < <(sed -n '/^```sh ten-commands/,/^```$/p' docs/install.md | grep -vE '^(```|#|$)')
[ ${#commands[@]} -ge 6 ] && [ ${#commands[@]} -le 10 ] || fail "docs/install.md has ${#commands[@]} commands"
for command in "${commands[@]}"; do
  case "$command" in
    apt*) ;;
    RANK=*)
      number=${command:5:1}
      # Nothing is started: it must find the service.
      on_machine "$number" "export GRADLANE_START=0; ${command/train.py/\/usr\/share\/doc\/python3-gradlane\/examples\/train.py}" alice \
        >"$scratch/trained$number.txt" 2>&1 &
      trainers+=($!)
      ;;
    *)
      echo "# $command"
      for i in 0 1; do on_machine "$i" "$command" >"$scratch/said$i.txt" 2>&1 & said[i]=$!; done
      for i in 0 1; do wait "${said[$i]}" || { cat "$scratch/said$i.txt"; fail "on node $i: $command"; }; done
      grep -hE '^FAIL|neighbour' "$scratch/said0.txt" || true
      ;;
  esac
done
for trainer in "${trainers[@]}"; do
  wait "$trainer" || { tail -n 20 "$scratch"/trained?.txt; fail "the training has failed"; }
done
cat "$scratch"/trained?.txt
[ "$(grep -h weights "$scratch"/trained?.txt | sed 's/.*: //' | sort -u | wc -l)" = 1 ] || fail "not the same weights"
wanted='Status: .*1 of 1 neighbours are up' lines=1 says on_machine 0 'systemctl status --no-pager gradlaned@ring'
# privileges INSTANCE: of its daemon.
privileges() {
  on_machine 0 "cd /proc/\$(systemctl show -P MainPID gradlaned@$1)
    stat -c 'user %U' . && grep -E '^(CapEff|NoNewPrivs|Seccomp):' status" | tee "$scratch/privileges.txt"
  grep -qx 'user gradlane' "$scratch/privileges.txt" || fail "another user"
}
privileges ring

step "a daemon that hangs"
on_machine 0 'mkdir -p /run/systemd/system/gradlaned@ring.service.d
  printf "[Service]\nWatchdogSec=1s\n" >/run/systemd/system/gradlaned@ring.service.d/soon.conf
  systemctl daemon-reload && systemctl restart gradlaned@ring
  kill -STOP "$(systemctl show -P MainPID gradlaned@ring)"
  for i in $(seq 300); do [ "$(systemctl show -P NRestarts gradlaned@ring)" != 0 ] && break; sleep 0.1; done
  for i in $(seq 300); do systemctl is-active --quiet gradlaned@ring && break; sleep 0.1; done
  systemctl show -P NRestarts -P ActiveState -P Result gradlaned@ring; systemctl is-active --quiet gradlaned@ring' ||
  fail "it was not started again"

step "AF_PACKET, by the drop-in"
for i in 0 1; do
  on_machine "$i" "systemctl stop gradlaned@ring
    gradlaned --nodes 10.77.0.1,10.77.0.2 --rank $i --port af_packet:eth0 --check >/etc/gradlane/packets.yaml
    mkdir -p /etc/systemd/system/gradlaned@packets.service.d
    cp /usr/share/doc/gradlane/examples/systemd/packets.conf /etc/systemd/system/gradlaned@packets.service.d/
    systemctl daemon-reload && systemctl start gradlaned@packets" || {
    on_machine "$i" 'journalctl -n 20 --no-pager -u gradlaned@packets'; fail "it does not start"; }
done
for i in 0 1; do on_machine "$i" 'gradlane perf -b 1M -e 1M' alice >"$scratch/perf$i.txt" 2>&1 & perf[i]=$!; done
for i in 0 1; do wait "${perf[$i]}" || { cat "$scratch/perf$i.txt"; fail "gradlane perf has failed"; }; done
wanted='all results are as the codec promises' says cat "$scratch/perf0.txt"
privileges packets

step "purged, where it ran"
on_machine 0 "DEBIAN_FRONTEND=noninteractive apt-get purge -y ${ours//|/ }" >"$scratch/purge.log" 2>&1 ||
  { tail "$scratch/purge.log"; fail "purge has failed"; }
left=$(on_machine 0 "find / -xdev -name '*gradlane*' -not -path '/srv/*' -not -path '/var/log/*'; find /run -name '*gradlane*' \
  -not -path '/run/systemd/*' -not -path '/run/log/*'")
[ -z "$left" ] || fail "left behind: $left"

step "purged"
end_machines
quietly in_root "$root" "apt-get purge -y ${ours//|/ }; userdel --remove alice"
files >"$scratch/after.txt"
diff "$scratch/before.txt" "$scratch/after.txt" || fail "that is not what was there before"
echo "the same $(wc -l <"$scratch/after.txt") files and folders as before"
in_root "$root" 'grep gradlane /etc/passwd /etc/group'
echo "the packages work"
