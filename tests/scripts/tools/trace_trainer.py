"""A trainer for trace_test.py: sums again and again; FOLDER/late has rank 2 be late, FOLDER/end ends it.

Usage: trace_trainer.py FOLDER, of `gradlane run`; FOLDER/socketN says where the daemon of rank N is.
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
    except gradlane.Error:  # a daemon has died; `gradlane run` ends the others when it has waited for this
        time.sleep(60)
