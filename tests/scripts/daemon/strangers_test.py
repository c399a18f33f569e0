#!/usr/bin/python3
"""Tests strangers on the network of a ring: junk, forgeries and replays change no result.

Uses real daemons on sockets of the kernel; devices of DPDK are tested in tests/stack/strangers_test.cc. Needs root.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import networks, rings
from tests.scripts.fixtures.waiting import PATIENCE, TIMEOUTS
from tests.scripts.soak import teams

NODES = 3
UDP_PORT = 18400
VICTIM = 1
KEY = "5f" * 32
WORK = teams.job(11, 800)
HEAVY = teams.job(12, 60, "large", ["raw"])
ETHERNET, IP, UDP = 14, 20, 8

# Runs in a namespace: sends the frames of its standard input as they are. The length of each frame comes before it.
SENDER = """
import socket, struct, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("gl0", 0))
data = sys.stdin.buffer.read()
while data:
    size, = struct.unpack_from("<H", data)
    raw.send(data[2:2 + size])
    data = data[2 + size:]
"""

# Runs in a namespace: keeps the frames that come in until its input ends, and then writes them. Its argument is the
# maximum number of frames.
CATCHER = """
import select, socket, struct, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.bind(("gl0", 3))
raw.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
kept = []
sys.stdout.buffer.write(b"up\\n")
sys.stdout.buffer.flush()
while True:
    ready = select.select([raw, sys.stdin], [], [])[0]
    if raw not in ready:  # the input has ended, and no frame is left
        break
    frame, address = raw.recvfrom(65535)
    if address[2] != socket.PACKET_OUTGOING and len(kept) < int(sys.argv[1]):
        kept.append(struct.pack("<H", len(frame)) + frame)
sys.stdout.buffer.write(b"".join(kept))
"""


# Runs in a namespace: sends superpackets of junk. Its arguments are address, port, maximum packets per second, and
# seconds. Prints how many packets it has sent, as flood.cc does.
SUPERPACKETS = """
import json, os, socket, struct, sys, time
SEGMENT, PACKETS, BYTES = 103, 44, 1472  # UDP_SEGMENT
to = (sys.argv[1], int(sys.argv[2]))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
s.setsockopt(socket.IPPROTO_UDP, SEGMENT, BYTES)
junk = os.urandom(PACKETS * BYTES)
begin, sent = time.monotonic(), 0
rate, seconds = map(float, sys.argv[3:])
while time.monotonic() < begin + seconds:
    if sent > rate * (time.monotonic() - begin):
        time.sleep(0.0005)
        continue
    s.sendto(junk, to)
    sent += PACKETS
print(json.dumps({"sent": sent, "seconds": time.monotonic() - begin}))
"""


class Strangers:
    """Attacks on the victim, a node, from another host. With `measure`, floods are longer and print how much throughput
    they leave."""

    def __init__(self, network, ring, flood, measure):
        self.network, self.ring, self.flood_program, self.measure = network, ring, flood, measure
        self.seconds = 8 if measure else 2  # length of a flood
        network.stranger()

    def mac(self):
        return json.loads(self.network.node(VICTIM).ip("-j", "link", "show", "gl0"))[0]["address"]

    def counters(self):
        """Returns the victim's counters, added over all queues and ranks."""
        sums = {}
        stats = self.ring.stats(VICTIM)
        for part in [queue for port in stats["ports"] for queue in port["queues"]] + stats["ranks"]:
            for name, value in part["counters"].items():
                sums[name] = sums.get(name, 0) + value
        return sums

    def refused(self, names, work):
        """Calls work() and waits until each of these counters has grown. Returns the result of work()."""
        before = self.counters()
        result = work()

        def grown():
            now = self.counters()
            return all(now.get(name, 0) > before.get(name, 0) for name in names)

        rings.wait_for(grown, f"{names} grow; before {before}, now {self.counters()}")
        return result

    def in_stranger(self, *argv, **options):
        return subprocess.Popen(self.network.stranger().command(*argv), **options)

    def send(self, frames):
        data = b"".join(struct.pack("<H", len(frame)) + frame for frame in frames)
        sender = self.in_stranger(sys.executable, "-c", SENDER, stdin=subprocess.PIPE)
        sender.communicate(data, timeout=PATIENCE)
        assert sender.returncode == 0, "frames could not be sent"

    def flood(self, port, rate, seconds):
        """Starts a flood at a port of the switch. A host behind the switch cannot send that many packets through it."""
        return subprocess.Popen(
            self.network.in_switch(self.flood_program, port, self.mac(), f"10.77.0.{VICTIM + 1}", UDP_PORT,
                                   f"10.77.0.{VICTIM}", rate, seconds), stdout=subprocess.PIPE, text=True)

    def flood_by_udp(self, address, rate, seconds):
        return self.in_stranger(sys.executable, "-c", SUPERPACKETS, address, UDP_PORT, rate, seconds,
                                stdout=subprocess.PIPE, text=True)

    def caught(self, work, most=4000):
        """Returns gradlane's frames that reached the victim while work() ran."""
        catcher = subprocess.Popen(self.network.command(VICTIM, sys.executable, "-c", CATCHER, most),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert catcher.stdout.readline() == b"up\n"
            work()
        finally:
            data, _ = catcher.communicate(timeout=PATIENCE)
        frames = []
        while data:
            size, = struct.unpack_from("<H", data)
            frames.append(data[2:2 + size])
            data = data[2 + size:]
        return [frame for frame in frames if frame[12:14] == b"\x08\x00" and frame[23] == 17]


def as_from_elsewhere(frame):
    """Returns the frame with another source MAC address, so that the switch does not take the stranger for the
    neighbour."""
    return frame[:6] + bytes.fromhex("020000000099") + frame[12:]


def with_right_checksums(frame, payload):
    """Returns the frame with another payload, without a UDP checksum, and with the right CRC32C."""
    return frame[:ETHERNET + IP + 6] + b"\0\0" + with_right_crc(payload)


def crc32c(data, crc=0xFFFFFFFF):
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def with_right_crc(packet):
    crc = crc32c(packet[:40], crc32c(packet[44:])) ^ 0xFFFFFFFF
    return packet[:40] + struct.pack("<I", crc) + packet[44:]


# ---- The tests. Each gets a ring that works, and trainers.


def noise_by_udp(strangers, team, reference):
    """Sends random datagrams from the stranger's kernel to gradlane's port."""
    script = ("import os, random, socket\n"
              "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
              "for i in range(5000):\n"
              "    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, random.choice([0, 0x28, 0x20, 0xc0]))\n"
              f"    s.sendto(os.urandom(random.randrange(1400)), ('10.77.0.{VICTIM + 1}', {UDP_PORT}))\n")

    def work():
        sender = strangers.in_stranger(sys.executable, "-c", script)
        reports = team.run(WORK, PATIENCE)
        assert sender.wait(PATIENCE) == 0
        return reports

    reports = strangers.refused(["not_neighbour", "host"], work)
    assert reports[0]["digest"] == reference, "noise has changed results"


def under_flood(storm, team):
    """Runs the work during a flood. Returns the reports of the work, and the packets per second of the flood."""
    reports = team.run(HEAVY, PATIENCE)
    report = json.loads(storm.communicate(timeout=PATIENCE)[0])
    assert storm.returncode == 0
    return reports, report["sent"] / report["seconds"]


def flood(strangers, team, reference):
    """Sends as many packets as the machine can: noise, wrong sessions, wrong senders."""
    quiet = team.run(HEAVY, PATIENCE)
    loud, rate = strangers.refused(
        ["bad_magic", "stale_session", "not_neighbour", "host"],
        lambda: under_flood(strangers.flood(f"p{VICTIM}", 1_000_000, strangers.seconds), team))
    assert loud[0]["digest"] == quiet[0]["digest"], "a flood has changed results"
    if strangers.measure:
        # The flood takes one CPU of perhaps two. So the throughput is also compared with that during a flood to another
        # host.
        elsewhere, other_rate = under_flood(strangers.flood("px", 1_000_000, strangers.seconds), team)
        seconds = [reports[0]["seconds"] for reports in (quiet, elsewhere, loud)]
        print(f"  {rate / 1e6:.2f} M packets/s of junk: {seconds[0] / seconds[2]:.2f} of the throughput without, "
              f"{seconds[1] / seconds[2]:.2f} of that beside {other_rate / 1e6:.2f} M packets/s for others; "
              f"{seconds[0]:.2f} s without", flush=True)


def flood_of_superpackets(strangers, team, reference):
    """Floods the victim with superpackets from a UDP socket, as nodes send them: at the rate of a network link and,
    with `measure`, also as fast as possible."""
    for most in (85_000, 425_000, 10_000_000) if strangers.measure else (425_000,):
        quiet = team.run(HEAVY, PATIENCE)
        flood = strangers.flood_by_udp(f"10.77.0.{VICTIM + 1}", most, strangers.seconds)
        loud, rate = strangers.refused(["not_neighbour"], lambda flood=flood: under_flood(flood, team))
        assert loud[0]["digest"] == quiet[0]["digest"], "a flood has changed results"
        if strangers.measure:
            seconds = [reports[0]["seconds"] for reports in (quiet, loud)]
            print(f"  {rate * 12e-6:.1f} Gb/s of junk: {seconds[0] / seconds[1]:.2f} of the throughput without; "
                  f"{seconds[0]:.2f} s without", flush=True)


def replay(strangers, team, reference):
    """Records all packets of a session, and replays them in it. Returns them for a replay to another ring."""
    frames = [as_from_elsewhere(frame) for frame in strangers.caught(lambda: team.run(WORK, PATIENCE))]
    assert len(frames) > 500, len(frames)

    def again():
        strangers.send(frames)
        return team.run(WORK, PATIENCE)

    reports = strangers.refused(["duplicate"], again)
    assert reports[0]["digest"] == reference, "replays within a session have changed results"
    return frames


def replay_later(strangers, team, reference, frames):
    def again():
        for _ in range(3):
            strangers.send(frames)
        return team.run(WORK, PATIENCE)

    reports = strangers.refused(["stale_session"], again)
    assert reports[0]["digest"] == reference, "replays of an earlier session have changed results"


def forge(strangers, team, reference):
    """Changes real packets of this session, and makes their CRC right. Only the key reveals them."""
    frames = strangers.caught(lambda: team.run(WORK, PATIENCE), most=200)
    forged = []
    for frame in frames:
        payload = bytearray(frame[ETHERNET + IP + UDP:])
        payload[4] ^= 0x80  # a bit of its sequence number
        if len(payload) > 70:
            payload[68] ^= 0x10
        payload[-28 + 5] ^= 1  # the counter of a packet that the receiver has not seen
        forged.append(as_from_elsewhere(with_right_checksums(frame, bytes(payload[:-28])) + bytes(payload[-28:])))

    def again():
        strangers.send(forged)
        return team.run(WORK, PATIENCE)

    reports = strangers.refused(["forged"], again)
    assert reports[0]["digest"] == reference, "forged packets have changed results"


def with_ring(args, folder, network, tests, **settings):
    with rings.Ring("udp", NODES, folder, args.gradlaned, network, timeouts=TIMEOUTS, **settings) as ring:
        ring.start().wait_whole()
        with teams.TrainerTeam(ring) as team:
            strangers = Strangers(network, ring, args.flood, args.measure)
            reference = team.run(WORK, PATIENCE)[0]["digest"]
            for test in tests:
                print(test.__name__, flush=True)
                kept = test(strangers, team, reference)
    return reference, kept


def on(network, args, tests):
    """Runs these tests on one ring. The last one must return frames, which are then replayed to a second ring. Runs
    forge() on a third ring, which has a key."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [pathlib.Path(folder) / name for name in ("open", "later", "keyed")]
        for one in folders:
            one.mkdir()
        reference, frames = with_ring(args, folders[0], network, tests)

        def replay_of_another_ring(strangers, team, digest):
            assert digest == reference
            replay_later(strangers, team, digest, frames)

        with_ring(args, folders[1], network, [replay_of_another_ring])
        key = folders[2] / "ring.key"
        key.touch(0o600)
        key.write_text(KEY + "\n")
        with_ring(args, folders[2], network, [forge], auth=f"{{key_file: '{key}'}}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlaned")
    parser.add_argument("flood")
    parser.add_argument("--measure", action="store_true", help="print how much throughput floods leave; longer floods")
    args = parser.parse_args()
    networks.require()
    with networks.Network(NODES, kernel=True) as network:  # without offloads, recorded packets are as on a wire
        on(network, args, [noise_by_udp, replay])
    with networks.Network(NODES, kernel=True, offloads=True) as network, tempfile.TemporaryDirectory() as folder:
        with_ring(args, folder, network, [flood, flood_of_superpackets])
    print("6 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
