#!/usr/bin/python3
"""Tests of pyproject.toml and of pip's build backend, packaging/wheel/backend.py, without a build."""

import ast
import base64
import hashlib
import os
import pathlib
import re
import sys
import tempfile
import tomllib
import types
import unittest
import unittest.mock
import zipfile

from tests.scripts.fixtures.paths import ROOT

PACKAGE = ROOT / "client" / "python"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ABOUT = "gradlane-0.1.0.dist-info"
MADE = {"gradlane/__init__.py": b"", "gradlane/bin/true": pathlib.Path("/bin/true").read_bytes(),
        f"{ABOUT}/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n", f"{ABOUT}/RECORD": b"of another wheel"}

mesonpy = types.ModuleType("mesonpy")  # which pip installs for the build alone
sys.modules["mesonpy"] = mesonpy
sys.path.insert(0, str(ROOT / PROJECT["build-system"]["backend-path"][0]))
import backend  # noqa: E402 - with the mesonpy above


class Metadata(unittest.TestCase):
    def test_all_files_are_installed(self):
        listed = "".join((ROOT / name).read_text() for name in ("client/meson.build", "packaging/wheel/meson.build"))
        for path in PACKAGE.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.is_symlink():
                self.assertIn(f"python/{path.relative_to(PACKAGE)}'", listed)

    def test_entry_points(self):
        points = PROJECT["project"]["entry-points"]["torch.backends"]
        for place in [*PROJECT["project"]["scripts"].values(), *points.values()]:
            module, function = place.split(":")
            tree = ast.parse((PACKAGE / f"{module}.py").read_text())
            self.assertIn(function, [it.name for it in tree.body if isinstance(it, ast.FunctionDef)])

    def test_no_pytorch_for_the_build(self):
        self.assertEqual([re.split("[ <>=]", it)[0] for it in PROJECT["build-system"]["requires"]], ["meson-python"])
        self.assertEqual(PROJECT["build-system"]["build-backend"], "backend")
        self.assertEqual(PROJECT["tool"]["meson-python"]["args"]["compile"][-len(backend.TARGETS):],
                         list(backend.TARGETS))


class Backend(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="gradlane-wheel-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def build(self, made, **settings):
        """Returns the path of a wheel from `made`, which mesonpy has packed."""
        def build_wheel(folder, used):
            self.assertEqual(used, {"build-dir": "build-static"})
            path = pathlib.Path(folder, "gradlane-0.1.0-cp311-cp311-linux_x86_64.whl")
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in made.items():
                    archive.writestr(name, data)
            return path.name

        mesonpy.build_wheel = build_wheel
        with unittest.mock.patch.object(backend, "licences", lambda build: [("licenses/LICENSE", b"yes")]):
            name = backend.build_wheel(str(self.folder), settings)
        self.assertEqual([path.name for path in self.folder.iterdir()], [name])
        return self.folder / name

    def test_names_the_glibc_and_no_python(self):
        wheel = self.build(MADE)
        self.assertRegex(wheel.name, r"^gradlane-0\.1\.0-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl$")
        with zipfile.ZipFile(wheel) as archive:
            self.assertIn(f"\nTag: {wheel.stem.removeprefix('gradlane-0.1.0-')}\n", archive.read(f"{ABOUT}/WHEEL").decode())
            modes = {it.filename: it.external_attr >> 16 & 0o777 for it in archive.infolist()}
        self.assertEqual(modes, {**dict.fromkeys([*MADE, f"{ABOUT}/licenses/LICENSE"], 0o644), "gradlane/bin/true": 0o755})
        needs = b"\x7fELF\0GLIBC_2.4\0GLIBC_2.38\0GLIBC_2.2.5\0GLIBC_PRIVATE\0"
        self.assertEqual(backend.glibc({"program": needs, "text": b"\0GLIBC_2.99\0"}), "2_38")

    def test_lists_its_files(self):
        with zipfile.ZipFile(self.build(MADE)) as archive:
            listed = dict(line.split(",", 1) for line in archive.read(f"{ABOUT}/RECORD").decode().splitlines())
            self.assertEqual(set(listed), set(archive.namelist()))
            for name, rest in listed.items():
                data = archive.read(name)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
                self.assertEqual(rest, "," if name.endswith("RECORD") else f"sha256={digest},{len(data)}")

    def test_is_the_same_again(self):
        first = self.build(MADE).read_bytes()
        self.assertEqual(self.build(dict(reversed(MADE.items()))).read_bytes(), first)

    def test_builds_elsewhere_if_the_tree_is_read_only(self):
        with unittest.mock.patch.object(backend.os, "access", lambda path, mode: False), backend.build_folder() as folder:
            self.assertTrue(pathlib.Path(folder).is_dir())
            self.assertFalse(pathlib.Path(folder).is_relative_to(ROOT))
        self.assertFalse(pathlib.Path(folder).exists())

    def test_contains_the_part_for_pytorch(self):
        with unittest.mock.patch.object(backend, "native", lambda python: {f"native/{python}": b""}):
            with zipfile.ZipFile(self.build(MADE, torch=":one:two")) as archive:
                self.assertLess({"native/one", "native/two"}, set(archive.namelist()))

    def test_says_what_is_missing(self):
        def build_wheel(folder, settings):
            raise SystemExit(1)

        mesonpy.build_wheel = build_wheel
        with unittest.mock.patch.dict(os.environ, {"DPKG_ADMINDIR": str(self.folder)}):
            with self.assertRaises(SystemExit) as caught:
                backend.build_wheel(str(self.folder))
        self.assertRegex(caught.exception.code, "^gradlane cannot be built: these packages are missing: gcc .*libdpdk-dev "
                         ".*; 'sudo tools/setup.sh' installs them on Debian 12$")
        self.assertNotIn("\n", caught.exception.code)


if __name__ == "__main__":
    unittest.main(verbosity=2)
