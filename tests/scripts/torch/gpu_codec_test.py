#!/usr/bin/python3
"""Tests of the codec on GPUs, without a GPU: sizes, arguments of kernels, errors, and NVRTC if it is installed."""

import ctypes
import os
import pathlib
import re
import tempfile
import types
import unittest
import unittest.mock

import gradlane
import torch
from gradlane.torch import gpu, gpu_codec, gpu_kernels, gpu_sum

SOURCE = pathlib.Path(gpu_codec.__file__).parent / "kernels/fixed.cu"
CPU = torch.device("cpu")
TYPES = {"uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32}


def parameters(kernel):
    """Returns ctypes of the parameters of a kernel."""
    text = re.search(rf"{kernel}\(([^)]*)\)", SOURCE.read_text())[1]
    return [ctypes.c_void_p if "*" in each else TYPES[each.split()[0]] for each in text.split(",")]


class Launches:
    """Stands in for Kernels."""

    def __init__(self):
        self.calls = []

    def launch(self, name, blocks, *arguments):
        self.calls.append((name, blocks, arguments))


class Codec(unittest.TestCase):
    def setUp(self):
        self.kernels = Launches()
        with unittest.mock.patch.object(gpu_codec, "kernels_of", lambda source, device: self.kernels):
            self.codec = gpu_codec.GpuCodec(10, CPU)

    def launched(self):
        (name, blocks, arguments), = self.kernels.calls
        self.kernels.calls.clear()
        self.assertEqual([type(each) for each in arguments], parameters(name), name)
        return name, blocks, [each.value for each in arguments]

    def test_sizes(self):
        """Sizes are those of encoded_tensor.h."""
        self.assertEqual(gpu_codec.max_bytes(1), 16 + 1 + 5 + 4)
        self.assertEqual(gpu_codec.max_bytes(4096), 16 + 64 + 640 + 16384)
        self.assertEqual(gpu_codec.max_bytes(4097), 24 + 64 + 640 + 16384 + 10)
        self.assertEqual(gpu_codec.table_bytes(8193), 32)

    def test_arguments_of_kernels(self):
        floats, residual = torch.zeros(4097), torch.zeros(4097)
        with unittest.mock.patch.object(gpu_codec, "Encoded", lambda buffer, table: (buffer.data, table)), \
                unittest.mock.patch.object(gpu, "make_pinned", lambda numel, dtype: torch.empty(numel, dtype=dtype)):
            space, table = self.codec.encode(floats, residual)
            self.assertEqual((table, space.numel()), (24, gpu_codec.max_bytes(4097)))
            name, blocks, values = self.launched()
            self.assertEqual((name, blocks), ("gradlane_fixed_encode", 2))
            self.assertEqual(values[:5], [floats.data_ptr(), residual.data_ptr(), 4097, 10, space.data_ptr()])
            self.codec.encode(floats)
            self.assertIsNone(self.launched()[2][1])
        self.codec.decode(space, floats)
        name, blocks, values = self.launched()
        self.assertEqual((name, blocks), ("gradlane_fixed_decode", 2))
        self.assertEqual(values[:5], [space.data_ptr(), space.numel(), 4097, 10, floats.data_ptr()])
        self.codec.decode_runs(gpu_codec.runs_of([(0, 3, 32, 5), (32, 8, 64, 6)]), space, floats)
        name, blocks, values = self.launched()
        self.assertEqual((name, blocks), ("gradlane_fixed_decode_runs", 2))
        self.assertEqual(values[2:7], [space.numel(), 4097, 10, 1, floats.data_ptr()])

    def test_runs(self):
        self.assertEqual(gpu_codec.runs_of([(7, 3, 32, 5)]).tolist(), [[7, 3, 32 + (5 << 32)]])

    def test_refuses(self):
        floats = torch.zeros(100)
        for wrong in (torch.zeros(100, dtype=torch.float64), torch.zeros(0), torch.zeros(200)[::2]):
            with self.assertRaisesRegex(ValueError, "tensor has"):
                self.codec.encode(wrong)
        with self.assertRaisesRegex(ValueError, "residual has 99"):
            self.codec.encode(floats, torch.zeros(99))
        with unittest.mock.patch.object(gpu, "make_pinned", lambda numel, dtype: torch.empty(numel, dtype=dtype)):
            buffer = gpu_codec.EncodeBuffer(99, CPU)
        with self.assertRaisesRegex(ValueError, "buffer has .*100 floats need"):
            self.codec.encode(floats, buffer=buffer)
        with self.assertRaisesRegex(ValueError, "multiple of 8"):
            self.codec.decode(torch.zeros(100, dtype=torch.uint8)[1:], floats)
        for bits in (0, 31):
            with self.assertRaisesRegex(ValueError, "1 to 30"):
                gpu_codec.GpuCodec(bits, CPU)
        self.codec.check()
        self.codec.fault.fill_(1)
        with self.assertRaisesRegex(ValueError, "malformed"):
            self.codec.check()
        self.codec.check()


class Wanted(unittest.TestCase):
    def test_words(self):
        for word, expected in (("", False), ("0", False), ("1", True)):
            with unittest.mock.patch.dict(os.environ, {"GRADLANE_GPU_CODEC": word}):
                self.assertEqual(gpu_sum.is_wanted(), expected)
        with unittest.mock.patch.dict(os.environ, {"GRADLANE_GPU_CODEC": "true"}), \
                self.assertRaisesRegex(gradlane.BadArgument, "GRADLANE_GPU_CODEC is 'true'; allowed: 0 and 1"):
            gpu_sum.is_wanted()


class Driver:
    """Stands in for NVIDIA's driver."""

    def __init__(self, failing=""):
        self.calls, self.launched, self.failing = [], [], failing

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            if name == "cuLaunchKernel":  # the kernel's arguments exist during the call only
                self.launched += [ctypes.cast(each, ctypes.POINTER(ctypes.c_uint32))[0] for each in arguments[9]]
            return int(name == self.failing)
        return call


class Launching(unittest.TestCase):
    def kernels(self, driver):
        with unittest.mock.patch.object(gpu_kernels, "_driver", lambda: driver), \
                unittest.mock.patch.object(gpu_kernels, "compiled", lambda source, architecture: b"image"), \
                unittest.mock.patch.object(torch.cuda, "get_device_capability", lambda device: (9, 0)):
            return gpu_kernels.Kernels("fixed.cu", torch.device("cuda:0"))

    def test_launch(self):
        """cuLaunchKernel() gets what its signature says, in the context of the device."""
        driver = Driver()
        stream = types.SimpleNamespace(cuda_stream=5)
        with unittest.mock.patch.object(torch.cuda, "current_stream", lambda device: stream):
            self.kernels(driver).launch("k", 3, ctypes.c_void_p(7), ctypes.c_uint32(8))
        self.assertEqual([name for name, _ in driver.calls][-3:],
                         ["cuCtxPushCurrent_v2", "cuLaunchKernel", "cuCtxPopCurrent_v2"])
        arguments = driver.calls[-2][1]
        self.assertEqual(len(arguments), 11)
        self.assertEqual([each.value for each in arguments[1:9]], [3, 1, 1, gpu_kernels.THREADS, 1, 1, 0, 5])
        self.assertEqual(driver.launched, [7, 8])

    def test_failures(self):
        driver = Driver("cuModuleLoadData")
        with self.assertRaisesRegex(gpu_kernels.NoKernels, "cuModuleLoadData.* status 1"):
            self.kernels(driver)
        self.assertEqual(driver.calls[-1][0], "cuDevicePrimaryCtxRelease_v2")
        with self.assertRaisesRegex(gpu_kernels.NoKernels, "cuLaunchKernel"), \
                unittest.mock.patch.object(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=5)):
            self.kernels(Driver("cuLaunchKernel")).launch("k", 1)


class Compiling(unittest.TestCase):
    def test_old_gpu(self):
        with self.assertRaisesRegex(gpu_kernels.NoKernels, "capability 6.1, and the kernels need 7.0"):
            gpu_kernels.compiled("fixed.cu", 61)

    def test_kept_images(self):
        """An image is compiled once, and again in each process if there is no folder for it."""
        images = iter([b"first", b"second", b"third"])
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.multiple(
                gpu_kernels, _nvrtc=lambda: None, _architectures=lambda library: [90], _hash=lambda library: "hash",
                _compile=lambda *_: next(images)):
            for name, expected in (("there", b"first"), ("there", b"first"), ("there/fixed.cu", b"second")):
                path = pathlib.Path(folder, name)
                if path.name == "fixed.cu":
                    path.write_text("a file where the folder would be")
                with unittest.mock.patch.dict(os.environ, {"TORCH_EXTENSIONS_DIR": str(path)}):
                    self.assertEqual(gpu_kernels.compiled("fixed.cu", 90), expected)
            kept, = pathlib.Path(folder, "there/gradlane-kernels").iterdir()
            self.assertEqual(kept.stat().st_mode & 0o777, 0o644)

    def test_without_nvrtc(self):
        gpu_kernels._nvrtc.cache_clear()
        with unittest.mock.patch.object(gpu_kernels, "_paths", lambda: ["libnone.so"]):
            with self.assertRaisesRegex(gpu_kernels.NoKernels, "libnone.so.*Install PyTorch's CUDA build"):
                gpu_kernels.compiled("fixed.cu", 90)

    def test_without_driver(self):
        with unittest.mock.patch.object(ctypes, "CDLL", unittest.mock.Mock(side_effect=OSError("no such file"))):
            with self.assertRaisesRegex(gpu_kernels.NoKernels, "no such file.*Install the driver"):
                gpu_kernels.Kernels("fixed.cu", torch.device("cuda:0"))
        broken = types.SimpleNamespace(cuInit=lambda flags: 100)
        with unittest.mock.patch.object(ctypes, "CDLL", lambda name: broken):
            with self.assertRaisesRegex(gpu_kernels.NoKernels, "status 100.*nvidia-smi"):
                gpu_kernels.Kernels("fixed.cu", torch.device("cuda:0"))

    def test_nvrtc(self):
        """NVRTC needs no GPU. It compiles once, and for a newer GPU it gives PTX."""
        gpu_kernels._nvrtc.cache_clear()
        try:
            library = gpu_kernels._nvrtc()
        except gpu_kernels.NoKernels as reason:
            self.skipTest(str(reason))
        newest = gpu_kernels._architectures(library)[-1]
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.dict(os.environ, {"TORCH_EXTENSIONS_DIR": folder}):
            for source, architecture in (("fixed.cu", 75), ("votes.cu", 75), ("fixed.cu", 80), ("fixed.cu", 90),
                                         ("votes.cu", 90), ("fixed.cu", newest + 1)):
                image = gpu_kernels.compiled(source, architecture)
                self.assertIn(f"gradlane_{source[:-3]}_encode".encode(), image)
                self.assertEqual(image.startswith(b"\x7fELF"), architecture <= newest)
                with unittest.mock.patch.object(gpu_kernels, "_compile", None):
                    self.assertEqual(gpu_kernels.compiled(source, architecture), image)
            older = gpu_kernels._architectures(library)[0] - 1
            with unittest.mock.patch.object(gpu_kernels, "_LEAST_ARCHITECTURE", 0), \
                    self.assertRaisesRegex(gpu_kernels.NoKernels, "compute capabilities"):
                gpu_kernels.compiled("fixed.cu", older)


if __name__ == "__main__":
    unittest.main()
