"""Entry point "torch.backends", which `import torch` calls from 2.5 on.

So init_process_group("gradlane") needs no import of gradlane.torch. This module is outside the package, because nothing
here may raise an exception: `import torch` would fail.
"""


def register() -> None:
    """Registers the backend, if that is possible."""
    try:
        import gradlane.torch  # noqa: F401
    except Exception:  # users of the backend see the error when they import gradlane.torch themselves
        pass
