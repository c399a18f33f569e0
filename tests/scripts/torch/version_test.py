#!/usr/bin/env python3
"""Tests of importing gradlane.torch with other versions of PyTorch. These are fake modules with nothing but a version.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest


class Versions(unittest.TestCase):
    def imported(self, version):
        """Returns the last line of Python's error."""
        with tempfile.TemporaryDirectory(prefix="gradlane-version-") as folder:
            module = pathlib.Path(folder) / "torch" / "__init__.py"
            module.parent.mkdir()
            module.write_text(f"__version__ = '{version}'\n")
            run = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r}); import gradlane.torch"],
                                 capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 1, run)
            return run.stderr.splitlines()[-1].replace(folder, "FOLDER")

    def test_too_old(self):
        for version in ("1.13.0", "1.13.0a0", "2.5.1+cpu"):
            self.assertEqual(
                self.imported(version),
                f"ImportError: gradlane.torch needs PyTorch 2.6 or later, and FOLDER/torch is PyTorch {version}; for CPUs: "
                "python3 -m venv --system-site-packages ~/gradlane-torch && ~/gradlane-torch/bin/pip install --index-url "
                "https://download.pytorch.org/whl/cpu 'torch>=2.6', then run ~/gradlane-torch/bin/python3")

    def test_new_enough(self):
        for version in ("2.6.0", "2.13.0+cpu", "3.0.0a1"):
            self.assertIn("No module named 'torch.distributed'", self.imported(version))


if __name__ == "__main__":
    unittest.main(verbosity=2)
