"""Runs `gradlane bench auth --quick` and checks the form of what it prints, not the speed."""

import json
import subprocess

from tests.scripts.fixtures.waiting import PATIENCE

WORKS = ["memcpy", "crc32c", "udp checksum", "authenticate", "check", "encrypt", "decrypt", "encrypt-128",
         "decrypt-128"]
SIZES = [256, 1472, 8972, 16384]


def check(gradlane):
    command = [gradlane, "bench", "auth", "--quick"]
    output = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
    rows = json.loads(output)["rows"]
    assert [(row["bytes"], row["work"]) for row in rows] == [(size, work) for size in SIZES for work in WORKS], rows
    for row in rows:
        assert set(row) == {"bytes", "work", "ns", "bytes_per_second"}, row
        assert row["ns"] > 0 and abs(row["ns"] * row["bytes_per_second"] / 1e9 / row["bytes"] - 1) < 1e-9, row
    table = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout.splitlines()
    assert len(table) == 2 + len(WORKS) and "16384" in table[1], table
