"""Runs `gradlane bench codec --quick --json` on a few rows and checks the form of what it prints, not the speed."""

import json
import subprocess

from tests.scripts.fixtures.paths import ROOT

FIELDS = {
    "codec": str,
    "isa": str,
    "op": str,
    "data": str,
    "block_bytes": int,
    "gb_per_s": float,
    "memcpy_gb_per_s": float,
    "vs_memcpy": float,
    "ratio": float,
    "ranks": int,
    "vnmse": float,
}
RECORDING = ROOT / "tools" / "bench" / "recordings" / "conv-late.npy"


def bench(gradlane, *options):
    command = [gradlane, "bench", "codec", "--quick", "--json", "--block", "1408", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def check_recording(gradlane):
    """Checks that a recording gives two sets of data, and that it can be used together with names of data."""
    codecs = ["raw", "bf16", "fixed:10", "fixed:14"]
    rows = bench(gradlane, "--data", str(RECORDING), "gauss-1", "--op", "decode", "--codec", *codecs)["rows"]
    assert {(row["data"], row["ranks"]) for row in rows} == {("conv-late", 1), ("conv-late x4", 4), ("gauss-1", 4)}, rows
    for data in ("conv-late", "conv-late x4"):
        found = {row["codec"]: row for row in rows if row["data"] == data}
        assert list(found) == codecs, found
        assert found["raw"]["ratio"] == 1 and found["raw"]["vnmse"] < 1e-13, found
        assert found["bf16"]["ratio"] == 2 and 0 < found["bf16"]["vnmse"] < 1e-4, found
        assert found["fixed:10"]["ratio"] > found["fixed:14"]["ratio"] > 2, found
        assert 1 > found["fixed:10"]["vnmse"] > found["fixed:14"]["vnmse"] > 0, found


def check_default(gradlane):
    """Checks what is measured without --quick and --full, and that wrong options are refused."""
    command = [gradlane, "bench", "codec", "--json", "--codec", "raw", "--op", "decode"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = json.loads(done.stdout)["rows"]
    assert [(row["block_bytes"], row["data"]) for row in rows] == [(1408, "laplace-1e-3"), (1 << 20, "laplace-1e-3")], rows
    both = subprocess.run([*command, "--quick", "--full"], capture_output=True, text=True, check=False)
    assert both.returncode == 2 and "--quick and --full: name one of them" in both.stderr, both


def check(gradlane):
    check_default(gradlane)
    result = bench(gradlane, "--data", "laplace-1e-3")

    rows = result["rows"]
    for row in rows:
        assert set(row) == set(FIELDS), row
        for field, kind in FIELDS.items():
            assert isinstance(row[field], kind) or (field, row[field]) == ("vnmse", None), (field, row)
        assert row["gb_per_s"] > 0 and row["memcpy_gb_per_s"] > 0, row
        # Only votes have no error, because their results are no sums.
        assert (row["vnmse"] is None) == (row["codec"] in ("signsgd", "signsgd,ternary")), row
    found = {(row["codec"], row["op"]) for row in rows}
    for codec in ("raw", "bf16", "fp16", "inceptionn:10", "fixed:10"):
        for op in ("encode", "decode", "validate+decode", "decode_add", "hop", "validate+hop"):
            assert (codec, op) in found, (codec, op)
    assert ("fixed:10", "hop_feedback") in found
    assert ("raw", "hop_feedback") not in found

    ratio = {row["codec"]: row["ratio"] for row in rows}
    vnmse = {row["codec"]: row["vnmse"] for row in rows}
    assert ratio["raw"] == 1.0 and ratio["bf16"] == 2.0 and ratio["fp16"] == 2.0, ratio
    assert 10 < ratio["fixed:10"] < 13 and 5 < ratio["inceptionn:10"] < 8, ratio
    assert {row["vnmse"] for row in rows if row["codec"] == "fixed:10"} == {vnmse["fixed:10"]}  # the same on each ISA
    assert vnmse["raw"] < 1e-13 and vnmse["bf16"] < 1e-4 and 0.01 < vnmse["fixed:10"] < 1, vnmse
    check_recording(gradlane)
    engine = result["engine"]
    assert len(engine) == 1 and 0 < engine[0]["compress_gbps"] <= 25.6, engine
