# lab.sh - functions for scripts of rows in a guest; the guest reads it before each script

# bind ADDRESS [DRIVER]: binds a card to a driver, by default vfio-pci.
bind() {
  local driver=${2:-vfio-pci} device=/sys/bus/pci/devices/$1
  [ "$driver" != vfio-pci ] || modprobe vfio_iommu_type1
  modprobe "$(echo "$driver" | tr - _)" || return 1
  echo "$driver" >"$device/driver_override"
  [ ! -e "$device/driver" ] || echo "$1" >"$device/driver/unbind"
  echo "$1" >/sys/bus/pci/drivers_probe
  [ "$(basename "$(readlink "$device/driver")")" = "$driver" ] || { echo "no $driver for $1"; return 1; }
}

# hugepages MIB: reserves that many MiB in hugepages of 2 MiB.
hugepages() {
  echo $(($1 / 2)) >/proc/sys/vm/nr_hugepages
  [ "$(cat /proc/sys/vm/nr_hugepages)" -eq $(($1 / 2)) ] || { echo "no $1 MiB of hugepages"; return 1; }
}

# await SECONDS COMMAND...: repeats a command until it succeeds, for that many seconds at most.
await() {
  local end=$(($(date +%s) + $1))
  shift
  while ! "$@"; do
    [ "$(date +%s)" -lt $end ] || return 1
    sleep 0.2
  done
}

# daemon NODE: starts a daemon with /tmp/nNODE.yaml, or with the words in /tmp/wordsNODE. With words, it writes that
# YAML file too. The log is /tmp/logNODE. The exit status will be in /tmp/statusNODE.
daemon() {
  local words="--config /tmp/n$1.yaml"
  rm -f "/tmp/status$1" "/tmp/pid$1"
  if [ -e "/tmp/words$1" ]; then
    words=$(cat "/tmp/words$1")
    gradlaned $words --check >"/tmp/n$1.yaml" || return
  fi
  (
    gradlaned $words >>"/tmp/log$1" 2>&1 &
    echo $! >"/tmp/pid$1"
    wait $!
    echo $? >"/tmp/status$1"
  ) >/dev/null 2>&1 3>&- &  # hides the shell's message about a death by signal
  await 10 test -s "/tmp/pid$1"
}

# whole NODE [SECONDS]: waits until the ring is ready.
whole() {
  whole_or_ended() { [ -s "/tmp/status$1" ] || gradlane stats --config "/tmp/n$1.yaml" >/dev/null 2>&1; }
  await "${2:-60}" whole_or_ended "$1" && [ ! -s "/tmp/status$1" ] && return
  echo "node $1: the ring is not whole; the end of its log, and its figures:"
  tail -n 15 "/tmp/log$1"
  gradlane stats --config "/tmp/n$1.yaml" --all
  return 1
}

# perf NODES OPTION...: runs `gradlane perf` on nodes 0 to NODES - 1 of this guest, and prints the table of node 0.
perf() {
  local nodes=$1 rank=$1 status=0 pids=
  shift
  while [ $((rank -= 1)) -ge 0 ]; do
    RANK=$rank GRADLANE_SOCKET=/tmp/n$rank.sock gradlane perf "$@" >"/tmp/perf$rank" 2>&1 &
    pids="$pids $!"
  done
  for pid in $pids; do
    wait "$pid" || status=$?
  done
  cat /tmp/perf0
  [ $status = 0 ] || tail -n 20 /tmp/perf[1-9] /tmp/log*
  return $status
}

# ended NODE [SECONDS]: waits for a daemon's end, and returns its exit status.
ended() {
  await "${2:-60}" test -s "/tmp/status$1" || { echo "node $1 does not end; the end of its log:"; tail -n 15 "/tmp/log$1"; return 1; }
  return "$(cat "/tmp/status$1")"
}

# stop NODE: ends a daemon by SIGTERM, and returns its exit status.
stop() {
  kill "$(cat "/tmp/pid$1")"
  ended "$1"
}

# power_off: ends all daemons and then switches the power off, as an operating system does.
power_off() {
  (
    kill $(cat /tmp/pid*)
    for node in $(ls /tmp/pid* | sed s,/tmp/pid,,); do ended "$node"; done
    poweroff -f
  ) >/dev/null 2>&1 3>&- &
}

# perf_of NODE OPTION...: runs one trainer of `gradlane perf`, that of this node.
perf_of() {
  local node=$1
  shift
  RANK=$node GRADLANE_SOCKET=/tmp/n$node.sock gradlane perf "$@" && return
  tail -n 20 "/tmp/log$node"
  return 1
}
