#!/usr/bin/python3
"""Tests the demonstration of accelerator mode with few floats. Its figures must be right, and its program must detect
wrong floats."""

import json
import pathlib
import subprocess
import sys
import tempfile

from tests.scripts.fixtures import networks
from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.ports import free_port

FLOATS = 1 << 19
SEGMENT_FLOATS = 362


def stream(sent, received):
    """Runs float_stream.py with these options. Returns the exit statuses of sender and receiver, and the sender's
    results."""
    port = free_port()
    program = [sys.executable, "-B", str(ROOT / "tools" / "demo" / "float_stream.py")]
    receiver = subprocess.Popen([*program, "receive", "--once", "--port", str(port), *received], text=True,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert "listening" in receiver.stderr.readline()
        command = [*program, "send", "127.0.0.1", "--json", "--port", str(port), "--floats", "3000001", *sent]
        sender = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return sender.returncode, receiver.wait(timeout=60), json.loads(sender.stdout)
    finally:
        receiver.kill()
        receiver.communicate()


def test_program():
    *status, exact = stream([], ["--bound", "0"])
    assert status == [0, 0] and exact["floats"] == 3000001 and exact["worst_error"] == 0, (status, exact)
    *status, other = stream(["--seed", "2"], ["--bound", "2^-10"])
    assert status == [1, 1] and other["worst_error"] > 2**-10, (status, other)
    *status, loose = stream(["--seed", "2"], ["--bound", "1"])
    assert status == [0, 0] and loose["bound"] == 1, (status, loose)


def test_demo(gradlane, folder, options, bound):
    file = folder / "demo.json"
    command = [sys.executable, "-B", str(ROOT / "tools" / "demo" / "accelerator.py"), "--gradlane", gradlane]
    result = subprocess.run([*command, "--floats", str(FLOATS), "--json", str(file), *options], capture_output=True,
                            text=True, timeout=150)
    assert result.returncode == 0, (result.stdout, result.stderr)
    plain, marked, repacked = json.loads(file.read_text())["rows"]
    segments = FLOATS // SEGMENT_FLOATS
    for row in (plain, marked, repacked):
        assert row["right"] and row["floats"] == FLOATS and row["name"] in result.stdout, row
    assert plain["worst_error"] == 0 and plain["wire_bytes"] > 4 * FLOATS and plain["packets"] > segments, plain
    # The limit is generous: on a busy machine some segments are lost and are sent again uncompressed.
    assert 0 < marked["worst_error"] <= bound and marked["wire_bytes"] < 2 * FLOATS, marked
    assert marked["packets"] > segments, marked
    assert 0 < repacked["worst_error"] <= bound and repacked["wire_bytes"] < 2 * FLOATS, repacked
    assert repacked["packets"] < segments, repacked


def main():
    test_program()
    networks.require()
    with tempfile.TemporaryDirectory(prefix="gradlane-test-") as folder:
        test_demo(sys.argv[1], pathlib.Path(folder), [], 2**-10)
        # The values are larger, and the bound is coarser to suit them.
        test_demo(sys.argv[1], pathlib.Path(folder), ["--codec", "fixed:5", "--data", "gauss-0.1"], 2**-5)
    print("the demonstration's figures are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
