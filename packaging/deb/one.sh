# one.sh - tests on one machine that is not booted: each package is used, then all are purged; sourced by
# packaging/package-test.sh

on_one() { in_root "$root" "$1" "$scratch/one"; }

complete() {
  wanted=$2 says on_one "source /usr/share/bash-completion/bash_completion
    source /usr/share/bash-completion/completions/gradlane
    COMP_WORDS=($1) && COMP_CWORD=\$((\${#COMP_WORDS[@]} - 1)) && _gradlane && echo \"$1: \${COMPREPLY[*]}\""
}

use_programs() {
  wanted='all results are as the codec promises' says on_one 'gradlane run -n 2 -- gradlane perf -b 4K -e 1M -f 16'
  wanted='all results are as the codec promises' says on_one \
    'gradlane run -n 3 --link udp -- gradlane perf -b 1M -e 1M'
  wanted='wrong 0' says on_one '
    cd /tmp && cc -Wall -Werror /usr/share/doc/libgradlane-dev/examples/all_reduce.c \
      $(pkg-config --cflags --libs gradlane) -lm -o all_reduce && gradlane run -n 2 -- ./all_reduce'
  wanted='the sum: 3.0' says on_one 'gradlane run -n 2 -- python3 -c "
import gradlane
ring = gradlane.open()
floats = ring.zeros(1000)
floats[:] = ring.rank + 1
ring.all_reduce(floats)
print(\"the sum:\", floats[0])"'
  wanted='weights [0-9a-f]{16}' says on_one \
    'gradlane run -n 2 -- python3 /usr/share/doc/python3-gradlane/examples/ddp.py'
}

read_pages() {
  local page name
  for page in $(on_one 'cd /usr/share/man && ls man1/gradlane* man8/gradlane* | sed "s|.*/||; s|\.gz||"'); do
    name=${page%.*}
    wanted="^ *${name} - " says on_one "MANWIDTH=200 man ${page##*.} $name"
  done
  complete 'gradlane st' 'stats'
  complete 'gradlane run --link v' 'vhost veth'
  complete 'gradlane bench codec --q' '--quick'
  complete 'gradlaned --ti' '--tidy'
}

# Checks the unit without systemd as init, which does not run here.
look_at_unit() {
  local dropin
  on_one 'systemd-analyze verify --man=no /lib/systemd/system/gradlaned@.service' || fail "systemd-analyze verify finds faults in the unit"
  for dropin in "" packets.conf card.conf; do
    echo "${dropin:-sockets of the kernel}: $(on_one "mkdir /tmp/offline && cd /tmp/offline &&
      cat /lib/systemd/system/gradlaned@.service ${dropin:+/usr/share/doc/gradlane/examples/systemd/$dropin} \
        >gradlaned@.service && systemd-analyze security --offline=true --no-pager /tmp/offline/gradlaned@.service" |
      grep -a 'Overall' | sed 's/.*level for [^:]*: //; s/[^ -~]//g; s/[ :)-]*$//')"
  done
}

one_machine() {
  on_one "$list" >"$scratch/before.txt"
  quietly on_one 'apt-get install -y --no-install-recommends /srv/*.deb'
  on_one 'dpkg-query -W -f "\${Package} \${Version} \${Installed-Size} KiB\n" "*gradlane*"'
  on_one 'usermod -aG gradlane alice'

  step "programs, library, Python, manual, completion"
  use_programs
  read_pages

  step "what they are made of"
  on_one 'python3 /srv/check_sbom.py /usr/share/doc/gradlane/sbom.spdx.json' || fail "the SBOM differs from what is installed"

  step "the unit, as systemd sees it"
  look_at_unit

  step "purged"
  quietly on_one "apt-get purge -y ${ours//|/ }"
  on_one "$list" >"$scratch/after.txt"
  diff "$scratch/before.txt" "$scratch/after.txt" || fail "there are other files than before the installation"
  echo "the same $(wc -l <"$scratch/after.txt") files and folders as before"
  on_one 'grep "gradlane:" /etc/passwd /etc/group'
}
