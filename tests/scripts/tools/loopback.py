"""Runs `gradlane loopback` for a second in each mode. Checks that figures add up, that no packet is lost, that Ctrl-C
ends it in order, and that errors help."""

import json
import math
import signal
import subprocess

from tests.scripts.fixtures.waiting import PATIENCE

MODES = ["io", "classify", "codec", "ring"]
FIELDS = {
    "mode": str,
    "devices": list,
    "core": int,
    "burst": int,
    "frame_bytes": int,
    "seconds": float,
    "cpu_seconds": float,
    "mpps": float,
    "gbps": float,
    "cycles_per_packet": float,
    "busy": float,
    "primed": int,
    "received": int,
    "sent": int,
    "left": int,
    "classes": (dict, type(None)),
    "drops": dict,
}
CODEC_FIELDS = {"codec": str, "floats": int, "recode_gbps": float}
RING_FIELDS = {
    "codec": str,
    "bytes": int,
    "operations": int,
    "operations_per_second": float,
    "algbw_gbps": float,
    "identical": bool,
}
CLASSES = {"compressed", "raw", "control", "host"}
DROPS = {"not_for_us", "runt", "bad_ip_header", "bad_checksum", "fragment", "bad_payload", "tx_full"}

# Arguments, and words that the error must have.
ERRORS = [
    (["--mode", "mac"], ["--mode", "'mac'", "io, classify, codec, ring"]),
    (["--burst", "0"], ["--burst", "'0'", "1 to 512"]),
    (["--burst", "513"], ["--burst", "'513'", "1 to 512"]),
    (["--packets", "0"], ["--packets", "'0'", "1 to 65536"]),
    (["--packets", "many"], ["--packets", "'many'", "1 to 65536"]),
    (["--size", "63"], ["--size", "'63'", "64 to 9014"]),
    (["--size", "9015"], ["--size", "'9015'", "64 to 9014"]),
    (["--size", "64", "--mode", "codec"], ["--size", "'64'", "298 to 9014"]),
    (["--size", "64", "--mode", "ring"], ["--size", "'64'", "298 to 9014"]),
    (["--seconds", "-1"], ["--seconds", "'-1'", "Ctrl-C"]),
    (["--seconds", "nan"], ["--seconds", "'nan'"]),
    (["--core", "99999"], ["--core", "'99999'", "one of"]),
    (["--core", "x"], ["--core", "'x'", "one of"]),
    (["--codec", "fixed:99"], ["fixed:99", "1 to 30"]),
    (["--bytes", "6"], ["--bytes", "'6'", "multiple of 4"]),
    (["--bytes", "2G"], ["--bytes", "'2G'", "1G"]),
    (["--data", "noise"], ["noise", "laplace-1e-3"]),
    (["--seed", "-1"], ["--seed", "'-1'", "2^64"]),
    (["--device", "net_ring0"], ["--device", "twice"]),
    (["--device", "net_ring0", "--device", "net_ring0,x=1"], ["--device", "net_ring0,x=1", "another"]),
    (["--device", "net_ring0", "--device", "net_nothing"], ["--device", "net_nothing"]),
    (["--device", "net_ring0", "--device", ""], ["--device", "name"]),
    (["--device", "0000:fe:1e.6", "--device", "net_ring0"], ["0000:fe:1e.6", "no such PCI device", "lspci"]),
    (["--speed"], ["--speed", "gradlane loopback --help"]),
]


def run(gradlane, arguments, status=0):
    result = subprocess.run([gradlane, "loopback", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == status, (arguments, result)
    return result


def run_json(gradlane, arguments, seconds=1):
    result = run(gradlane, [*arguments, "--seconds", str(seconds), "--json"])
    assert result.stderr == "", (arguments, result.stderr)
    return json.loads(result.stdout)


def check_form(figures, mode):
    fields = dict(FIELDS)
    fields.update({"codec": CODEC_FIELDS, "ring": RING_FIELDS}.get(mode, {}))
    assert set(figures) == set(fields), figures
    for field, kind in fields.items():
        assert isinstance(figures[field], kind), (field, figures)
    assert figures["mode"] == mode and figures["seconds"] > 0, figures
    assert set(figures["drops"]) >= DROPS and "gradlane" not in figures["drops"], figures
    assert figures["cycles_per_packet"] > 0 and 0 < figures["busy"] <= 1, figures


# at_first: number of packets that the ports drop at the start, because they do not fit.
def check_counts(figures, mode, at_first=0):
    drops = sum(figures["drops"].values())
    assert figures["received"] > 0, figures
    if mode == "io":
        assert figures["classes"] is None, figures
    else:
        assert set(figures["classes"]) == CLASSES, figures
        assert sum(figures["classes"].values()) == figures["received"], figures
    if mode == "ring":
        # Packets that are still at the ports after the last all-reduce are not received. They count as `left`.
        assert drops == 0 and figures["sent"] == figures["received"] + figures["left"], figures
        return
    assert figures["received"] == figures["sent"] + drops - at_first, figures
    assert figures["primed"] == figures["left"] + drops, figures
    assert math.isclose(figures["mpps"], figures["received"] / figures["seconds"] / 1e6), figures
    assert math.isclose(figures["gbps"], figures["mpps"] * figures["frame_bytes"] * 8 / 1e3), figures


def check_modes(gradlane, modes=MODES, seconds=1):
    for mode in modes:
        figures = run_json(gradlane, ["--mode", mode], seconds)
        check_form(figures, mode)
        check_counts(figures, mode)
        if mode == "ring":
            assert figures["operations"] > 0 and figures["identical"], figures
            assert figures["classes"]["compressed"] > 0 and figures["classes"]["control"] > 0, figures
            assert figures["classes"]["raw"] == figures["classes"]["host"] == 0, figures
        else:
            assert figures["primed"] == 64 and sum(figures["drops"].values()) == 0, figures
        if mode in ("classify", "codec"):
            # Packets are of the four classes in turn, and all of them circulate, so each class has a quarter of the
            # packets.
            share = figures["received"] / 4
            assert all(abs(count - share) <= 32 for count in figures["classes"].values()), figures
        if mode == "codec":
            # Packets of 1514 bytes have room for some 350 floats without compression.
            assert figures["floats"] > 1000 * figures["classes"]["compressed"], figures


def check_variants(gradlane):
    for codec in ["raw", "bf16", "inceptionn:10,truncate", "fixed:7"]:
        figures = run_json(gradlane, ["--mode", "codec", "--codec", codec, "--packets", "100", "--burst", "17"])
        check_counts(figures, "codec")
        assert figures["codec"] == codec and figures["floats"] > 0 and figures["drops"]["bad_payload"] == 0, figures
    # Frames and bursts have their largest sizes, and there are fewer packets than fit into a burst.
    for mode in ["classify", "codec", "ring"]:
        figures = run_json(gradlane, ["--mode", mode, "--size", "9014", "--burst", "512", "--packets", "3"])
        check_counts(figures, mode)
    # Frames have the smallest size, bursts have one packet, and the tensor has one float.
    figures = run_json(gradlane, ["--mode", "ring", "--size", "298", "--burst", "1", "--bytes", "4", "--codec", "raw"])
    check_counts(figures, "ring")
    assert figures["operations"] > 0 and figures["identical"], figures
    assert figures["classes"]["raw"] > 0 and figures["classes"]["compressed"] == 0, figures


# Checks drops. Each of the two ports is a DPDK ring that holds 1023 packets, and drops the others at the start. After
# that, one burst goes to a port that is still full.
def check_drops(gradlane):
    figures = run_json(gradlane, ["--mode", "io", "--packets", "2000"])
    at_first = 4000 - 2 * 1023
    check_counts(figures, "io", at_first)
    assert figures["primed"] == 4000 and figures["drops"]["tx_full"] == at_first + figures["burst"], figures


# Checks devices that drop all packets. No packet comes back, so the ranks never get into one session.
def check_dead_devices(gradlane):
    devices = ["--device", "net_null0,no-rx=1", "--device", "net_null1,no-rx=1"]
    result = run(gradlane, ["--mode", "ring", *devices, "--seconds", "10"], 2)
    assert "all-reduce failed" in result.stderr and "devices" in result.stderr, result
    figures = run_json(gradlane, ["--mode", "io", *devices])
    assert figures["received"] == figures["sent"] == figures["left"] == 0, figures
    assert figures["cycles_per_packet"] == 0 and figures["busy"] == 0, figures


def check_interrupt(gradlane):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [gradlane, "loopback", "--seconds", "0", "--stats"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(number)
        rest, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and errors == "", (process.returncode, errors)
        assert lines[0].startswith("loopback io: net_ring0 <-> net_ring1"), lines
        assert all("Mpps" in line and "cycles/packet" in line for line in lines[1:]), lines
        assert "packets received" in rest and "cycles per packet" in rest, rest


def check_table(gradlane):
    result = run(gradlane, ["--mode", "classify", "--seconds", "1.2"])
    assert "Mpps" in result.stdout and result.stdout.count("cycles/packet") == 0, result.stdout
    for name in CLASSES:
        assert f"  {name} " in result.stdout, result.stdout
    assert result.stderr == "", result.stderr


def check_errors(gradlane):
    for arguments, names in ERRORS:
        result = run(gradlane, arguments, 2)
        assert result.stdout == "", (arguments, result)
        assert "gradlane: " in result.stderr, (arguments, result)
        for name in names:
            assert name in result.stderr, (arguments, name, result.stderr)


def check(gradlane):
    check_errors(gradlane)
    check_modes(gradlane, ("codec", "ring"), 0.1)


def check_more(gradlane):
    check_modes(gradlane)
    check_variants(gradlane)
    check_drops(gradlane)
    check_dead_devices(gradlane)
    check_interrupt(gradlane)
    check_table(gradlane)
