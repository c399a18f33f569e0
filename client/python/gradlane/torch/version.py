"""Check of the version of PyTorch. It is imported before all modules that use PyTorch."""

from __future__ import annotations

import re

import torch

OLDEST = (2, 6)  # the version in Debian 13


def check(found: str, place: str) -> None:
    """Raises ImportError, in one line, if the PyTorch `found` at `place` is too old."""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"gradlane.torch needs PyTorch {oldest} or later, and {place} is PyTorch {found}; for CPUs: python3 -m "
            "venv --system-site-packages ~/gradlane-torch && ~/gradlane-torch/bin/pip install --index-url "
            f"https://download.pytorch.org/whl/cpu 'torch>={oldest}', then run ~/gradlane-torch/bin/python3"
        )


check(torch.__version__, torch.__path__[0])
