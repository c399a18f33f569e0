"""A trainer for trace_test.py, which runs all-reduces repeatedly. FOLDER/late makes rank 2 late, and FOLDER/end ends
it.

Usage: trace_trainer.py FOLDER, under `gradlane run`. FOLDER/socketN has the path of the socket of rank N's daemon.
"""

import os
import pathlib
import sys
import time

import numpy

import gradlane

folder = pathlib.Path(sys.argv[1])


def work(gl):
    array, end = gl.zeros(1 << 17), gl.zeros(1)
    array[:] = numpy.random.default_rng(gl.rank).normal(0, 1, array.size)
    (folder / f"new{gl.rank}").write_text(os.environ["GRADLANE_SOCKET"])
    (folder / f"new{gl.rank}").rename(folder / f"socket{gl.rank}")
    while end[0] == 0:
        for _ in range(8):
            if gl.rank == 2 and (folder / "late").exists():
                time.sleep(0.03)
            array *= 1 / 3
            gl.all_reduce(array, codec="fixed:10")
        end[0] = (folder / "end").exists()
        gl.all_reduce(end)


with gradlane.open() as context:
    try:
        work(context)
    except gradlane.Error:  # a daemon has died; `gradlane run` ends the other trainers after it has waited for this one
        time.sleep(60)
