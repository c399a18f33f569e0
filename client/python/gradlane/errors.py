"""What can go wrong, as exceptions."""


class Error(RuntimeError):
    """Anything that gradlane reports. `code` is the gradlane_code of gradlane.h, the text says what was wrong."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class BadArgument(Error, ValueError):
    """Nothing has happened: the text names the value and what is allowed."""


class NoDaemon(Error, ConnectionError):
    """Cannot connect, or the daemon refused; also if it speaks another version."""


class DaemonGone(Error, ConnectionError):
    """The daemon has ended or cut the connection. All requests fail; open a new context."""


class OperationFailed(Error):
    """The operation failed, on all ranks; data is undefined, a residual is zeros. See docs/client.md on going on."""


class OutOfMemory(Error, MemoryError):
    """The daemon's limit for a trainer, or the machine's."""


class TooManyRequests(Error):
    """Of older versions: now any number of requests may be unfinished."""


OK = 0
PENDING = 1
BAD_ARGUMENT = -1
FAILED = -4
TOO_MANY = -6

_CLASSES = {
    BAD_ARGUMENT: BadArgument,
    -2: NoDaemon,
    -3: DaemonGone,
    FAILED: OperationFailed,
    -5: OutOfMemory,
    TOO_MANY: TooManyRequests,
    -7: NoDaemon,
}


def error(code, text):
    """The exception for a code of the library."""
    return _CLASSES.get(code, Error)(code, text)


def bad_argument(text):
    """For what this package refuses by itself."""
    return BadArgument(BAD_ARGUMENT, text)
