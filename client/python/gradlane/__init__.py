"""gradlane: collectives over NumPy arrays that are shared with the gradlane daemon of this node.

    import gradlane

    with gradlane.open() as gl:
        gradients = gl.zeros(1000000)             # float32, in shared memory
        gradients[:] = gl.rank
        gl.all_reduce(gradients, average=True)

See docs/client.md of gradlane.
"""

from .adaptive import AdaptiveBound
from ._codecs import Codec
from ._context import Context, Figures, open  # noqa: A004
from ._encoded import Encoded
from .errors import (
    BadArgument,
    Cause,
    Code,
    DaemonGone,
    Error,
    LossWarning,
    NoDaemon,
    OperationFailed,
    OutOfMemory,
    TooManyRequests,
)
from ._library import Capability
from ._requests import Request

__all__ = [
    "AdaptiveBound",
    "BadArgument",
    "Capability",
    "Cause",
    "Code",
    "Codec",
    "Context",
    "DaemonGone",
    "Encoded",
    "Error",
    "Figures",
    "LossWarning",
    "NoDaemon",
    "OperationFailed",
    "OutOfMemory",
    "Request",
    "TooManyRequests",
    "open",
]

for _name in __all__:  # tracebacks and help() show names that users can write
    globals()[_name].__module__ = __name__
del _name
