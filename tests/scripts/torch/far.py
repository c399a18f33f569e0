#!/usr/bin/python3
"""Tensors that are far, as those on a GPU are: a stand-in where there is none, whose copies are over at once.

gradlane run -n N -- python3 -m tests.scripts.torch.far MODULE [ARGUMENT...] runs another test so."""

import contextlib
import runpy
import sys
import unittest.mock

import torch

from gradlane.torch import gpu
from gradlane.torch.engine import Engine
from gradlane.torch.tasks import Tasks

HERE = torch.cuda.is_available()
DEVICE = "cuda" if HERE else "cpu"


class Over:
    """An event."""

    def query(self):
        return True

    def synchronize(self):
        pass


class StandIn(gpu.Host):
    """Of a tensor that lies here."""

    def load(self):
        if self._filled:
            self.tensor.copy_(self._source)
            self.last = Over()

    def arrive(self, part=None):
        pass

    def store(self, target, values):
        target.copy_(values)
        self.last = Over()


@contextlib.contextmanager
def far(is_far=True):
    """What is exchanged meanwhile is on a GPU, or as if it were."""
    if HERE or not is_far:
        yield
        return
    express = Engine.existing()._tasks._express if Engine.exists() else None  # which sees that they are not
    with unittest.mock.patch.multiple(gpu, is_far=lambda _: True, Host=StandIn, PART=1 << 20), \
            unittest.mock.patch.object(Tasks, "express", lambda *_: None):
        if express is not None:
            express.pause(True)
        try:
            yield
        finally:
            if express is not None:
                express.pause(False)


if __name__ == "__main__":
    del sys.argv[0]
    torch.set_default_device(DEVICE) if HERE else None
    with far():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
