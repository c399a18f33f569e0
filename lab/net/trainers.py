"""Runs trainers in Python on nodes of this machine, for benchmarks. Returns what rank 0 prints."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 1800


class Failed(Exception):
    """`gradlane run` failed, and has printed why."""


def run(gradlane, module, words, *, nodes, rate, link="udp", strategies="ring,direct"):
    """Runs `python3 -m MODULE --trainer FILE` on each node; FILE has `words`, the trainer's settings, as JSON. Returns
    the objects that were printed as lines of JSON. rate: the rate of links between namespaces, such as "1gbit"; needs
    root. Raises Failed."""
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
        raise Failed(f"gradlane run ended with status {done.returncode}; see above")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def words_of(file):
    """Returns the `words` that run() was given. Trainers call it with the FILE of their command line."""
    return json.loads(pathlib.Path(file).read_text())
