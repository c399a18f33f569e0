"""Rows of checksums: packets that a card sends are checked on its network link, and the card must find damaged packets.
"""

import dataclasses
import json
import socket
import struct
import typing

from tests.vm.driver_rows import CARDS
from tests.vm.guest import mac_of
from tests.vm.igb_rows import ONE, newer_qemu
from tests.vm.ring import Ring, check_perf
from tests.vm.row import Row

DAMAGED = 8  # number of damaged packets that are sent
ETHERNET, IP_TYPE, UDP, RECORD = 14, b"\x08\x00", 17, 16


@dataclasses.dataclass
class Checksums:
    """A row. `sent` is what `gradlane stats` must report about who computes the checksums of sent packets.

    With `looks`, the row also sends damaged packets to node 0, which must count them as `bad_checksum`.
    """

    ring: Ring
    sent: str
    looks: bool = False

    def play(self, stage):
        dump = stage.folder / "cable.pcap"
        ring = dataclasses.replace(self.ring, perf="-b 16K -e 16K -n 4 -w 1 --codec raw,fixed:10")
        guest = ring.prepare(stage, extra=["-object", f"filter-dump,id=dump,netdev=cable0,file={dump}"])
        stage.boot(guest)
        ring.start(guest)
        rows = check_perf(guest.run(f"perf 2 {ring.perf}", timeout=300).output)
        ports = [ring.check_stats(guest, rank) and self._port(guest, rank) for rank in range(2)]
        assert [port["checksums"] for port in ports] == [self.sent] * 2, ports
        frames = [udp_frames(dump.read_bytes(), mac_of(guest.name, rank)) for rank in range(2)]
        for rank in range(2):
            assert len(frames[rank]) > 20, f"{len(frames[rank])} packets of node {rank}"
            wrong = [frame.hex() for frame in frames[rank] if not right(frame)]
            assert not wrong, f"{len(wrong)} of {len(frames[rank])} packets of node {rank} have wrong checksums: {wrong[0]}"
        said = (f"{ring.driver}: {rows} codecs, wrong 0; checksums of {len(frames[0])} and {len(frames[1])} packets, by "
                f"{self.sent}, right on the cable")
        if self.looks:
            self._send_damaged(stage, frames[1])
            guest.run(f"damaged() {{ gradlane stats --config /tmp/n0.yaml --json | grep -q '\"bad_checksum\": *{DAMAGED}\\b'; }}; "
                      "await 20 damaged || { gradlane stats --config /tmp/n0.yaml --all; exit 1; }")
            said += f"; {DAMAGED} damaged packets: bad_checksum {DAMAGED}"
        guest.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
        return said

    @staticmethod
    def _port(guest, rank):
        return json.loads(guest.run(f"gradlane stats --config /tmp/n{rank}.yaml --json").output)["ports"][0]

    @staticmethod
    def _send_damaged(stage, frames):
        """Sends packets to the card of node 0, as if from node 1. Their last byte is damaged."""
        frame = bytearray(max(frames, key=len))
        frame[-1] ^= 0x5A
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as cable:
            for _ in range(DAMAGED):
                cable.sendto(frame, f"{stage.folder}/cable1-a")


def udp_frames(capture, mac):
    """Returns the UDP packets from this MAC address in a file of tcpdump's format."""
    source, frames, at = bytes.fromhex(mac.replace(":", "")), [], 24
    while at + RECORD <= len(capture):
        size = struct.unpack_from("<I", capture, at + 8)[0]
        frame = capture[at + RECORD:at + RECORD + size]
        at += RECORD + size
        if len(frame) == size and frame[6:12] == source and frame[12:14] == IP_TYPE and frame[ETHERNET + 9] == UDP:
            frames.append(frame)
    return frames


def right(frame):
    """Returns whether the IP and the UDP checksum of a frame are present and right."""
    ip = frame[ETHERNET:]
    head = (ip[0] & 15) * 4
    udp = ip[head:struct.unpack_from(">H", ip, 2)[0]]
    pseudo = ip[12:20] + struct.pack(">HH", UDP, len(udp))
    return udp[6:8] != b"\0\0" and ones_sum(ip[:head]) == 0xFFFF and ones_sum(pseudo + udp) == 0xFFFF


def ones_sum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def rows() -> typing.Iterator[Row]:
    yield Row("checksums-e1000e", Checksums(CARDS["e1000e"], "device", looks=True).play)
    yield Row("checksums-e1000", Checksums(CARDS["e1000"], "device").play)
    # The driver of vmxnet3 offers UDP checksums, but not IPv4 checksums.
    yield Row("checksums-vmxnet3", Checksums(CARDS["vmxnet3"], "software").play)
    # QEMU offers checksums only if the network behind the card can take them too, as a tap can.
    yield Row("checksums-virtio", Checksums(CARDS["virtio"], "software").play)
    yield Row("checksums-igb", Checksums(ONE, "device", looks=True).play, limit=600, fetch=newer_qemu)


ROWS = list(rows())
