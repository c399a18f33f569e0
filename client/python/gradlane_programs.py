"""Commands `gradlane` and `gradlaned` of a wheel, which has the programs in its package.

This module is outside the package, because the package would import NumPy before a program starts.
"""

import importlib.util
import os
import pathlib
import sys
from typing import NoReturn


def gradlane() -> NoReturn:
    """Replaces this process with the command-line program."""
    _become("gradlane")


def gradlaned() -> NoReturn:
    """Replaces this process with the daemon."""
    _become("gradlaned")


def _become(name: str) -> NoReturn:
    package = importlib.util.find_spec("gradlane")  # does not import it
    if package is None or package.origin is None:
        sys.exit(f"{name}: the package gradlane is not installed")
    program = pathlib.Path(package.origin).parent / "bin" / name
    os.environ.setdefault("GRADLANE_PYTHON", sys.executable)  # for plan --calibrate: it need not be in PATH
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as reason:
        sys.exit(f"{name}: {program}: {reason.strerror}")
