#!/usr/bin/python3
"""Tests an accelerator whose peer host has no accelerator, loses it, or sends malformed packets."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from tests.scripts.accelerator import frames, rig, traffic
from tests.scripts.fixtures import networks, rings

MALFORMED = 50_000
STRANGER, OTHER_STRANGER = "10.77.0.66", "10.77.0.67"  # source addresses of malformed packets


# ---- The peer host has no accelerator


def legacy(hosts, bumps, args):
    """Tests traffic with a host that has no accelerator. All packets pass unchanged in both directions, and `gradlane
    check` reports that nothing is compressed."""
    values = traffic.laplace(100_000)

    def marked(frame, outgoing):
        return frames.is_ipv4(frame) and frame[15] != 0 and frame[23] in (frames.TCP, frames.UDP)

    with rig.Sniffer(hosts, hosts.names[1], "gl0", marked) as seen:
        for i in range(2):
            pair = traffic.connect(hosts, i, 1 - i, tos=traffic.MARK)
            for way in range(2):
                data = values.tobytes() + b"odd"
                traffic.Transfer(pair[way], pair[1 - way], data, traffic.odd_chunks(), what="legacy TCP").check_exact()
            traffic.close(pair)
            payloads = [values[:size].tobytes() for size in range(1, 369)] + [b"", b"1", b"12", b"123"]
            with traffic.Datagrams(hosts, i, 1 - i, traffic.MARK) as datagrams:
                traffic.check_datagrams(payloads, datagrams.send(payloads), traffic.MARK, "legacy UDP")
                datagrams.nothing_more()
        for frame in seen.stop():
            hello = frame[23] == frames.UDP and frame[36:38] == (18400).to_bytes(2, "big")
            assert frame[15] == (frames.WIRE_TOS if hello else traffic.MARK), f"at the legacy host: {frame.hex()}"
            assert frame[20] & 0x80 == 0
    bumps.counted(0, "raw_no_peer", 100)
    assert bumps.counter(0, "compressed") == 0
    assert bumps.peer(0, 1)["state"] != "answers"
    verdict = check(hosts, bumps, args)
    assert verdict.returncode == 1, f"status {verdict.returncode}: {verdict.stdout}"
    bad = [line for line in verdict.stdout.splitlines() if line.startswith("FAIL")]
    assert len(bad) == 1 and f"{rig.address(1)}: marked traffic" in bad[0], verdict.stdout
    # Unmarked traffic is not affected.
    pair = traffic.connect(hosts, 0, 1)
    traffic.Transfer(*pair, os.urandom(1 << 20), what="no mark").check_exact()
    traffic.close(pair)
    traffic.ping_all_sizes(hosts, 0, 1, (0, 56, 1472))


def check(hosts, bumps, args):
    command = hosts.command(0, args.gradlane, "check", "--config", bumps.config(0))
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=rig.PATIENCE,
                          stdin=subprocess.DEVNULL)


def both_there(hosts, bumps, args):
    """Checks that `gradlane check` reports no failure if both hosts have an accelerator."""
    pair = traffic.connect(hosts, 0, 1, tos=traffic.MARK)
    values = traffic.laplace(10_000)
    traffic.check_floats(values, traffic.Transfer(*pair, values.tobytes(), what="before check").finish())
    verdict = check(hosts, bumps, args)
    assert verdict.returncode == 0, f"status {verdict.returncode}: {verdict.stdout}"
    traffic.close(pair)


# ---- A firewall in the switch


def blocked(hosts, bumps, args):
    """Drops compressed TCP segments on the way, and nothing else. Connections continue without compression, and
    `gradlane check` reports it."""
    bumps.warm(0, 1)
    hosts.spaces["sw"].run("nft", "table bridge blocked { chain forward { type filter hook forward priority 5; "
                           "ip dscp af12 ip protocol tcp counter drop; }; }")
    values = traffic.laplace(100_000)
    for _ in range(2):
        pair = traffic.connect(hosts, 0, 1, tos=traffic.MARK)
        traffic.check_floats(values, traffic.Transfer(*pair, values.tobytes(), what="blocked on the way").finish())
        traffic.close(pair)
    bumps.counted(0, "blocked", 1)
    verdict = check(hosts, bumps, args)
    assert verdict.returncode == 1 and "compressed TCP segments do not arrive" in verdict.stdout, verdict.stdout


# ---- The peer's accelerator is killed


def killed(hosts, bumps):
    """Kills the far accelerator under load and starts it again. Then compression resumes, and all data is right."""
    def small_buffer(sock):
        sock.setsockopt(traffic.socket.SOL_SOCKET, traffic.socket.SO_RCVBUF, 1 << 16)

    bumps.warm(0, 1)
    values = traffic.laplace(1_000_000)
    # The transfer is slow, so that it lasts longer than the new accelerator takes to be noticed.
    pair = traffic.connect(hosts, 0, 1, tos=traffic.MARK, set_listener=small_buffer)
    transfer = traffic.Transfer(*pair, values.tobytes(), read=8192, what="accelerator killed",
                                pause=lambda received: time.sleep(0.006))
    rings.wait_for(lambda: len(transfer.received) > values.nbytes // 10, "the stream runs")
    bumps.kill(1)
    with hosts.socket(0, traffic.socket.SOCK_DGRAM) as sender:
        traffic.mark(sender, traffic.MARK)

        def silent():
            sender.sendto(bytes(400), (rig.address(1), 9))
            return not bumps.answers(0, 1)

        rings.wait_for(silent, "the killed one is missed")
    assert len(transfer.received) < values.nbytes, "the stream was over before its accelerator was killed"
    bumps.start_node(1)
    bumps.wait_up().warm(0, 1)
    received = transfer.finish()
    assert traffic.check_floats(values, received, what="accelerator killed") > 0
    tail = values.size // 10
    changed = traffic.check_floats(values[-tail:], received[-4 * tail :])
    assert changed > 0, "the end of the stream was not compressed"
    traffic.close(pair)
    pair = traffic.connect(hosts, 1, 0, tos=traffic.MARK)
    bumps.warm(1, 0)
    for way in range(2):
        received = traffic.Transfer(pair[way], pair[1 - way], values[:100_000].tobytes(), what="after it").finish()
        assert traffic.check_floats(values[:100_000], received) > 0, "a connection after it is not compressed"
    traffic.close(pair)


# ---- Malformed packets


def record(hosts, bumps):
    """Records compressed packets of TCP and UDP on the wire to host 1. Returns them as packets from STRANGER."""
    def wanted(frame, outgoing):
        return outgoing and frames.is_bundle(frame) and frames.source_of(frame) == rig.address(0)

    bumps.warm(0, 1)
    with rig.Sniffer(hosts, hosts.switch, "p1", wanted) as wire:
        pair = traffic.connect(hosts, 0, 1, tos=traffic.MARK)
        values = traffic.laplace(20_000)
        traffic.check_floats(values, traffic.Transfer(*pair, values.tobytes(), what="to be recorded").finish())
        traffic.close(pair)
        with traffic.Datagrams(hosts, 0, 1, traffic.MARK) as datagrams:
            datagrams.send([traffic.laplace(count).tobytes() for count in range(30, 368, 7)])
        recorded = wire.stop()
    for protocol in (frames.TCP, frames.UDP):
        assert sum(frame[23] == protocol for frame in recorded) >= 10, "no compressed packets on the wire"
    assert all(frames.checksums_right(frame) for frame in recorded), "wrong checksums on the wire"
    return [frames.sent_from(frame, STRANGER) for frame in recorded]


def send_all(raw, packets):
    """Sends packets, slowly enough for an accelerator that shares its CPUs with other programs."""
    for begin in range(0, len(packets), 100):
        for packet in packets[begin : begin + 100]:
            raw.send(packet)
        time.sleep(0.001)


def introduce(raw, recorded, *strangers):
    """Sends hellos from the strangers, so that host 1 takes them for accelerators. Only then does it treat all of their
    packets with ToS 0x30 as packets of an accelerator."""
    datagram = next(frame for frame in recorded if frame[23] == frames.UDP)
    for stranger in strangers:
        raw.send(frames.sent_from(frames.hello(datagram), stranger))


def wire_counters(bumps):
    """Returns the number of packets that host 1's accelerator has dropped as damaged, plus the hello answers it has
    refused."""
    counters = bumps.stats(1)["counters"]
    return sum(counters[name] for name in ("wire_dropped", "hello_refused"))


def malformed(hosts, bumps, count=MALFORMED):
    """Sends malformed packets. None may reach the host, and all that reach the accelerator are counted. Valid traffic
    at the same time must be right."""
    bumps.warm(1, 0)
    recorded = record(hosts, bumps)
    packets = frames.shuffled(frames.MALFORMED, recorded, count)
    flips = [frames.sent_from(frame, OTHER_STRANGER)
             for frame in frames.shuffled([frames.flipped_and_put_right], recorded, count // 5)]
    values = traffic.laplace(400_000)

    def from_strangers(frame, outgoing):
        return not outgoing and frames.source_of(frame) in (STRANGER, OTHER_STRANGER)

    with (rig.Sniffer(hosts, hosts.names[1], "gl0", from_strangers) as arrived,
          hosts.raw_socket(hosts.switch, "p1") as raw):
        introduce(raw, recorded, STRANGER, OTHER_STRANGER)
        # Valid packets must be delivered, or the checks below prove nothing.
        raw.send(recorded[0])
        raw.send(frames.of_tiny_records(recorded[-1], 32))
        rings.wait_for(lambda: len(arrived.frames) == 33, "right packets are restored")
        assert all(frames.checksums_right(frame) and frame[15] == traffic.MARK for frame in arrived.frames)
        arrived.frames.clear()
        before = traffic.wait_until_steady(lambda: wire_counters(bumps), "counters rest")
        send_all(raw, packets[: count // 2])
        quiet = traffic.wait_until_steady(lambda: wire_counters(bumps), "counters rest") - before
        assert not arrived.frames, f"{len(arrived.frames)} delivered, the first: {arrived.frames[0].hex()}"
        attack = threading.Thread(target=send_all, args=(raw, packets[count // 2 :]))
        attack.start()
        pairs = [traffic.connect(hosts, i % 2, 1 - i % 2, tos=traffic.MARK if i < 4 else 0) for i in range(6)]
        streams = [traffic.Transfer(*pair, values.tobytes(), what="beside malformed packets") for pair in pairs]
        for i, stream in enumerate(streams):
            changed = traffic.check_floats(values, stream.finish(), what=stream.what)
            assert (changed > 0) == (i < 4), f"stream {i}: {changed} floats changed"
        attack.join()
        traffic.close(*pairs)
        counted = traffic.wait_until_steady(lambda: wire_counters(bumps), "counters rest") - before
        assert not arrived.frames, f"{len(arrived.frames)} delivered, the first: {arrived.frames[0].hex()}"
        # Some packets are lost before they reach the accelerator, and many if it is busy.
        assert 0 < quiet <= count / 2, f"{quiet} of {count / 2} are counted"
        assert quiet < counted <= count, f"{counted - quiet} of {count / 2} are counted"
        send_all(raw, flips)
        traffic.wait_until_steady(lambda: wire_counters(bumps), "counters rest")
        for frame in arrived.frames:
            assert frames.source_of(frame) == OTHER_STRANGER
            assert frame[15] & 0xFC == traffic.MARK and len(frame) <= 1514, frame.hex()
            assert frames.checksums_right(frame), frame.hex()
        assert arrived.lost() == 0
    for name in ("bad_headers", "bad_ip_checksum", "bad_checksum", "not_ours", "other_version", "unknown_codec",
                 "bad_shape", "bad_mask", "bad_block", "too_many_records"):
        matching = [value for key, value in bumps.stats(1)["counters"].items() if key.endswith(name)]
        assert matching and matching[0] > 0, f"no counter of {name}: {bumps.stats(1)['counters']}"
    assert bumps.running(1)


def truncated(hosts, bumps):
    """Sends frames that end before the IP packet in them does."""
    recorded = record(hosts, bumps)

    def from_strangers(frame, outgoing):
        return not outgoing and frames.source_of(frame) == STRANGER

    with (rig.Sniffer(hosts, hosts.names[1], "gl0", from_strangers) as arrived,
          hosts.raw_socket(hosts.switch, "p1") as raw):
        introduce(raw, recorded, STRANGER)
        raw.send(recorded[0])
        rings.wait_for(lambda: arrived.frames, "a right packet is restored")
        restored = arrived.frames.pop()
        send_all(raw, [frame[:size] for frame in recorded[:50] for size in range(14, len(frame), 5)])

        def delivered():
            """Sends a valid packet again, as it is lost while the accelerator still has too many frames to read."""
            raw.send(recorded[0])
            return arrived.frames

        # The valid packet is delivered again, and none of the frames before it.
        rings.wait_for(delivered, "a right packet is restored")
        others = set(arrived.stop()) - {restored}
        assert not others, f"{len(others)} delivered, one of them: {others.pop().hex()}"
    bumps.wait_up()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    parser.add_argument("gradlaned")
    args = parser.parse_args()
    networks.require("ping")

    def run(what, places, function, *more, **settings):
        begin = time.monotonic()
        with (tempfile.TemporaryDirectory() as name, rig.Hosts(places) as hosts,
              rig.Bumps(hosts, pathlib.Path(name), args.gradlaned, **settings) as bumps):
            bumps.start().wait_up()
            function(hosts, bumps, *more)
        print(f"{what}: {time.monotonic() - begin:.1f} s", flush=True)

    both = (True, True)
    run("no accelerator there", (True, False), legacy, args)
    run("gradlane check", both, both_there, args)
    run("blocked", both, blocked, args)
    run("killed", both, killed)
    run("malformed packets", both, malformed, repack="{enabled: false}")
    run("truncated frames", both, truncated, repack="{enabled: false}")
    print("neighbours may be what they are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
