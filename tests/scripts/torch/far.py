#!/usr/bin/python3
"""Runs a test with tensors on a GPU. Without a GPU, CPU tensors stand in for them, and copies finish at once. The
kernels of gpu_codec.py then run on the CPU, by the library of tests/client/gpu/cpu_kernels.cc.

gradlane run -n N -- python3 -m tests.scripts.torch.far MODULE [ARGUMENT...] runs another test so.
"""

import contextlib
import ctypes
import os
import runpy
import sys
import unittest.mock

import torch

from gradlane.torch import gpu, gpu_codec, gpu_sum
from gradlane.torch.engine import Engine
from gradlane.torch.tasks import Tasks

HERE = torch.cuda.is_available()
DEVICE = "cuda" if HERE else "cpu"


class Over:
    """Event of a copy that has finished."""

    def query(self):
        return True

    def synchronize(self):
        pass


class StandIn(gpu.Host):
    """Stand-in for gpu.Host, for a tensor in CPU memory."""

    def load(self):
        if self._filled:
            self.tensor.copy_(self._source)
            self.last = Over()

    def arrive(self, part=None):
        pass

    def store(self, target, values):
        target.copy_(values)
        self.last = Over()


class Idle:
    """Stream whose work is over."""

    def wait_event(self, event):
        pass


class CpuKernels:
    """Stand-in for gpu_kernels.Kernels."""

    def launch(self, name, blocks, *arguments):
        library = ctypes.CDLL(os.environ["CPU_KERNELS"])
        getattr(library, f"run_{name}")(ctypes.c_uint32(blocks), *arguments)


@contextlib.contextmanager
def gpu_codec_on(least=1):
    """Lets GPUs encode and decode sums of at least `least` floats."""
    stand_ins = [] if HERE else [
        unittest.mock.patch.object(gpu_codec, "kernels_of", lambda source, device: CpuKernels()),
        unittest.mock.patch.multiple(gpu, record_event=lambda device: Over(), use_stream=lambda stream: contextlib.nullcontext(),
                                     keep_until_done=lambda tensor, stream: None, make_pinned=lambda numel, dtype: torch.empty(
                                         numel, dtype=dtype), streams_of=lambda device: gpu.Streams(Idle(), Idle()))]
    with contextlib.ExitStack() as stack:
        for each in stand_ins:
            stack.enter_context(each)
        stack.enter_context(unittest.mock.patch.object(gpu_sum, "LEAST", least))
        stack.enter_context(unittest.mock.patch.dict(os.environ, {"GRADLANE_GPU_CODEC": "1"}))
        yield


@contextlib.contextmanager
def far(is_on_gpu=True):
    """Treats all tensors as tensors on a GPU while the context is open. Does nothing if there is a GPU, or if not
    `is_on_gpu`."""
    if HERE or not is_on_gpu:
        yield
        return
    # far() pauses the C++ path, which would see that tensors are on the CPU.
    fast_path = Engine.existing()._tasks._fast_path if Engine.exists() else None
    with unittest.mock.patch.multiple(gpu, is_on_gpu=lambda _: True, Host=StandIn, PART=1 << 20), \
            unittest.mock.patch.object(Tasks, "fast_path", lambda *_: None):
        if fast_path is not None:
            fast_path.pause(True)
        try:
            yield
        finally:
            if fast_path is not None:
                fast_path.pause(False)


if __name__ == "__main__":
    del sys.argv[0]
    torch.set_default_device(DEVICE) if HERE else None
    with far():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
