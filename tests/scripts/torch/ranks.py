#!/usr/bin/env python3
"""Runs tests on all ranks of one process group, which load PyTorch once.

    gradlane run -n 3 -- python3 -m tests.scripts.torch.ranks BACKEND MODULE[.CLASS[.TEST]]... [--alone MODULE...]

BACKEND is the backend of the process group. Modules are of this folder. All ranks run the same tests in the same order,
so collectives in them match up. Rank 0 first runs the modules after --alone, without the other ranks. The first failure
ends a rank, because the others would wait for it.
"""

import os
import sys
import unittest
import warnings

import torch
import torch.distributed as dist

import gradlane.torch  # noqa: F401


def main():
    names = sys.argv[2:]
    end = names.index("--alone") if "--alone" in names else len(names)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if os.environ["RANK"] == "0" and names[end + 1:]:
        run(names[end + 1:])
    dist.init_process_group(sys.argv[1])
    run(names[:end])
    dist.barrier()
    dist.destroy_process_group()


def run(names):
    tests = unittest.defaultTestLoader.loadTestsFromNames([f"tests.scripts.torch.{name}" for name in names])
    if not unittest.TextTestRunner(verbosity=2, failfast=True).run(tests).wasSuccessful():
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
