"""Captures traffic of test networks, reads captures with tshark, and writes captures by hand."""

import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time

from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE, wait_for, wait_for_text

DISSECTOR = ROOT / "packaging" / "wireshark" / "gradlane.lua"
ROWS_OF_CRC = []
for row in range(256):
    for _ in range(8):
        row = row >> 1 ^ (0x82F63B78 if row & 1 else 0)
    ROWS_OF_CRC.append(row)


class Capture:
    """Runs dumpcap on an interface during the `with` block. `command(...)` returns the command line that runs a program
    at that interface.

    The capture has at least `least` bytes at the end. The kernel keeps the newest frames for up to 250 ms before it
    delivers them. Frames that it delivers after this process has stopped dumpcap are missing, also in `frames`, the
    number that dumpcap counted. No other frame may be lost.
    """

    def __init__(self, file, interface, command, filter, least):
        self.file, self.frames, self._least, self._log = file, None, least, file.with_suffix(".log")
        with open(self._log, "w", encoding="ascii") as log:
            argv = command("dumpcap", "-q", "-B", "128", "-i", interface, "-f", filter, "-w", str(file))
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self):
        wait_for_text("File:", self._log.read_text, self._process)
        return self

    def __exit__(self, *_):
        try:
            wait_for(lambda: self.file.stat().st_size >= self._least, f"{self._least} bytes are captured")
            before = None
            while before != (before := self.file.stat().st_size):
                time.sleep(0.4)
        finally:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE)
        text = self._log.read_text()
        found = re.search(r"received/dropped on interface .*: (\d+)/(\d+)", text)
        assert found and found[2] == "0", text
        self.frames = int(found[1])


class Tshark:
    """Runs tshark with the dissector, and without anybody's settings."""

    def __init__(self, installed=False):
        """With `installed`, the dissector is a link in the plugin folder. Otherwise an option names its file."""
        self._home = tempfile.TemporaryDirectory()
        self.settings = pathlib.Path(self._home.name) / "wireshark"
        self.settings.mkdir()
        self._script = [] if installed else ["-X", f"lua_script:{DISSECTOR}"]
        self.environment = {**os.environ, "XDG_CONFIG_HOME": self._home.name, "HOME": self._home.name}
        if installed:
            plugins = pathlib.Path(self._home.name) / ".local" / "lib" / "wireshark" / "plugins"
            plugins.mkdir(parents=True)
            (plugins / "gradlane").symlink_to(DISSECTOR.parent)

    def close(self):
        self._home.cleanup()

    def color(self):
        shutil.copy(DISSECTOR.with_name("coloring_rules"), self.settings / "colorfilters")

    def run(self, file, *options, plain=False):
        """Runs tshark on the file and returns its output. With `plain`, it runs without the dissector."""
        argv = ["tshark", "-n", "-r", str(file), *([] if plain else self._script), *options]
        result = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False,
                                env=self.environment)
        said = [line for line in result.stderr.splitlines() if not line.startswith("Running as user")]
        assert result.returncode == 0 and said == [], (argv, result.stderr)
        return result.stdout

    def rows(self, file, *fields, filter="gradlane", between=",", options=()):
        """Returns, for each frame that passes the filter, the values of each field as lists of text. `between`
        separates values, and must not be part of one."""
        words = [word for field in fields for word in ("-e", field)]
        form = ("-E", "separator=/t", "-E", f"aggregator={between}")
        output = self.run(file, "-Y", filter, "-T", "fields", *form, *options, *words)
        return [[cell.split(between) if cell else [] for cell in line.split("\t")] for line in output.splitlines()]

    def count(self, file, filter, plain=False):
        return len(self.run(file, "-Y", filter, "-T", "fields", "-e", "frame.number", plain=plain).splitlines())


# ---- By hand


def crc32c(*parts):
    value = 0xFFFFFFFF
    for part in parts:
        for byte in part:
            value = value >> 8 ^ ROWS_OF_CRC[(value ^ byte) & 255]
    return value ^ 0xFFFFFFFF


def packet(kind, payload, sequence=0, version=2):
    """Returns a packet, which is the link header and the payload."""
    head = struct.pack("<HBBIQQIHHII", 0x4C47, version, kind, sequence, 0x1_00C0FFEE, 0, 0, 256, 0, 1, 0)
    return head + struct.pack("<I", crc32c(payload, head)) + payload


def probe(length, kind=1):
    """Returns a probe with zeros up to this length."""
    head = struct.pack("<HBBIQQHHHBBBBHBBH", 0x5047, 1, kind, 7, 8, 9, 2, 1, 1500, 4, 10, 2, 0, 0, 0x28, 0, 0)
    return head + struct.pack("<I", crc32c(bytes(length - 44), head)) + bytes(length - 44)


def hello(rank, world):
    return struct.pack("<QQQQHHHHBBHBBHQ", 1, 2, 3, 4, world, rank, 0, 1472, 0, 0, world, 0, 0, 0, 5)


def segments(whole, part):
    """Returns the segments of a packet, with `part` bytes of it in each but the last, which may have fewer."""
    parts = [whole[at : at + part] for at in range(0, len(whole), part)]
    return [b"GS" + bytes([number | (number + 1 == len(parts)) << 6, whole[8]]) + whole[4:8] + it
            for number, it in enumerate(parts)]


def report(whole, arrived, overdue=False):
    """Returns the report that these segments of a packet have arrived."""
    return b"GS" + bytes([0x80 | overdue << 6]) + whole[8:9] + whole[4:8] + struct.pack("<Q", sum(1 << number for number in arrived))


def run(block, count, codec, param, phase=0, digest=0x1234, operation=5):
    return struct.pack("<IIIHHBBBB", operation, digest, 0, count, len(block), 1, phase, codec, param) + block


def descriptor(codec, arguments, back=(0, bytes(8)), strategy=0):
    """Returns a descriptor of 48 bytes, and its digest. `arguments` has all eight bytes, the parameter byte first.
    `back` has the codec and the arguments of the return path."""
    text = struct.pack("<QQHBBBBBBI", 7, 3, 0, 0, 0, 0, codec, arguments[0], 0, strategy)
    text += struct.pack("<BBH", back[0], back[1][0], 0) + arguments[1:] + b"\0" + back[1][1:] + b"\0"
    digested = 48 if any(text[32:]) else 32 if strategy else 24
    return text, crc32c(text[:digested])


def datagram(payload, tos=0xC0, snap=None, source=18400, target=18400):
    """Returns a frame for a capture, as (captured bytes, original length). With `snap`, only that number of bytes is
    captured."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, tos, 28 + len(payload), 0, 0x4000, 64, 17, 0, b"\x0a\x4d\0\1", b"\x0a\x4d\0\2")
    frame = bytes(12) + b"\x08\0" + ip + struct.pack("!HHHH", source, target, 8 + len(payload), 0) + payload
    return frame[:snap], len(frame)


def write(file, frames):
    with open(file, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1))
        for frame, length in frames:
            out.write(struct.pack("<IIII", 0, 0, len(frame), length) + frame)
