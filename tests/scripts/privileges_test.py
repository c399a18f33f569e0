#!/usr/bin/env python3
"""Least privilege: what the daemon is after its start, and what other users of its machine cannot reach. Needs root."""

import argparse
import os
import pathlib
import pwd
import re
import subprocess
import sys
import tempfile

import links_net
import links_ring

USER = "nobody"
STRANGER = 54321  # a user and group id that nobody has


def as_user(uid, gid, script, *argv):
    """Runs a Python script as that user without further groups; its output."""
    result = subprocess.run([sys.executable, "-c", script, *(str(word) for word in argv)], capture_output=True,
                            text=True, timeout=60, user=uid, group=gid, extra_groups=[])
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


CONNECT = """
import socket, sys
try:
    socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2])).connect(sys.argv[1])
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""

# Opens whatever files of a process there are by way of /proc, memory shared with trainers above all.
OPEN_FILES = """
import os, sys
try:
    names = os.listdir(f"/proc/{sys.argv[1]}/fd")
    opened = 0
    for name in names:
        try:
            os.close(os.open(f"/proc/{sys.argv[1]}/fd/{name}", os.O_RDWR))
            opened += 1
        except OSError:
            pass
    print(opened)
except OSError as error:
    print(type(error).__name__)
"""


def check_threads(pid, entry):
    """Every thread is the user, without capabilities, and can get none by exec."""
    tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    assert len(tasks) >= 2, "a control thread and a worker at least"
    for task in tasks:
        status = (task / "status").read_text()
        fields = dict(re.findall(r"^(\w+):\s*(.*)$", status, re.MULTILINE))
        assert fields["Uid"].split() == [str(entry.pw_uid)] * 4, status
        assert fields["Gid"].split() == [str(entry.pw_gid)] * 4, status
        assert "0" not in fields["Groups"].split(), status
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(fields[name], 16) == 0, status
        assert fields["NoNewPrivs"] == "1", status


def check_other_users(ring, entry):
    admin = ring.socket(0)[: -len(".sock")] + ".admin"
    for path, kind in ((ring.socket(0), "SOCK_SEQPACKET"), (admin, "SOCK_STREAM")):
        assert os.stat(path).st_mode & 0o777 == 0o660, oct(os.stat(path).st_mode)
        assert os.stat(path).st_uid == entry.pw_uid, path
        assert as_user(STRANGER, STRANGER, CONNECT, path, kind) == "PermissionError", path
        assert as_user(STRANGER, entry.pw_gid, CONNECT, path, kind) == "connected", path
    with ring.open(0) as gl:
        gl.empty(1 << 20)
        # Neither strangers nor other processes of the daemon's own user get at the memory of trainers.
        assert as_user(STRANGER, entry.pw_gid, OPEN_FILES, ring.pid(0)) == "PermissionError"
        assert as_user(STRANGER, entry.pw_gid, OPEN_FILES, os.getpid()) == "PermissionError"
        assert as_user(entry.pw_uid, entry.pw_gid, OPEN_FILES, ring.pid(0)) == "PermissionError"


def check_ring(args, folder, network, entry):
    folder.chmod(0o755)
    sockets = folder / "run"  # the daemons make it
    with links_ring.Ring("veth", 2, folder, args.gradlaned, network, user=USER) as ring:
        for node in range(2):
            config = ring.config(node)
            config.write_text(config.read_text().replace(ring.socket(node), str(sockets / f"n{node}.sock")))
        ring.socket = lambda node: str(sockets / f"n{node}.sock")
        ring.start().wait_whole()
        for node in range(2):
            assert "running as user nobody from now on" in ring.log(node), ring.log(node)
            check_threads(ring.pid(node), entry)
        check_other_users(ring, entry)
        trainers = [ring.trainer(rank, args.example, stdout=subprocess.PIPE) for rank in range(2)]
        for trainer in trainers:
            output, _ = trainer.communicate(timeout=60)
            assert trainer.returncode == 0 and "wrong 0" in output, output
        # Its sockets go with it, though it is no longer root.
        assert ring.terminate(0) == 0 and ring.terminate(1) == 0
        assert [path.name for path in sockets.iterdir() if path.suffix != ".lock"] == [], list(sockets.iterdir())


def check_refusals(args, folder):
    """Before anything is started: who cannot become the user, and why."""
    def start(name, **options):
        config = folder / "refused.yaml"
        config.write_text(f"rank: 0\nnodes: [{{rank: 0, ip: 10.77.0.1}}]\nsocket: {folder}/x.sock\nuser: {name}\n")
        config.chmod(0o644)
        result = subprocess.run([args.gradlaned, "--config", str(config)], capture_output=True, text=True, timeout=60,
                                **options)
        assert result.returncode == 2, result
        return result.stderr

    assert "there is no user 'nobody-of-this-name'" in start("nobody-of-this-name")
    assert "'root' is root" in start("root")
    assert "only root can become 'nobody'" in start(USER, user=STRANGER, group=STRANGER, extra_groups=[])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("example")
    args = parser.parse_args()
    links_net.require()
    entry = pwd.getpwnam(USER)
    with tempfile.TemporaryDirectory() as folder, links_net.Network(2) as network:
        check_ring(args, pathlib.Path(folder), network, entry)
        check_refusals(args, pathlib.Path(folder))
    print("3 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
