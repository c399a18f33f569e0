"""Runs `gradlane bench exchange --quick --json` and checks the form of what it prints, not the speed."""

import json
import subprocess

FIELDS = {
    "hop": str,
    "codec": str,
    "isa": str,
    "burst": int,
    "bursts": int,
    "packet_bytes": float,
    "floats_per_packet": float,
    "total_ns": float,
    "codec_ns": float,
    "crc_ns": float,
    "engine_ns": float,
    "cut_ns": float,
    "memcpy_ns": float,
    "packets_per_second": float,
    "sent_per_packet": float,
    "fused": float,
}

LINK_HEADER = 44
RUN_HEADER = 20


def run(gradlane, *arguments):
    command = [gradlane, "bench", "exchange", "--quick", "--json", *arguments]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["rows"]
    for row in rows:
        assert set(row) == set(FIELDS), row
        for field, kind in FIELDS.items():
            assert isinstance(row[field], kind), (field, row)
        for field in ("bursts", "total_ns", "codec_ns", "crc_ns", "memcpy_ns"):
            assert row[field] > 0, (field, row)
        assert abs(row["engine_ns"] - (row["total_ns"] - row["codec_ns"] - row["crc_ns"])) < 1e-6, row
        assert abs(row["packets_per_second"] * row["total_ns"] - 1e9) < 1, row
        # The figures must be those of the one-pass path, or they mean nothing.
        assert 0.95 < row["fused"] <= 1, row
    return {(row["hop"], row["codec"]): row for row in rows}


def check(gradlane):
    rows = run(gradlane)
    codecs = ("raw", "bf16", "fixed:10", "inceptionn:10")
    assert list(rows) == [(hop, codec) for codec in codecs for hop in ("reduce", "gather")], list(rows)
    for (hop, codec), row in rows.items():
        assert row["burst"] == 32, row
        # Packets are nearly full: 1500 bytes without the headers of IPv4 and UDP.
        assert 0.95 * 1472 < row["packet_bytes"] <= 1472, row
        payload = row["packet_bytes"] - LINK_HEADER - RUN_HEADER
        ratio = 4 * row["floats_per_packet"] / payload
        least, most = {"raw": (0.99, 1), "bf16": (1.98, 2), "fixed:10": (5, 14)}.get(codec, (3, 8))
        assert least < ratio <= most + 1e-6, (ratio, row)
        # A growing sum takes more packets from hop to hop. A result is relayed unchanged.
        sent = row["sent_per_packet"]
        assert 0.9 < sent < (1.5 if hop == "reduce" else 1.05), row

    jumbo = run(gradlane, "--codec", "fixed:10", "--mtu", "9000", "--burst", "4")
    assert jumbo["gather", "fixed:10"]["burst"] == 4
    assert jumbo["gather", "fixed:10"]["floats_per_packet"] > 5 * rows["gather", "fixed:10"]["floats_per_packet"]
    run(gradlane, "--codec", "raw", "--trace")
