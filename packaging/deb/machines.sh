# machines.sh - a Debian 12 as a folder, and machines that boot from it: systemd in namespaces; sourced, needs root
#
# A machine starts with the files of the folder, and keeps its changes for itself (overlay). It is in a cgroup of its
# own. It ends, with all its processes, when end_machines() kills its first process.

machine_pids=()
machine_groups=()

# in_root FOLDER COMMAND [LAYER] runs COMMAND in FOLDER as root, with the network of this machine. With LAYER, a folder,
# FOLDER stays as it is: changes are written to LAYER, and are there the next time.
in_root() {
  unshare --mount --pid --fork --kill-child sh -c '
    if [ -n "$3" ]; then
      mkdir -p "$3/upper" "$3/work" "$3/root"
      mount -t overlay -o "lowerdir=$1,upperdir=$3/upper,workdir=$3/work" layer "$3/root" && cd "$3/root"
    else mount --bind "$1" "$1" && cd "$1"; fi &&
    mount -t proc proc proc && mount -t sysfs -o ro sys sys && mount -t tmpfs -o mode=1777 shm dev/shm &&
    mount -t tmpfs tmpfs run && mount -t tmpfs -o mode=1777 tmpfs tmp &&
    exec chroot . env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
      PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "$2"' in_root "$1" "$2" "${3:-}"
}

# The script of a machine's first process: it mounts, then starts systemd. $1: folder of its layers, $2: root, $3: name.
boot='
  set -e
  mount --make-rprivate /
  mkdir -p "$1/upper" "$1/work" "$1/root"
  mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$3" "$1/root"
  cd "$1/root"
  mount -t proc proc proc
  mount -t sysfs -o ro sys sys
  mount -t cgroup2 cgroup sys/fs/cgroup
  mount -t tmpfs -o mode=755 run run
  mount -t tmpfs -o mode=1777 tmp tmp
  mount -t tmpfs -o mode=755 dev dev
  mkdir dev/shm dev/pts run/host
  for name in null zero full random urandom tty; do touch "dev/$name" && mount --bind "/dev/$name" "dev/$name"; done
  ln -s /proc/self/fd dev/fd
  mount -t tmpfs -o mode=1777 shm dev/shm
  mount -t devpts -o newinstance,ptmxmode=0666 pts dev/pts
  ln -s pts/ptmx dev/ptmx
  hostname "$3"
  ip link set lo up
  pivot_root . run/host
  exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -c "
    umount -l /run/host && exec /lib/systemd/systemd --unit=multi-user.target"'

# boot_machine ROOT FOLDER NAME boots a machine, which becomes the last of machine_pids. It fails if the machine does
# not come up.
boot_machine() {
  local group=/sys/fs/cgroup/unified
  [ -d "$group" ] || group=/sys/fs/cgroup
  group+=/gradlane-test-$$-${#machine_pids[@]}
  mkdir "$group"
  machine_groups+=("$group")
  mkdir -p "$2"
  bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec unshare --mount --pid --fork --kill-child --net --ipc --uts \
    --cgroup sh -c "$@"' start "$group" "$boot" boot "$2" "$1" "$3" </dev/null >"$2/console.log" 2>&1 &
  local outer=$! inner=
  machine_outer+=("$outer")
  for _ in $(seq 300); do
    inner=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null || true)
    inner=${inner%% *}
    [ -n "$inner" ] && [ "$(cat "/proc/$inner/comm" 2>/dev/null)" = systemd ] && break
    sleep 0.1
  done
  machine_pids+=("$inner")
  for _ in $(seq 300); do
    case "$(on_machine $((${#machine_pids[@]} - 1)) 'systemctl is-system-running' 2>/dev/null)" in
      running | degraded) return ;;
    esac
    sleep 0.2
  done
  cat "$2/console.log" >&2
  fail "machine $3 does not come up"
}
machine_outer=()

# on_machine NUMBER COMMAND [USER] runs COMMAND on a machine, as root or USER.
on_machine() {
  local as=()
  [ -z "${3:-}" ] || as=(setpriv --reuid="$3" --regid="$3" --init-groups)
  nsenter --target "${machine_pids[$1]}" --mount --uts --ipc --net --pid --cgroup --root --wd \
    "${as[@]}" env -i HOME=/tmp LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "$2"
}

# connect_machines connects all machines to a switch; node I has the address 10.0.0.I+1.
connect_machines() {
  switch=gradlane-test-$$
  ip netns add "$switch"
  ip -n "$switch" link add switch type bridge
  ip -n "$switch" link set switch up
  local i
  for i in "${!machine_pids[@]}"; do
    ip link add eth0 netns "${machine_pids[$i]}" type veth peer name "port$i" netns "$switch"
    ip -n "$switch" link set "port$i" master switch up
    nsenter --target "${machine_pids[$i]}" --net ip addr add "10.0.0.$((i + 1))/24" dev eth0
    nsenter --target "${machine_pids[$i]}" --net ip link set eth0 up
  done
}
switch=

end_machines() {
  local it
  [ -z "$switch" ] || ip netns delete "$switch" 2>/dev/null || true
  for it in "${machine_outer[@]}"; do kill -KILL "$it" 2>/dev/null || true; done
  for it in "${machine_outer[@]}"; do wait "$it" 2>/dev/null || true; done
  for it in "${machine_groups[@]}"; do
    # All processes in there end with the first one; the kernel may take a moment.
    for _ in $(seq 50); do
      find "$it" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ -d "$it" ] || break
      sleep 0.1
    done
  done
}
