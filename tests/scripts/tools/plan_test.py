#!/usr/bin/python3
"""Runs `gradlane plan`: tables, JSON, pictures, and what it says of options, profiles and calibrations."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from tests.scripts.fixtures.paths import ROOT

HEATMAP = ROOT / "tools" / "plan" / "heatmap.py"
PROFILE = {"name": "net", "batch": 8, "backward_ms": 10,
           "layers": [{"name": f"layer{i}", "elements": 1000000, "backward_ms": 1} for i in range(10)]}
MAX_COLUMNS = 124

# Arguments, what the error must name.
ERRORS = [
    ([], ["--model", "resnet50", "profile"]),
    (["--model", "lenet"], ["lenet", "resnet50"]),
    (["--model", "resnet50", "--nodes", "1000"], ["--nodes", "1000", "256"]),
    (["--model", "resnet50", "--codecs", "fixed:99"], ["fixed:99"]),
    (["--model", "resnet50", "--codecs", "fixed:12"], ["fixed:12", "without a calibration"]),
    (["--model", "resnet50", "--what-if", "speed=1"], ["speed=1", "gbps="]),
    (["--model", "resnet50", "--strategy", "rings:3"], ["--strategy", "rings:3"]),
    (["--model", "resnet50", "--calibration", "/nowhere/c.yaml"], ["/nowhere/c.yaml"]),
    (["--paper", "--model", "resnet50"], ["--paper", "--model"]),
]


def run(gradlane, *arguments, status=0):
    result = subprocess.run([gradlane, "plan", *arguments], capture_output=True, text=True, timeout=100)
    assert result.returncode == status, (arguments, result)
    assert all(len(line) <= MAX_COLUMNS for line in result.stdout.splitlines() if not line.startswith("{")), result.stdout
    return result


def check_tables(gradlane):
    text = run(gradlane, "--model", "resnet50", "--gbps", "1").stdout
    for word in ("plain", "raw", "fixed:10", "best", "bytes must shrink", "compress with", "link"):
        assert word in text, (word, text)
    assert "cells gain" in run(gradlane, "--model", "vgg16", "--what-if", "nodes=4..64", "gbps=0.1..400").stdout
    paper = run(gradlane, "--paper").stdout
    assert "104 of 378" in paper, paper


def check_json(gradlane, folder):
    profile = folder / "profile.json"
    profile.write_text(json.dumps(PROFILE))
    plan = json.loads(run(gradlane, "--model", str(profile), "--json").stdout)
    assert plan["elements"] == 10000000 and plan["batch"] == 8 and abs(plan["compute_ms"] - 15) < 1e-6, plan
    rows = {row["codec"]: row for row in plan["rows"]}
    assert rows["raw"]["speedup"] == 1 and rows["best"]["speedup"] >= rows["fixed:10"]["speedup"] * 0.99, rows
    for row in plan["rows"]:
        assert row["limit"] in ("latency", "link", "codec", "packets", "memory"), row
        assert abs(row["step_ms"] - row["exposed_ms"] - plan["compute_ms"]) < 1e-6, row
    profile.write_text(json.dumps({**PROFILE, "layers": [{"name": "a"}]}))
    error = run(gradlane, "--model", str(profile), status=2).stderr
    assert "layers[0].elements" in error and str(profile) in error, error


def check_pictures(gradlane, folder):
    grid = run(gradlane, "--model", "resnet50", "--what-if", "nodes=4,8", "gbps=1,10,100", "batch=32,64", "--json").stdout
    cells = json.loads(grid)["cells"]
    assert len(cells) == 12 and all(cell["step_ms"]["raw"] >= cell["alone_ms"] for cell in cells), cells
    for name, magic in (("grid.png", b"\x89PNG"), ("grid.svg", b"<?xml")):
        subprocess.run([sys.executable, HEATMAP, "-o", folder / name], input=grid, text=True, check=True, timeout=200)
        assert (folder / name).read_bytes().startswith(magic), name
    broken = subprocess.run([sys.executable, HEATMAP, "-o", folder / "no.png"], input="no", text=True, capture_output=True)
    assert broken.returncode == 1 and "is no JSON" in broken.stderr, broken


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    gradlane = parser.parse_args().gradlane
    check_tables(gradlane)
    for arguments, words in ERRORS:
        error = run(gradlane, *arguments, status=2).stderr
        assert all(word in error for word in words), (arguments, error)
    with tempfile.TemporaryDirectory() as folder:
        check_json(gradlane, pathlib.Path(folder))
        check_pictures(gradlane, pathlib.Path(folder))


if __name__ == "__main__":
    main()
