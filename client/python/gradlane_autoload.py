"""Called by `import torch` from 2.5 on (entry point "torch.backends"), so that init_process_group("gradlane") needs no
import of gradlane.torch. It is outside of the package, as nothing here may raise: `import torch` would."""


def register() -> None:
    """Makes the backend known, if that can be."""
    try:
        import gradlane.torch  # noqa: F401
    except Exception:  # who names the backend will hear of it from an import of their own
        pass
