#!/usr/bin/python3
"""Tests of gpu_sum.py's streams without a GPU: streams whose work runs late, in a random order. ranks.py runs them."""

import collections
import contextlib
import os
import random
import threading
import unittest
import unittest.mock
import warnings

import torch

from gradlane.torch import Engine, gpu, gpu_codec
from tests.scripts.torch.cuda_test import given
from tests.scripts.torch.ddp import RANK
from tests.scripts.torch.far import HERE, far, gpu_codec_on

ROUNDS = int(os.environ.get("ROUNDS", "4"))
SIZES = (300_000, 2000, 700_000, 262_145, 1024, 524_288, 524_289)  # pieces have 262,144 floats
LEAST = 2000
lock = threading.RLock()
local = threading.local()  # `stream`: the current stream of the thread
copy_at_once = torch.Tensor.copy_
launch_at_once = gpu_codec.GpuCodec._launch


class Event:
    def __init__(self, stream):
        self.done, self.stream = False, stream

    def query(self):
        with lock:
            return self.done

    def synchronize(self):
        with lock:
            while not self.done:
                self.stream.step()


class Stream:
    """Runs its work in order, when an event is waited for, or at random when work is added to any stream."""

    every = []

    def __init__(self):
        self.work, self.eagerness = collections.deque(), 0.0
        Stream.every.append(self)

    def add(self, kind, what):
        with lock:
            self.work.append((kind, what))
            for stream in Stream.every:
                while stream.work and random.random() < stream.eagerness and stream.step(patient=False):
                    pass

    def step(self, patient=True):
        """Does the next piece of work. Returns whether that was possible, which it always is if `patient`."""
        kind, what = self.work[0]
        if kind == "wait" and not what.done:
            if not patient:
                return False
            what.synchronize()
        self.work.popleft()
        if kind == "run":
            what()
        elif kind == "record":
            what.done = True
        return True

    def wait_event(self, event):
        self.add("wait", event)

    def record_event(self):
        event = Event(self)
        self.add("record", event)
        return event

    def drain(self):
        with lock:
            while self.work:
                self.step()


caller, off, onto = Stream(), Stream(), Stream()


def current():
    return getattr(local, "stream", caller)


@contextlib.contextmanager
def use_stream(stream):
    before = current()
    local.stream = stream
    try:
        yield
    finally:
        local.stream = before


def copy_(self, source, non_blocking=False):
    if not non_blocking:
        return copy_at_once(self, source)
    current().add("run", lambda: copy_at_once(self, source))
    return self


def launch(self, name, blocks, *arguments):
    current().add("run", lambda: launch_at_once(self, name, blocks, *arguments))


@contextlib.contextmanager
def late_streams():
    with unittest.mock.patch.multiple(gpu, record_event=lambda device: current().record_event(), use_stream=use_stream,
                                      streams_of=lambda device: gpu.Streams(off, onto)), \
            unittest.mock.patch.object(torch.Tensor, "copy_", copy_), \
            unittest.mock.patch.object(gpu_codec.GpuCodec, "_launch", launch):
        yield


@unittest.skipIf(HERE, "a GPU has its own streams")
class Streams(unittest.TestCase):
    def test_random_order(self):
        """Sums in flight, of several pieces, are right whenever streams do their work."""
        warnings.simplefilter("ignore")
        engine = Engine.existing()
        expected = [given(numel) for numel in SIZES]
        for tensor in expected:
            engine.all_reduce(tensor, codec="fixed:9", average=True).wait()
        with far(), gpu_codec_on(LEAST):
            engine.all_reduce(given(LEAST), codec="fixed:9").wait()  # the first sum tests the codec
            self.addCleanup(engine._workspaces.clear)
            for number in range(ROUNDS):
                random.seed(10 * number + RANK)
                for stream in Stream.every:
                    stream.eagerness = random.choice((0, 0, 0.3, 0.9, 1.0))
                engine._workspaces.clear()
                tensors = [torch.full((numel,), float("nan")) for numel in SIZES]
                with late_streams():
                    futures = []
                    for tensor in tensors:
                        late = tensor.numel() >= LEAST
                        tensor.copy_(given(tensor.numel()), non_blocking=late)
                        futures.append(engine.all_reduce(tensor, codec="fixed:9", average=True))
                    for future in futures:
                        future.wait()
                    for stream in onto, off, caller:
                        stream.drain()
                for tensor, right in zip(tensors, expected):
                    self.assertTrue(torch.equal(tensor, right), f"round {number}, {tensor.numel()} floats")


if __name__ == "__main__":
    unittest.main()
