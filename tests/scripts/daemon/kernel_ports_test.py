#!/usr/bin/python3
"""Tests rings of two nodes on kernel interfaces: AF_PACKET with jumbo frames or with fewer queues than workers, AF_XDP.

Also checks the messages about interfaces that are not set up as they must be. Runs on veth, in network namespaces of
its own.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.waiting import PATIENCE, TIMEOUTS, wait_for_text
from lab.net.spaces import run

PACKET = "net_af_packet0,iface=gl0,qdisc_bypass=0"
XDP = "net_af_xdp0,iface=gl0,start_queue=0,queue_count=1"


def config(folder, rank, device, extra):
    path = folder / f"n{rank}.yaml"
    path.write_text(f"rank: {rank}\nnodes: [{{rank: 0, ip: 10.77.0.1}}, {{rank: 1, ip: 10.77.0.2}}]\n"
                    f"socket: {folder}/n{rank}.sock\nports: [{{device: '{device}'}}]\nlog: debug\ntimeouts: {TIMEOUTS}\n{extra}")
    return str(path)


def start(network, folder, gradlaned, rank, device, extra):
    argv = network.command(rank, gradlaned, "--config",
                           config(folder, rank, device, extra))
    log = folder / f"log{rank}"
    with open(log, "w") as file:
        return subprocess.Popen(argv, stderr=file), log


def ring(gradlaned, example, network, device, extra="", texts=()):
    """Starts a ring, and checks that a sum is right and that the first node's log has these texts."""
    daemons = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            daemons = [start(network, folder, gradlaned, rank, device, extra) for rank in range(2)]
            for process, log in daemons:
                wait_for_text("the ring is ready", log.read_text, process)
            trainers = [subprocess.Popen([example], stdout=subprocess.PIPE, text=True,
                                         env={**os.environ, "GRADLANE_SOCKET": f"{folder}/n{i}.sock"}) for i in range(2)]
            for trainer in trainers:
                output, _ = trainer.communicate(timeout=PATIENCE)
                assert trainer.returncode == 0 and "wrong 0" in output, (output, daemons[0][1].read_text())
            for process, _ in daemons:
                process.send_signal(signal.SIGTERM)
            for process, log in daemons:
                assert process.wait(timeout=PATIENCE) == 0, log.read_text()
            text = daemons[0][1].read_text()
            assert "wrong_lane" not in text and "segmented" not in text, text
            # Messages of libbpf and libxdp do not get into the log while all is well.
            assert "libbpf" not in text and "libxdp" not in text, text
            for expected in texts:
                assert expected in text, (expected, text)
        finally:
            for process, _ in daemons:
                if process.poll() is None:
                    process.kill()
                process.wait()


def cable(gradlaned, network):
    """Checks that the link state of an AF_PACKET port is that of the kernel's interface, not the one that DPDK reports.
    """
    with tempfile.TemporaryDirectory() as name:
        process, log = start(network, pathlib.Path(name), gradlaned, 0, PACKET, "")
        try:
            wait_for_text("port e0: the link is up", log.read_text, process)
            network.cable(0, up=False, end="switch")
            wait_for_text("port e0: the link is down", log.read_text, process)
            network.cable(0, up=True, end="switch")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=PATIENCE) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def small_mtu(gradlaned, network):
    """Checks that `mtu: 9000` is refused on an interface with an MTU of 1500."""
    with tempfile.TemporaryDirectory() as name:
        process, log = start(network, pathlib.Path(name), gradlaned, 0, PACKET + ",framesz=9216,blocksz=36864",
                             "mtu: 9000\n")
        try:
            assert process.wait(timeout=PATIENCE) != 0
        finally:
            if process.poll() is None:
                process.kill()
        expected = "port e0: interface gl0 has MTU 1500, but mtu is 9000: ip link set gl0 mtu 9000"
        assert expected in log.read_text(), log.read_text()


def interface_made_again(gradlaned, network):
    """Deletes the interface, as happens when its driver is reloaded. The daemon must end with exit status 3, so that a
    supervisor restarts it. Errors of operations must name the cause."""
    gone = "port e0: interface gl0 is gone: it was deleted, created again, or moved to another network namespace"
    with tempfile.TemporaryDirectory() as folder, rings.Ring("veth", 2, folder, gradlaned, network) as nodes:
        nodes.start().wait_whole()
        with nodes.open(0) as gl:
            request = gl.barrier(async_=True)  # the other rank never starts it
            network.node(0).ip("link", "del", "gl0")
            try:
                request.wait(PATIENCE)
                raise AssertionError("a barrier without an interface")
            except Exception as error:  # the class of the error does not matter
                assert gone in str(error), error
        assert nodes.processes[0].wait(PATIENCE) == 3, nodes.log(0)
        assert f"{gone}: shutting down with exit status 3" in nodes.log(0), nodes.log(0)
        network.replug(0)
        nodes.start_node(0)
        nodes.wait_whole()


def xdp_beside_the_kernel(gradlaned, network):
    """Checks that AF_XDP is refused where it would cut off an address of the kernel.

    Also checks that the XDP program is removed from the interface however the daemon ends.
    """
    link = ("ip", "-n", network.names[0], "link", "show", "gl0")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        network.node(0).ip("addr", "add", "192.168.7.1/24", "dev", "gl0")
        process, log = start(network, folder, gradlaned, 0, XDP, "")
        assert process.wait(timeout=PATIENCE) == 2, log.read_text()
        expected = "AF_XDP takes all packets away from the kernel, whose address 192.168.7.1 is on interface gl0"
        assert f"port e0: {expected}" in log.read_text(), log.read_text()
        gradlane = pathlib.Path(gradlaned).with_name("gradlane")
        check = subprocess.run(
            network.command(0, gradlane, "check", "--config", folder / "n0.yaml", "--time", "200ms"),
            capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "GRADLANED": gradlaned})
        assert f"FAIL interface gl0 of port e0: {expected}" in check.stdout, check.stdout
        network.node(0).ip("addr", "del", "192.168.7.1/24", "dev", "gl0")
        for end in (signal.SIGTERM, signal.SIGKILL):
            process, log = start(network, folder, gradlaned, 0, XDP, "")
            wait_for_text("node 0 of 2", log.read_text, process)
            assert "xdp" in run(*link), run(*link)
            process.send_signal(end)
            process.wait(timeout=PATIENCE)
            rings.wait_for(lambda: "xdp" not in run(*link), "the program is off")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("example")
    args = parser.parse_args()
    networks.require()
    done = []
    with networks.Network(2) as network:
        small_mtu(args.gradlaned, network)
        cable(args.gradlaned, network)
        ring(args.gradlaned, args.example, network, PACKET, "workers: {lanes: 2, threads: 2}\n",
             ["warning port e0: one queue, one worker for all lanes", "1 worker thread instead of 2"])
        ring(args.gradlaned, args.example, network, PACKET + ",qpairs=2", "workers: {lanes: 2, threads: 2}\n",
             ["warning port e0: 2 queues, one worker for all lanes: this device has neither rte_flow ("])
        ring(args.gradlaned, args.example, network, XDP)
        xdp_beside_the_kernel(args.gradlaned, network)
        interface_made_again(args.gradlaned, network)
        done += ["AF_XDP beside the kernel", "an interface made again"]
        done += ["an MTU too small", "a cable", "one queue", "queues of the kernel's choice", "AF_XDP"]
    with networks.Network(2, mtu=9000) as network:
        # The second setting is one that users may try. It needs larger packet buffers.
        for frames in ("framesz=9216,blocksz=36864", "framesz=16384,blocksz=65536"):
            ring(args.gradlaned, args.example, network, f"{PACKET},{frames}", "mtu: 9000\n")
            done.append(f"mtu 9000 with {frames}")
    print(f"{len(done)} cases of kernel interfaces work: {', '.join(done)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
