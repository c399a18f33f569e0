# four.sh - tests on four machines that boot from a bare Debian; sourced by packaging/package-test.sh
#
# Two machines run the commands of docs/install.md. All four become a ring, in which two have an older release. One is
# upgraded during a training. The packages are purged where daemons have run.

all=(0 1 2 3)

# each COMMAND MACHINE... runs COMMAND on these machines at the same time; the output of machine I is in
# $scratch/saidI.txt.
each() {
  local command=$1 i
  local -A running=()
  shift
  for i in "$@"; do on_machine "$i" "$command" >"$scratch/said$i.txt" 2>&1 & running[$i]=$!; done
  for i in "$@"; do wait "${running[$i]}" || { tail -n 30 "$scratch/said$i.txt"; fail "on node $i: $command"; }; done
}

# Runs the commands of docs/install.md, unchanged, on the first two machines. These are fresh, and have no network but
# the one between them. Packages are in /srv, where root works. The script is in alice's home, where she works.
ten_commands() {
  local command commands number trainers=()
  mapfile -t commands < <(sed -n '/^```sh.* ten-commands$/,/^```$/p' docs/install.md | grep -vE '^(```|#|$)')
  [ ${#commands[@]} -ge 6 ] && [ ${#commands[@]} -le 10 ] || fail "docs/install.md has ${#commands[@]} commands"
  for command in "${commands[@]}"; do
    echo "# $command"
    case "$command" in
      RANK=*)
        number=${command:5:1}
        on_machine "$number" 'cp /usr/share/doc/python3-gradlane/examples/ddp.py /home/alice/train.py'
        # No daemon may be started here, so the script must find the service.
        on_machine "$number" "cd ~alice && export GRADLANE_START=0; $command" alice >"$scratch/trained$number.txt" 2>&1 &
        trainers+=($!)
        ;;
      *)
        # apt asks one question.
        each "cd /srv; echo y | { $command; }" 0 1
        grep -hE '^FAIL|neighbour' "$scratch/said0.txt" || true
        ;;
    esac
  done
  [ ${#trainers[@]} = 2 ] || fail "docs/install.md has ${#trainers[@]} trainers"
  finished "${trainers[@]}"
}

# train SCRIPT MACHINE... starts a rank on each machine, in the background. Their processes are in $trainers.
train() {
  local script=$1 rank=0 i
  shift
  trainers=()
  rm -f "$scratch"/trained?.txt
  for i in "$@"; do
    on_machine "$i" "cd ~alice && GRADLANE_START=0 RANK=$rank WORLD_SIZE=$# MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 \
      python3 $script" alice >"$scratch/trained$rank.txt" 2>&1 &
    trainers+=($!)
    rank=$((rank + 1))
  done
}

# finished PROCESS... waits for all trainers. It fails unless all succeed and have the same weights.
finished() {
  local it
  for it in "$@"; do wait "$it" || { tail -n 20 "$scratch"/trained?.txt; fail "the training has failed"; }; done
  grep -hE "${shown:-.}" "$scratch"/trained?.txt
  sed -n 's/.*weights //p' "$scratch"/trained?.txt >"$scratch/weights.txt"
  [ "$(wc -l <"$scratch/weights.txt")" = $# ] || fail "some ranks have no weights"
  [ "$(sort -u "$scratch/weights.txt" | wc -l)" = 1 ] || fail "not the same weights"
}

# privileges INSTANCE prints the privileges of its daemon. It fails if the user is not gradlane.
privileges() {
  on_machine 0 "cd /proc/\$(systemctl show -P MainPID gradlaned@$1)
    stat -c 'user %U' . && grep -E '^(CapEff|NoNewPrivs|Seccomp):' status" | tee "$scratch/privileges.txt"
  grep -qx 'user gradlane' "$scratch/privileges.txt" || fail "the daemon does not run as user gradlane"
}

a_daemon_that_hangs() {
  on_machine 0 'mkdir -p /run/systemd/system/gradlaned@ring.service.d
    printf "[Service]\nWatchdogSec=1s\n" >/run/systemd/system/gradlaned@ring.service.d/soon.conf
    systemctl daemon-reload && systemctl restart gradlaned@ring
    kill -STOP "$(systemctl show -P MainPID gradlaned@ring)"
    for i in $(seq 300); do [ "$(systemctl show -P NRestarts gradlaned@ring)" != 0 ] && break; sleep 0.1; done
    for i in $(seq 300); do systemctl is-active --quiet gradlaned@ring && break; sleep 0.1; done
    systemctl show -P NRestarts -P ActiveState -P Result gradlaned@ring; systemctl is-active --quiet gradlaned@ring' ||
    fail "the daemon was not started again"
}

packets_of_an_interface() {
  local i perf=()
  for i in 0 1; do
    on_machine "$i" "systemctl stop gradlaned@ring
      gradlaned --nodes 10.77.0.1,10.77.0.2 --rank $i --port af_packet:eth0 --check >/etc/gradlane/packets.yaml
      mkdir -p /etc/systemd/system/gradlaned@packets.service.d
      cp /usr/share/doc/gradlane/examples/systemd/packets.conf /etc/systemd/system/gradlaned@packets.service.d/
      systemctl daemon-reload && systemctl start gradlaned@packets" || {
      on_machine "$i" 'journalctl -n 20 --no-pager -u gradlaned@packets'; fail "gradlaned@packets does not start"; }
  done
  for i in 0 1; do on_machine "$i" 'gradlane perf -b 1M -e 1M' alice >"$scratch/perf$i.txt" 2>&1 & perf[i]=$!; done
  for i in 0 1; do wait "${perf[$i]}" || { cat "$scratch/perf$i.txt"; fail "gradlane perf has failed"; }; done
  wanted='all results are as the codec promises' says cat "$scratch/perf0.txt"
  privileges packets
  each 'systemctl stop gradlaned@packets' 0 1
}

# Installs the older release on the other two machines, and runs a training on all four.
four_nodes() {
  each 'cd /srv/older && apt-get install -y ./gradlane_*.deb ./libgradlane0_*.deb ./python3-gradlane_*.deb &&
    usermod -aG gradlane alice' 2 3
  each 'gradlaned --nodes 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4 --check >/etc/gradlane/four.yaml &&
    systemctl disable --now gradlaned@ring 2>/dev/null; systemctl enable --now gradlaned@four &&
    gradlane check --config /etc/gradlane/four.yaml' "${all[@]}"
  for i in "${all[@]}"; do
    on_machine "$i" 'cp /usr/share/doc/python3-gradlane/examples/ddp.py /home/alice/train.py; cp /srv/train_until.py /home/alice/
      echo "$(gradlaned --version), $(systemctl show -P StatusText gradlaned@four)"'
  done
  train train.py "${all[@]}"
  shown=weights finished "${trainers[@]}"
}

# steps prints how many steps the training has done.
steps() { on_machine 0 'cat /tmp/enough.steps 2>/dev/null || true'; }

# more_steps waits until the training has done more steps than now.
more_steps() {
  local before
  before=$(steps)
  for _ in $(seq 600); do
    [ "$(steps)0" -gt "${before:-0}0" ] && return
    sleep 0.1
  done
  tail -n 20 "$scratch"/trained?.txt
  fail "the training stands still after ${before:-no} steps"
}

upgrade='cd /srv && apt-get install -y ./gradlane_*.deb ./libgradlane0_*.deb ./python3-gradlane_*.deb'

# Upgrades node 2 while all nodes train. Its daemon must go on running, and so must the training.
upgrade_in_training() {
  local it
  train 'train_until.py /tmp/enough' "${all[@]}"
  more_steps
  on_machine 2 "before=\$(systemctl show -P MainPID gradlaned@four)
    ($upgrade) >/tmp/apt.log 2>&1 || { tail /tmp/apt.log; exit 1; }
    [ \"\$(systemctl show -P MainPID gradlaned@four)\" = \"\$before\" ] || { echo 'another daemon runs'; exit 1; }
    [ \"\$(systemctl show -P NeedDaemonReload gradlaned@four)\" = no ] || { echo 'systemd has the old unit'; exit 1; }
    echo \"installed: \$(gradlaned --version); runs: \$(/proc/\$before/exe --version)\"" || fail "no upgrade"
  for it in "${trainers[@]}"; do
    kill -0 "$it" || { tail -n 20 "$scratch"/trained?.txt; fail "a trainer has ended"; }
  done
  more_steps
  on_machine 0 'touch /tmp/enough'
  finished "${trainers[@]}"
  echo "once more, on node 2 the new library with the old daemon:"
  train train.py "${all[@]}"
  shown='rank 2.*weights' finished "${trainers[@]}"
  on_machine 2 "systemctl restart 'gradlaned@*'
    echo \"restarted: \$(/proc/\$(systemctl show -P MainPID gradlaned@four)/exe --version)\""
  each "$upgrade && systemctl restart 'gradlaned@*'" 3
  train train.py "${all[@]}"
  shown='rank 3.*weights' finished "${trainers[@]}"
}

# Purges the packages on machine 0, which has had services, and on machine 2, which was upgraded.
purged_where_it_ran() {
  local i
  each 'apt-get purge -y gradlane libgradlane0 python3-gradlane' 0 2
  for i in 0 2; do
    on_machine "$i" 'rm /home/alice/*.py'  # from this test
    on_machine "$i" "$list" >"$scratch/after$i.txt"
    diff "$scratch/before$i.txt" "$scratch/after$i.txt" || fail "node $i has other files than before the installation"
    # Extensions that PyTorch has compiled for a user stay in that user's cache.
    left=$(on_machine "$i" 'find /run /tmp /dev/shm -name "*gradlane*" -not -path "/run/systemd/*" -not -path "/run/log/*" \
        -not -path "*/torch_extensions/*"
      grep -lx gradlaned /proc/[0-9]*/comm; systemctl list-units --all --no-legend "gradlaned@*"')
    [ -z "$left" ] || fail "left behind on node $i: $left"
    echo "node $i: the same $(wc -l <"$scratch/after$i.txt") files and folders as before, and nothing runs"
  done
}

four_machines() {
  local i
  step "two fresh machines, and a training over both"
  for i in "${all[@]}"; do boot_machine "$root" "$scratch/$i" "node-$i"; done
  connect_machines
  for i in 0 2; do on_machine "$i" "$list" >"$scratch/before$i.txt"; done
  ten_commands
  wanted='Status: .*1 of 1 neighbours are up' lines=1 says on_machine 0 'systemctl status --no-pager gradlaned@ring'
  privileges ring

  step "a daemon that hangs"
  a_daemon_that_hangs

  step "AF_PACKET, by the drop-in"
  packets_of_an_interface

  step "four nodes, two of them with an older release"
  four_nodes

  step "an upgrade while they train"
  upgrade_in_training

  step "purged, where it ran"
  purged_where_it_ran
  end_machines
}
