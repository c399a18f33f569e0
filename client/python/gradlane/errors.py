"""Exceptions that gradlane raises, with their codes and causes."""

from __future__ import annotations

import enum
from typing import Any


class Code(enum.IntEnum):
    """Code with which a call of the library has ended; `code` of every gradlane.Error is one of these.

    They are the numbers of gradlane_code in gradlane.h, and are printed by their names:

    OK (0), PENDING (1): no errors. BAD_ARGUMENT (-1): BadArgument; nothing has happened. NO_DAEMON (-2): NoDaemon;
    cannot connect, or the daemon refused. DAEMON_GONE (-3): DaemonGone; it ended or cut the connection. FAILED (-4):
    OperationFailed, on all ranks. NO_MEMORY (-5): OutOfMemory. TOO_MANY (-6): TooManyRequests; no longer happens.
    VERSION (-7): NoDaemon; daemon and library, or library and package, are of different versions.
    """

    OK = 0
    PENDING = 1
    BAD_ARGUMENT = -1
    NO_DAEMON = -2
    DAEMON_GONE = -3
    FAILED = -4
    NO_MEMORY = -5
    TOO_MANY = -6
    VERSION = -7

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else self.name

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return type(self), (int(self),)

    @classmethod
    def _missing_(cls, value: object) -> Code | None:
        """Returns a member for a number without a name here, which a library newer than this package may have."""
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"UNKNOWN_{abs(value)}", value
        return member


class Cause(enum.IntEnum):
    """Cause of an operation's failure: gradlane_cause in gradlane.h, which explains each."""

    NONE = 0
    SILENT = 1
    RESTARTED = 2
    CONFIGURED = 3
    MISMATCH = 4
    TAG = 5
    CANCELLED = 6
    NO_RING = 7
    TIMEOUT = 8
    NODE_LEFT = 9
    DUPLICATE = 10
    TRAINER_GONE = 11
    RESUMED = 12
    OTHER = 13
    WRONG = 14

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else self.name

    @classmethod
    def _missing_(cls, value: object) -> Cause | None:
        """Returns OTHER for a number without a name here, which a library newer than this package may have."""
        return cls.OTHER if isinstance(value, int) else None


class Error(RuntimeError):
    """Anything that gradlane reports. `code` is a gradlane.Code, and the text says what was wrong.

    (With a library newer than this package, `code` may be a number that has no name here: UNKNOWN_99.) `cause` is the
    gradlane.Cause of an OperationFailed.
    """

    code: Code
    cause: Cause

    def __init__(self, code: int, text: str, cause: int = Cause.NONE) -> None:
        super().__init__(text)
        self.code = Code(code)
        self.cause = Cause(cause)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, str(self), self.cause)


class BadArgument(Error, ValueError):
    """An argument is wrong, and nothing has happened. The text names the value and what is allowed."""


class NoDaemon(Error, ConnectionError):
    """The daemon cannot be reached, has refused the connection, or speaks another version.

    refused_by: (socket, ranks of its ring) of the daemon that has refused the rank. None if none has, or it does not
    say.
    """

    refused_by: tuple[str, int] | None = None


class DaemonGone(Error, ConnectionError):
    """The daemon has ended or cut the connection. All requests fail; open a new context."""


class OperationFailed(Error):
    """The operation failed, on all ranks. Data is undefined, and a residual is zeros or unchanged. See docs/client.md.
    """


class OutOfMemory(Error, MemoryError):
    """The daemon's memory limit for a trainer is reached, or the machine's memory is used up."""


class TooManyRequests(Error):
    """Not raised any more: requests that the daemon cannot accept yet wait in the library."""


class LossWarning(UserWarning):
    """A codec loses much of what this rank gives to sums, without error feedback, so a training may stop improving."""


_CLASSES: dict[int, type[Error]] = {
    Code.BAD_ARGUMENT: BadArgument,
    Code.NO_DAEMON: NoDaemon,
    Code.DAEMON_GONE: DaemonGone,
    Code.FAILED: OperationFailed,
    Code.NO_MEMORY: OutOfMemory,
    Code.TOO_MANY: TooManyRequests,
    Code.VERSION: NoDaemon,
}


# Each call uses these. A lookup as an attribute of the enum would take five times as long.
OK, PENDING = Code.OK, Code.PENDING


def error(code: int, text: str, cause: int = Cause.NONE) -> Error:
    """Returns the exception for a code of the library. cause: cause of a failed operation."""
    return _CLASSES.get(code, Error)(code, text, cause if code == Code.FAILED else Cause.NONE)


def bad_argument(text: str) -> BadArgument:
    """Returns the exception for an argument that this package refuses without asking the library."""
    return BadArgument(Code.BAD_ARGUMENT, text)


def daemon_gone(text: str) -> DaemonGone:
    """Returns the exception for a call that needs a connection when there is none."""
    return DaemonGone(Code.DAEMON_GONE, text)
