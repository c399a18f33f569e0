#!/usr/bin/python3
"""Measures a point of the experiment `exchanges`, for a short time. Every method must finish and be right; times are not
checked.

exchanges_test.py GRADLANE: needs PyTorch, mpirun and mpi4py; without them it is skipped (exit status 77).
"""

import pathlib
import shutil
import subprocess
import sys
import unittest
import unittest.mock

from lab.exchanges import experiment, setups
from lab.results import reproduce
from tests.scripts.fixtures import networks

SKIPPED = 77


class Options:
    gradlane = ""


class Runs(unittest.TestCase):
    def test_every_method_has_times(self):
        context = reproduce.Context(pathlib.Path(Options.gradlane), shutil.which("python3"))
        batch = next(each for each in experiment.batches({}) if each.keys == ("2 ranks, 64 KiB",))
        with unittest.mock.patch.object(experiment, "SECONDS", 0.1):
            (key, values, _), = experiment.measure(batch, context)
        self.assertEqual(key, "2 ranks, 64 KiB")
        self.assertEqual(set(values), set(setups.METHODS))
        for method, us in values.items():
            self.assertEqual(len(us) % setups.ROUNDS, 0, method)
            self.assertGreater(min(us), 0, method)

    def test_a_run_that_fails_is_no_result(self):
        context = reproduce.Context(pathlib.Path("/bin/false"), shutil.which("python3"))
        with self.assertRaisesRegex(RuntimeError, "status 1"):
            list(experiment.measure(experiment.batches({})[0], context))


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def main():
    lacks = [name for name, there in (("PyTorch", has("python3", "torch")), ("mpirun", shutil.which("mpirun")),
                                      ("mpi4py", has(experiment.PYTHON, "mpi4py"))) if not there]
    if lacks:
        print(f"needs {', '.join(lacks)}; " + ("CI is set, where this must not be left out" if networks.in_ci() else
                                               "skipped"))
        return 1 if networks.in_ci() else SKIPPED
    Options.gradlane = sys.argv[1]
    return unittest.main(argv=sys.argv[:1], verbosity=2)


if __name__ == "__main__":
    sys.exit(main())
