#!/usr/bin/env python3
"""A rank of torch_failures_test.py: runs the lines of Python that come in, and prints how each has ended.

A line is one of `ok VALUE` and `CLASS: TEXT`.
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

import gradlane.torch

torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def init(timeout=60, store=""):
    options = {"init_method": "file://" + store, "rank": RANK, "world_size": WORLD} if store else {}
    dist.init_process_group("gradlane", timeout=datetime.timedelta(seconds=timeout), **options)


def reduce(numel=4, value=1.0, **options):
    tensor = torch.full((numel,), value)
    work = dist.all_reduce(tensor, **options)
    return work if work is not None else tensor[0].item()


NAMES = {"gradlane": gradlane, "torch": torch, "dist": dist, "os": os, "sys": sys, "time": time, "init": init,
         "reduce": reduce, "RANK": RANK, "WORLD": WORLD}
for line in sys.stdin:
    try:
        try:
            value = eval(line, NAMES)  # noqa: S307 - from the test
        except SyntaxError:
            value = exec(line, NAMES)  # noqa: S102
        text = f"ok {value}"
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"
    print(text.replace("\n", " "), flush=True)
