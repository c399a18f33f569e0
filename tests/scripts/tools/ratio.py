"""Runs `gradlane bench ratio` on small tensors. Checks each codec with a strategy that supports it, and its ratio."""

import json
import subprocess

from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.waiting import PATIENCE

RECORDING = ROOT / "tools" / "bench" / "recordings" / "digits-middle.npy"
SMALL = ["--size", "64K", "--warmup", "2", "--exchanges", "1"]

# Arguments, and words that the error must have.
ERRORS = [
    (["--codec", "fixed:99"], ["fixed:99", "1 to 30"]),
    (["--data", "noise"], ["noise"]),
    (["--data", "/nowhere/a.npy"], ["/nowhere/a.npy", "No such file"]),
    (["--nodes", "1"], ["--nodes", "'1'", "2 to 256"]),
    (["--size", "1K"], ["--size", "'1K'", "from 4K"]),
    (["--exchanges", "0"], ["--exchanges", "'0'"]),
    (["--strategy", "aggregator:4"], ["--strategy", "no rank 4"]),
]


def run(gradlane, *arguments, status=0):
    result = subprocess.run([gradlane, "bench", "ratio", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == status, (arguments, result)
    return result


def check_rows(gradlane, codecs):
    """There is one row per codec and data, for data of both kinds. Rows are the same every time."""
    arguments = [*SMALL, "--codec", "all", "--data", "gauss-0.01", str(RECORDING), "--json"]
    text = run(gradlane, *arguments).stdout
    result = json.loads(text)
    rows = {(row["data"], row["codec"]): row for row in result["rows"]}
    assert set(rows) == {(data, name) for data in ("gauss-0.01", RECORDING.stem) for name in codecs}, rows.keys()
    for row in rows.values():
        assert not row["failure"] and row["bytes"] > 0 and 0 <= row["non_zero"] <= 1, row
        assert abs(row["ratio"] - row["raw_bytes"] / row["bytes"]) < 1e-9, row
        assert row["strategy"] == ("direct" if codecs[row["codec"]]["ways"] == "owners" else "ring"), row
    for data in ("gauss-0.01", RECORDING.stem):
        assert abs(rows[data, "raw"]["ratio"] - 1) < 0.01 and 1.9 < rows[data, "bf16"]["ratio"] < 2.1, rows
        # In a ring of four, each node sends 1.5 times the bytes of the tensor.
        assert 1 < rows[data, "raw"]["raw_bytes"] / (4 * 1.5 * 4 * result["floats"]) < 1.1, rows
    assert rows["gauss-0.01", "raw"]["non_zero"] == 1, rows
    assert rows[RECORDING.stem, "fixed:10"]["ratio"] > 2 * rows["gauss-0.01", "fixed:10"]["ratio"], rows
    again = run(gradlane, *SMALL, "--codec", "fixed:10", "--json").stdout
    assert json.loads(again)["rows"] == [rows["gauss-0.01", "fixed:10"]], again


def check(gradlane):
    listed = subprocess.run([gradlane, "codecs", "--no-measure", "--json"], capture_output=True, text=True, check=True)
    check_rows(gradlane, {codec["codec"]: codec for codec in json.loads(listed.stdout)["codecs"]})
    for arguments, names in ERRORS:
        result = run(gradlane, *arguments, status=2)
        assert all(name in result.stderr for name in names), (arguments, result.stderr)
