"""Trainers in Python on nodes of this machine, for benchmarks: what rank 0 prints comes back."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 1800


class Failed(Exception):
    """`gradlane run` has said why."""


def run(gradlane, module, words, *, nodes, rate, link="udp", strategies="ring,direct"):
    """Runs `python3 -m MODULE --trainer FILE` on each node; FILE holds the words as JSON. Returns the objects, lines of
    JSON, that were printed. rate: of links between namespaces, "1gbit"; needs root."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "client/python"), os.environ.get("PYTHONPATH", "")])
    library = pathlib.Path(gradlane).resolve().parents[1] / "client/libgradlane.so"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(words, file)
        file.flush()
        command = [str(gradlane), "run", "-n", str(nodes), "--link", link, "--rate", rate, "--strategies", strategies,
                   "--no-prefix", "--", sys.executable, "-m", module, "--trainer", file.name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, cwd=ROOT,
                              env={**os.environ, "PYTHONPATH": paths, "GRADLANE_LIBRARY": str(library)})
    if done.returncode != 0:
        raise Failed(f"gradlane run ended with {done.returncode}; see above")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def words_of(file):
    """What run() was given, in the trainer."""
    return json.loads(pathlib.Path(file).read_text())
