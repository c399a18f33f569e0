#!/usr/bin/python3
"""Tests of how gradlane.torch builds its C++ extension, with fake compilers that only log that they were called."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import re
import tempfile
import unittest
import unittest.mock

import torch

from gradlane.torch import extension

# This compiler waits until all processes want the extension.
WORKING = """#!/bin/sh
echo called >> {scratch}/log
while [ $(ls {scratch} | grep -c come) -lt {processes} ]; do sleep 0.01; done
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""
FAILING = """#!/bin/sh
echo called >> {scratch}/log
while [ $(ls {scratch} | grep -c come) -lt {processes} ]; do sleep 0.01; done
echo "In file included from nowhere:" >&2
echo "extension.cc:1: fatal error: torch/extension.h: No such file" >&2
exit 1
"""
PROCESSES = 4


def built(folder):
    """Returns the path of the extension, or the error after "not: "."""
    try:
        return str(extension.build(pathlib.Path(folder)))
    except extension.CannotBuild as reason:
        return f"not: {reason}"


def built_beside_others(folder, scratch):
    """Builds in a process of its own. The process creates a file "come PID" just before it waits for the lock of the
    build folder."""
    locked = extension._locked

    def come(path):
        (scratch / f"come {os.getpid()}").touch()
        return locked(path)

    with unittest.mock.patch.object(extension, "_locked", come):
        return built(folder)


class Extension(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="gradlane-extension-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.log = self.scratch / "log"
        self.place = self.scratch / "cache" / "here"

    def compiler(self, text, processes=0):
        path = self.scratch / "compiler"
        path.write_text(text.format(scratch=self.scratch, processes=processes))
        path.chmod(0o755)
        return {"CXX": str(path)}

    def together(self):
        with concurrent.futures.ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("fork")) as pool:
            return [each.result() for each in
                    [pool.submit(built_beside_others, self.place, self.scratch) for _ in range(PROCESSES)]]

    def test_one_builds_for_all(self):
        with unittest.mock.patch.dict(os.environ, self.compiler(WORKING, PROCESSES)):
            self.assertEqual(self.together(), [str(self.place / "gradlane_native.so")] * PROCESSES)
            self.assertEqual(built(self.place), str(self.place / "gradlane_native.so"))
        self.assertEqual(self.log.read_text(), "called\n")
        self.assertEqual((self.place / "gradlane_native.so").read_text(), "library\n")

    def test_one_fails_for_all(self):
        with unittest.mock.patch.dict(os.environ, self.compiler(FAILING, PROCESSES)):
            for answer in self.together():
                self.assertRegex(answer, r"^not: .*compiler: In file .*\n +extension.cc:1: fatal error: torch/extension.h: No such")
            self.assertEqual(self.log.read_text(), "called\n")
        with unittest.mock.patch.dict(os.environ, self.compiler(WORKING)):  # the next job tries again
            self.assertEqual(built(self.place), str(self.place / "gradlane_native.so"))

    def test_no_compiler(self):
        with unittest.mock.patch.dict(os.environ, {"CXX": "", "PATH": str(self.scratch)}):
            self.assertRegex(built(self.place), "^not: there is no C.. compiler")
        with unittest.mock.patch.dict(os.environ, {"CXX": "/no/such/compiler"}):
            self.assertEqual(built(self.place), "not: /no/such/compiler: No such file or directory")

    def test_error(self):
        """The error is one line that says what to install. The build is not tried a second time."""
        with unittest.mock.patch.dict(os.environ, {"CXX": "/no/such/compiler", "TORCH_EXTENSIONS_DIR": str(self.scratch)}):
            outcome = extension._outcome.__wrapped__()
        with unittest.mock.patch.object(extension, "_outcome", lambda: outcome):
            with self.assertRaises(extension.CannotBuild) as caught:
                extension.load()
        self.assertRegex(str(caught.exception), f"^gradlane: no backend for PyTorch {re.escape(torch.__version__)}: "
                         r"/no/such/compiler: No such file or directory. init_process_group\(.gradlane.\) needs .* compiled once, in about 30 s, in "
                         rf"{re.escape(str(self.scratch))}/\S+\. Without it, gradlane.open\(\) works, .*: apt install g\+\+ python3-dev, and for "
                         "Debian's own PyTorch libtorch-dev pybind11-dev$")
        self.assertNotIn("\n", str(caught.exception))

    def test_where_it_lies(self):
        with unittest.mock.patch.dict(os.environ, {"TORCH_EXTENSIONS_DIR": "/one", "XDG_CACHE_HOME": "/two"}):
            first = extension.folder()
            self.assertEqual(str(first.parent), "/one")
            with unittest.mock.patch.object(torch, "__version__", "2.99.0+cu999"):
                self.assertIn("torch2.99.0+cu999", extension.folder().name)
            with unittest.mock.patch.object(torch, "compiled_with_cxx11_abi", lambda abi=torch.compiled_with_cxx11_abi(): not abi):
                self.assertNotEqual(extension.folder(), first)
            sources = self.scratch / "native"
            sources.mkdir()
            (sources / "extension.cc").write_text("// another")
            with unittest.mock.patch.object(extension, "_SOURCES", sources):
                self.assertNotEqual(extension.folder(), first)
            os.environ.pop("TORCH_EXTENSIONS_DIR")
            self.assertEqual(str(extension.folder().parent), "/two/torch_extensions")

    def test_brought_by_a_wheel(self):
        """A wheel's extension serves all builds of a PyTorch release. If it cannot be loaded, the extension is built.
        """
        sources = self.scratch / "native"
        sources.mkdir()
        (sources / "extension.cc").write_text("// of the wheel")
        environment = {**self.compiler(WORKING), "TORCH_EXTENSIONS_DIR": str(self.scratch / "cache")}
        with unittest.mock.patch.dict(os.environ, environment), \
                unittest.mock.patch.object(extension, "_SOURCES", sources), \
                unittest.mock.patch.object(torch, "__version__", "2.13.0+cu130"), \
                unittest.mock.patch.object(extension, "_say") as say:
            place = extension.prebuilt_path()
            self.assertIn("torch2.13.0-", str(place))
            place.parent.mkdir(parents=True)
            place.write_text("not for this machine")
            with unittest.mock.patch.object(extension, "_module", lambda path: path):
                self.assertEqual(extension._outcome.__wrapped__(), place)
            self.assertFalse(self.log.exists())
            # the fake compiler has built no library
            self.assertIsInstance(extension._outcome.__wrapped__(), extension.CannotBuild)
            self.assertEqual(self.log.read_text(), "called\n")
            self.assertRegex(say.call_args_list[0][0][0], "cannot load .*compiling it")
            (sources / "extension.cc").write_text("// later")
            self.assertNotEqual(extension.prebuilt_path(), place)

    def test_sources_are_installed(self):
        root = pathlib.Path(extension.__file__).parents[4]
        listed = (root / "client" / "meson.build").read_text()
        for source in extension._SOURCES.iterdir():
            path = source.name if source.is_symlink() else f"python/gradlane/torch/native/{source.name}"
            self.assertIn(f"'{path}'", listed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
