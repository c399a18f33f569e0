#!/usr/bin/python3
"""Trains for one epoch on two nodes, as the demo does. Checks the report, and that replicas are identical. Then runs all
trainings of the demo, with its table and plot."""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tests.scripts.fixtures.paths import ROOT

SKIPPED = 77
PARAMETERS = 789010
STEPS = 22  # 1437 images in batches of 2 * 32


def train(gradlane, folder, name, *options):
    file = folder / f"{name}.json"
    command = [gradlane, "run", "-n", "2", "--link", "memif", "--no-prefix", "--"]
    command += [sys.executable, str(ROOT / "tools" / "demo" / "digits.py"), "--epochs", "1", "--json", str(file), *options]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=150, env=env)
    assert result.returncode == 0, (command, result)
    assert "epoch   1 of 1" in result.stdout and "the same on all ranks" in result.stdout, result.stdout
    assert "Warning" not in result.stderr, result.stderr
    return file


def check(run, codec, feedback, least_ratio, most_ratio):
    assert run["codec"] == codec and run["feedback"] == feedback, run
    assert run["world"] == 2 and run["parameters"] == PARAMETERS and run["steps"] == STEPS, run
    assert run["identical"] and len(run["hashes"]) == 2 and len(set(run["hashes"])) == 1, run
    assert run["test_accuracy"] > 50, run  # guessing gives 10
    assert run["plain_bytes"] == PARAMETERS * 4 * STEPS, run
    assert least_ratio < run["plain_bytes"] / run["gradient_bytes"] < most_ratio, run
    assert run["exchange_ms_median"] > 0 and run["exchange_ms_mean"] > 0, run
    assert run["norm_dropped"] == 0, run  # raw is exact, and error feedback keeps all
    (state,) = run["history"]
    assert state["epoch"] == 1 and state["test_accuracy"] == run["test_accuracy"] and state["seconds"] <= run["seconds"], run
    assert 0 < state["bytes"] <= 1.1 * run["gradient_bytes"], run


def table(files, json_file):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "demo" / "table.py"), "--json", str(json_file), *map(str, files)],
        capture_output=True, text=True, timeout=60,
    )


def check_table(files, folder):
    result = table(files, folder / "table.json")
    assert result.returncode == 0 and "bit-identical: yes" in result.stdout, result
    written = json.loads((folder / "table.json").read_text())
    assert written["identical"] and len(written["rows"]) == len(files), written
    assert written["rows"][0]["ratio"] == 1 and written["rows"][1]["ratio"] > 2, written

    broken = folder / "broken.json"
    broken.write_text(json.dumps(json.loads(files[0].read_text()) | {"identical": False}))
    result = table([files[0], broken], folder / "table.json")
    assert result.returncode == 1 and "bit-identical: NO" in result.stdout, result


def check_demo(gradlane, folder):
    """Runs what tools/demo.sh runs after the build."""
    demo = ROOT / "tools" / "demo"
    rows = subprocess.run([sys.executable, "-B", str(demo / "rows.py"), "--gradlane", gradlane, "--nodes", "2", "--epochs", "1",
                           "--quick", str(folder)], capture_output=True, text=True, timeout=300)
    assert rows.returncode == 0 and rows.stderr == "", rows
    lines = rows.stdout.splitlines()  # no terminal: plain lines
    assert len(lines) == 4 and lines[1].startswith("row 2 of 4, fixed:adaptive + error feedback: epoch 1 of 1, test accuracy"), rows
    files = [folder / f"{number}.json" for number in range(4)]
    result = table(files, folder / "table.json")
    assert result.returncode == 0, result
    notes = [line for line in result.stdout.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1 and notes[0].startswith("note: fixed:10 dropped ") and "Warning" not in result.stdout, result
    written = json.loads((folder / "table.json").read_text())["rows"]
    assert [row["norm_dropped"] > 0 for row in written] == [False, False, False, True], written

    plot = folder / "demo.png"
    drawn = subprocess.run([sys.executable, str(demo / "plot.py"), str(plot), *map(str, files)], capture_output=True, text=True,
                           timeout=120)
    assert drawn.returncode == 0 and len(drawn.stdout.splitlines()) == 1, drawn
    assert plot.exists() == (drawn.stdout == f"plot: {plot}\n"), drawn

    failed = subprocess.run([sys.executable, str(demo / "rows.py"), "--gradlane", gradlane, "--nodes", "65", str(folder)],
                            capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1 and "-n '65': must be 1 to 64" in failed.stdout and "with raw ended" in failed.stderr, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradlane")
    gradlane = parser.parse_args().gradlane
    if not importlib.util.find_spec("numpy"):
        print(f"skipped: {sys.executable} lacks numpy; tools/setup.sh installs them")
        return SKIPPED

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        raw = train(gradlane, folder, "raw", "--codec", "raw")
        check(json.loads(raw.read_text()), "raw", False, 0.9, 1)
        feedback = train(gradlane, folder, "feedback", "--codec", "fixed:7", "--feedback")
        check(json.loads(feedback.read_text()), "fixed:7", True, 10, 60)
        narrow = train(gradlane, folder, "narrow", "--codec", "fixed:5", "--feedback")
        check(json.loads(narrow.read_text()), "fixed:5", True, 30, 120)
        auto = train(gradlane, folder, "auto", "--codec", "fixed:adaptive:2", "--feedback")
        check(json.loads(auto.read_text()), "fixed:adaptive:2", True, 4, 12)
        check_table([raw, feedback, narrow, auto], folder)
        check_demo(gradlane, folder)
    print("all trainings in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
