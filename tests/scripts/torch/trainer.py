#!/usr/bin/python3
"""A rank of failures_test.py and launch_test.py. Runs the lines of Python on its input, and prints the outcome of each.

An outcome is `ok VALUE` or `CLASS: TEXT`.
"""

import datetime
import gc
import os
import signal
import sys
import threading
import time
import unittest.mock
import warnings

import torch
import torch.distributed as dist

import gradlane.torch
from gradlane.torch.tasks import Tasks

torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def init(timeout=60, store=""):
    options = {"init_method": "file://" + store, "rank": RANK, "world_size": WORLD} if store else {}
    dist.init_process_group("gradlane", timeout=datetime.timedelta(seconds=timeout), **options)


def limit(seconds):
    """Sets the backend's timeout from now on."""
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(datetime.timedelta(seconds=seconds))


def reduce(numel=4, value=1.0, **options):
    tensor = torch.full((numel,), value)
    work = dist.all_reduce(tensor, **options)
    return work if work is not None else tensor[0].item()


def coded(codec, numel):
    """Starts an all-reduce and returns its future. The daemon refuses an unknown codec only when the turn of the
    operation comes."""
    return gradlane.torch.Engine.existing().all_reduce(torch.ones(numel), codec=lambda: codec)


def lossy():
    """Sums values that fixed:10 rounds to zero, where warnings are errors."""
    with gradlane.torch.use_codec("fixed:10"), warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.all_reduce(torch.full((600_000,), 1e-6))


def refused(times):
    for _ in range(times):
        try:
            coded("fixed:99", 2000).wait()
        except RuntimeError as error:
            assert "BadArgument" in str(error), error
            continue
        raise AssertionError("it was not refused")


def interrupted():
    """Runs a sum, as if Ctrl-C were pressed while the call waits."""
    tasks().tell(None, None, False)  # otherwise the sum bypasses Python
    take, calls = tasks()._take, []

    def interrupt(ends):
        calls.append(ends)
        if len(calls) == 1:
            raise KeyboardInterrupt
        take(ends)

    try:
        with unittest.mock.patch.object(tasks(), "_take", interrupt):
            return reduce(2000)
    except KeyboardInterrupt:
        return "interrupted"


def ctrl_c(call):
    """Runs the call, which gets a SIGINT while it waits for the other rank. Prints "pressed" just before the SIGINT."""
    while tasks()._under_way:
        time.sleep(0.001)

    def press():
        while not tasks()._under_way:
            time.sleep(0.001)
        print("pressed", flush=True)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    return call()


def ctrl_c_soon(call):
    """Runs a call that waits for Gloo. Sends it a SIGINT after 0.3 s, while it waits or right before. Prints "pressed"
    just before the SIGINT."""
    def press():
        time.sleep(0.3)
        print("pressed", flush=True)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    return call()


def waiting(operations):
    """Waits until `operations` are in flight."""
    while len(tasks()._under_way) < operations:
        time.sleep(0.01)


def backward():
    NAMES["model"](torch.ones(2, 1000)).sum().backward()


def retried(times):
    """Runs operations that differ between the ranks, and after each failure an operation that is the same on all ranks.
    Returns the sums of the latter.
    """
    sums = []
    for _ in range(times):
        try:
            reduce(400000 + 1000 * RANK)
        except gradlane.OperationFailed:
            sums.append(reduce(400000))
    return sums


class Squares(torch.utils.data.Dataset):
    """Dataset for workers of a DataLoader, which are children by fork(). One of them tries an all-reduce, which it must
    not."""

    def __len__(self):
        return 6

    def __getitem__(self, number):
        if number == 3:
            try:
                dist.all_reduce(torch.ones(4))
            except gradlane.DaemonGone as error:
                assert "belongs to the parent" in str(error), error
            else:
                raise AssertionError("a child took part")
        return number * number


def loaded():
    """Returns what workers read while the parent's operations are in flight, and the sums of these operations."""
    works = [reduce(400000, async_op=True) for _ in range(8)]
    read = torch.cat(list(torch.utils.data.DataLoader(Squares(), num_workers=2, multiprocessing_context="fork")))
    return read.tolist(), [work.wait() and work.result()[0][0].item() for work in works], reduce()


def tasks():
    return gradlane.torch.Engine.existing()._tasks


def held():
    gc.collect()
    kinds = gradlane.torch.Engine, Tasks
    return len(os.listdir("/proc/self/fd")), [sum(isinstance(it, kind) for it in gc.get_objects()) for kind in kinds]


NAMES = {"datetime": datetime, "loaded": loaded, "ctrl_c": ctrl_c, "ctrl_c_soon": ctrl_c_soon, "backward": backward, "gradlane": gradlane,
         "coded": coded, "lossy": lossy, "refused": refused, "interrupted": interrupted, "retried": retried, "waiting": waiting,
         "tasks": tasks, "held": held, "torch": torch, "dist": dist, "os": os, "sys": sys,
         "time": time, "init": init, "limit": limit, "reduce": reduce, "RANK": RANK, "WORLD": WORLD}
for line in sys.stdin:
    try:
        try:
            value = eval(line, NAMES)  # noqa: S307 - from the test
        except SyntaxError:
            value = exec(line, NAMES)  # noqa: S102
        text = f"ok {value}"
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"
    print(text.replace("\n", " "), flush=True)
