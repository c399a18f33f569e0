#!/usr/bin/python3
"""Runs several test modules of this folder in one process: all_tests.py MODULE[.CLASS]...

All modules share one connection on a ring. If a rank closed its own, the operations of other ranks would fail, and all
ranks would have to agree on when to open the next one. All ranks run the same tests in the same order, so that their
operations match. With the fake daemon, a world of one, each module opens and closes its own connection.
"""

import importlib
import os
import sys
import unittest

import gradlane


def share_connection(modules):
    """Open the connection that all modules have as `gl`, and disable their set-up and tear-down."""
    gl = gradlane.open()
    for module in modules:
        module.gl = gl
        module.setUpModule = module.tearDownModule = lambda: None
    return gl


def main():
    names = sys.argv[1:]
    modules = [importlib.import_module(name.partition(".")[0]) for name in names]
    gl = None if "GRADLANE_FAKE_PID" in os.environ else share_connection(modules)
    tests = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(verbosity=2, failfast=True).run(tests)
    if gl is not None:
        gl.close()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
