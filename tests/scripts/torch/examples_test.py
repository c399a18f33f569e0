#!/usr/bin/python3
"""Runs scripts of examples/ by the commands in their docstrings.

usage: examples_test.py GRADLANE [--four] NAME...

NAME: a script, such as ddp.py. `torchrun` is that of PATH. With --four, the script's command for four machines is
started four times on this one, with the loopback address as HOST. The losses that are printed must fall, and all ranks
must have the same weights.
"""

import argparse
import ast
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile

from tests.scripts.fixtures.paths import ROOT
from tests.scripts.fixtures.ports import free_port
from tests.scripts.torch import libuv

EXAMPLES = ROOT / "examples"


def command_of(script, machines):
    """Returns the command after "One machine:" or "Four machines:" in the docstring, as words."""
    doc = ast.get_docstring(ast.parse((EXAMPLES / script).read_text()))
    return shlex.split(re.search(rf"^{machines} machines?: +(.*)$", doc, re.MULTILINE)[1])


def started(words, gradlane, folder, port):
    # Older releases of torchrun have one port for all jobs, if none is named.
    programs = {"gradlane": os.path.abspath(gradlane), "python3": sys.executable}
    return subprocess.Popen([programs.get(word, word) for word in words], stdout=subprocess.PIPE, text=True, cwd=EXAMPLES,
                            env={**os.environ, "TMPDIR": folder, "OMP_NUM_THREADS": "1", "PET_MASTER_PORT": str(port)})


def check(script, printed):
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+|nan|inf)", printed)]
    assert losses and math.isfinite(losses[-1]) and (len(losses) == 1 or losses[-1] < losses[0]), printed
    # Ranks write to one pipe, so lines may be joined.
    weights = re.findall(r"weights ([0-9a-f]{16})", printed)
    assert len(weights) in (0, 4) and len(set(weights)) <= 1, printed
    assert weights or script not in ("ddp.py", "ddp_hook.py", "numpy_regression.py"), printed


def run(script, gradlane, four):
    words = command_of(script, "Four" if four else "One")
    if words[0] == "torchrun" and libuv.IS_MISSING:
        print(f"{script}: left out, because USE_LIBUV=0, and torchrun's own store always uses libuv")
        return
    port = free_port()
    words = [re.sub(r"^HOST:\d+$", f"127.0.0.1:{port}", word) for word in words]
    with tempfile.TemporaryDirectory(prefix="gradlane-examples-") as folder:
        jobs = [started(words, gradlane, folder, port) for _ in range(4 if four else 1)]
        printed = "".join(job.communicate()[0] for job in jobs)
    assert all(job.returncode == 0 for job in jobs), (script, [job.returncode for job in jobs], printed)
    check(script, printed)
    print(f"{script}: losses fall, ranks agree")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--four", action="store_true")
    parser.add_argument("gradlane")
    parser.add_argument("scripts", nargs="+")
    args = parser.parse_args()
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.c")]:
        assert path.read_text().count("\n") < 60, f"{path} has 60 lines or more"
    for script in args.scripts:
        run(script, args.gradlane, args.four)
    return 0


if __name__ == "__main__":
    sys.exit(main())
