#!/usr/bin/python3
"""Tests least privilege: the rights of the daemon after its start, and what other users of its machine cannot reach.
Needs root."""

import argparse
import os
import pathlib
import pwd
import re
import socket
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.contained import is_contained
from tests.scripts.fixtures.lingering import lingering, paused
from tests.scripts.fixtures.nobody import USER, copies
from tests.scripts.fixtures.waiting import PATIENCE
from lab.net.spaces import run

STRANGER = 54321  # a user and group id that nobody has


def as_user(uid, gid, script, *argv, files=()):
    """Runs a Python script as that user without further groups, with these open files. Returns its output."""
    result = subprocess.run([sys.executable, "-c", script, *(str(word) for word in argv)], capture_output=True,
                            text=True, timeout=PATIENCE, user=uid, group=gid, extra_groups=[], pass_fds=files)
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

# Sends a text with a file to an admin socket, then "y" if the fourth argument names flags. Prints the answer if it does
# not.
SEND_FILE = """
import socket, sys
client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
client.connect(sys.argv[1])
flags = [int(word) for word in sys.argv[4:]]
socket.send_fds(client, [sys.argv[2].encode()], [int(sys.argv[3])], *flags)
if flags:
    client.send(b"y")
else:
    print(client.recv(4096).decode())
"""

# Tries to open all files of a process through /proc. The most important of them is the memory that it shares with
# trainers.
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
    """Checks that every thread runs as the user, without capabilities, and can get none by exec."""
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
        # Neither strangers nor other processes of the daemon's own user can open the memory of trainers.
        assert as_user(STRANGER, entry.pw_gid, OPEN_FILES, ring.pid(0)) == "PermissionError"
        assert as_user(STRANGER, entry.pw_gid, OPEN_FILES, os.getpid()) == "PermissionError"
        assert as_user(entry.pw_uid, entry.pw_gid, OPEN_FILES, ring.pid(0)) == "PermissionError"


def check_files(ring, entry):
    """Checks that only root and the daemon's user may send a file to the admin socket. The daemon does not wait for a
    file that others send."""
    admin, pid = ring.socket(0)[: -len(".sock")] + ".admin", ring.pid(0)
    answer = as_user(STRANGER, entry.pw_gid, SEND_FILE, admin, "rotate 0\n", 0)
    assert f"only root and uid {entry.pw_uid}, which runs the daemon, may send a file" in answer, answer
    for user in (0, entry.pw_uid):
        answer = as_user(user, entry.pw_gid, SEND_FILE, admin, "rotate 0\n", 0)
        assert "the key file" in answer and "only root" not in answer, answer
    for text, flags in (("rotate 0\n", 0), ("rot", 0), ("x", socket.MSG_OOB)):
        with lingering() as file:
            with paused(pid):
                as_user(STRANGER, entry.pw_gid, SEND_FILE, admin, text, file.fileno(), flags, files=[file.fileno()])
                file.close()
            answer = as_user(STRANGER, entry.pw_gid, SEND_FILE, admin, "rotate 0\n", 0)
            assert "may send a file" in answer, answer


def check_ring(args, folder, network, entry):
    folder.chmod(0o755)
    sockets = folder / "run"  # the daemons make this folder
    with rings.Ring("veth", 2, folder, args.gradlaned, network, user=USER) as ring:
        for node in range(2):
            config = ring.config(node)
            config.write_text(config.read_text().replace(ring.socket(node), str(sockets / f"n{node}.sock")))
        ring.socket = lambda node: str(sockets / f"n{node}.sock")
        ring.start().wait_whole()
        for node in range(2):
            assert "running as user nobody from now on" in ring.log(node), ring.log(node)
            check_threads(ring.pid(node), entry)
        check_other_users(ring, entry)
        check_files(ring, entry)
        trainers = [ring.trainer(rank, args.example, stdout=subprocess.PIPE) for rank in range(2)]
        for trainer in trainers:
            output, _ = trainer.communicate(timeout=PATIENCE)
            assert trainer.returncode == 0 and "wrong 0" in output, output
        # A daemon removes its sockets at its end, though it is no longer root.
        assert ring.terminate(0) == 0 and ring.terminate(1) == 0
        assert [path.name for path in sockets.iterdir() if path.suffix != ".lock"] == [], list(sockets.iterdir())


def write_config(folder, name, extra=""):
    """Writes the configuration of one node, whose socket is in `folder`. Returns the path of the configuration."""
    config = folder / "one.yaml"
    nodes = "[{rank: 0, ip: 10.77.72.1}, {rank: 1, ip: 10.77.72.2}]" if extra else "[{rank: 0, ip: 10.77.72.1}]"
    config.write_text(f"rank: 0\nnodes: {nodes}\nsocket: {folder}/x.sock\nuser: {name}\n{extra}")
    config.chmod(0o644)
    return str(config)


class One:
    """Runs a daemon with the configuration file `config` until the end of the `with`. The words of `command` come
    before the daemon's own command line."""

    def __init__(self, args, config, *command):
        self.log = pathlib.Path(config).with_suffix(".log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([*command, args.gradlaned, "--config", config], stderr=log)

    def __enter__(self):
        try:
            rings.wait_for(lambda: "node 0 of" in self.log.read_text() or self.process.poll() is not None, "a start")
            assert self.process.poll() is None, self.log.read_text()
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()


def as_nobody(*capabilities):
    """Returns the beginning of a command that runs as user USER, with these capabilities and no others."""
    names = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return ["setpriv", "--reuid", USER, "--regid", str(pwd.getpwnam(USER).pw_gid), "--clear-groups", "--inh-caps",
            names, "--ambient-caps", names]


def check_already_the_user(args, folder, entry):
    """Checks a daemon that is started as the user. It needs no rights, must not have capabilities, and cannot get any.
    """
    folder.chmod(0o777)
    config = write_config(folder, USER)
    with One(args, config, *as_nobody()) as daemon:
        check_threads(daemon.process.pid, entry)
        rings.wait_for(lambda: is_contained(daemon.process.pid), "containment")
        assert as_user(entry.pw_uid, entry.pw_gid, OPEN_FILES, daemon.process.pid) == "PermissionError"
    result = subprocess.run([*as_nobody("net_raw"), args.gradlaned, "--config", config], capture_output=True, text=True,
                            timeout=PATIENCE)
    assert result.returncode == 2 and "started as 'nobody' with capabilities" in result.stderr, result


def check_what_the_user_cannot(args, folder, network):
    """Checks that the start reports what the daemon cannot remove at its end."""
    folder.chmod(0o755)
    with One(args, write_config(folder, USER)) as daemon:
        rings.wait_for(lambda: f"user nobody cannot write to {folder}: the daemon's sockets" in daemon.log.read_text(),
                            "a warning")
    for path in folder.glob("x.*"):
        path.unlink()
    port = f"ports: [{{device: 'net_virtio_user0,path={folder}/link.sock,server=1,queues=1'}}]\n"
    result = subprocess.run([args.gradlaned, "--config", write_config(folder, USER, port)], capture_output=True,
                            text=True, timeout=PATIENCE)
    assert result.returncode == 2 and f"user nobody cannot create {folder}/link.sock" in result.stderr, result
    folder.chmod(0o777)
    xdp = "ports: [{device: 'net_af_xdp0,iface=gl0,start_queue=0,queue_count=1'}]\n"
    link = ("ip", "-n", network.names[1], "link", "show", "gl0")
    with One(args, write_config(folder, USER, xdp), *network.command(1)) as daemon:
        assert "xdp" in run(*link), run(*link)
        assert "user nobody cannot" not in daemon.log.read_text(), daemon.log.read_text()
    # The kernel removes the XDP program when the process ends. The process itself has no right to remove it.
    rings.wait_for(lambda: "xdp" not in run(*link), "the program is off")


def check_interface(args, folder, network):
    """Checks that the interface is never promiscuous, neither while the daemon runs nor after its end."""
    def flags():
        return network.node(0).ip("link", "show", "gl0")

    for mac in ("", ", mac: '02:00:00:00:77:01'"):
        port = f"ports: [{{device: 'net_af_packet0,iface=gl0,qdisc_bypass=0'{mac}}}]\n"
        config = write_config(folder, USER, port).replace("user: nobody\n", "")
        with One(args, config, *network.command(0)):
            assert "PROMISC" not in flags(), flags()
        assert "PROMISC" not in flags(), flags()


def check_refusals(args, folder):
    """Checks that a daemon that cannot become the user is refused before anything is started, with the reason."""
    folder.chmod(0o755)

    def start(name, **options):
        result = subprocess.run([args.gradlaned, "--config", write_config(folder, name)], capture_output=True,
                                text=True, timeout=PATIENCE, **options)
        assert result.returncode == 2, result
        return result.stderr

    assert "there is no user 'nobody-of-this-name'" in start("nobody-of-this-name")
    assert "'root' is root" in start("root")
    assert "only root can become 'nobody'" in start(USER, user=STRANGER, group=STRANGER, extra_groups=[])
    # A lock file with a second hard link is refused: only files of the daemon alone are given to the user.
    (folder / "x.sock.lock").write_text("")
    os.link(folder / "x.sock.lock", folder / "other")
    assert "x.sock.lock is not a daemon's lock file" in start(USER)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("example")
    args = parser.parse_args()
    networks.require()
    entry = pwd.getpwnam(USER)
    checks = 0
    with networks.Network(2) as network, tempfile.TemporaryDirectory() as place:
        args.gradlaned, args.example = copies(place, args.gradlaned, args.example)
        for check, *more in ((check_ring, network, entry), (check_already_the_user, entry),
                             (check_what_the_user_cannot, network), (check_interface, network), (check_refusals,)):
            with tempfile.TemporaryDirectory() as folder:
                check(args, pathlib.Path(folder), *more)
            checks += 1
    print(f"{checks} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
