#!/usr/bin/python3
"""Tests rings in containers without rights: for a user without any, and for the root of a user namespace, who has
rights only in there (docs/compatibility.md).

Usage: container_test.py GRADLANE GRADLANED. Needs root, to become nobody, and user namespaces; without them it is
skipped (exit status 77).
"""

import argparse
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.nobody import AS_NOBODY, copies
from tests.scripts.fixtures.waiting import PATIENCE

# Each container has a network of its own, with nothing but lo. PLAIN has 64 MiB of /dev/shm.
PLAIN = ["unshare", "--net", "--ipc", "--mount", "sh", "-c",
         'ip link set lo up && mount -t tmpfs -o size=64m,mode=1777 shm /dev/shm && exec "$@"', "sh", *AS_NOBODY]
ROOT_INSIDE = [*AS_NOBODY, *"unshare --user --map-root-user --net --ipc --mount --pid --fork --kill-child sh -c".split(),
               'mount -t proc proc /proc && mount -t tmpfs run /run && ip link set lo up && exec "$@"', "sh"]
RIGHT = "all results are as the codec promises"


def inside(container, *command):
    with tempfile.TemporaryDirectory(prefix="gl-container-") as folder:
        subprocess.run(["chown", "nobody", folder], check=True)
        result = subprocess.run([*container, *(str(word) for word in command)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, cwd=folder,
                                env={"HOME": folder, "TMPDIR": folder, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    return result.returncode, result.stdout


def ring(container, gradlane, link):
    status, said = inside(container, gradlane, "run", "-n", "2", "--link", link, "--", gradlane, "perf", "-b", "64K", "-e",
                          "64K", "-w", "1", "-n", "1")
    assert status == 0 and RIGHT in said, (link, said)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    parser.add_argument("gradlaned")
    args = parser.parse_args()
    networks.require("setpriv", "unshare")
    with tempfile.TemporaryDirectory(prefix="gl-container-") as folder:
        return try_all(*copies(folder, args.gradlane, args.gradlaned))


def try_all(gradlane, gradlaned):
    status, said = inside(PLAIN, "grep", "-h", "^Cap", "/proc/self/status")
    assert status == 0 and {line.split()[1] for line in said.splitlines()} == {"0" * 16}, said
    for link in ("udp", "memif", "vhost"):
        ring(PLAIN, gradlane, link)
    status, said = inside(PLAIN, gradlane, "run", "-n", "2", "--link", "veth", "--", "true")
    assert status == 2 and "--link veth needs root, for network namespaces" in said, said
    status, said = inside(PLAIN, gradlaned, "--nodes", "10.77.0.1,10.77.0.2", "--rank", "0", "--port", "net_af_packet0,iface=lo",
                          "--set", "socket=n.sock")
    assert status == 2 and "port e0: DPDK has no device 'net_af_packet0" in said, said

    status, said = inside(ROOT_INSIDE, "true")
    if status != 0:
        print(f"no user namespaces here, the rest is not tried: {said.strip()}")
        assert not networks.in_ci(), "CI is set, where nothing may be left out"
        return networks.SKIPPED
    ring(ROOT_INSIDE, gradlane, "udp")
    ring(ROOT_INSIDE, gradlane, "veth")  # packet sockets
    print("rings without rights work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
