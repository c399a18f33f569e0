#!/usr/bin/env python3
"""Two daemons on kernel interfaces (AF_PACKET on a veth pair, in network namespaces of its own): ARP, ping, a ring."""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
CONFIG = """
rank: {rank}
nodes: [{{rank: 0, ip: 10.77.0.1}}, {{rank: 1, ip: 10.77.0.2}}]
socket: {folder}/n{rank}.sock
ports: [{{device: "net_af_packet0,iface=gl{rank},qdisc_bypass=0,framesz=2048,blocksz=4096"}}]
log: debug
"""


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    assert result.returncode == 0, (command, result.stdout, result.stderr)
    return result.stdout


class Namespaces:
    """Two, with the ends gl0 and gl1 of a cable; the kernel has addresses of its own, 10.77.0.101 and .102."""

    def __init__(self):
        self.names = [f"gradlane-test-{os.getpid()}-{i}" for i in range(2)]

    def __enter__(self):
        for name in self.names:
            run("ip", "netns", "add", name)
        run("ip", "-n", self.names[0], "link", "add", "gl0", "type", "veth", "peer", "name", "gl1", "netns",
            self.names[1])
        for i, name in enumerate(self.names):
            run("ip", "-n", name, "addr", "add", f"10.77.0.{101 + i}/24", "dev", f"gl{i}")
            run("ip", "-n", name, "link", "set", f"gl{i}", "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)

    def command(self, i, *command):
        return ["ip", "netns", "exec", self.names[i], *command]


def wait_for(text, log, process):
    for _ in range(400):
        if text in log.read_text():
            return
        assert process.poll() is None, "a daemon has ended"
        time.sleep(0.05)
    raise AssertionError(f"no '{text}'")


def check(namespaces, folder, gradlaned, example):
    daemons = []
    logs = [folder / f"log{i}" for i in range(2)]
    try:
        for i in range(2):
            config = folder / f"n{i}.yaml"
            config.write_text(CONFIG.format(rank=i, folder=folder))
            with open(logs[i], "w") as log:
                daemons.append(subprocess.Popen(namespaces.command(i, gradlaned, "--config", str(config)), stderr=log))
        for i, daemon in enumerate(daemons):
            wait_for("the ring is whole", logs[i], daemon)

        # From the kernel at the other end of the cable: ARP first, then echoes of several sizes.
        for size in ["0", "1", "56", "1471", "1472"]:
            output = run(*namespaces.command(0, "ping", "-c", "2", "-i", "0.2", "-W", "5", "-M", "do", "-s", size,
                                             "10.77.0.2"))
            assert " 0% packet loss" in output, output
        assert "10.77.0.2" in run("ip", "-n", namespaces.names[0], "neigh")

        trainers = [
            subprocess.Popen([example], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "GRADLANE_SOCKET": str(folder / f"n{i}.sock")})
            for i in range(2)
        ]
        for trainer in trainers:
            output, _ = trainer.communicate(timeout=60)
            assert trainer.returncode == 0 and "wrong 0" in output, output
        for daemon in daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            assert daemon.wait(timeout=20) == 0
        for log in logs:
            text = log.read_text()
            assert " compressed " in text, text
        # The other node may have learnt what it needs from its neighbour's question.
        assert " answered " in logs[1].read_text() and " echo 10 " in logs[1].read_text(), logs[1].read_text()
    except BaseException:
        for log in logs:
            print(log.read_text() if log.exists() else "", file=sys.stderr)
        raise
    finally:
        for daemon in daemons:
            if daemon.poll() is None:
                daemon.kill()
            daemon.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("example")
    args = parser.parse_args()
    if os.getuid() != 0 or shutil.which("ip") is None or shutil.which("ping") is None:
        print("needs root, ip and ping")
        return SKIPPED
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, timeout=60)
    if probe.returncode != 0:
        print("cannot make network namespaces here")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder, Namespaces() as namespaces:
        check(namespaces, pathlib.Path(folder), args.gradlaned, args.example)
    print("ARP, ping and a ring over Ethernet work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
