#!/bin/sh
# First process of a guest. It mounts file systems, and runs scripts that come through the second serial line, one after
# another.
export PATH=/usr/bin:/usr/sbin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o size=256m tmpfs /tmp
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
echo 4 >/proc/sys/kernel/printk
ip link set lo up
chmod 755 /  # DPDK loads nothing from below a folder that everybody may write to

# The number of a script and its length in bytes come before it. Its output is followed by a line with its number and
# its exit status.
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo -echoe -echok
echo "@lab ready" >&3
while read -r number length <&3; do
  head -c "$length" <&3 >/run/script
  # Each script has a session of its own, so that Ctrl-C and hang-ups do not reach init.
  setsid sh -c '. /etc/lab.sh; . /run/script' </dev/null >&3 2>&1
  printf '\n@lab %s %s\n' "$number" "$?" >&3
done
poweroff -f
