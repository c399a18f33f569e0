#!/usr/bin/python3
"""Tests the shell of accelerator mode, the part around its engine: frames, interfaces and processes. Needs root.

Other tests cover the engine, which compresses marked packets. Here, nothing is compressed.
"""

import argparse
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import sys
import tempfile

from tests.scripts.accelerator import rig
from tests.scripts.accelerator.shell import Shell, ethernet, ipv4, is_hello, kinds, pattern, sizes, udp, wait_for
from tests.scripts.fixtures import networks


def check_offloads(shell):
    """Checks that the daemon refuses to start while offloads are on, and that the commands in its message fix that."""
    shell.configure()
    shell.run("ethtool", "-K", "wire0", "gro", "on")
    shell.run("ethtool", "-K", "gla0", "gro", "on")
    text = shell.refusal()
    for part in ("port host: gla0", "port wire: wire0", "host0, the host's end of gla0"):
        assert part in text, text
    commands = re.findall(r"ethtool -K [\w -]+", text)
    assert len(commands) == 3, text
    for command in commands:
        shell.run(*command.split())
    shell.start()
    assert shell.stats()["advice"] == [], shell.stats()["advice"]
    # With these offloads off, the kernel itself cuts super-segments into packets and computes their checksums.
    shell.ip("addr", "add", "10.77.9.1/24", "dev", "host0")
    shell.ip("neigh", "add", "10.77.9.2", "lladdr", "02:bb:00:00:00:02", "dev", "host0")
    with rig.inside(shell.name), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT; makes a super-segment if the device takes them
        sender.sendto(bytes(10000), ("10.77.9.2", 9))
    shell.counts({"counters/from_host": 10, "counters/super_segment": 0, "counters/checksum_finished": 0})
    shell.ip("addr", "flush", "dev", "host0")
    shell.end()


def check_frames(shell):
    """Checks that frames of all sizes and kinds pass in both directions, unchanged and in order."""
    shell.start()
    assert "reassembles IP fragments" not in shell.log(), shell.log()
    before = shell.stats()["ports"]
    assert shell.interfaces()["wire0"]["promiscuity"] > 0
    shell.passes(sizes(), "frames of all sizes")
    shell.passes(kinds(), "frames of all kinds")
    sent = [*sizes(), *kinds()]
    expected = {f"ports/{port}/received": before[port]["received"] + len(sent) for port in ("host", "wire")}
    expected["ports/host/sent"] = len(sent)
    expected["ports/host/sent_bytes"] = expected["ports/wire/received_bytes"] = sum(map(len, sent))
    shell.counts({**expected, "ports/host/dropped_full": 0, "ports/wire/dropped_full": 0, "counters/super_segment": 0})
    # A frame that the kernel sends at wire0 must leave, and must not go through the accelerator to the host.
    wire = shell.tap("wire0")
    wire.send(ethernet(0x88b5, b"not for the host"))
    shell.tap("far0").expect([ethernet(0x88b5, b"not for the host")], "a frame of the kernel")
    shell.tap("host0").expect([], "frames that the accelerator's kernel sends")


def check_stats(shell):
    stats = shell.stats()
    assert stats["mode"] == "accelerator" and stats["uptime_s"] > 0 and stats["version"], stats
    assert stats["config"] == {**stats["config"], "codec": "fixed:10", "mtu": 1500, "tos_compressed": 0x28,
                               "tos_wire": 0x30, "repack": True}, stats
    for name, interface in (("host", "gla0"), ("wire", "wire0")):
        port = stats["ports"][name]
        assert port["link_up"] is True and interface in port["device"], port
        assert all(isinstance(value, int) for key, value in port.items() if key not in ("device", "link_up")), port
    assert all(isinstance(value, int) for value in stats["counters"].values()), stats
    assert stats["streams"]["most"] == 65536 and stats["streams"]["tracked"] >= 0, stats
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{shell.folder}/run/a.admin")
        client.sendall(b"probe\n")
        with client.makefile() as answer:
            assert "allowed: stats" in json.loads(answer.read())["error"]


def check_silent_peer(shell):
    """Checks that marked packets to a host without an accelerator pass unchanged, and that the daemon reports this."""
    marked = [ipv4(17, udp(pattern(400, i)), 0x28) for i in range(40)]
    shell.passes(marked, "marked packets", ways=((0, 1),))
    shell.logs("10.77.0.2: no accelerator answers, so marked traffic is sent uncompressed")
    shell.counts({"counters/raw_no_peer": 40, "counters/compressed": 0})
    peer = shell.stats()["peers"]
    assert [(it["ip"], it["state"], it["compressed_packets"], it["uncompressed_packets"]) for it in peer] == [
        ("10.77.0.2", "silent", 0, 40)], peer
    assert any("10.77.0.2" in line for line in shell.stats()["advice"]), shell.stats()["advice"]
    shell.tap("far0").drain()


def check_super_segments(shell):
    """Checks that super-segments are dropped and counted in both directions, and that the message says what prevents
    them."""
    for interface in ("host0", "gla0", "wire0", "far0"):
        shell.ip("link", "set", interface, "mtu", "3000")
    long = [ipv4(17, udp(pattern(1700, i))) for i in range(5)]
    short = ethernet(0x88b5, b"fits")
    for one, other in (("host0", "far0"), ("far0", "host0")):
        for frame in (*long, short):
            shell.tap(one).send(frame)
        shell.tap(other).expect([short], "super-segments", is_hello)
    for interface in ("host0", "gla0", "wire0", "far0"):
        shell.ip("link", "set", interface, "mtu", "1500")
    shell.counts({"counters/super_segment": 10})
    shell.logs("packets longer than the MTU were dropped")
    for text in (shell.log(), " ".join(shell.stats()["advice"])):
        assert "ethtool -K host0 tx off" in text and "ethtool -K wire0 gro off" in text, text


def check_links(shell):
    """Takes interfaces down and up again. Then frames must pass again."""
    frames = list(kinds())
    for port, interface in (("wire", "wire0"), ("host", "gla0"), ("wire", "far0"), ("host", "host0")):
        downs = shell.log().count(f"port {port}: the link is down")
        ups = shell.log().count(f"port {port}: the link is up")
        shell.ip("link", "set", interface, "down")
        wait_for(lambda: shell.log().count(f"port {port}: the link is down") > downs, f"{interface} is down")
        assert shell.stats()["ports"][port]["link_up"] is False
        end = "far0" if port == "host" else "host0"
        for _ in range(20):
            shell.tap(end).send(ethernet(0x88b5, b"lost or late"))
        shell.ip("link", "set", interface, "up")
        wait_for(lambda: shell.log().count(f"port {port}: the link is up") > ups, f"{interface} is up")
        shell.flush()
        shell.passes(frames, f"frames after {interface} was down")


def check_shaper(shell):
    """Checks that frames that wait behind a slow link in the kernel's ring are sent, even if no frame follows them."""
    shell.run("tc", "qdisc", "add", "dev", "wire0", "root", "tbf", "rate", "20mbit", "burst", "4000", "limit", "1000000")
    frames = [ethernet(0x88b5, pattern(1500, i)) for i in range(400)]
    for frame in frames:
        shell.tap("host0").send(frame)
    shell.tap("far0").expect(frames, "frames through a slow link", is_hello)
    shell.run("tc", "qdisc", "del", "dev", "wire0", "root")


def check_missed(shell):
    """Checks that frames that do not fit into the kernel's ring are counted, and that all others pass."""
    shell.process.send_signal(signal.SIGSTOP)
    tasks = list(pathlib.Path(f"/proc/{shell.process.pid}/task").iterdir())
    wait_for(lambda: all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks), "it stands")
    frames = [ethernet(0x88b5, pattern(100, i)) for i in range(700)]
    for frame in frames:
        shell.tap("host0").send(frame)
    shell.process.send_signal(signal.SIGCONT)
    shell.tap("far0").expect(frames[:512], "frames while the daemon was stopped", is_hello)
    shell.counts({"ports/host/missed": len(frames) - 512})


def check_ends(shell):
    """Ends the daemon by SIGTERM and by SIGKILL. Nothing may stay behind, and the next start must work."""
    shell.configure()
    assert "another daemon listens on" in shell.refusal()
    shell.end()
    assert not os.path.exists(f"{shell.folder}/run/a.admin")
    assert shell.interfaces()["wire0"]["promiscuity"] == 0
    shell.start()
    assert shell.interfaces()["wire0"]["promiscuity"] > 0
    shell.end(signal.SIGKILL, -9)
    links = shell.interfaces()
    assert all(links[name]["promiscuity"] == 0 for name in ("gla0", "wire0")), links
    assert set(links) == {"lo", "host0", "gla0", "wire0", "far0"}, links
    shell.start()
    shell.passes(kinds(), "frames after a kill")
    shell.end()


def check_tap(shell):
    """Tests a host port that makes the host's interface itself (net_tap)."""
    shell.configure()
    for end in ((signal.SIGTERM, 0), (signal.SIGKILL, -9)):
        shell.start(host="{device: 'net_tap0,iface=gl0'}")
        shell.run("sysctl", "-q", "-w", "net.ipv6.conf.gl0.disable_ipv6=1")
        shell.ip("link", "set", "gl0", "up")
        wait_for(lambda: shell.interfaces()["gl0"]["operstate"] != "DOWN", "gl0 is up")
        shell.tap("gl0").drain()
        # Runts (frames under 60 bytes) are left out, because the kernel's taps may reject or pad them.
        shell.passes((frame for frame in kinds() if len(frame) >= 60), "frames through a tap", host="gl0")
        shell.passes(sizes(), "frames of all sizes through a tap", host="gl0")
        assert shell.stats()["ports"]["host"]["link_up"] is True
        shell.forget("gl0")
        shell.end(*end)
        wait_for(lambda: "gl0" not in shell.interfaces(), "gl0 is gone")


def check_superpackets(shell):
    """Checks that all other frames pass as usual if TCP may have superpackets."""
    shell.start(host="{device: 'net_af_packet0,iface=gla0', superpackets: true}")
    assert shell.interfaces()["gla0"]["promiscuity"] > 0
    shell.passes(sizes(), "frames of all sizes through a packet socket")
    shell.passes(kinds(), "frames of all kinds through a packet socket")
    shell.counts({"counters/super_segment": 0, "ports/host/superpackets_received": 0, "ports/host/missed": 0})
    for up in (False, True):
        shell.ip("link", "set", "gla0", "up" if up else "down")
        wait_for(lambda up=up: shell.stats()["ports"]["host"]["link_up"] is up, f"the link is up: {up}")
    shell.flush()
    shell.passes(kinds(), "frames after gla0 was down")
    shell.end()
    assert shell.interfaces()["gla0"]["promiscuity"] == 0


def check_user(shell):
    """Checks that a daemon that becomes a user without rights works, and that it ends without leaving files."""
    shell.folder.chmod(0o755)
    shutil.rmtree(shell.folder / "run")  # belongs to root
    shell.start(user="nobody")
    shell.logs("running as user nobody from now on")
    entry = pwd.getpwnam("nobody")
    tasks = list(pathlib.Path(f"/proc/{shell.process.pid}/task").iterdir())
    assert len(tasks) >= 2, tasks
    for task in tasks:
        fields = dict(re.findall(r"^(\w+):\s*(.*)$", (task / "status").read_text(), re.MULTILINE))
        assert fields["Uid"].split() == [str(entry.pw_uid)] * 4 and int(fields["CapEff"], 16) == 0, fields
    shell.passes(kinds(), "frames passed on by nobody")
    assert shell.stats()["advice"] == [], shell.stats()["advice"]
    shell.end()
    assert not os.path.exists(f"{shell.folder}/run/a.admin")


def check_faults(shell):
    """Checks that injected faults hit only frames from the wire."""
    shell.start(faults="{drop: 1, seed: 3}", worker="{idle: spin}", repack="{enabled: false}")
    shell.passes(kinds(), "frames that leave, with faults", ways=((0, 1),))
    count = 0
    for frame in kinds():
        shell.tap("far0").send(frame)
        count += 1
    shell.tap("host0").expect([], "frames of which all get lost")
    shell.counts({"ports/wire/injected_drop": count, "ports/host/sent": 0})
    shell.end()
    shell.start(faults="{duplicate: 1, seed: 3}")
    frame = ethernet(0x88b5, b"twice")
    shell.tap("far0").send(frame)
    shell.tap("host0").expect([frame, frame], "a frame that arrives twice")
    shell.counts({"ports/wire/injected_duplicate": 1, "counters/from_wire": 2})
    shell.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    args = parser.parse_args()
    networks.require()
    checks = (check_offloads, check_frames, check_stats, check_silent_peer, check_super_segments, check_links,
              check_shaper, check_missed, check_ends, check_tap, check_superpackets, check_user, check_faults)
    with tempfile.TemporaryDirectory() as folder, Shell(args.gradlaned, folder) as shell:
        for check in checks:
            try:
                check(shell)
            except BaseException:
                print(f"{check.__name__}; the daemon's log:\n{shell.log()}")
                raise
            print(f"{check.__name__} passed", flush=True)
    print(f"{len(checks)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
